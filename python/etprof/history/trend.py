"""Changes of level over the history of each series."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from sqlalchemy import select

from etprof.history.change_points import find_change_points
from etprof.history.schema import OK, Metric, Run
from etprof.history.selection import Filters, newest_of_each_series

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.orm import Session


@dataclass(frozen=True)
class LevelChange:
    """A series got another level with `run`; values are medians of the levels."""

    run: Run
    previous: Run
    """The last run of the old level: the cause lies between the two commits."""
    before: float
    after: float
    unit: str
    higher_is_better: bool

    @property
    def change(self) -> float:
        """After ÷ before, minus one."""
        return self.after / self.before - 1


def find_changes(session: Session, metric: str, filters: Filters) -> list[LevelChange]:
    """Returns all changes of level of representative runs, series by series, oldest first."""
    found: list[LevelChange] = []
    for newest in newest_of_each_series(session, filters):
        query = (
            select(Run, Metric)
            .join(Metric, Metric.run_id == Run.id)
            .where(Run.series == newest.series, Run.status == OK, Run.representative)
            .where(Metric.name == metric)
            .order_by(Run.measured_at, Run.id)
        )
        if filters.git_branch is not None:
            query = query.where(Run.git_branch == filters.git_branch)
        found += _changes_of_series(session.execute(query).all())
    return found


def _changes_of_series(rows: Sequence[tuple[Run, Metric]]) -> list[LevelChange]:
    values = [metric.value for _, metric in rows]
    starts = find_change_points(values)
    edges = [0, *starts, len(values)]
    return [
        LevelChange(
            run=rows[start][0],
            previous=rows[start - 1][0],
            before=median(values[edges[number] : start]),
            after=median(values[start : edges[number + 2]]),
            unit=rows[start][1].unit,
            higher_is_better=rows[start][1].higher_is_better,
        )
        for number, start in enumerate(starts)
    ]
