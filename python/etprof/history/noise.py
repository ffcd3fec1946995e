"""What repeated runs of the same thing differ by on a device: its noise floor, from A/A data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from sqlalchemy import select

from etprof.history.schema import OK, Metric, Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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


def noise_floor(
    session: Session, device: str, metric: str, *, before: Run | None = None
) -> NoiseFloor | None:
    """Pools the spread within groups of equal series and revision; None without such runs.

    Only runs older than `before` count, so that a run that is to be judged does not widen its own
    interval.
    """
    query = (
        select(Run.series, Run.revision, Metric.value)
        .join(Metric, Metric.run_id == Run.id)
        .where(Run.device == device, Run.status == OK, Run.representative, Metric.name == metric)
        .where(Run.revision.is_not(None), Metric.value > 0)
        .order_by(Run.measured_at.desc())
        .limit(_NEWEST)
    )
    if before is not None:
        query = query.where(Run.measured_at < before.measured_at)
    groups: dict[tuple[str, str | None], list[float]] = {}
    for series, revision, value in session.execute(query):
        groups.setdefault((series, revision), []).append(math.log(value))
    return pool_groups(device, metric, groups.values())


def pool_groups(device: str, metric: str, groups: Iterable[Sequence[float]]) -> NoiseFloor | None:
    """Pools the variance of log values within groups of runs; None where none is repeated."""
    repeated = [np.asarray(group) for group in groups if len(group) > 1]
    if not repeated:
        return None
    runs = sum(group.size for group in repeated)
    freedom = runs - len(repeated)
    squares = sum(float(np.sum((group - group.mean()) ** 2)) for group in repeated)
    return NoiseFloor(device, metric, math.sqrt(squares / freedom), freedom, runs, len(repeated))


def noise_floors(session: Session, metrics: Sequence[str]) -> list[NoiseFloor]:
    """Returns the noise floor of every device and metric that has A/A data."""
    devices = session.scalars(
        select(Run.device).where(Run.representative).distinct().order_by(Run.device)
    ).all()
    found = [noise_floor(session, device, metric) for device in devices for metric in metrics]
    return [floor for floor in found if floor is not None]
