"""The dashboard in a real browser: served and opened from disk, every view, quiet and usable."""

from __future__ import annotations

import itertools
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import pytest

from etprof.analysis.assessment import assess_runs
from etprof.dashboard.addresses import file_name, make_address
from etprof.dashboard.export import export_site
from etprof.dashboard.queries import list_series
from etprof.dashboard.visit import Catalogue
from etprof.history.store import open_store
from etprof.run.load import Run
from etprof.views.formats.html import render_html
from tests.browser.pages import DESKTOP, Opened, find_accessibility_problems
from tests.dashboard_server import serving
from tests.known_history import (
    FAILING,
    HOSTILE,
    HOSTILE_BRANCH,
    HOSTILE_DEVICE,
    HOSTILE_FAILURE,
    HOSTILE_PRECISION,
    IMPROVED,
    REGRESSED,
    KnownHistory,
    fill,
)
from tests.known_runs import on_off_run, write_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

    from etprof.dashboard.addresses import Address

pytestmark = pytest.mark.browser

COMMITS = 18
"""Enough that the change point is told in every series, whichever way its noise fell."""
KNOWN = KnownHistory(
    commits=COMMITS, devices=("Phone A",), precisions=("fp32", "int8"), hostile=True, emulated=True,
    branches=("main", "main", "wip/faster-conv"),
)  # fmt: skip


@dataclass(frozen=True)
class Sites:
    """One history, once behind a server and once as files."""

    served: str
    exported: Path
    configs: dict[tuple[str, str, str], str]
    """Configuration by model, precision and device."""
    newest: dict[tuple[str, str, str, str], int]
    """Newest run by model, precision, device and SME mode."""
    keys: dict[str, str]
    """What links call a run, by its number."""

    def config(self, model: str, precision: str = "fp32", device: str = "Phone A") -> str:
        return self.configs[model, precision, device]

    def run(self, model: str, precision: str, device: str, sme: str) -> str:
        return str(self.newest[model, precision, device, sme])

    def url(self, kind: str, address: Address) -> str:
        query = "&".join(f"{name}={value}" for name, value in address.values.items())
        if kind == "served":
            return f"{self.served}{address.view}?{query}"
        filters = "&".join(f"{name}={value}" for name, value in address.filters.items())
        # Files are named as links are: by what stays of a run.
        named = {name: self.keys.get(value, value) for name, value in address.values.items()}
        address = make_address(address.view, named)
        return f"{(self.exported / file_name(address)).as_uri()}?{filters}"


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sites]:
    folder = tmp_path_factory.mktemp("dashboard")
    run = write_run(folder / "run", on_off_run())
    (run / "report.html").write_text(render_html(assess_runs([Run.load(run)])))
    store = open_store(folder / "history.sqlite")
    fill(store, KnownHistory(**{**KNOWN.__dict__, "run_path": str(run)}))
    export_site(store, folder / "site")
    with store.session() as session:
        series = list_series(session)
        catalogue = Catalogue(session)
        keys = {str(s.run.id): catalogue.link_of(s.run.id) for s in series}
    runs = [s.run for s in series]
    configs = {(s.run.model, s.run.precision or "", s.run.device): s.config for s in series}
    newest = {(r.model, r.precision or "", r.device, r.sme_mode): r.id for r in runs}
    with serving(store) as server:
        yield Sites(server.url, folder / "site", configs, newest, keys)


def visit(
    browser: Browser,
    sites: Sites,
    kind: str,
    address: Address,
    *,
    size: dict[str, int] = DESKTOP,
    scheme: str = "light",
) -> Opened:
    own = (sites.served, "data:") if kind == "served" else ("file:", "data:")
    return Opened(browser, sites.url(kind, address), size, scheme, own)


def addresses(sites: Sites) -> dict[str, Address]:
    """One page of every view; some with what is awkward."""
    off, on = (sites.run(REGRESSED, "fp32", "Phone A", sme) for sme in ("off", "sme2"))
    return {
        "overview": make_address("overview", {}),
        "trend": make_address("trend", {"config": sites.config(IMPROVED)}),
        "sides": make_address("sides", {"model": REGRESSED}),
        "models": make_address("models", {}),
        "run": make_address("run", {"id": on}),
        "compare": make_address("compare", {"baseline": off, "candidate": on}),
        "failures": make_address("failures", {}),
        "hostile trend": make_address(
            "trend", {"config": sites.config(HOSTILE, HOSTILE_PRECISION, HOSTILE_DEVICE)}
        ),
        "failed run": make_address("run", {"id": sites.run(FAILING, "int8", "Phone A", "off")}),
    }


