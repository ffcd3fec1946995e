"""Writes the unit and basis of JSON's numbers into docs/json.md, from where they are declared.

usage: python -m docs.json_figures
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from docs.written_part import replace_part

from etprof.views.json_figures import DOCUMENTS, Figure

PAGE: Final = Path(__file__).with_name("json.md")
_OF_AN_INTERVAL: Final = re.compile(r"_(low|high)$|\binterval\.(low|high|confidence)$")
_SHARED: Final = "comparisons[]."
"""A part of two commands' JSON that is that of `compare`."""


def figure_lists() -> str:
    """Returns a table for each command's JSON; the ends of an interval stand with its point."""
    return "\n".join(line for command in DOCUMENTS for line in _section(command))


def _section(command: str) -> Iterator[str]:
    figures = DOCUMENTS[command]
    yield from (f"### `{command} --json`", "")
    yield from ("| field | unit | basis | what |", "|---|---|---|---|")
    yield from (_row(figure) for figure in figures if _has_row(figure))
    if any(figure.path.startswith(_SHARED) for figure in figures):
        yield f"| `{_SHARED}…` | | | as `compare --json` |"
    yield ""


def _has_row(figure: Figure) -> bool:
    return not (figure.path.startswith(_SHARED) or _OF_AN_INTERVAL.search(figure.path))


def _row(figure: Figure) -> str:
    return f"| `{figure.path}` | {figure.unit} | {figure.basis} | {figure.says.replace('|', ' ')} |"


def updated(text: str) -> str:
    """Returns the page with the lists as they are declared now."""
    return replace_part(text, "docs.json_figures", "\n" + figure_lists())


if __name__ == "__main__":
    PAGE.write_text(updated(PAGE.read_text("utf-8")), encoding="utf-8")
