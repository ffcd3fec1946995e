"""The HTML report in a real browser: quiet, offline, usable by keyboard, accessible."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from etprof.analysis.assessment import assess_runs
from etprof.run.load import Run as LoadedRun
from etprof.views.formats.html import render_html
from tests.browser.pages import DESKTOP, PHONE, Opened, find_accessibility_problems
from tests.known_runs import OFF_OPS, Experiment, Op, Run, on_off_run, write_run

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

ATTACK = "<img src=x onerror=alert(1)>"


def thread_sweep() -> Run:
    sweep = [
        Experiment(f"{sme}_t{n}", OFF_OPS, sme=sme, threads=n,
                   latency_us=[100 / n + i % 3 for i in range(10)])
        for sme in ("off", "sme2")
        for n in (1, 2, 4)
    ]  # fmt: skip
    return Run(sweep)


RUNS: dict[str, list[Run]] = {
    "on_off": [on_off_run()],
    "threads": [thread_sweep()],
    "emulated": [replace(on_off_run(), platform="emulator", meaningful=False)],
    "two_platforms": [on_off_run(), replace(on_off_run(), platform="mac")],
    "hostile": [
        replace(
            Run([Experiment("e", [*OFF_OPS, Op(ATTACK, 9), Op("</script><b>", 9)])]), model=ATTACK
        )
    ],
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


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_page_is_quiet_offline_and_accessible(
    browser: Browser, pages: dict[str, Path], name: str, size: dict[str, int], scheme: str
) -> None:
    opened = Opened(browser, pages[name].as_uri(), size, scheme)
    assert opened.complaints == []
    # THEN the page itself never scrolls sideways; wide tables scroll in their own boxes
    assert opened.page.evaluate("document.documentElement.scrollWidth") == size["width"]
    assert find_accessibility_problems(opened.page) == []
    picture = pages[name].with_name(f"{name}_{size['width']}.png")
    opened.page.screenshot(path=picture, full_page=True)
    assert picture.stat().st_size > 10_000
    opened.page.close()


def column(page: Page, number: int) -> list[str]:
    cells = page.locator(f"table.sortable tbody tr:not([hidden]) > :nth-child({number})")
    return [text.split("\n")[0].strip() for text in cells.all_inner_texts()]


def test_sorting_by_mouse_and_keyboard(browser: Browser, pages: dict[str, Path]) -> None:
    page = Opened(browser, pages["on_off"].as_uri(), DESKTOP, "light").page
    in_order = column(page, 1)
    # WHEN the first experiment's column is clicked, THEN the slowest operator stands first
    heading = page.locator("table.sortable thead th").nth(2)
    heading.locator("button").click()
    assert heading.get_attribute("aria-sort") == "descending"
    assert column(page, 3)[:3] == ["400 µs", "300 µs", "100 µs"]
    assert column(page, 3)[-1] == "–"
    # WHEN it is used again by keyboard
    heading.locator("button").focus()
    page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    assert column(page, 3)[0] == "10.0 µs"
    assert column(page, 3)[-1] == "–"
    # WHEN sorted by number, THEN the program's order is back
    page.locator("table.sortable thead th").nth(0).locator("button").press("Space")
    assert column(page, 1) == in_order
    assert page.locator("table.sortable th[aria-sort]").count() == 1


def test_search_finds_every_word_and_says_how_many(
    browser: Browser, pages: dict[str, Path]
) -> None:
    page = Opened(browser, pages["on_off"].as_uri(), DESKTOP, "light").page
    search = page.get_by_label("Search operators, modules and microkernels")
    search.fill("convolution IGEMM")
    assert len(column(page, 2)) == 2
    assert page.get_by_role("status").inner_text() == "2 of 7 operators"
    search.fill("nothing like this")
    assert column(page, 2) == []
    search.fill("")
    assert len(column(page, 2)) == 7


def test_hostile_names_are_shown_and_do_nothing(browser: Browser, pages: dict[str, Path]) -> None:
    opened = Opened(browser, pages["hostile"].as_uri(), DESKTOP, "light")
    assert opened.page.locator("h1").inner_text() == ATTACK
    assert opened.page.locator("img").count() == 0
    assert ATTACK in column(opened.page, 2)
    opened.page.locator("summary").last.click()
    assert opened.complaints == []


def test_headings_follow_each_other(browser: Browser, pages: dict[str, Path]) -> None:
    page = Opened(browser, pages["on_off"].as_uri(), DESKTOP, "light").page
    levels = [int(tag[1]) for tag in page.eval_on_selector_all(
        "h1,h2,h3", "all => all.map(each => each.tagName)")]  # fmt: skip
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
