"""Changes of level over the history of each series."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from sqlalchemy import select

from etprof.history.schema import OK, Metric, Run
from etprof.history.selection import newest_of_each_series
from etprof.statistics.change_points import find_change_points

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    def is_worse(self) -> bool:
        """Whether the new level is on the wrong side of the old one."""
        return (self.change < 0) == self.higher_is_better

    @property
    def change(self) -> float:
        """After ÷ before, minus one."""
        return self.after / self.before - 1


def find_changes(session: Session, metric: str, filters: Mapping[str, str]) -> list[LevelChange]:
    """Returns all changes of level of representative runs, series by series, oldest first."""
    found: list[LevelChange] = []
    for newest in newest_of_each_series(session, filters):
        query = (
            select(Run.id, Metric.value)
            .join(Metric, Metric.run_id == Run.id)
            .where(Run.series == newest.series, Run.status == OK, Run.representative)
            .where(Metric.name == metric)
            .order_by(Run.measured_at, Run.id)
        )
        if "branch" in filters:
            query = query.where(Run.git_branch == filters["branch"])
        rows = session.execute(query).all()
        found += _changes(session, metric, [row[0] for row in rows], [row[1] for row in rows])
    return found


def _changes(
    session: Session, metric: str, numbers: Sequence[int], values: Sequence[float]
) -> list[LevelChange]:
    """Describes the changes in one series of runs."""
    starts = find_change_points(values)
    edges = [0, *starts, len(values)]
    kind = session.get_one(Metric, (numbers[0], metric)) if starts else None
    return [
        LevelChange(
            run=session.get_one(Run, numbers[start]),
            previous=session.get_one(Run, numbers[start - 1]),
            before=median(values[edges[place] : start]),
            after=median(values[start : edges[place + 2]]),
            unit=kind.unit,
            higher_is_better=kind.higher_is_better,
        )
        for place, start in enumerate(starts)
        if kind is not None
    ]
