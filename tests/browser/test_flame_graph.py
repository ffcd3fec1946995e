"""The flame graph of an export in a real browser: quiet, offline, and it can be enlarged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from etprof.export import flame_graph
from etprof.export.stages import Step
from etprof.export.time_split import Share
from tests.browser.pages import DESKTOP, PHONE, Opened, find_accessibility_problems

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

ATTACK = "<img src=x onerror=alert(1)>"


def share(name: str, duration_ns: int, *parts: Share) -> Share:
    return Share(Step(name, "libs.own"), duration_ns, {each.step: each for each in parts})


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    lower = share("lower", 600, share("partition", 100), share("passes", 400, share(ATTACK, 300)))
    page: Path = tmp_path_factory.mktemp("flames") / "stages.html"
    page.write_text(flame_graph.render(ATTACK, share("export", 1000, share("trace", 400), lower)))
    return page.as_uri()


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")])
def test_page_is_quiet_offline_and_accessible(
    browser: Browser, url: str, size: dict[str, int], scheme: str
) -> None:
    opened = Opened(browser, url, size, scheme)
    assert opened.complaints == []
    assert opened.page.evaluate("document.documentElement.scrollWidth") == size["width"]
    assert find_accessibility_problems(opened.page) == []
    assert opened.page.locator("h1").inner_text() == ATTACK
    assert opened.page.locator("img").count() == 0
    opened.page.close()


def widths(page: Page) -> dict[str, float]:
    """The shares of the picture's width that the boxes in sight have."""
    boxes = page.eval_on_selector_all(
        "#flames button:not([hidden])",
        "all => all.map(each => [each.textContent, each.style.left, each.style.width])",
    )
    return {name: float(width.removesuffix("%")) for name, _, width in boxes}


def test_a_box_can_be_enlarged_by_mouse_and_keyboard(browser: Browser, url: str) -> None:
    page = Opened(browser, url, DESKTOP).page
    whole = {"export": 100, "trace": 40, "lower": 60, "partition": 10, "passes": 40, ATTACK: 30}
    assert widths(page) == pytest.approx(whole)
    page.get_by_role("button", name="passes", exact=True).click()
    assert widths(page) == pytest.approx({"export": 100, "lower": 100, "passes": 100, ATTACK: 75})
    assert page.locator("#chosen").inner_text() == "passes (libs.own): 400 ns, 40.0 %"
    page.locator("#flames button").first.focus()
    page.keyboard.press("Enter")
    assert widths(page) == pytest.approx(whole)
    page.close()
