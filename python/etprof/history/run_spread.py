"""How much do two runs of the same thing differ? What a history has of a series and its device.

The series' own repeated runs say it best. Where there are none, the newest calibration of the device
does, which was of another program perhaps, and within an hour.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from sqlalchemy import select

from etprof.base.units import format_share
from etprof.history.ingest import read_run_directory
from etprof.history.schema import OK, DeviceCalibration, Metric, Run
from etprof.statistics.two_samples import Spread, pooled_spread

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from pathlib import Path

    from sqlalchemy.orm import Session

    from etprof.history.store import Store
    from etprof.statistics.calibration import Calibration

LEAST_FREEDOM: Final = 4
"""Degrees of freedom below which a spread is not known well enough to judge by."""
LEAST_DEVIATION: Final = 0.003
"""No series is taken to vary less: clocks round, and a calm week is not every week."""
_NEWEST: Final = 500
"""Runs of a series that are looked at."""


def known_spreads(
    session: Session, places: Sequence[tuple[Path, str]], metrics: Iterable[str]
) -> dict[str, Spread]:
    """Returns, by metric, how much one run of the given experiments' series varies (log values).

    `places` are a run directory and an experiment each. Runs of one series and revision repeat each
    other; those that are compared do not count. The larger spread of the two series is taken, and a
    metric that either series does not tell is left out.
    """
    runs = [run for place, name in places for run in read_run_directory(place)
            if run.experiment == name]  # fmt: skip
    if len(runs) < len(places) or not all(run.representative for run in runs):
        return {}
    keys = {run.key for run in runs}
    found = {}
    for metric in metrics:
        spreads = [_spread_of(session, run, keys, metric) for run in runs]
        if metric == "latency_ns":
            spreads = [
                s or _calibrated(session, run.device) for s, run in zip(spreads, runs, strict=True)
            ]
        known = [spread for spread in spreads if spread is not None]
        if len(known) == len(runs):
            found[metric] = max(known, key=lambda spread: spread.deviation)
    return found


def keep_calibration(store: Store, folder: Path, found: Calibration) -> str:
    """Adds what `calibrate` found to the history of the device of a run; returns its name."""
    run = read_run_directory(folder)[0]
    smallest, between = found.smallest_effect, found.between_runs
    facts = {
        "device": run.device, "measured_at": run.measured_at, "model": run.model,
        "pairs": found.pairs,
        "smallest": smallest.value if smallest else None,
        "smallest_low": smallest.low if smallest else None,
        "smallest_high": smallest.high if smallest else None,
        "runs": between.runs if between else 1,
        "run_spread": between.spread.value if between else None,
    }  # fmt: skip
    store.write(lambda session: session.add(DeviceCalibration(**facts)))
    return run.device


def newest_calibration(session: Session, device: str) -> DeviceCalibration | None:
    """Returns what a device was last found to tell apart."""
    newest = DeviceCalibration.measured_at.desc(), DeviceCalibration.id.desc()
    query = select(DeviceCalibration).where(DeviceCalibration.device == device)
    return session.scalar(query.order_by(*newest).limit(1))


def _calibrated(session: Session, device: str) -> Spread | None:
    """The spread of runs of the device's newest calibration that measured enough of them."""
    query = (
        select(DeviceCalibration)
        .where(DeviceCalibration.device == device, DeviceCalibration.runs > LEAST_FREEDOM)
        .order_by(DeviceCalibration.measured_at.desc(), DeviceCalibration.id.desc())
        .limit(1)
    )
    found = session.scalar(query)
    if found is None or found.run_spread is None:
        return None
    return Spread(max(found.run_spread, LEAST_DEVIATION), found.runs - 1)


def describe_device(store: Store, folder: Path) -> str | None:
    """Says what the device of a run can tell apart; None where it was never calibrated."""
    run = read_run_directory(folder)[0]
    with store.session() as session:
        found = newest_calibration(session, run.device)
        if found is None:
            return None
        when = (
            f"in {found.pairs} blocks, as `etprof calibrate` found on {found.measured_at:%Y-%m-%d}"
        )
        if found.smallest is None:
            return f"This machine tells nothing up to 2× apart {when}"
        low, high = found.smallest_low or 0.0, found.smallest_high or math.inf
        return (
            f"This machine can tell {format_share(found.smallest)} apart "
            f"({format_share(low)} … {format_share(high)}) {when}"
        )


def _spread_of(session: Session, run: Run, apart: Collection[str], metric: str) -> Spread | None:
    """Pools the spread within the revisions of a run's series."""
    query = (
        select(Run.revision, Metric.value)
        .join(Metric, Metric.run_id == Run.id)
        .where(Run.series == run.series, Run.status == OK, Run.representative)
        .where(Run.revision.is_not(None), Run.key.not_in(apart))
        .where(Metric.name == metric, Metric.value > 0)
        .order_by(Run.measured_at.desc())
        .limit(_NEWEST)
    )
    groups: dict[str | None, list[float]] = {}
    for revision, value in session.execute(query):
        groups.setdefault(revision, []).append(math.log(value))
    spread = pooled_spread(list(groups.values()))
    if spread.freedom < LEAST_FREEDOM:
        return None
    return Spread(max(spread.deviation, LEAST_DEVIATION), spread.freedom)