CUT_TABLES = """[...document.querySelectorAll(".scroll")]
    .filter((box) => box.scrollWidth > box.clientWidth + 1)
    .map((box) => box.getAttribute("aria-label"))"""
VIEWS = (
    "overview", "trend", "sides", "models", "run", "compare", "failures", "hostile trend",
    "failed run",
)  # fmt: skip


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize(
    "screen",
    [("served", 1400, "light"), ("exported", 800, "light"), ("exported", 390, "dark")],
    ids=str,
)
def test_page_is_quiet_offline_and_accessible(
    browser: Browser, sites: Sites, name: str, screen: tuple[str, int, str]
) -> None:
    kind, width, scheme = screen
    size = {"width": width, "height": 900}
    opened = visit(browser, sites, kind, addresses(sites)[name], size=size, scheme=scheme)
    page = opened.page
    # THEN nothing was loaded from elsewhere, nothing was complained about, nothing ran
    assert opened.complaints == []
    # THEN the page itself never scrolls sideways; wide tables scroll in their own boxes
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert find_accessibility_problems(page) == []
    if width in {390, 1400}:
        # THEN no table is cut off at the side: a wide one is a list on a phone
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert page.evaluate(CUT_TABLES) == []
        page.evaluate("document.querySelectorAll('details').forEach(d => d.open = false)")
    # THEN the other colours are as readable
    page.emulate_media(color_scheme="dark" if scheme == "light" else "light")
    assert find_accessibility_problems(page) == []
    page.emulate_media(color_scheme=scheme)
    levels = [int(tag[1]) for tag in page.eval_on_selector_all(
        "h1,h2,h3", "all => all.map(each => each.tagName)")]  # fmt: skip
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    if pictures := os.environ.get("ETPROF_PICTURES"):
        page.screenshot(path=f"{pictures}/{name}_{width}.png", full_page=True)
    page.close()


def rows_shown(page: Page) -> list[str]:
    texts: list[str] = page.locator("tr[data-row]:visible th").all_inner_texts()
    return texts


def row_of(page: Page, *words: str) -> str:
    rows = page.locator("tr[data-row]")
    for word in words:
        rows = rows.filter(has_text=word)
    # Waits for the row, as a list of all texts would not; refuses two.
    found: str = rows.inner_text()
    return found


@pytest.mark.parametrize("kind", ["served", "exported"])
def test_overview_says_what_changed_and_is_red_only_for_it(
    browser: Browser, sites: Sites, kind: str
) -> None:
    page = visit(browser, sites, kind, make_address("overview", {})).page
    # THEN a known slow-down of a quarter is red, in a sign and a word too, and its neighbour grey
    assert re.search(r"\+2\d\.\d % regression", row_of(page, REGRESSED, "Phone A", "fp32"))
    red = page.locator("table .change.worse")
    assert [re.sub(r".* ", "", text) for text in red.all_inner_texts()] == ["regression"] * 2
    assert page.locator(".change.same").count() > 2
    # THEN SME2 is compared with off on devices alone
    assert re.search(r"2\.\d\d× improvement", row_of(page, IMPROVED, "Phone A", "fp32"))
    emulated = row_of(page, IMPROVED, "emulated", "fp32")
    assert "not representative: times mean nothing" in emulated
    assert not re.search(r"\d (ns|µs|ms|s)\b", emulated)
    # THEN a failure is no gap
    assert "newest run failed" in row_of(page, FAILING, "Phone A", "int8")
    page.close()


def choose(page: Page, **choices: str) -> None:
    for label, value in choices.items():
        page.get_by_label(label, exact=True).select_option(label=value)
    page.get_by_role("button", name="Apply").click()
    page.wait_for_load_state()


