"""A table that people and programs see: columns declared once, with where each value comes from."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from typing import Any, Final, Literal

from etprof.base.units import count_of

Dtype = Literal["string", "Int64", "boolean", "float64"]
"""pandas' own names."""
Value = str | int | float | bool | None
Basis = Literal[
    "", "per inference", "per call", "per sample", "per token", "per prompt", "per launch", "per load",
    "per element", "per output", "per text", "per program", "per device", "per comparison",
    "per interval", "per document", "per export", "over the split", "over the run", "position", "by row",
]  # fmt: skip
"""What a figure is of. Over the split: the sum over the executions that it counts, so it grows with
their number. By row: a column of text says it. Empty: what the table says."""
Visibility = Literal["everywhere", "several", "page", "data"]
"""Who sees a column: everyone, which is for the few that fit a terminal; everyone, where its values
differ; only pages and programs; only programs."""
_SEEN_IN: Final[dict[Visibility, tuple[Visibility, ...]]] = {
    "everywhere": ("everywhere", "several"),
    "page": ("everywhere", "several", "page"),
    "data": ("everywhere", "several", "page", "data"),
}


@dataclass(frozen=True)
class Column:
    """One column: its name for programs, its title for people, what it says."""

    name: str
    dtype: Dtype
    unit: str = ""
    """For `format_value`; `@NAME` takes each row's unit from the column NAME."""
    says: str = ""
    is_timed: bool = False
    """A clock had a part in it: empty where the target proves no times."""
    title: str | None = None
    of: Callable[[Any], Value] | None = None
    """Its value of a subject; None: the subject is a mapping that has it by name."""
    visibility: Visibility = "everywhere"
    bounds: tuple[str, str] | None = None
    """The columns with the ends of its interval, which people see beside it."""
    interval_title: str = "95 % interval"
    """What people read above that interval."""
    step: str = ""
    """The column with what its values are rounded down to; people see those below it as `≤`."""
    adds_up: bool = False
    """Rows add up to the whole, so the rest of a cut table is one row with their sum."""
    has_bar: bool = False
    """Pages draw its values as bars."""
    styles: Mapping[str, str] = field(default_factory=dict)
    """rich's style of a cell, by its text."""
    is_whole: bool = False
    """Terminals never fold its texts: people copy them."""
    dropped_first: int = 0
    """A brief table leaves the highest out first where a terminal is narrow; of equals the last."""
    repeats: str = ""
    """The column beside which people read nothing here where both say the same."""
    empty: str = ""
    """What people read for a text that is empty, which is not the same as missing."""
    basis: Basis = ""
    """What a figure is of, where that is not what its table says."""
    goes_with: str = ""
    """The version without it, where it is deprecated; JSON has left it out already."""

    @property
    def heading(self) -> str:
        """The title for people."""
        return self.name.replace("_", " ") if self.title is None else self.title

    @property
    def is_number(self) -> bool:
        """Whether cells are figures, which stand on the right."""
        return self.dtype in {"Int64", "float64"}

    def value_of(self, subject: Any) -> Value:  # noqa: ANN401 - each table has its own subjects
        """Returns the value of one row."""
        value: Value = subject[self.name] if self.of is None else self.of(subject)
        return value


def estimate(  # noqa: PLR0913 - a column's declaration
    name: str,
    unit: str,
    of: Callable[[Any], Any],
    value: Callable[[Any], Value],
    *,
    says: str,
    title: str | None = None,
    interval: str = "its 95 % interval",
) -> tuple[Column, Column, Column]:
    """A value, and the ends of the interval that what `of` returns has, where it has one."""

    def end(which: str) -> Callable[[Any], float | None]:
        def read(subject: Any) -> float | None:  # noqa: ANN401 - each table has its own subjects
            bounds = getattr(of(subject), "interval", None)
            return None if bounds is None else float(getattr(bounds, which))

        return read

    low, high = f"{name}_low", f"{name}_high"
    shared: dict[str, Any] = {"dtype": "float64", "unit": unit, "is_timed": True}
    return (
        Column(name, **shared, title=title, bounds=(low, high), of=value, says=says),
        Column(low, **shared, visibility="data", of=end("low"), says=f"lower end of {interval}"),
        Column(
            high, **shared, visibility="data", of=end("high"), says="upper end of that interval"
        ),
    )


