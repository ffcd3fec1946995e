"""The files that pages are made of and load: templates, the style and the script."""

from __future__ import annotations

from functools import cache
from typing import Final

from etprof.base.html_template import read_package_file

POLICY: Final = (
    "default-src 'none'; style-src 'self' file:; script-src 'self' file:; "
    "img-src data:; base-uri 'none'; form-action 'self'"
)
"""In every page. `file:` is for exported pages that are opened from disk; to a served page, no
browser gives files."""
ASSETS: Final = {
    "dashboard.css": "text/css; charset=utf-8",
    "dashboard.js": "text/javascript; charset=utf-8",
}


@cache
def read_template(name: str) -> str:
    """Returns the text of a template."""
    return read_package_file("etprof.dashboard", "templates", name)


@cache
def read_asset(name: str) -> str:
    """Returns the text of a file that pages load; the style builds on the run report's."""
    text = read_package_file("etprof.dashboard", "static", name)
    return (
        read_package_file("etprof.views", "templates", "report.css") + text
        if name.endswith("css")
        else text
    )
