"""Prints the columns of every table, from where they are declared: the site's page Columns.

usage: python docs/columns.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etprof.tables.alternatives import TOGETHER
from etprof.tables.report import DECLARED
from etprof.views.json_figures import json_unit

if TYPE_CHECKING:
    from etprof.tables.table import Column, Table


def column_lists() -> str:
    """Returns a section for each table."""
    tables = (*DECLARED.values(), *TOGETHER.values())
    return "\n".join(_section(table) for table in tables).rstrip() + "\n"


def _section(table: Table) -> str:
    heads = ("| column | dtype | unit | basis | meaning |", "|---|---|---|---|---|")
    rows = [_row(table, column) for column in table.columns]
    return "\n".join([f"## `{table.name}`: {table.says}", "", *heads, *rows, ""])


def _row(table: Table, column: Column) -> str:
    unit = json_unit(column) if column.is_number else ""
    says = column.says.replace("|", " ")
    return (
        f"| `{column.name}` | {column.dtype} | {unit or '–'} | {table.basis_of(column) or '–'} "
        f"| {says} |"
    )


if __name__ == "__main__":
    print(column_lists(), end="")
