"""One browser for all tests of pages."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.browser.pages import CHROMIUM

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    pytest.importorskip("playwright", reason="no playwright; `pip install --group browser` has it")
    from playwright.sync_api import sync_playwright

    if CHROMIUM is None:
        pytest.skip("no chromium; `apt-get install chromium` has it")
    with sync_playwright() as playwright:
        # Chromium's sandbox does not start for root, as which CI runs.
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield running
        running.close()
