"""What repeated runs of the same thing differ by on a device: its noise floor, from A/A data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from sqlalchemy import select

from etprof.history.metric_names import METRICS
from etprof.history.schema import OK, Metric, Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from sqlalchemy.orm import Session

_NEWEST: Final = 2000
"""Runs that are looked at: a device changes over the years."""


@dataclass(frozen=True)
class NoiseFloor:
    """Spread of one metric's value over runs that repeat each other (A/A), on one device."""

    device: str
    metric: str
    of_run: float
    """Standard deviation of one run's log value: about its relative spread."""
    freedom: int
    """Degrees of freedom: runs less groups."""
    runs: int
    groups: int
    """Series and revisions with more than one run."""


@dataclass(frozen=True)
class _Repetition:
    """One run that may repeat others."""

    group: tuple[str, str | None]
    measured_at: datetime
    log_value: float


class NoiseFloors:
    """The noise floors of a history; each device and metric is read once."""

    def __init__(self, session: Session, *, until: datetime | None = None) -> None:
        self._session, self._until = session, until
        self._known: dict[tuple[str, str], list[_Repetition]] = {}

    def floor(
        self, device: str, metric: str, *, before: datetime | None = None
    ) -> NoiseFloor | None:
        """Pools the spread within groups of equal series and revision; None without such runs.

        Only runs older than `before` count, so that a run that is to be judged does not widen its
        own interval.
        """
        key = (device, metric)
        if key not in self._known:
            self._known[key] = _repetitions(self._session, device, metric, self._until)
        groups: dict[tuple[str, str | None], list[float]] = {}
        for run in self._known[key]:
            if before is None or run.measured_at < before:
                groups.setdefault(run.group, []).append(run.log_value)
        return pool_groups(device, metric, groups.values())

    def every(self) -> list[NoiseFloor]:
        """Returns the noise floor of every device and metric that has A/A data."""
        timed = select(Run.device).where(Run.representative).distinct().order_by(Run.device)
        devices = self._session.scalars(timed).all()
        found = [self.floor(device, metric) for device in devices for metric in METRICS]
        return [floor for floor in found if floor is not None]


def _repetitions(
    session: Session, device: str, metric: str, until: datetime | None
) -> list[_Repetition]:
    """Reads the newest measured runs of a device whose revision is known, up to `until`."""
    query = (
        select(Run.series, Run.revision, Run.measured_at, Metric.value)
        .join(Metric, Metric.run_id == Run.id)
        .where(Run.device == device, Run.status == OK, Run.representative, Metric.name == metric)
        .where(Run.revision.is_not(None), Metric.value > 0)
        .order_by(Run.measured_at.desc())
        .limit(_NEWEST)
    )
    if until is not None:
        query = query.where(Run.measured_at <= until)
    return [
        _Repetition((series, revision), measured_at, math.log(value))
        for series, revision, measured_at, value in session.execute(query)
    ]


def pool_groups(device: str, metric: str, groups: Iterable[Sequence[float]]) -> NoiseFloor | None:
    """Pools the variance of log values within groups of runs; None where none is repeated."""
    repeated = [np.asarray(group) for group in groups if len(group) > 1]
    if not repeated:
        return None
    runs = sum(group.size for group in repeated)
    freedom = runs - len(repeated)
    squares = sum(float(np.sum((group - group.mean()) ** 2)) for group in repeated)
    return NoiseFloor(device, metric, math.sqrt(squares / freedom), freedom, runs, len(repeated))
