"""One HTML file with everything in it: works offline, asks nothing of any server."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import etprof
from etprof.base.html_template import hash_script, read_package_file, template_environment
from etprof.report.page import run_view

if TYPE_CHECKING:
    from collections.abc import Sequence

    import jinja2

    from etprof.analysis.assessment import Assessment


def render_html(assessments: Sequence[Assessment]) -> str:
    """Returns the report of one or several runs as a self-contained page."""
    style, script = _asset("report.css"), _asset("report.js")
    runs = [run_view(entry, f"r{i}") for i, entry in enumerate(assessments)]
    names = dict.fromkeys(run["title"] for run in runs)
    return _template().render(
        title=", ".join(names),
        runs=runs,
        style=style,
        script=script,
        # Only this very script may run, whatever a name from a file may contain.
        script_hash=hash_script(script),
        version=etprof.__version__,
    )


@cache
def _template() -> jinja2.Template:
    return template_environment(_asset).get_template("report.html.j2")


def _asset(name: str) -> str:
    """Reads a file that stands beside the templates."""
    return read_package_file("etprof.report", "templates", name)
