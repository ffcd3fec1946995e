"""How much do two runs of the same thing differ? What a history has of a series and its device.

The one place that says so, to the gate, to `compare`, `history noise` and the dashboard. The
series' own runs say it, moderated by the other series of the device and by its newest calibration,
which was of another program perhaps, and within an hour (`statistics/runs`).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import select, true

from etprof.base.units import format_share
from etprof.history.ingest import read_run_directory
from etprof.history.metric_names import HEADLINE, HIGHER_IS_BETTER, METRICS, worse_side
from etprof.history.schema import (
    Acceptance,
    Alarm,
    Baseline,
    DeviceCalibration,
    Metric,
    Run,
)
from etprof.history.selection import NEWEST_FIRST, SOUND, earlier_runs, sound_runs
from etprof.statistics.departures import SeriesDeparture
from etprof.statistics.device_noise import DeviceNoise
from etprof.statistics.runs import (
    LEAST_DEVIATION,
    LEAST_FREEDOM,
    RunMarks,
    fit_prior,
    is_assumed,
    moderated,
    spread_of_neighbours,
    standing_level,
)
from etprof.statistics.states import TwoStates, find_states, remove_states
from etprof.statistics.two_samples import Spread

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from sqlalchemy import ColumnElement
    from sqlalchemy.orm import Session

    from etprof.history.store import Store
    from etprof.statistics.calibration import Calibration
    from etprof.statistics.runs import Departure

Known = dict[tuple[Hashable, ...], Any]
"""What was read of a store."""
_Kind = TypeVar("_Kind")
_Runs = Any
"""A query for runs, to which further columns are added."""

DEFAULT_THRESHOLD: Final = 0.05
"""A smaller change is never reported."""
MOST_RUNS: Final = 300
"""Runs of a series that are used: most of a year of nightly runs."""
_MOST_OF_A_DEVICE: Final = 2000
NOISE_RUNS: Final = 300
"""The newest runs of a device that say how its noise looks, in every metric: a page must not read all
metrics of a long history."""


@dataclass(frozen=True)
class SeriesPoint:
    """One measured run of a series, as far as baselines ask."""

    run_id: int
    measured_at: datetime
    source: tuple[str | None, bool | None]
    """Its commit, and whether files were changed."""
    log_value: float


@dataclass(frozen=True)
class BaselineLevel:
    """The runs of a series, those of its current level, and how much one run varies."""

    points: Sequence[SeriesPoint]
    members: tuple[int, ...]
    """Indices of `points`."""
    spread: Spread
    worse: int
    """The sign of a change for the worse."""
    threshold: float
    """The smallest change that matters, in log units."""
    departure: Departure | None = None
    """Newest runs that were worse, until one is clearly back; of the candidate's commit too."""

    outside: tuple[int, ...] = ()
    """Indices of the newest points, one after the other, that were worse than the level."""
    better: tuple[int, ...] = ()
    """Indices of the newest points, one after the other, that were better than the level."""
    dependence: float = 0.0
    """Lag-1 autocorrelation of the device's runs."""
    states: TwoStates | None = None
    """The two states of the series, if it goes back and forth between them."""
    state_spread: Spread | None = None
    """Of one run around its state."""

    state_chance: float = 0.0
    """That the candidate and the runs before it are in the worse state; 0 if the candidate is not."""
    is_of_worse_state: bool = False
    """Whether the candidate is worse than both states, so that the worse one is its level."""

    def of_state(self, log_value: float) -> BaselineLevel:
        """Returns the level that a log value is judged by in a series of two states; else itself.

        What is worse than both states departs from the worse one, all else from the better one.
        """
        states, worse = self.states, self.worse
        if states is None or self.state_spread is None:
            return self
        ends = (states.lower, states.lower_level), (states.upper, states.upper_level)
        (better, _), (worst, worst_level) = ends if worse > 0 else ends[::-1]

        def is_beyond(value: float) -> bool:
            return worse * (value - worst_level) > self.threshold

        if is_beyond(log_value):
            outside = tuple(i for i in self.outside if is_beyond(self.points[i].log_value))
            return replace(
                self, members=worst, spread=self.state_spread, outside=outside,
                is_of_worse_state=True,
            )  # fmt: skip
        chance = 0.0
        if states.is_upper(log_value) == (worse > 0):
            chance = states.chance_of_stretch(self.outside, upper=worse > 0)
        return replace(self, members=better, spread=self.state_spread, state_chance=chance)

    def departed(self, metric: str, log_value: float, change: float) -> SeriesDeparture:
        """Returns a run's departure from this level, with those next before it on the same side.

        Args:
            metric: What is judged.
            log_value: Of the run.
            change: Of the run from the level, in log units.
        """
        is_worse = self.worse * change > 0
        outside = self.outside if is_worse else self.better
        logs = [point.log_value for point in self.points]
        return SeriesDeparture(metric, logs, log_value, is_worse, outside, self.state_chance)

    @property
    def outside_runs(self) -> tuple[int, ...]:
        """The runs of these points, oldest first."""
        return tuple(self.points[index].run_id for index in self.outside)

    @property
    def departed_runs(self) -> list[int]:
        """Runs that were worse than the level, oldest first."""
        return (
            [self.points[index].run_id for index in self.departure.members]
            if self.departure
            else []
        )

    @property
    def is_constant(self) -> bool:
        """Whether no run of the level ever had another value."""
        return len({self.points[member].log_value for member in self.members}) <= 1


