"""Tables as Markdown, for pull requests and terminals without a browser."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from etprof.views.cells import shown_columns, shown_rows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from etprof.tables.table import Place, Table

_SPECIAL: Final = re.compile(
    r"(?P<entity>[&<>])|(?P<linked>@|#(?=\d)|\bgh-(?=\d)|:(?=//)|\bwww(?=\.))"
    r"|(?P<mark>[\\`*_\[\]|#~$]|^=|^[-+](?=[ -]|$)|(?<=^\d)[.)](?= |$)|(?<=^\d\d)[.)](?= |$))",
    re.IGNORECASE,
)
"""What Markdown reads: HTML; what GitHub links unasked, so that a name would call people or lead
somewhere (`@name`, `#12`, `GH-12`, addresses); markup, some of it at the start of a line only."""
_ENTITIES: Final = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_DIVIDER: Final = "&#8203;"
"""A space of no width, as Renovate and Dependabot use it: GitHub looks for links in the text that a
page shows, where backslashes and other entities are gone."""


def markdown_table(table: Table, place: Place = "everywhere") -> list[str]:
    """Returns the lines of a table, an empty one behind them."""
    headings = [shown.heading for shown in shown_columns(table, place)]
    rows = ((cell.text for cell in row) for row in shown_rows(table, place))
    return markdown_rows(headings, rows)


def markdown_rows(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> list[str]:
    """Returns the lines of a table of texts."""
    names = [escape(name) for name in headings]
    body = [f"| {' | '.join(escape(cell) for cell in row)} |" for row in rows]
    return [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}", *body, ""]


def escape(text: object) -> str:
    """Makes text from a file harmless: no markup, no HTML, no link, no second line."""
    return _SPECIAL.sub(_defuse, str(text).replace("\n", " "))


def _defuse(found: re.Match[str]) -> str:
    if found["entity"]:
        return _ENTITIES[found[0]]
    return f"{found[0]}{_DIVIDER}" if found["linked"] else f"\\{found[0]}"
