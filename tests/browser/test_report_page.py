"""The HTML report in a real browser: quiet, offline, usable by keyboard, accessible."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from etprof.analysis.assessment import assess_runs
from etprof.run.load import Run as LoadedRun
from etprof.views.formats.html import render_html
from tests.browser.pages import (
    DESKTOP,
    PHONE,
    SMALL,
    TABLET,
    WIDE,
    Opened,
    find_accessibility_problems,
)
from tests.known_runs import OFF_OPS, Experiment, Op, Run, on_off_run, write_run

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

ATTACK = "<img src=x onerror=alert(1)>"
ENDLESS = "block." * 400
LARGE = 800
"""Operators of a large model, each under a name of its own."""
MOST_BYTES = 2_000_000
CUT_TABLES = """[...document.querySelectorAll(".scroll")]
    .filter((box) => box.scrollWidth > box.clientWidth + 1)
    .map((box) => [box.getAttribute("aria-label"), box.clientWidth, box.scrollWidth])"""


def thread_sweep() -> Run:
    sweep = [
        Experiment(f"{sme}_t{n}", OFF_OPS, sme=sme, threads=n,
                   latency_us=[100 / n + i % 3 for i in range(10)])
        for sme in ("off", "sme2")
        for n in (1, 2, 4)
    ]  # fmt: skip
    return Run(sweep)


def known_modules() -> Run:
    """Two modules of one convolution each, 300 and 100 µs without SME2, 80 and 20 with it."""
    operators = [
        {"name": name, "operator": "convolution.default", "macs": 800_000, "shape": [1, 8, 4, 4],
         "origin": {"module_path": name, "module_type": "Conv2d", "source": None},
         "input_bytes": 40_000, "output_bytes": 40_000}
        for name in ("stem", "head")
    ]  # fmt: skip
    nodes = [{"kind": "Conv2d", "operators": [name], "attribution": "exact", "macs": 800_000}
             for name in ("stem", "head")]  # fmt: skip
    delegate = {"name": "d", "backend": "XnnpackBackend", "instruction": 0, "nodes": nodes}
    method = {"operators": operators, "delegates": [delegate]}
    sides = [
        Experiment(sme, [Op(f"Convolution (NHWC, PF16) IGEMM #{n}", us)
                         for n, us in enumerate(times, start=1)], sme=sme)
        for sme, times in (("off", (300, 100)), ("sme2", (80, 20)))
    ]  # fmt: skip
    report = {"schema_version": 1, "model": "known", "methods": {"forward": method}}
    return Run(sides, delegation=report)


def large_run() -> Run:
    labels = [f"Fully Connected (NC, PF16) GEMM #{n}" for n in range(1, LARGE + 1)]
    return Run([
        Experiment(sme, [Op(each, us) for each in labels], sme=sme, latency_us=[(us + 1) * LARGE] * 10)
        for sme, us in (("off", 4), ("sme2", 2))
    ])  # fmt: skip


RUNS: dict[str, list[Run]] = {
    "modules": [known_modules()],
    "on_off": [on_off_run()],
    "threads": [thread_sweep()],
    "emulated": [replace(on_off_run(), platform="emulator", meaningful=False)],
    "alternatives": [
        on_off_run(),
        replace(thread_sweep(), precision="int8"),
        replace(on_off_run(), precision="fp32"),
    ],
    "two_platforms": [on_off_run(), replace(on_off_run(), platform="mac")],
    "hostile": [
        replace(
            Run([Experiment("e", [*OFF_OPS, Op(ATTACK, 9), Op("</script><b>", 9)])]), model=ATTACK
        )
    ],
    "endless": [replace(Run([Experiment("e" * 60, [*OFF_OPS, Op(ENDLESS, 9)])]), model="m" * 90)],
    "large": [large_run()],
}


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, runs in RUNS.items():
        sources = []
        for number, run in enumerate(runs):
            source = write_run(folder / f"{name}_{number}", replace(run, model="known"))
            manifest = source / "manifest.json"
            manifest.write_text(manifest.read_text().replace('"known"', f'"{run.model}"'))
            sources.append(source)
        found[name] = folder / f"{name}.html"
        found[name].write_text(render_html(assess_runs([LoadedRun.load(each) for each in sources])))
    return found


# A layout depends on the width and a contrast on the scheme: each page has every width, and both
# schemes twice.
SIZES = {"1400-light": WIDE, "800-dark": TABLET, "390-dark": PHONE, "360-light": SMALL}
LAYOUTS = [
    pytest.param(name, layout.split("-")[1], size, id=f"{layout}-{name}")
    for layout, size in SIZES.items()
    for name in RUNS
    # It has more of the same rows, and axe-core takes ten seconds for them: once of a kind is enough.
    if name != "large" or size in (WIDE, PHONE)
]


@pytest.mark.parametrize(("name", "scheme", "size"), LAYOUTS)
def test_page_is_quiet_offline_and_accessible(
    browser: Browser, pages: dict[str, Path], name: str, scheme: str, size: dict[str, int]
) -> None:
    """U3, U4: no table is cut off; the operators' fits without scrolling sideways."""
    opened = Opened(browser, pages[name].as_uri(), size, scheme)
    assert opened.complaints == []
    # THEN the page itself never scrolls sideways; wide tables scroll in their own boxes
    assert opened.page.evaluate("document.documentElement.scrollWidth") == size["width"]
    assert opened.page.eval_on_selector_all(
        "table", "all => all.filter(each => !each.closest('.scroll')).length") == 0  # fmt: skip
    for box in opened.page.locator(".scroll:has(table.sortable)").all():
        seen, whole = box.evaluate("each => [each.clientWidth, each.scrollWidth]")
        assert whole <= seen
    if size in (WIDE, PHONE):
        # THEN neither does any table, folded ones included (C3-4, C3-5)
        opened.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
        assert opened.page.evaluate(CUT_TABLES) == []
    assert find_accessibility_problems(opened.page, least="minor") == []
    picture = pages[name].with_name(f"{name}_{size['width']}.png")
    opened.page.screenshot(path=picture, full_page=True)
    assert picture.stat().st_size > 10_000
    opened.page.close()


