"""A table's cells as people read them: which columns, and the text of each value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from etprof.base.units import (
    MISSING,
    format_range,
    format_ratio,
    format_ratio_ends,
    format_value,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from etprof.tables.table import Column, Table, Value, Visibility


@dataclass(frozen=True)
class Cell:
    """What stands in a place of a table."""

    text: str
    value: Value = None
    """What it is sorted by; None sorts last."""
    style: str = ""


@dataclass(frozen=True)
class ShownColumn:
    """A column that people see: one that is declared, or the interval beside it."""

    column: Column
    heading: str
    is_interval: bool = False
    """Whether it is the interval of the column, not its value."""

    @property
    def dropped_first(self) -> int:
        """Which goes first where a terminal is narrow: the highest, and intervals before values."""
        return 2 * self.column.dropped_first + self.is_interval


def shown_columns(table: Table, visibility: Visibility) -> list[ShownColumn]:
    """Returns what is seen there, each estimate with its interval behind it."""
    columns = []
    for column in table.visible_in(visibility).columns:
        columns.append(ShownColumn(column, column.heading))
        if column.bounds is not None and any(map(table.has_values, column.bounds)):
            columns.append(ShownColumn(column, column.interval_title, is_interval=True))
    return columns


def shown_rows(table: Table, visibility: Visibility) -> list[list[Cell]]:
    """Returns the cells under `shown_columns`."""
    readers = [_reader(table, column) for column in shown_columns(table, visibility)]
    return [[reader(row) for reader in readers] for row in table.rows]


def _reader(table: Table, shown_column: ShownColumn) -> Callable[[Sequence[Value]], Cell]:
    """Returns what makes the column's cell of a row."""
    indices = {column.name: index for index, column in enumerate(table.columns)}
    column, index = shown_column.column, indices[shown_column.column.name]
    unit_index = indices[column.unit[1:]] if column.unit.startswith("@") else None

    def unit(row: Sequence[Value]) -> str:
        return column.unit if unit_index is None else str(row[unit_index] or "")

    step_index = indices.get(column.step)

    def is_below_step(row: Sequence[Value]) -> bool:
        step = None if step_index is None else _number(row[step_index])
        value = _number(row[index])
        return step is not None and value is not None and value < step

    if shown_column.is_interval and column.bounds is not None:
        low, high = (indices[name] for name in column.bounds)
        if column.unit == "ratio":
            return _ratio_ends_reader(index, low, high)
        return lambda row: Cell(
            MISSING
            if is_below_step(row)
            else format_range(unit(row), *(_number(row[i]) for i in (low, high, index)))
        )
    if column.unit == "ratio" and column.bounds is not None:
        return _ratio_reader(index, *(indices[name] for name in column.bounds))
    if column.repeats:
        other = indices[column.repeats]
        return lambda row: _cell(column, "", None if row[index] == row[other] else row[index])
    return lambda row: (
        Cell(f"≤ {format_value(unit(row), row[step_index])}", row[index])
        if step_index is not None and is_below_step(row)
        else _cell(column, unit(row), row[index])
    )


def _ratio_reader(index: int, *ends: int) -> Callable[[Sequence[Value]], Cell]:
    """Returns what makes the cell of a speedup, as finely as its interval tells."""

    def read(row: Sequence[Value]) -> Cell:
        value, (low, high) = _number(row[index]), (_number(row[end]) for end in ends)
        half_width = None if low is None or high is None else (high - low) / 2
        return Cell(format_ratio(value, half_width), value)

    return read


def _ratio_ends_reader(index: int, *ends: int) -> Callable[[Sequence[Value]], Cell]:
    """Returns what makes the cell of a speedup's interval, as fine as the speedup."""

    def read(row: Sequence[Value]) -> Cell:
        low, high = (_number(row[end]) for end in ends)
        if low is None or high is None:
            return Cell(MISSING)
        return Cell(" … ".join(format_ratio_ends(_number(row[index]), low, high)))

    return read


def _cell(column: Column, unit: str, value: Value) -> Cell:
    text = format_value(unit, value)
    if value is None and not column.is_number:
        text = ""
    elif value == "":
        text = column.empty
    return Cell(text, value, column.styles.get(text, ""))


def _number(value: Value) -> float | None:
    return value if isinstance(value, int | float) else None
