"""Prints the columns of every table, from where they are declared: the site's page Columns.

usage: python docs/columns.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from etprof.tables.alternatives import TOGETHER
from etprof.tables.report import DECLARED

if TYPE_CHECKING:
    from etprof.tables.table import Table


def column_lists() -> str:
    """Returns a section for each table."""
    tables = (*DECLARED.values(), *TOGETHER.values())
    return "\n".join(_section(table) for table in tables).rstrip() + "\n"


def _section(table: Table) -> str:
    rows = [f"| `{c.name}` | {c.dtype} | {c.says.replace('|', ' ')} |" for c in table.columns]
    head = f"## `{table.name}`: {table.says}"
    return "\n".join([head, "", "| column | dtype | meaning |", "|---|---|---|", *rows, ""])


if __name__ == "__main__":
    print(column_lists(), end="")