def test_a_large_model_s_page_stays_small(pages: dict[str, Path]) -> None:
    """A page is sent by mail and kept by CI."""
    assert pages["large"].read_text().count("Fully Connected") > LARGE
    assert pages["large"].stat().st_size < MOST_BYTES


def column(page: Page, name: str) -> list[str]:
    """What the operator table shows in a column, row by row."""
    number = page.locator(f"table.sortable th[data-name={name}]").evaluate("th => th.cellIndex")
    cells = page.locator(f"table.sortable tbody tr:not([hidden]) > :nth-child({number + 1})")
    return [text.split("\n")[0].strip() for text in cells.all_text_contents()]


def test_sorting_by_mouse_and_keyboard(browser: Browser, pages: dict[str, Path]) -> None:
    """U3: the slowest operators stand first when the page opens."""
    page = Opened(browser, pages["on_off"].as_uri(), WIDE, "light").page
    in_order = column(page, "number")
    shares = [float(text.split()[0]) for text in column(page, "share")]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] > shares[-1]
    # WHEN the baseline's column is clicked, THEN its slowest operator stands first
    heading = page.locator("table.sortable th[data-name=baseline_ns]")
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    assert column(page, "baseline_ns")[:3] == ["400 µs", "300 µs", "100 µs"]
    assert column(page, "baseline_ns")[-1] == "–"
    # WHEN it is used again by keyboard
    heading.locator("button").focus()
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    assert column(page, "baseline_ns")[0] == "10.0 µs"
    assert column(page, "baseline_ns")[-1] == "–"
    # THEN the address has it: opened anew, the order is the same
    again = Opened(browser, page.url, WIDE, "light").page
    assert column(again, "number") == column(page, "number") != in_order
    assert page.locator("table.sortable th[aria-sort]").count() == 1


