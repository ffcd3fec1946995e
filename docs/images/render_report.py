"""Makes the pictures of reports in README and docs, from reports of real runs.

usage: python docs/images/render_report.py EMULATED.html TIMED.html

The first is a report of an emulated run of MobileNetV2 with SME off and SME2, the second of a timed
run with two experiments, both from `etprof report RUN_DIR`. Needs playwright and the system's
Chromium (`pip install --group browser`, `apt install chromium`).
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from playwright.sync_api import sync_playwright

if TYPE_CHECKING:
    from playwright.sync_api import Browser

FOLDER = Path(__file__).parent
WIDTH, MOST_HEIGHT = 1100, 1000


def picture(browser: Browser, report: Path, first: str, last: str, name: str) -> None:
    """Saves what stands from the top of element `first` to the bottom of element `last`."""
    page = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
    page.goto(report.resolve().as_uri())
    top, bottom = (page.locator(selector).first.bounding_box() for selector in (first, last))
    if top is None or bottom is None:
        sys.exit(f"{report} does not show {first} and {last}: is it a report of the right kind?")
    height = min(bottom["y"] + bottom["height"] - top["y"], MOST_HEIGHT)
    clip = {"x": 0.0, "y": top["y"] - 12, "width": float(WIDTH), "height": height + 24}
    page.screenshot(path=FOLDER / name, full_page=True, clip=clip)
    page.close()


def main() -> None:
    """Makes both pictures."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    emulated, timed = map(Path, sys.argv[1:])
    with sync_playwright() as playwright:
        # Chromium's sandbox does not start for root.
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        picture(browser, emulated, ".hero", ".scroll.tall", "report.png")
        picture(
            browser,
            timed,
            "section[aria-labelledby$=-time]",
            "section[aria-labelledby$=-waterfall]",
            "report_time.png",
        )
        browser.close()


if __name__ == "__main__":
    main()
