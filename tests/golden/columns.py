"""Every table that is declared, with all that its columns say: types, units, who sees them."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

from etprof.tables.table import Column, Table
from tests.source_checkout import ROOT

COLUMNS_FILE: Final = "columns.txt"
_PACKAGE: Final = ROOT / "python/etprof"
_LEFT_OUT: Final = {"of", "rows_of", "columns", "rows", "name", "says"}
"""What reads values is held by the tables of known runs; their meaning is in the guide."""


def describe_columns() -> str:
    """A line for each table and each of its columns, with what is not as usual."""
    tables = {id(table): table for table in _declared_tables()}.values()
    lines: list[str] = []
    for table in sorted(tables, key=lambda table: (table.name, table.names)):
        lines.append(f"# {table.name}{_facts(table)}")
        lines += [f"{column.name}{_facts(column)}" for column in table.columns]
    return "\n".join(lines) + "\n"


def _facts(declared: Table | Column) -> str:
    values = (
        (field.name, getattr(declared, field.name), field.default)
        for field in dataclasses.fields(declared)
        if field.name not in _LEFT_OUT
    )
    return "".join(
        f"; {name}={value!r}" for name, value, usual in values if value and value != usual
    )


def _declared_tables() -> Iterator[Table]:
    for path in sorted(_PACKAGE.rglob("*.py")):
        if "Table(" in path.read_text("utf-8"):
            name = ".".join(path.relative_to(_PACKAGE.parent).with_suffix("").parts)
            for value in vars(importlib.import_module(name)).values():
                yield from _tables_in(value)


def _tables_in(value: Any) -> Iterator[Table]:  # noqa: ANN401 - whatever a module has
    if isinstance(value, Table):
        yield value
    elif isinstance(value, Mapping):
        yield from (each for each in value.values() if isinstance(each, Table))
    elif isinstance(value, tuple | list):
        yield from (each for each in value if isinstance(each, Table))