def find_level(
    points: Sequence[SeriesPoint],
    marks: RunMarks,
    *,
    worse: int,
    threshold: float,
    prior: Spread | None,
) -> BaselineLevel:
    """Returns the level that a series stands at, and its states.

    Args:
        points: The runs of the series, oldest first.
        marks: What else is known of them, by their indices.
        worse: The sign of a change for the worse.
        threshold: The smallest change that matters, in log units.
        prior: What the other series of the device vary by.
    """
    logs = [point.log_value for point in points]
    level = standing_level(logs, worse=worse, threshold=threshold, prior=prior, marks=marks)
    # What departs now may be a new level: it tells of states when it is over.
    departing = {*level.outside, *level.better}
    worse_runs = {*marks.alarmed}.difference(marks.accepted)
    states = find_states(logs, {*marks.barred, *worse_runs, *departing})
    state_spread = None if states is None else moderated(states.squares, states.freedom, prior)
    return BaselineLevel(
        points, level.members, level.spread, worse, threshold, level.departure, level.outside,
        level.better, marks.dependence, states, state_spread,
    )  # fmt: skip


_SeriesPoints = Mapping[tuple[str, str | None], Sequence[SeriesPoint]]


@dataclass(frozen=True)
class _DeviceRuns:
    """The newest measured runs of a device, in one metric."""

    groups: _SeriesPoints
    """By series and branch, oldest first."""
    is_whole: bool
    """Whether these are all."""


@dataclass(frozen=True)
class _BranchRuns:
    """The newest measured runs of a series on a branch, in one metric, oldest first."""

    points: Sequence[SeriesPoint]
    is_whole: bool
    """Whether these are all."""


