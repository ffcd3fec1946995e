"""Opens pages in a real headless Chromium and notes everything they say or ask for."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
SMALL = {"width": 360, "height": 640}
WIDE, TABLET = {"width": 1400, "height": 900}, {"width": 800, "height": 1000}
_IMPACTS = ("minor", "moderate", "serious", "critical")


class Opened:
    """A page and everything that it said or asked of others than `own`."""

    def __init__(
        self,
        browser: Browser,
        url: str,
        size: dict[str, int],
        scheme: str = "light",
        own: tuple[str, ...] = ("file:", "data:"),
    ) -> None:
        self.complaints: list[str] = []
        self._own = own
        self.page: Page = browser.new_page(viewport=size, color_scheme=scheme)
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.page.on("request", lambda request: self._note_request(request.url))
        self.page.goto(url)

    def _note_request(self, url: str) -> None:
        if not url.startswith(self._own):
            self.complaints.append(url)


def find_accessibility_problems(page: Page, least: str = "serious") -> list[tuple[str, list[str]]]:
    """Returns what axe-core calls that bad or worse, with the elements in question.

    It says nothing of what is folded, nor of the contrast of text on a gradient, which the boxes of
    tables have as a hint that there is more: both are undone.
    """
    from axe_playwright_python.sync_playwright import Axe

    page.evaluate("document.querySelectorAll('details').forEach(each => each.open = true)")
    page.evaluate("document.querySelectorAll('.scroll').forEach(e => e.style.background = 'none')")
    return [
        (violation["id"], [node["html"] for node in violation["nodes"]][:3])
        for violation in Axe().run(page).response["violations"]
        if violation["impact"] in _IMPACTS[_IMPACTS.index(least) :]
    ]
