"""Is a run worse than its baseline? The one judge of `history check` and of the dashboard.

The unit that counts is the run: the interval of candidate ÷ baseline is a prediction interval whose
spread is that of the series' own runs, moderated by the other series of the device
(`statistics/runs`). A change is called one where it is beyond the threshold and beyond chance, for
all comparisons of a check together (Holm). A value that never varies, such as a size in bytes, is
compared exactly.

A baseline has no run of the candidate's own commit, so that a red build stays red when run again,
and no run that was worse than the level before it, so that a lasting regression stays one. Whoever
means the new level pins a run of it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from sqlalchemy import select

from etprof.analysis.exact_facts import EXACT_THRESHOLD
from etprof.base.units import count_of, format_change, format_share
from etprof.history.run_spread import (
    DEFAULT_THRESHOLD,
    MOST_RUNS,
    Known,
    SeriesRuns,
    get_or_load,
    may_be_baseline,
    source_of,
)
from etprof.history.schema import Baseline, Metric, Run
from etprof.history.selection import BRANCH, SOUND, WINDOW, earlier_runs, window_size
from etprof.statistics.departures import weigh_departure
from etprof.statistics.order_statistics import CONFIDENCE
from etprof.statistics.runs import LEAST_RUNS, departure, find_drift, is_assumed
from etprof.statistics.states import remove_states
from etprof.statistics.two_samples import POWER, Spread, difference_of_groups, holm, t_quantile

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from etprof.history.run_spread import BaselineLevel, SeriesPoint
    from etprof.statistics.runs import Drift
    from etprof.statistics.states import TwoStates
    from etprof.statistics.two_samples import GroupDifference

Verdict = Literal["regression", "improvement", "drift", "changed", "unchanged", "inconclusive"]

_LARGEST_LOG: Final = 50.0
"""Of a ratio: e to the 50th is a nanosecond against 160 000 years."""


@dataclass(frozen=True)
class Judgement:
    """What may be said of a candidate against a baseline; 0.05 is 5 % more."""

    verdict: Verdict
    change: float | None
    """Candidate ÷ baseline, minus one; None where it means nothing."""
    low: float | None
    """The interval of the change, 95 %; None where there is none."""
    high: float | None
    threshold: float
    reason: str
    """Why the verdict is not another one, in words."""
    p_value: float | None = None
    """Of no change, adjusted for all comparisons that were made together; None where exact."""
    smallest: float | None = None
    """The smallest true worsening that four of five such checks would have found."""

    @property
    def is_drift(self) -> bool:
        """Whether a steady creep was found."""
        return self.verdict == "drift"

    def as_accepted(self) -> Judgement:
        """Returns what it is of a run that somebody accepted: worse is a change there."""
        if self.verdict not in {"regression", "drift"}:
            return self
        return replace(self, verdict="changed", reason=f"accepted, though worse: {self.reason}")


@dataclass(frozen=True)
class MetricComparison:
    """One metric of a run against its baseline, before it is known what else is compared."""

    candidate: Metric
    baseline: tuple[Metric, ...]
    before: float
    """The baseline's value: the geometric mean of its runs."""
    threshold: float
    difference: GroupDifference | None = None
    """Of log values; None where the values are exact, or cannot be compared."""
    problem: str = ""
    """Why nothing can be said."""
    drift: Drift | None = None
    """Set where this is the test for a drift, not for a step."""
    departed: tuple[int, ...] = ()
    """Earlier runs that are worse with the candidate: those from which it is not clearly back, those
    next before it that were as far out, or of a drift those of its second half."""
    is_standing: bool = False
    """Whether a check called the series worse before, and the candidate is not clearly back."""
    lone_share: float = 0.0
    """Chance of a run that stands out as far, by the device's runs, where this speaks for chance."""
    group: Hashable = None
    """What the series that share a device have in common; None where nothing is known of it."""
    runs_before: int = 0
    """Earlier runs of the series."""
    outside: int = 0
    """How many of them, next before the candidate, were worse than the level."""
    states: str = ""
    """What two states the series has, in words."""
    together: int = 0
    """Series of the device that became worse in this check, where this may be the device's state."""

    @property
    def change(self) -> float:
        """After ÷ before, minus one."""
        return self.after / self.before - 1

    @property
    def after(self) -> float:
        """The candidate's value; for a drift, where its line ends."""
        if self.drift is None:
            return self.candidate.value
        return math.exp(self.drift.start + self.drift.total.change)