def query(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


@pytest.mark.parametrize("kind", ["served", "exported"])
def test_filters_live_in_the_address(browser: Browser, sites: Sites, kind: str) -> None:
    opened = visit(browser, sites, kind, make_address("overview", {}))
    page = opened.page
    everything = len(rows_shown(page))
    assert page.locator("#count").inner_text() == f"{everything} configurations"
    # WHEN filters are chosen, THEN rows and address follow
    choose(page, Model=FAILING, Precision="int8")
    assert len(rows_shown(page)) == 2
    assert all(FAILING in row and "int8" in row for row in rows_shown(page))
    assert page.locator("#count").inner_text() == "2 configurations"
    assert query(page)["model"] == [FAILING]
    assert query(page)["precision"] == ["int8"]
    # WHEN the address is opened anew, THEN the same is shown and chosen
    page.reload()
    assert len(rows_shown(page)) == 2
    assert page.get_by_label("Precision").input_value() == "int8"
    # WHEN another metric is chosen, THEN the filters stay
    choose(page, Metric="Load")
    assert "Load of the newest run" in page.locator("main").inner_text()
    assert len(rows_shown(page)) == 2
    # WHEN nothing matches, THEN the page says so
    choose(page, Model=HOSTILE)
    assert rows_shown(page) == []
    assert page.locator("#nothing").is_visible()
    # WHEN cleared, THEN everything is back
    page.get_by_role("link", name="Clear filters").click()
    assert len(rows_shown(page)) == everything
    assert page.get_by_label("Precision").input_value() == ""
    # WHEN a branch is chosen, THEN its newest runs are shown
    choose(page, Branch="main")
    assert all("wip" not in text for text in page.locator("td.when").all_inner_texts())
    assert opened.complaints == []
    page.close()


@pytest.mark.parametrize("kind", ["served", "exported"])
def test_trend_draws_runs_changes_of_level_and_failures(
    browser: Browser, sites: Sites, kind: str
) -> None:
    page = visit(browser, sites, kind, addresses(sites)["trend"]).page
    assert page.locator(".trend .point:not([hidden]) .dot").count() == 2 * COMMITS
    # THEN both lines have their improvement, in the chart and in words
    assert page.locator(".trend line.level:not([hidden])").count() == 2
    changes = page.get_by_role("region", name="Table: Change points").inner_text()
    assert len(re.findall(r"−(19|20|21)\.\d % improvement", changes)) == 2
    title = page.locator(".trend .point title").first.text_content() or ""
    assert re.fullmatch(
        r"SME off, 2026-09-01 03:00 UTC, commit \w{10}, main: [\d.]+ ms \([\d.]+ … [\d.]+ ms\)",
        title,
    )
    # WHEN along commits rather than time, THEN runs are evenly spaced, here as before
    places = "all => all.map(point => point.getAttribute('transform'))"
    by_time = page.eval_on_selector_all(".trend .point", places)
    choose(page, Along="commits")
    assert query(page)["axis"] == ["commits"]
    assert page.eval_on_selector_all(".trend .point", places) == by_time
    # WHEN one SME mode and one branch are chosen, THEN only their runs are drawn and listed
    choose(page, SME="SME2", Branch="main")
    assert page.locator(".trend .point:not([hidden]) .dot").count() == COMMITS * 2 // 3
    path = page.locator(".trend g path.line[d*='L']").all()
    assert [len((line.get_attribute("d") or "").split("L")) for line in path] == [COMMITS * 2 // 3]
    listed = (
        page.get_by_role("region", name="Table: Newest runs")
        .locator("tr:visible")
        .all_inner_texts()
    )
    assert not [row for row in listed if "wip" in row or "SME off" in row]
    assert page.locator("#changes-note").is_visible() == (kind == "exported")
    # THEN failures are marked where they happened
    page.goto(sites.url(kind, make_address("trend", {"config": sites.config(FAILING, "int8")})))
    assert page.locator(".trend .failure").count() == 2
    assert "failed, etprof-runner: cannot load" in (
        page.locator(".trend .point:has(.failure) title").first.text_content() or ""
    )
    page.close()


@pytest.mark.parametrize("kind", ["served", "exported"])
def test_links_lead_through_every_view(browser: Browser, sites: Sites, kind: str) -> None:
    opened = visit(browser, sites, kind, make_address("overview", {"model": REGRESSED}))
    page = opened.page
    row = page.locator("tr[data-row]:visible", has_text="Phone A").first
    row.get_by_role("link", name="trend").click()
    assert page.locator("h1").inner_text() == REGRESSED
    page.locator(".trend .point").last.dispatch_event("click")
    page.wait_for_selector("text=Where it comes from")
    page.get_by_role("link", name="Compare with the run before").click()
    figures = page.get_by_role("region", name="Table: Figures").inner_text()
    assert re.search(r"\+2\d\.\d % regression", figures)
    assert "They differ in: commit" in page.locator("main").inner_text()
    waterfall = page.get_by_role("region", name="Table: Waterfall").locator("tr").all_inner_texts()
    assert [row.split("\t")[0] for row in waterfall[1:]] == [
        "Baseline", "Convolution", "GEMM", "Elementwise", "Data movement", "Candidate",
    ]  # fmt: skip
    page.go_back()
    # WHEN the run's own report is opened, THEN it works, and stays as quiet as it is from disk
    page.get_by_role("link", name="Report of the run directory").click()
    assert page.locator("h1").inner_text() == "known"
    page.get_by_label("Search operators, modules and microkernels").fill("convolution IGEMM")
    assert page.get_by_role("status").inner_text() == "2 of 7 operators"
    page.go_back()
    page.get_by_role("link", name="Models").click()
    page.locator("[data-group]").last.get_by_role("link", name=REGRESSED).click()
    assert re.search(r"−(59|60|61)\.\d % improvement", row_of(page, "Phone A", "SME off"))
    choose(page, Columns="backend")
    assert page.get_by_role("columnheader").all_inner_texts() == ["Where", "xnnpack"]
    assert opened.complaints == []
    page.close()


def test_two_runs_can_be_chosen_by_number(browser: Browser, sites: Sites) -> None:
    page = visit(browser, sites, "served", make_address("compare", {})).page
    page.get_by_label("Baseline, run number").fill(sites.run(HOSTILE, HOSTILE_PRECISION, HOSTILE_DEVICE, "off"))  # fmt: skip
    page.get_by_label("Candidate, run number").fill(sites.run(REGRESSED, "fp32", "Phone A", "off"))
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Not judged")
    assert page.locator(".change").count() == 0
    page.get_by_role("link", name="Swap sides").click()
    assert f"against run {sites.run(REGRESSED, 'fp32', 'Phone A', 'off')}" in page.locator("h1").inner_text()  # fmt: skip
    page.close()


@pytest.mark.parametrize("kind", ["served", "exported"])
def test_hostile_names_are_shown_and_do_nothing(browser: Browser, sites: Sites, kind: str) -> None:
    place = (HOSTILE, HOSTILE_PRECISION, HOSTILE_DEVICE)
    opened = visit(browser, sites, kind, make_address("overview", {}))
    page = opened.page
    choose(page, Model=HOSTILE, Device=HOSTILE_DEVICE, Precision=HOSTILE_PRECISION)
    (row,) = rows_shown(page)
    assert all(name in row for name in place)
    assert HOSTILE_BRANCH in page.locator("td.when:visible").inner_text()
    page.locator("tr[data-row]:visible").get_by_role("link", name="trend").click()
    choose(page, Branch=HOSTILE_BRANCH)
    assert page.locator(".trend .point:not([hidden])").count() == 2 * COMMITS
    page.get_by_role("link", name="Failures").click()
    choose(page, Branch=HOSTILE_BRANCH)
    assert HOSTILE_FAILURE in page.locator("td.why:visible").first.inner_text()
    page.locator("tr[data-row]:visible th a").first.click()
    assert page.locator("h1").inner_text() == HOSTILE
    assert page.locator("img, iframe, script:not([src])").count() == 0
    assert opened.complaints == []
    page.close()


def test_everything_can_be_reached_by_keyboard(browser: Browser, sites: Sites) -> None:
    page = visit(browser, sites, "served", make_address("overview", {})).page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the page"
    model = page.get_by_label("Model")
    model.focus()
    page.keyboard.type(REGRESSED[:4])
    while page.evaluate("document.activeElement.type") != "submit":
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(f"model={REGRESSED}"))
    # THEN wide tables can be scrolled without a mouse, and a chart is no trap of many stops
    assert page.locator(".scroll[tabindex='0'][aria-label]").count() == 1
    page.get_by_role("link", name="trend").first.press("Enter")
    page.wait_for_selector(".trend")
    assert page.locator(".trend a:not([tabindex='-1'])").count() == 0
    page.close()


def test_long_lists_are_served_in_parts(browser: Browser, tmp_path: Path) -> None:
    store = open_store(tmp_path / "long.sqlite")
    models = tuple(f"m{i:02}" for i in range(60))
    fill(store, KnownHistory(commits=1, models=models, devices=("D",), precisions=("fp32",),
                             all_metrics=False))  # fmt: skip
    with serving(store) as server:
        opened = Opened(browser, f"{server.url}overview", DESKTOP, own=(server.url, "data:"))
        page = opened.page
        assert page.locator("#count").inner_text() == "1 to 50 of 60 configurations"
        page.get_by_role("link", name="Next →").click()
        # Without its style sheet a page has no line between a model and its device.
        page.wait_for_load_state("load")
        assert page.locator("#count").inner_text() == "51 to 60 of 60 configurations"
        assert [row.split("\n")[0] for row in rows_shown(page)] == list(models[50:])
        page.get_by_role("link", name="← Previous").click()
        assert len(rows_shown(page)) == 50
        assert opened.complaints == []
        page.close()


@pytest.mark.parametrize("kind", ["served", "exported"])
def test_tables_sort_by_a_heading_and_are_searched(
    browser: Browser, sites: Sites, kind: str
) -> None:
    """Issue 18, item 3 and U4: dashboard tables did not sort."""
    opened = visit(browser, sites, kind, make_address("overview", {}))
    page = opened.page
    # THEN what became worse is first, before anything is clicked
    assert REGRESSED in rows_shown(page)[0]
    assert page.locator(".worse-list li:visible").count() == 2
    # WHEN sorted by a value, THEN by its size whatever its unit, and what has none is last
    for order in ("ascending", "descending"):
        page.get_by_role("button", name="SME off", exact=True).press("Enter")
        heading = page.get_by_role("columnheader", name="SME off", exact=True)
        assert heading.get_attribute("aria-sort") == order
        keys = page.eval_on_selector_all(
            "tr[data-row]", "rows => rows.map((row) => Number(row.cells[1].dataset.sort || -1))"
        )
        known = [key for key in keys if key > 0]
        assert keys[: len(known)] == sorted(known, reverse=order == "descending")
        assert 2 < len(known) < len(keys)
    # WHEN a search is asked for, THEN rows, the list above them and the address have it
    page.get_by_label("Search").fill("MOBILENET int8 phone")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("find="))
    page.wait_for_load_state()
    assert page.locator("#count").inner_text() == "1 configuration"
    assert page.get_by_label("Search").input_value() == "MOBILENET int8 phone"
    assert page.locator(".worse-list li:visible").count() == 1
    assert opened.complaints == []
    page.close()


