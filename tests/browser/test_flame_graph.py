"""The flame graph of an export in a real browser: it draws, and asks nobody for anything."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from etprof.export.stages import StageClock, draw_flames
from tests.browser.pages import DESKTOP, Opened

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

ATTACK = "<img src=x onerror=alert(1)>"


def test_page_is_drawn_offline(browser: Browser, tmp_path: Path) -> None:
    clock = StageClock(is_tracing=True)
    with clock.stage(ATTACK):
        sorted(range(1000))
    page = tmp_path / "stages.html"
    page.write_text(draw_flames(ATTACK, clock))
    opened = Opened(browser, page.as_uri(), DESKTOP, "light")
    assert opened.page.get_by_text(ATTACK).count() > 0
    assert opened.page.locator("img[src=x]").count() == 0
    # THEN the one thing that the library would fetch, a font, is refused by the page's policy
    assert all("fonts.googleapis.com" in each for each in opened.complaints)
    opened.page.close()