def test_search_finds_every_word_and_says_how_many(
    browser: Browser, pages: dict[str, Path]
) -> None:
    page = Opened(browser, pages["on_off"].as_uri(), DESKTOP, "light").page
    search = page.get_by_label("Search operators, modules and microkernels")
    search.fill("convolution IGEMM")
    assert len(column(page, "name")) == 2
    assert page.get_by_role("status").inner_text() == "2 of 7 operators"
    search.fill("nothing like this")
    assert column(page, "name") == []
    search.fill("")
    assert len(column(page, "name")) == 7


def test_hostile_names_are_shown_and_do_nothing(browser: Browser, pages: dict[str, Path]) -> None:
    opened = Opened(browser, pages["hostile"].as_uri(), DESKTOP, "light")
    assert opened.page.locator("h1").inner_text() == ATTACK
    assert opened.page.locator("img").count() == 0
    assert ATTACK in column(opened.page, "name")
    opened.page.locator("summary").last.click()
    assert opened.complaints == []


def test_headings_follow_each_other(browser: Browser, pages: dict[str, Path]) -> None:
    page = Opened(browser, pages["on_off"].as_uri(), DESKTOP, "light").page
    levels = [int(tag[1]) for tag in page.eval_on_selector_all(
        "h1,h2,h3", "all => all.map(each => each.tagName)")]  # fmt: skip
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_columns_and_classes_are_chosen_and_stay_in_the_address(
    browser: Browser, pages: dict[str, Path]
) -> None:
    page = Opened(browser, pages["on_off"].as_uri(), WIDE, "light").page
    page.get_by_text("Choose columns").click()
    assert not page.locator("th[data-name=calls]").is_visible()
    page.get_by_label("calls", exact=True).check()
    assert page.locator("th[data-name=calls]").is_visible()
    page.get_by_text("Filter by class").click()
    page.get_by_label("depthwise (1)").check()
    assert column(page, "class") == ["depthwise"]
    again = Opened(browser, page.url, WIDE, "light").page
    assert again.locator("th[data-name=calls]").is_visible()
    assert column(again, "class") == ["depthwise"]


@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["1400", "390"])
def test_every_operator_is_reached_by_link_and_by_keyboard(
    browser: Browser, pages: dict[str, Path], size: dict[str, int]
) -> None:
    """U3: operators had no anchors, and what is known of one stood in twenty columns."""
    page = Opened(browser, pages["on_off"].as_uri(), size, "light").page
    anchors = page.eval_on_selector_all("table.sortable tbody tr", "all => all.map(r => r.id)")
    assert len(anchors) == len(set(anchors)) == 7
    for anchor in anchors:
        # WHEN its link in the table is followed by keyboard
        link = page.locator(f"#{anchor} a")
        link.focus()
        page.keyboard.press("Enter")
        assert page.url.endswith(f"#{anchor}")
        assert page.locator("#drawer h2").inner_text() == link.text_content()
        page.keyboard.press("Escape")
        assert not page.locator("#drawer").is_visible()
        # THEN the focus is where it was, once the dialog has told that it closed
        page.locator(f"#{anchor} a:focus").wait_for()
    # WHEN the address alone is opened, THEN it shows the same; arrows lead on
    page = Opened(browser, f"{pages['on_off'].as_uri()}#{anchors[0]}", size, "light").page
    drawer = page.locator("#drawer")
    assert {"speedup", "class", "microkernel"} <= set(drawer.locator("dt").all_inner_texts())
    assert find_accessibility_problems(page, least="minor") == []
    page.keyboard.press("ArrowRight")
    assert page.url.endswith(f"#{anchors[1]}")