class SeriesRuns:
    """Reads series of one store, each metric of a device once.

    What was read of whole devices is kept in `of_devices`, which others may share until runs are
    added.
    """

    def __init__(self, session: Session, of_devices: Known | None = None) -> None:
        self._session = session
        self._of_devices: Known = {} if of_devices is None else of_devices
        self._of_runs: Known = {}

    def baseline_level(
        self, run: Run, branch: str | None, metric: str, threshold: float
    ) -> BaselineLevel:
        """Returns the level of the runs before `run` on a branch; none of its own sources is of it."""

        def work() -> BaselineLevel:
            points = self.before(run, branch, metric)
            barred = [i for i, p in enumerate(points) if not may_be_baseline(run, p.source)]
            return self._level(run, points, metric, threshold, barred)

        return get_or_load(self._of_runs, work, run.id, branch, metric, threshold)

    def level_without(self, run: Run, metric: str, excluded: Collection[int]) -> BaselineLevel:
        """Returns the runs of the series on the branch that has most of them, without `excluded`."""
        branches = [
            [point for point in group if point.run_id not in excluded]
            for (series, _), group in self._of_device(run, metric).groups.items()
            if series == run.series
        ]
        return self._level(run, max(branches, key=len, default=[]), metric, DEFAULT_THRESHOLD)

    def _level(
        self, run: Run, points: Sequence[SeriesPoint], metric: str, threshold: float,
        barred: Collection[int] = (),
    ) -> BaselineLevel:  # fmt: skip
        accepted = self.accepted_runs(run.series)
        alarmed = self.alarmed_runs(run.series, metric)
        marks = RunMarks(
            accepted={i for i, point in enumerate(points) if point.run_id in accepted},
            alarmed={i for i, point in enumerate(points) if point.run_id in alarmed},
            barred=barred,
            dependence=self.noise(run).dependence,
        )
        return find_level(
            points, marks, worse=worse_side(metric), threshold=math.log1p(threshold),
            prior=self.prior(run, metric),
        )  # fmt: skip

    def noise(self, run: Run, *, without_states: bool = False) -> DeviceNoise:
        """Returns what the device's runs before a run say of their noise.

        With `without_states`, as if each series had been in one state.
        """

        def work() -> DeviceNoise:
            metrics = get_or_load(
                self._of_devices,
                lambda: _read_newest(self._session, run.device),
                run.device,
                "newest",
            )
            logs = {
                metric: {
                    key: self._logs_before(
                        key[0], group, run, metric, without_states=without_states
                    )
                    for key, group in groups.items()
                }
                for metric, groups in metrics.items()
            }
            return DeviceNoise(logs, HIGHER_IS_BETTER)

        name = run.device, run.measured_at, without_states, "noise"
        return get_or_load(self._of_runs, work, *name)

    def _logs_before(
        self,
        series: str,
        group: Sequence[SeriesPoint],
        run: Run,
        metric: str,
        *,
        without_states: bool,
    ) -> Sequence[float]:
        """Log values of a series' newest points before a run."""
        count = bisect_left(group, run.measured_at, key=lambda point: point.measured_at)
        points = group[:count]
        logs = [point.log_value for point in points]
        if not without_states:
            return logs
        alarmed = self.alarmed_runs(series, metric)

        def work() -> Sequence[float]:
            worse = {index for index, point in enumerate(points) if point.run_id in alarmed}
            return remove_states(logs, worse)

        # A group differs from moment to moment by how many of its runs there were.
        newest = points[-1].run_id if points else None
        return get_or_load(self._of_runs, work, series, metric, newest, count, len(group), "logs")

    def before(self, run: Run, branch: str | None, metric: str) -> Sequence[SeriesPoint]:
        """Reads the runs of a run's series on a branch, oldest first; of its own, earlier ones."""
        of_device = self._of_device(run, metric)
        series_branch = run.series, branch
        newest = _BranchRuns(of_device.groups.get(series_branch, ()), of_device.is_whole)
        if not newest.is_whole:
            newest = get_or_load(
                self._of_runs, lambda: self._newest(run, branch, metric), *series_branch, metric
            )
        group = [
            point
            for point in newest.points
            if point.run_id != run.id
            and (branch != run.git_branch or point.measured_at <= run.measured_at)
        ]
        if newest.is_whole or len(group) >= MOST_RUNS:
            return group[-MOST_RUNS:]
        earlier = earlier_runs(run, branch)
        return get_or_load(
            self._of_runs,
            lambda: self._points(earlier, metric, MOST_RUNS),
            *(run.id, branch, metric, "points"),
        )

    def _newest(self, run: Run, branch: str | None, metric: str) -> _BranchRuns:
        """Reads a series for many of its runs at a time, which is a query for all of them."""
        points = self._points(sound_runs(run.series, branch), metric, 2 * MOST_RUNS)
        return _BranchRuns(points, len(points) < 2 * MOST_RUNS)

    def _points(self, runs: _Runs, metric: str, limit: int) -> list[SeriesPoint]:
        query = (
            runs.join(Metric, Metric.run_id == Run.id)
            .add_columns(Run.measured_at, Metric.value)
            .where(Run.representative, Metric.value > 0, Metric.name == metric)
            .limit(limit)
        )
        rows = reversed(self._session.execute(query).all())
        return [
            SeriesPoint(number, moment, (commit, dirty), math.log(value))
            for number, commit, dirty, moment, value in rows
        ]

    def prior(self, run: Run, metric: str) -> Spread | None:
        """What the series of the run's device are known to vary by before it was measured.

        The device's newest calibration counts as one of them, and stands alone for too few.
        """
        spreads = []
        for name, group in self._of_device(run, metric).groups.items():
            spreads.append(
                spread_of_neighbours(
                    self._logs_before(name[0], group, run, metric, without_states=True)
                )
            )
        spreads_of_series = [spread for spread in spreads if spread is not None]
        calibrated = self._calibrated(run.device) if metric == HEADLINE else None
        return (
            fit_prior(spreads_of_series if calibrated is None else [*spreads_of_series, calibrated])
            or calibrated
        )

    def _calibrated(self, device: str) -> Spread | None:
        def read() -> Spread | None:
            calibration = newest_calibration(self._session, device, least_runs=LEAST_FREEDOM + 1)
            if calibration is None or calibration.run_spread is None:
                return None
            return Spread(max(calibration.run_spread, LEAST_DEVIATION), calibration.runs - 1)

        return get_or_load(self._of_devices, read, device, "calibration")

    def _of_device(self, run: Run, metric: str) -> _DeviceRuns:
        device_metric = run.device, metric
        return get_or_load(
            self._of_devices, lambda: _read_device(self._session, *device_metric), *device_metric
        )

    def accepted_runs(self, series: str) -> Collection[int]:
        """Returns the runs of a series whose level is meant: accepted or pinned."""
        pinned = select(Baseline.series, Baseline.run_id)
        accepted = select(Run.series, Acceptance.run_id).join(Run)
        query = pinned.union(accepted)
        return self._runs_by(query, "accepted").get((series,), ())

    def alarmed_runs(self, series: str, metric: str) -> Collection[int]:
        """Returns the runs that a check called worse in a metric."""
        query = select(Run.series, Alarm.metric, Alarm.run_id).join(Run)
        return self._runs_by(query, "alarmed").get((series, metric), ())

    def _runs_by(self, query: _Runs, name: str) -> Mapping[tuple[str, ...], set[int]]:
        """Reads the marked runs of all series at once, by what stands before them in a row."""

        def read() -> Mapping[tuple[str, ...], set[int]]:
            runs_by_key: dict[tuple[str, ...], set[int]] = {}
            for *key, run_id in self._session.execute(query):
                runs_by_key.setdefault(tuple(key), set()).add(run_id)
            return runs_by_key

        return get_or_load(self._of_runs, read, name)


