"""A table that people and programs see: columns declared once, with where each value comes from."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

Dtype = Literal["string", "Int64", "boolean", "float64"]
"""pandas' own names."""
Value = str | int | float | bool | None
Place = Literal["everywhere", "page", "data"]
"""Who sees a column: everyone; only pages and programs; only programs. `everywhere` is for the few
that fit a terminal."""
_SEEN_IN: Final[dict[Place, tuple[Place, ...]]] = {
    "everywhere": ("everywhere",),
    "page": ("everywhere", "page"),
    "data": ("everywhere", "page", "data"),
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
    place: Place = "everywhere"
    bounds: tuple[str, str] | None = None
    """The columns with the ends of its 95 % interval, which people see beside it."""
    styles: Mapping[str, str] = field(default_factory=dict)
    """rich's style of a cell, by its text."""

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
    is_about_times: bool = False
    """Without times nothing is left of it: no row, only its header."""
    is_timed: bool = True
    """False when it came from a run that proves no times."""

    def of(self, subjects: Iterable[object], *, is_timed: bool = True, **changes: str) -> Table:
        """Fills the declaration with a row per subject; without times every time is missing."""
        kept = () if self.is_about_times and not is_timed else subjects
        rows = tuple(
            tuple(
                None if column.is_timed and not is_timed else column.value_of(subject)
                for column in self.columns
            )
            for subject in kept
        )
        return replace(self, rows=rows, is_timed=is_timed, **changes)  # type: ignore[arg-type]

    def records(self) -> list[dict[str, Value]]:
        """Returns each row by the names of its columns."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]

    def column(self, name: str) -> Column:
        """Returns the column of that name."""
        return next(column for column in self.columns if column.name == name)

    def seen(self, place: Place) -> Table:
        """Keeps what is seen at that place: columns that are for it and know something."""
        keep = [
            index
            for index, column in enumerate(self.columns)
            if column.place in _SEEN_IN[place]
            and (place == "data" or self.is_timed or not column.is_timed)
            and (
                place == "data" or not self.rows or any(row[index] is not None for row in self.rows)
            )
        ]
        return self._pick(keep)

    def pick(self, *names: str) -> Table:
        """Keeps the columns of these names, in this order."""
        places = {column.name: index for index, column in enumerate(self.columns)}
        return self._pick([places[name] for name in names])

    def _pick(self, keep: list[int]) -> Table:
        rows = tuple(tuple(row[index] for index in keep) for row in self.rows)
        return replace(self, columns=tuple(self.columns[index] for index in keep), rows=rows)