@pytest.mark.parametrize("kind", ["served", "exported"])
def test_a_part_of_a_trend_is_chosen_with_a_brush(
    browser: Browser, sites: Sites, kind: str
) -> None:
    """Issue 18, item 3: a trend of 1000 runs could not be looked at closely."""
    opened = visit(browser, sites, kind, addresses(sites)["trend"])
    page, said = opened.page, opened.page.locator("#brush-said")
    # WHEN a slider moves by keyboard, THEN a part is drawn, the ends say which
    whole = page.locator(".ends").inner_text()
    page.get_by_label("From", exact=True).press("End")
    assert re.fullmatch(r"2 of 36 runs", said.inner_text())
    assert page.locator(".ends").inner_text() != whole
    page.get_by_role("button", name="Whole range").click()
    assert (said.inner_text(), page.locator(".ends").inner_text()) == ("", whole)
    # WHEN dragged over a quarter, THEN that quarter is drawn, and the address keeps it
    box = page.locator("svg.trend").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.75, box["y"] + 40, steps=3)
    page.mouse.up()
    told = said.inner_text()
    assert re.fullmatch(r"(8|10) of 36 runs", told)
    assert re.search(r"#x=(49|50)\d-7[45]\d$|#x=500-75\d$", page.url)
    page.reload()
    assert said.inner_text() == told
    # THEN every change point is drawn with its interval
    assert page.locator(".level-band:visible, .level-band").count() == 2
    assert opened.complaints == []
    page.close()