def get_or_load(cache: Known, load: Callable[[], _Kind], *key: Hashable) -> _Kind:
    """Returns what is kept under a name, else reads it."""
    if key not in cache:
        cache[key] = load()
    cached: _Kind = cache[key]
    return cached


def source_of(run: Run) -> tuple[str | None, bool | None]:
    """Returns the commit of a run, and whether files were changed."""
    return run.git_commit, run.git_dirty


def may_be_baseline(run: Run, source: tuple[str | None, bool | None]) -> bool:
    """Whether a run is of other sources; where no commit is known, that is taken for granted."""
    run_source = source_of(run)
    return run_source[0] is None or run_source != source


def _measured_on(device: str) -> tuple[ColumnElement[bool], ...]:
    """Conditions of the sound runs of a device that were timed."""
    return (Run.device == device, *SOUND, Run.representative == true())


def _read_newest(session: Session, device: str) -> Mapping[str, _SeriesPoints]:
    """Reads the newest measured runs of a device, by metric."""
    newest = (
        select(Run.id)
        .where(*_measured_on(device))
        .order_by(*NEWEST_FIRST)
        .limit(NOISE_RUNS)
        .subquery()
    )
    query = (
        select(
            Metric.name, Run.series, Run.git_branch, Run.id, Run.measured_at, Run.git_commit,
            Run.git_dirty, Metric.value,
        )
        .join(newest, newest.c.id == Run.id)
        .join(Metric, Metric.run_id == Run.id)
        .where(Metric.name.in_(METRICS), Metric.value > 0)
        .order_by(Run.measured_at, Run.id)
    )  # fmt: skip
    metrics: dict[str, dict[tuple[str, str | None], list[SeriesPoint]]] = {}
    for name, series, branch, number, moment, commit, dirty, value in session.execute(query):
        point = SeriesPoint(number, moment, (commit, dirty), math.log(value))
        metrics.setdefault(name, {}).setdefault((series, branch), []).append(point)
    return metrics


def _read_device(session: Session, device: str, metric: str) -> _DeviceRuns:
    query = (
        select(
            Run.series, Run.git_branch, Run.id, Run.measured_at, Run.git_commit, Run.git_dirty,
            Metric.value,
        )
        .join(Metric, Metric.run_id == Run.id)
        .where(*_measured_on(device), Metric.name == metric, Metric.value > 0)
        .order_by(*NEWEST_FIRST)
        .limit(_MOST_OF_A_DEVICE)
    )  # fmt: skip
    groups: dict[tuple[str, str | None], list[SeriesPoint]] = {}
    rows = session.execute(query).all()
    for series, branch, number, moment, commit, dirty, value in reversed(rows):
        point = SeriesPoint(number, moment, (commit, dirty), math.log(value))
        groups.setdefault((series, branch), []).append(point)
    return _DeviceRuns(groups, len(rows) < _MOST_OF_A_DEVICE)