class Gate:
    """Compares runs of one store.

    What was read of whole devices is kept in `of_devices`, which others may share until runs are
    added.
    """

    def __init__(
        self,
        session: Session,
        *,
        threshold: float | None = None,
        thresholds: Mapping[str, float] | None = None,
        of_devices: Known | None = None,
    ) -> None:
        self._session = session
        self._threshold, self._thresholds = threshold, thresholds or {}
        self._series = SeriesRuns(session, of_devices)
        self._pinned_runs: Known = {}
        self._values: dict[tuple[int, str], Metric | None] = {}

    def has_baseline(self, baseline: str, candidate: Run) -> bool:
        """Whether there is any run to compare the candidate with."""
        if baseline.startswith((WINDOW, BRANCH)):
            statement = earlier_runs(candidate, _branch_of(baseline, candidate)).limit(MOST_RUNS)
            rows = self._session.execute(statement)
            return any(may_be_baseline(candidate, (row.git_commit, row.git_dirty)) for row in rows)
        return self._pinned(baseline, candidate) is not None

    def compare(self, baseline: str, candidate: Run, metric: str) -> MetricComparison | None:
        """Compares a run with NAME, branch:NAME or window:N; None where one side has no value.

        NAME is the run pinned under that name; window:N the N runs before the candidate on its own
        branch; branch:NAME the runs of the newest commit on that branch; of the last two, those
        that are of the current level.
        """
        if not baseline.startswith((WINDOW, BRANCH)):
            run = self._pinned(baseline, candidate)
            return None if run is None else self.compare_runs(run, candidate, metric)
        level = self._baseline_level(candidate, _branch_of(baseline, candidate), metric)
        baseline_ids = _ids_of_level(baseline, level)
        self.load([candidate.id, *baseline_ids], metric)
        after = self._values[candidate.id, metric]
        before = [value for number in baseline_ids if (value := self._values[number, metric])]
        if after is None or not before:
            return None
        comparison = self._compared(tuple(before), after, level)
        difference = comparison.difference
        if difference is None:
            return comparison
        standing = self._departed(level, after)
        comparison = replace(
            comparison, departed=standing or level.outside_runs, is_standing=bool(standing)
        )
        return self._weigh(comparison, difference, level)

    def _weigh(
        self, comparison: MetricComparison, difference: GroupDifference, level: BaselineLevel
    ) -> MetricComparison:
        """Lets a change be chance where the noise of the device's runs reaches as far."""
        candidate = comparison.candidate
        run, metric = candidate.run, candidate.name
        departed = level.departed(metric, math.log(candidate.value), difference.change)
        noise = self._series.noise(run, without_states=level.is_of_worse_state)
        weighed, share = weigh_departure(difference, noise, departed)
        return replace(
            comparison, difference=weighed, lone_share=share, group=(run.device, metric),
            runs_before=len(level.points), outside=len(level.outside),
            states=describe_states(level.states) if level.states else "",
        )  # fmt: skip

    def _departed(self, level: BaselineLevel, after: Metric) -> tuple[int, ...]:
        """The runs since which the series is worse, if the candidate does not say that it is back."""
        departure = level.departure
        if departure is None or departure.is_over(math.log(after.value), level.spread):
            return ()
        return tuple(level.departed_runs)

    def baseline_ids(self, baseline: str, candidate: Run, metric: str) -> list[int]:
        """Returns the runs of branch:NAME or window:N, newest first."""
        level = self._baseline_level(candidate, _branch_of(baseline, candidate), metric)
        return _ids_of_level(baseline, level)

    def runs_before(self, baseline: str, candidate: Run) -> list[int]:
        """Returns the runs that exact facts may be compared with, newest first.

        A window does not end them: what became worse stays so, however long it lasts.
        """
        if not baseline.startswith((WINDOW, BRANCH)):
            pinned = self._pinned(baseline, candidate)
            return [] if pinned is None else [pinned.id]
        statement = earlier_runs(candidate, _branch_of(baseline, candidate)).limit(MOST_RUNS)
        rows = [
            row
            for row in self._session.execute(statement)
            if may_be_baseline(candidate, (row.git_commit, row.git_dirty))
        ]
        return [row.id for row in rows]

    def accepted_runs(self, series: str) -> Collection[int]:
        """Returns the runs of a series whose level somebody means."""
        return self._series.accepted_runs(series)

    def is_called_worse(self, run: Run, metric: str) -> bool:
        """Whether a check called a metric of a run worse, and nobody accepted the run since."""
        alarmed = self._series.alarmed_runs(run.series, metric)
        return run.id in alarmed and run.id not in self.accepted_runs(run.series)

    def load(self, run_ids: Iterable[int], metric: str) -> None:
        """Reads the values of runs that were not read yet, in one statement."""
        missing = {number for number in run_ids if (number, metric) not in self._values}
        if missing:
            rows = select(Metric).join(Metric.run).where(Run.representative, Metric.name == metric)
            self._values |= dict.fromkeys(((number, metric) for number in missing), None)
            for row in self._session.scalars(rows.where(Metric.run_id.in_(missing))):
                self._values[row.run_id, metric] = row

    def as_checked(self, run: Run, metric: str, judgement: Judgement) -> Judgement:
        """Returns a judgement with the verdict of the check that has judged the run already, if any.

        A page judges in the family of the largest check, which may be more cautious.
        """
        if run.id not in self._series.alarmed_runs(run.series, metric):
            return judgement
        if run.id in self.accepted_runs(run.series):
            return replace(
                judgement, verdict="changed", reason="accepted, though a check calls it worse"
            )
        return replace(judgement, verdict="regression", reason="a check calls it worse")

    def compare_runs(self, baseline: Run, candidate: Run, metric: str) -> MetricComparison | None:
        """Compares a run with another, which may be of another series.

        Experiments of one run directory were interleaved, so their launches are compared.
        """
        before, after = self._value_of(baseline, metric), self._value_of(candidate, metric)
        if before is None or after is None:
            return None
        locations = [(run.run_name, run.run_path, run.measured_at) for run in (baseline, candidate)]
        if (
            locations[0] == locations[1]
            and min(len(before.samples), len(after.samples)) >= LEAST_RUNS
        ):
            return self._compared((before,), after, None)
        level = self._baseline_level(candidate, baseline.git_branch, metric)
        if baseline.series != candidate.series:
            candidate_spread, baseline_spread = (
                level.spread,
                self._baseline_level(baseline, baseline.git_branch, metric).spread,
            )
            squares = (candidate_spread.deviation**2 + baseline_spread.deviation**2) / 2
            pooled_spread = Spread(
                math.sqrt(squares), min(candidate_spread.freedom, baseline_spread.freedom)
            )
            level = replace(level, spread=pooled_spread)
        return self._compared((before,), after, level)

    def drift(self, candidate: Run, metric: str) -> MetricComparison | None:
        """Looks for a creep over the newest commits up to the candidate; None for too few."""
        after = self._value_of(candidate, metric)
        points = self._series.before(candidate, candidate.git_branch, metric)
        if after is None or not _is_comparable(after):
            return None
        values: dict[Hashable, list[float]] = {}
        for point in points:
            values.setdefault(_commit_of(point), []).append(point.log_value)
        candidate_source = source_of(candidate)
        values.setdefault(
            candidate_source if candidate_source[0] is not None else candidate.id, []
        ).append(math.log(after.value))
        logs = remove_states([math.fsum(value) / len(value) for value in values.values()])
        dependence = self._series.noise(candidate).dependence
        estimate = find_drift(logs, self._series.prior(candidate, metric), dependence)
        if estimate is None:
            return None
        second_half = set(list(values)[-(estimate.runs // 2) :])
        return MetricComparison(
            after, (), math.exp(estimate.start), self._limit(metric, exact=False),
            estimate.total, drift=estimate,
            departed=tuple(point.run_id for point in points if _commit_of(point) in second_half),
        )  # fmt: skip

    def _compared(
        self, baseline: tuple[Metric, ...], after: Metric, level: BaselineLevel | None
    ) -> MetricComparison:
        if not all(map(_is_comparable, (*baseline, after))):
            comparison = MetricComparison(after, baseline, after.value, DEFAULT_THRESHOLD)
            return replace(comparison, problem="a value is zero")
        logs = [math.log(metric.value) for metric in baseline]
        before = math.exp(math.fsum(logs) / len(logs))
        is_exact = _is_exact(baseline) and (level is None or level.is_constant)
        limit = self._limit(after.name, exact=is_exact)
        comparison = MetricComparison(after, baseline, before, limit)
        if is_exact:
            return replace(comparison, before=baseline[0].value)
        difference = (
            difference_of_groups(
                *(np.log(metric.samples).tolist() for metric in (*baseline, after))
            )
            if level is None
            else departure(logs, math.log(after.value), level.spread, level.dependence)
        )
        if difference is None or abs(difference.change) > _LARGEST_LOG:
            return replace(comparison, problem="the values are too far apart to be of one thing")
        return replace(comparison, difference=difference)

    def _limit(self, metric: str, *, exact: bool) -> float:
        default = EXACT_THRESHOLD if exact else DEFAULT_THRESHOLD
        common = default if self._threshold is None else self._threshold
        return self._thresholds.get(metric, common)

    def _baseline_level(self, run: Run, branch: str | None, metric: str) -> BaselineLevel:
        """Returns the level of a run's series; of a series with two states, that of the nearest."""
        limit, value = self._limit(metric, exact=False), self._value_of(run, metric)
        level = self._series.baseline_level(run, branch, metric, limit)
        if value is None or value.value <= 0:
            return level
        return level.of_state(math.log(value.value))

    def _pinned(self, name: str, candidate: Run) -> Run | None:
        query = (
            select(Run)
            .join(Baseline, Baseline.run_id == Run.id)
            .where(Baseline.name == name, Baseline.series == candidate.series, *SOUND)
        )
        run = get_or_load(
            self._pinned_runs, lambda: self._session.scalar(query), candidate.series, name
        )
        return None if run is None or run.id == candidate.id else run

    def _value_of(self, run: Run, metric: str) -> Metric | None:
        self.load([run.id], metric)
        return self._values[run.id, metric]


def _ids_of_level(baseline: str, level: BaselineLevel) -> list[int]:
    """Returns the runs of a level that are branch:NAME or window:N, newest first."""
    points, members = level.points, level.members
    if baseline.startswith(WINDOW):
        selected = members[-window_size(baseline) :]
    else:
        newest = points[members[-1]].source if members else None
        selected = tuple(member for member in members if points[member].source == newest)
    return [points[member].run_id for member in reversed(selected)]


def _is_worse(metric: Metric, change: float) -> bool:
    """Whether a change of a metric is one for the worse."""
    return (change > 0) != metric.higher_is_better


def _commit_of(point: SeriesPoint) -> Hashable:
    """What tells a run's sources from others; of unknown ones, the run itself."""
    return point.source if point.source[0] is not None else point.run_id


def judge_all(
    comparisons: Sequence[MetricComparison], family: int | None = None
) -> list[Judgement]:
    """Judges comparisons that were made together; `family` is their number, if there are more."""
    comparisons = _mark_common_causes(comparisons)
    tested = [comparison for comparison in comparisons if comparison.difference is not None]
    size = max(len(tested), family or 0, 1)
    p_values = [c.difference.p_value for c in tested if c.difference is not None]
    adjusted = iter(holm([*p_values, *[1.0] * (size - len(p_values))]))
    return [
        _judge_exact(comparison)
        if comparison.difference is None
        else _judge(comparison, comparison.difference, next(adjusted), 1 - (1 - CONFIDENCE) / size)
        for comparison in comparisons
    ]


def _mark_common_causes(comparisons: Sequence[MetricComparison]) -> list[MetricComparison]:
    """Marks what became worse with most series of its device, which are one observation of it."""
    marked = list(comparisons)
    groups: dict[Hashable, list[int]] = {}
    for index, comparison in enumerate(comparisons):
        if comparison.group is not None:
            groups.setdefault(comparison.group, []).append(index)
    for indices in groups.values():
        worse = [index for index in indices if _is_worse_alone(comparisons[index])]
        if len(indices) >= LEAST_RUNS and 2 * len(worse) > len(indices):
            for index in worse:
                marked[index] = replace(comparisons[index], together=len(worse))
    return marked


def _is_worse_alone(comparison: MetricComparison) -> bool:
    """Whether a series is worse beyond chance and beyond the threshold, judged by itself."""
    difference = comparison.difference
    if difference is None or difference.p_value > 1 - CONFIDENCE:
        return False
    is_worse = _is_worse(comparison.candidate, difference.change)
    return is_worse and abs(math.expm1(difference.change)) > comparison.threshold


def _chance_of_state(comparison: MetricComparison) -> float:
    """Chance of a state that none of the device's runs showed, by the rule of succession."""
    return float((1 / (comparison.runs_before + 2)) ** (1 + comparison.outside))


def _judge(
    comparison: MetricComparison, difference: GroupDifference, p_value: float, confidence: float
) -> Judgement:
    """Judges by the adjusted p and the threshold; equality by the whole interval."""
    if comparison.together:
        p_value = max(p_value, _chance_of_state(comparison))
    low, high = (math.expm1(e) for e in (difference.interval.low, difference.interval.high))
    limit, change = comparison.threshold, math.expm1(difference.change)
    is_real = p_value <= 1 - CONFIDENCE
    if is_real and abs(change) > limit:
        is_worse = _is_worse(comparison.candidate, change)
        verdict: Verdict = "regression" if is_worse else "improvement"
    else:
        verdict = "unchanged" if -limit <= low and high <= limit else "inconclusive"
    if comparison.is_standing:
        verdict = "regression"
    if comparison.drift is not None:
        is_drift = verdict == "regression" and comparison.drift.is_steady
        verdict = "drift" if is_drift else "inconclusive"
    return Judgement(
        verdict, change, low, high, limit, _reason(comparison, verdict, change, is_real=is_real),
        p_value, _smallest(comparison, difference, confidence),
    )  # fmt: skip


def _judge_exact(comparison: MetricComparison) -> Judgement:
    """Judges a value that never varied: any difference is a change."""
    limit = comparison.threshold
    if comparison.problem:
        return Judgement("inconclusive", None, None, None, limit, comparison.problem)
    change = comparison.change
    verdict: Verdict = "unchanged"
    # 102 of 100 is 0.020000000000000018 more, and not beyond 2 %.
    if abs(change) > limit and not math.isclose(abs(change), limit):
        is_worse = _is_worse(comparison.candidate, change)
        verdict = "regression" if is_worse else "improvement"
    finding = "the same" if change == 0 else f"another value, {_limit(limit, verdict)}"
    reason = f"exact, for it never varied: {finding}"
    return Judgement(verdict, change, change, change, limit, reason, smallest=limit)


def _limit(limit: float, verdict: Verdict) -> str:
    return f"{'within' if verdict == 'unchanged' else 'beyond'} {limit * 100:g} %"


def _smallest(
    comparison: MetricComparison, difference: GroupDifference, confidence: float
) -> float:
    """The least worsening that is both beyond chance and beyond the threshold 4 times of 5."""
    freedom = difference.spread.freedom
    error = (difference.interval.high - difference.change) / t_quantile(freedom)
    detectable = max(t_quantile(freedom, confidence) * error, math.log1p(comparison.threshold))
    rise = detectable + t_quantile(freedom, 2 * POWER - 1) * error
    return math.expm1(-rise if comparison.candidate.higher_is_better else rise)


def describe_states(states: TwoStates) -> str:
    """Says how far two states are apart, and how many runs are in the upper one."""
    runs = len(states.lower) + len(states.upper)
    return (
        f"{len(states.upper)} of {runs} runs are in a state that is {format_change(states.change)}"
    )


def _reason(comparison: MetricComparison, verdict: Verdict, change: float, *, is_real: bool) -> str:
    reason = _reason_of_verdict(comparison, verdict, change, is_real=is_real)
    return f"{reason}; two states: {comparison.states}" if comparison.states else reason


def _reason_of_verdict(
    comparison: MetricComparison, verdict: Verdict, change: float, *, is_real: bool
) -> str:
    limit = f"{comparison.threshold * 100:g} %"
    if comparison.drift is not None:
        a_run = math.expm1(comparison.drift.total.change / (comparison.drift.runs - 1))
        return f"{format_change(a_run)} a run over the last {comparison.drift.runs} commits"
    if comparison.is_standing and not (is_real and abs(change) > comparison.threshold):
        return f"worse since #{comparison.departed[0]}, and not clearly back"
    if verdict in ("regression", "improvement"):
        return f"beyond {limit} and beyond chance"
    return _why_undecided(comparison, verdict, change, is_real=is_real)


def _why_undecided(
    comparison: MetricComparison, verdict: Verdict, change: float, *, is_real: bool
) -> str:
    limit = f"{comparison.threshold * 100:g} %"
    difference = comparison.difference
    if difference is not None and is_assumed(difference.spread):
        runs = count_of(len(comparison.baseline), "run")
        return f"too few runs to know how much they differ ({runs} in the baseline)"
    if comparison.together and not is_real:
        count = count_of(comparison.together, "series", "series")
        return f"{count} of the device became worse together, as in a new state; the next run tells"
    if comparison.states and comparison.lone_share and not is_real:
        return "as far as the other state"
    if comparison.lone_share and not is_real:
        share = format_share(comparison.lone_share)
        return f"{share} of the device's runs may stand out as far; the next run tells"
    if verdict == "unchanged":
        return f"the whole interval lies within ±{limit}"
    size = f"{'beyond' if abs(change) > comparison.threshold else 'not beyond'} {limit}"
    return f"{size}, {'and' if is_real else 'but not'} beyond chance"


def _is_comparable(metric: Metric) -> bool:
    return metric.value > 0 and min(metric.samples, default=1) > 0


def _is_exact(baseline: Sequence[Metric]) -> bool:
    """Whether a size or count was the same in every launch of every run."""
    values = {value for metric in baseline for value in (metric.value, *metric.samples)}
    return baseline[0].unit == "bytes" and len(values) == 1


def _branch_of(baseline: str, candidate: Run) -> str | None:
    named = baseline.startswith(BRANCH)
    return baseline.removeprefix(BRANCH) if named else candidate.git_branch
