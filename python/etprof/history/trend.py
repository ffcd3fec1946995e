"""Change points over the history of each series."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from sqlalchemy import select

from etprof.base.units import count_of, format_change
from etprof.history.gate import describe_states
from etprof.history.schema import OK, Acceptance, Baseline, Metric, Run
from etprof.history.selection import newest_of_each_series
from etprof.statistics.change_points import MOST_OF_A_LEVEL, find_change_points, step_in_doubt
from etprof.statistics.states import find_states

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy.orm import Session

    from etprof.statistics.change_points import ChangePoint
    from etprof.statistics.states import TwoStates


@dataclass(frozen=True)
class LevelChange:
    """A series got another level, most probably with `run`; values are medians of the levels."""

    run: Run
    previous: Run
    """The last run that is of the old level with 95 %."""
    following: Run
    """The first run that is of the new level: the cause lies between the two commits."""
    probability: float
    """Of a change here, to one of none."""
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


@dataclass(frozen=True)
class StepInDoubt:
    """A series that may have got another level, or drifts: its runs are too few to tell."""

    run: Run
    """The newest one."""
    runs: int
    """Of its newest level."""
    change: float
    """Of the step, if it is one: after ÷ before, minus one."""

    @property
    def text(self) -> str:
        """What cannot be told, in words."""
        step = format_change(self.change)
        return f"{count_of(self.runs, 'run')} cannot tell a step of {step} from a drift"


@dataclass(frozen=True)
class SeriesInTwoStates:
    """A series that goes back and forth between two states, which are no changes of its level."""

    run: Run
    """The newest one."""
    states: TwoStates

    @property
    def text(self) -> str:
        """What the states are, in words."""
        return f"two states: {describe_states(self.states)}"


def find_changes(
    session: Session, metric: str, filters: Mapping[str, str]
) -> tuple[list[LevelChange], list[StepInDoubt | SeriesInTwoStates]]:
    """Returns all change points of representative runs, series by series, oldest first.

    And the series that have two states, or whose newest level would have a step if its runs were
    independent.
    """
    changes, doubts = list[LevelChange](), list[StepInDoubt | SeriesInTwoStates]()
    for newest, numbers, values in _series(session, metric, filters):
        change_points = find_change_points(values)
        changes += _describe(session, metric, change_points, numbers, values)
        states = find_states([math.log(value) for value in values if value > 0])
        if states is not None:
            doubts.append(SeriesInTwoStates(newest, states))
            continue
        level = values[change_points[-1].start if change_points else 0 :][-MOST_OF_A_LEVEL:]
        step = step_in_doubt(level)
        if step is not None:
            doubts.append(StepInDoubt(newest, len(level), step))
    return changes, doubts


def _series(
    session: Session, metric: str, filters: Mapping[str, str]
) -> Iterator[tuple[Run, list[int], list[float]]]:
    """The newest run of each series, the numbers of all its good ones, and their values."""
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
        yield newest, [row[0] for row in rows], [row[1] for row in rows]


def _describe(
    session: Session,
    metric: str,
    change_points: Sequence[ChangePoint],
    numbers: Sequence[int],
    values: Sequence[float],
) -> list[LevelChange]:
    """Describes the changes in one series of runs."""
    edges = [0, *(change.start for change in change_points), len(values)]
    kind = session.get_one(Metric, (numbers[0], metric)) if change_points else None
    return [
        LevelChange(
            run=session.get_one(Run, numbers[change.start]),
            previous=session.get_one(Run, numbers[change.earliest - 1]),
            following=session.get_one(Run, numbers[change.latest]),
            probability=change.probability,
            before=median(values[edges[index] : change.start]),
            after=median(values[change.start : edges[index + 2]]),
            unit=kind.unit,
            higher_is_better=kind.higher_is_better,
        )
        for index, change in enumerate(change_points)
        if kind is not None
    ]


def standing_regressions(session: Session, changes: Sequence[LevelChange]) -> list[LevelChange]:
    """Those of the changes that made a series worse, were its last, and are not meant.

    A level is meant where a run of it is accepted or pinned.
    """
    last = {change.run.series: change for change in changes}
    runs = select(Run.series, Run.measured_at).where(Run.series.in_(last))
    meant: dict[str, datetime] = {}
    for table in (Baseline, Acceptance):
        for series, moment in session.execute(runs.join(table, table.run_id == Run.id)):
            meant[series] = max(moment, meant.get(series, moment))
    return [
        change
        for series, change in last.items()
        if change.is_worse and not (series in meant and meant[series] >= change.run.measured_at)
    ]