def speed_up(
    of: Callable[[Any], Any], *, says: str, title: str = "speedup"
) -> tuple[Column, Column, Column]:
    """The speedup of an effect with its interval; missing without one."""

    def value(subject: Any) -> Value:  # noqa: ANN401 - each table has its own subjects
        effect = of(subject)
        return None if effect is None else float(effect.speed_up)

    return estimate("speed_up", "ratio", of, value, says=says, title=title)


def named_column(of: Callable[[Any], Value] | None, *, title: str = "operator") -> Column:
    """What a row of operators leads with: people look for their own layer."""
    return Column("name", "string", title=title, of=of,
                  says="the model's module and source line, else what the label says")  # fmt: skip


@dataclass(frozen=True)
class Table:
    """Columns and rows; without rows it is a declaration, and a header when shown."""

    name: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...] = ()
    title: str = ""
    note: str = ""
    says: str = ""
    """What a row is."""
    from_each: str = ""
    """What of an assessment has rows here: run, experiment(s), insight, comparison, findings, cost,
    output, or what was counted by mode."""
    rows_of: Callable[[Any], Iterable[object]] = lambda source: (source,)
    """The subjects of the rows of each of these."""
    by: str = ""
    """Column that says which rows matter most, where there are too many; empty: all rows count."""
    is_shaded: bool = False
    """Pages shade its figures, the least the most."""
    is_drawn: bool = False
    """Pages draw every row with its figures, and have no table of it; Markdown has nothing."""
    basis: Basis = ""
    """What its figures are of, unless a column says otherwise."""

    def of(self, subjects: Iterable[object], **changes: str) -> Table:
        """Fills the declaration with a row per subject."""
        rows = tuple(
            tuple(column.value_of(subject) for column in self.columns) for subject in subjects
        )
        return replace(self, rows=rows, **changes)  # type: ignore[arg-type]

    def of_each(self, sources: Iterable[object]) -> Table:
        """Fills the declaration with the rows of each run, experiment, or whatever it is made of."""
        return self.of(subject for source in sources for subject in self.rows_of(source))

    @property
    def names(self) -> list[str]:
        """Names of the columns."""
        return [column.name for column in self.columns]

    def basis_of(self, column: Column) -> Basis:
        """Returns what the figures of a column are of; empty for texts."""
        return (column.basis or self.basis) if column.is_number else ""

    def records(self) -> list[dict[str, Value]]:
        """Returns each row by the names of its columns."""
        return [dict(zip(self.names, row, strict=True)) for row in self.rows]

    def with_interval_titled(self, name: str, title: str) -> Table:
        """Gives the interval of one column another title, such as that of another confidence."""
        columns = tuple(
            replace(column, interval_title=title) if column.name == name else column
            for column in self.columns
        )
        return replace(self, columns=columns)

    def titled(self, **titles: str) -> Table:
        """Gives columns other titles, such as the names of two experiments."""
        columns = tuple(
            replace(column, title=titles.get(column.name, column.title)) for column in self.columns
        )
        return replace(self, columns=columns)

    def pivot(
        self,
        down: str | Sequence[str],
        across: str,
        *names: str,
        join: Callable[[float, float], float] = operator.add,
    ) -> Table:
        """Lays rows out as a matrix: columns for each value of `across`, with figures of `names`.

        Rows are those that differ in the columns of `down`, which stay.
        `join` makes one figure of two that share a cell; sums, unless it says otherwise.
        """
        heads = [self._index(name) for name in ([down] if isinstance(down, str) else down)]
        top = self._index(across)
        figures = {name: self._index(name) for name in names}
        joined: dict[tuple[tuple[Value, ...], Value, str], float] = {}
        rows = [(tuple(row[index] for index in heads), row) for row in self.rows]
        for head, row in rows:
            for name, index in figures.items():
                if (value := row[index]) is not None:
                    cell = (head, row[top], name)
                    previous = joined.get(cell)
                    joined[cell] = (
                        float(value) if previous is None else join(previous, float(value))
                    )
        tops = list(dict.fromkeys(row[top] for row in self.rows))
        columns = (
            replace(self.columns[index], name=f"{name}_{over}", visibility="everywhere", bounds=None,
                    has_bar=False, title=str(over) if name == names[0] else None)
            for over in tops for name, index in figures.items()
        )  # fmt: skip
        cells = tuple(
            (*head, *(joined.get((head, over, name)) for over in tops for name in names))
            for head in dict.fromkeys(head for head, _ in rows)
        )
        first = (
            replace(column, visibility="everywhere") if column.visibility == "data" else column
            for column in (self.columns[index] for index in heads)
        )
        name = f"{self.name}_by_{across}"
        return replace(self, name=name, columns=(*first, *columns), rows=cells)

    def sorted(self) -> Table:
        """Puts the rows that matter most first, where that is known."""
        if not self._is_ordered:
            return self
        index = self._index(self.by)
        return replace(
            self, rows=tuple(sorted(self.rows, key=lambda row: -abs(float(row[index] or 0))))
        )

    def first(self, count: int) -> Table:
        """Keeps the first rows."""
        return replace(self, rows=self.rows[:count])

    def without_missing(self, name: str) -> Table:
        """Leaves rows out that have nothing in the column."""
        index = self._index(name)
        return replace(self, rows=tuple(row for row in self.rows if row[index] is not None))

    def largest(self, count: int) -> Table:
        """Keeps the rows that matter most, where that is known, and the sum of the rest as one."""
        if len(self.rows) <= count or not self._is_ordered:
            return self
        rows = self.sorted().rows
        remainder = self._sum(count_of(len(rows) - count, "other"), rows[count:])
        return replace(self, rows=(*rows[:count], remainder))

    def with_total(self, label: str) -> Table:
        """Adds the sum of all rows."""
        return replace(self, rows=(*self.rows, self._sum(label, self.rows))) if self.rows else self

    def _sum(self, label: str, rows: Sequence[tuple[Value, ...]]) -> tuple[Value, ...]:
        """One row under the label, which stands in the first column that people read."""
        texts = (column for column in self.columns if column.dtype == "string")
        name = next(column.name for column in texts if column.visibility in {"everywhere", "page"})
        return tuple(
            label
            if column.name == name
            else fsum(float(row[index] or 0) for row in rows)
            if column.adds_up and {row[index] for row in rows} != {None}
            else None
            for index, column in enumerate(self.columns)
        )

    @property
    def _is_ordered(self) -> bool:
        return bool(self.by) and any(row[self._index(self.by)] is not None for row in self.rows)

    def _index(self, name: str) -> int:
        return next(i for i, column in enumerate(self.columns) if column.name == name)

    def visible_in(self, visibility: Visibility) -> Table:
        """Keeps the columns that are shown there and have values."""
        keep = [
            index
            for index, column in enumerate(self.columns)
            if column.visibility in _SEEN_IN[visibility]
            and (visibility == "data" or self._is_informative(index))
        ]
        rows = tuple(tuple(row[index] for index in keep) for row in self.rows)
        return replace(self, columns=tuple(self.columns[index] for index in keep), rows=rows)

    def has_values(self, name: str) -> bool:
        """Whether any row has a value in the column; True without rows."""
        index = self._index(name)
        return not self.rows or any(row[index] is not None for row in self.rows)

    def _is_informative(self, index: int) -> bool:
        """Whether people learn anything from a column."""
        column, values = self.columns[index], {row[index] for row in self.rows}
        if column.visibility == "several":
            return len(values - {None}) > 1
        if column.repeats:
            other = self._index(column.repeats)
            return any(row[index] not in {None, row[other]} for row in self.rows) or not self.rows
        return values != {None}


@dataclass(frozen=True)
class Section:
    """A part of a report: a heading, tables, and what must be said of them."""

    anchor: str
    title: str
    tables: tuple[Table, ...] = ()
    lead: str = ""
    """A fact, above the tables."""
    says: str = ""
    """How the tables are read; only pages have room for it."""
    visibility: Literal["everywhere", "page", "terminal"] = "everywhere"
    """Where people read it."""
    lines: tuple[str, ...] = ()
    """Below the tables."""
    is_folded: bool = False
    """Pages show its heading alone until it is asked for."""
