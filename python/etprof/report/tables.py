"""The one look of all terminal tables."""

from __future__ import annotations

from etprof.base.plain_table import PlainTable


def bordered_table(title: str, first: str, *columns: str) -> PlainTable:
    """A table with one text column and right-aligned figures."""
    table = PlainTable(title=title, title_justify="left", title_style="", header_style="bold")
    table.add_column(first, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right")
    return table
