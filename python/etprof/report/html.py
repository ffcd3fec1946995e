"""One HTML file with everything in it: works offline, asks nothing of any server."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import jinja2

import etprof
from etprof.report.page import run_view

if TYPE_CHECKING:
    from collections.abc import Sequence

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
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        version=etprof.__version__,
    )


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("report.html.j2")


def _asset(name: str) -> str:
    """Reads a file that stands beside the templates."""
    return files("etprof.report").joinpath("templates", name).read_text(encoding="utf-8")
