"""Tables on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from etprof.base.plain_table import PlainTable
from etprof.views.cells import shown_columns, shown_rows

if TYPE_CHECKING:
    from etprof.tables.table import Table


def terminal_table(table: Table) -> PlainTable:
    """Returns the table as rich shows it: figures on the right, long names folded."""
    found = PlainTable(
        title=table.title or None,
        title_justify="left",
        title_style="",
        header_style="bold",
        caption=Text(table.note) if table.note else None,
        caption_justify="left",
    )
    for shown in shown_columns(table, "everywhere"):
        if shown.column.is_number:
            found.add_column(shown.heading, justify="right")
        else:
            found.add_column(shown.heading, overflow="fold")
    for row in shown_rows(table, "everywhere"):
        found.add_row(*(Text(cell.text, style=cell.style) for cell in row))
    return found