def weights(page: Page, tree: int) -> dict[str, tuple[float, float]]:
    """Of each box that holds others, by number: its width, and that of all inside it."""
    found: dict[str, tuple[float, float]] = (
        page.locator(".tree")
        .nth(tree)
        .evaluate("""tree => {
        const width = (item) => Number(item.style.getPropertyValue("--w"));
        const items = [...tree.querySelectorAll("li")].filter((item) => item.querySelector("ul"));
        return Object.fromEntries(items.map((item) => [item.dataset.box, [width(item),
            [...item.querySelector("ul").children].reduce((sum, each) => sum + width(each), 0)]]));
    }""")
    )
    return found


def test_the_icicle_adds_up_and_zooms_by_click_and_keyboard(
    browser: Browser, pages: dict[str, Path]
) -> None:
    """U3: the whole is the split's, and every box is what is inside it, on both sides."""
    page = Opened(browser, pages["modules"].as_uri(), WIDE, "light").page
    for tree, whole_us in enumerate((400, 100, 250)):
        boxes = weights(page, tree)
        assert boxes["0"][0] == pytest.approx(whole_us * 1000, rel=1e-3)
        assert all(own == pytest.approx(inside, rel=1e-3) for own, inside in boxes.values())
    # WHEN a module is clicked, THEN it and its operator stay, on both sides
    tree = page.locator(".tree").first
    tree.get_by_text("stem", exact=True).click()
    assert "icicle=r0-" in page.url
    assert not tree.get_by_text("head", exact=True).is_visible()
    assert not page.locator(".tree").nth(1).get_by_text("head", exact=True).is_visible()
    again = Opened(browser, page.url, WIDE, "light").page
    assert not again.locator(".tree").first.get_by_text("head", exact=True).is_visible()
    # WHEN arrows lead down to the operator and Enter is pressed, THEN its drawer opens
    page.keyboard.press("Escape")
    assert tree.get_by_text("head", exact=True).is_visible()
    tree.locator("a").first.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    assert page.url.endswith("#r0-op-2")
    assert page.locator("#drawer").is_visible()


def test_without_script_everything_is_there(browser: Browser, pages: dict[str, Path]) -> None:
    context = browser.new_context(java_script_enabled=False, viewport=WIDE)
    page = context.new_page()
    page.goto(pages["modules"].as_uri())
    assert page.locator("table.sortable th:visible").count() > 15
    assert page.locator(".tree").nth(1).is_visible()
    assert not page.locator(".tools").is_visible()
    page.get_by_label("Difference").check()
    assert page.locator(".difference .tree").is_visible()
    context.close()


def test_print_has_whole_tables(browser: Browser, pages: dict[str, Path]) -> None:
    """U3: tables were cut in print."""
    page = Opened(browser, pages["on_off"].as_uri(), {"width": 1050, "height": 740}, "light").page
    page.emulate_media(media="print")
    cut = page.eval_on_selector_all(
        ".scroll", "all => all.filter(e => e.scrollWidth > e.clientWidth + 1 || "
        "e.scrollHeight > e.clientHeight + 9).map(e => e.getAttribute('aria-label'))")  # fmt: skip
    assert cut == []


def test_a_timeline_is_seen_nearer_and_whole_again(
    browser: Browser, pages: dict[str, Path]
) -> None:
    page = Opened(browser, pages["on_off"].as_uri(), WIDE, "light").page
    page.get_by_role("heading", name="Timeline of a mean inference").click()
    page.get_by_role("button", name="Nearer").click()
    assert page.locator("svg.timeline").first.get_attribute("viewBox") == "250 0 500 48"
    assert "timeline=250-750" in page.url
    # An address that shows a part of it unfolds it.
    other = Opened(browser, page.url, WIDE, "light").page
    assert other.get_by_role("button", name="Nearer").is_visible()
    assert other.locator("svg.timeline").first.get_attribute("viewBox") == "250 0 500 48"
    page.keyboard.press("0")
    assert page.locator("svg.timeline").first.get_attribute("viewBox") == "0 0 1000 48"