def known_spreads(
    session: Session, experiments: Sequence[tuple[Path, str]], metrics: Iterable[str]
) -> dict[str, Spread]:
    """Returns, by metric, how much one run of the given experiments' series varies (log values).

    `experiments` are run directories with an experiment name; those that are compared do not count. The
    larger spread of the two series is taken, and a metric that either series does not tell is left
    out.
    """
    runs = [run for run_dir, name in experiments for run in read_run_directory(run_dir)
            if run.experiment == name]  # fmt: skip
    if len(runs) < len(experiments) or not all(run.representative for run in runs):
        return {}
    compared = select(Run.id).where(Run.key.in_({run.key for run in runs}))
    compared_ids, series = frozenset(session.scalars(compared)), SeriesRuns(session)
    spread_of = {}
    for metric in metrics:
        spreads = [series.level_without(run, metric, compared_ids).spread for run in runs]
        if not any(map(is_assumed, spreads)):
            spread_of[metric] = max(spreads, key=lambda spread: spread.deviation)
    return spread_of


def keep_calibration(store: Store, folder: Path, calibration: Calibration) -> str:
    """Adds what `calibrate` found to the history of the device of a run; returns its name."""
    run = read_run_directory(folder)[0]
    smallest, between = calibration.smallest_effect, calibration.between_runs
    facts = {
        "device": run.device, "measured_at": run.measured_at, "model": run.model,
        "pairs": calibration.pairs,
        "smallest": smallest.value if smallest else None,
        "smallest_low": smallest.low if smallest else None,
        "smallest_high": smallest.high if smallest else None,
        "runs": between.runs if between else 1,
        "run_spread": between.spread.value if between else None,
    }  # fmt: skip
    store.write(lambda session: session.add(DeviceCalibration(**facts)))
    return run.device


def newest_calibration(
    session: Session, device: str, *, least_runs: int = 1
) -> DeviceCalibration | None:
    """Returns what a device was last found to tell apart, by that many runs at least."""
    newest = DeviceCalibration.measured_at.desc(), DeviceCalibration.id.desc()
    query = select(DeviceCalibration).where(
        DeviceCalibration.device == device, DeviceCalibration.runs >= least_runs
    )
    return session.scalar(query.order_by(*newest).limit(1))


def describe_device(store: Store, folder: Path) -> str | None:
    """Says what the device of a run can tell apart; None where it was never calibrated."""
    run = read_run_directory(folder)[0]
    with store.session() as session:
        calibration = newest_calibration(session, run.device)
        if calibration is None:
            return None
        basis = f"in {calibration.pairs} blocks, as `etprof calibrate` found on {calibration.measured_at:%Y-%m-%d}"
        if calibration.smallest is None:
            return f"This machine tells nothing up to 2× apart {basis}"
        low, high = calibration.smallest_low or 0.0, calibration.smallest_high or math.inf
        return (
            f"This machine can tell {format_share(calibration.smallest)} apart "
            f"({format_share(low)} … {format_share(high)}) {basis}"
        )


@dataclass(frozen=True)
class DeviceSpread:
    """What runs of one series differ by on a device, in one metric."""

    device: str
    metric: str
    of_run: float
    """Standard deviation of one run's log value: about its relative spread."""
    runs: int
    series: int
    """Series and branches with three runs or more."""


def device_spreads(session: Session) -> list[DeviceSpread]:
    """Returns what is known of every device and metric."""
    timed = select(Run.device).where(Run.representative).distinct().order_by(Run.device)
    rows = []
    for device in session.scalars(timed).all():
        for metric in METRICS:
            groups = [
                [point.log_value for point in group]
                for group in _read_device(session, device, metric).groups.values()
            ]
            counted_spreads = [
                (spread, len(logs)) for logs in groups if (spread := spread_of_neighbours(logs))
            ]
            if counted_spreads:
                squares = math.fsum(
                    spread.freedom * spread.deviation**2 for spread, _ in counted_spreads
                )
                of_run = math.sqrt(
                    squares / math.fsum(spread.freedom for spread, _ in counted_spreads)
                )
                runs = sum(count for _, count in counted_spreads)
                rows.append(DeviceSpread(device, metric, of_run, runs, len(counted_spreads)))
    return rows
