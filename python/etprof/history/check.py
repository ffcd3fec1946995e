"""The regression gate over a history: newest runs against a baseline, metric by metric."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from etprof.base.errors import UsageError
from etprof.base.records import sme_label
from etprof.base.units import count_of
from etprof.history.exact.judging import compare_facts, compare_work
from etprof.history.exact.standing import compare_with_standing, find_runs_before
from etprof.history.gate import Gate, Judgement, MetricComparison, judge_all
from etprof.history.schema import FAILED, Alarm
from etprof.history.selection import (
    check_baseline,
    find_runs,
    newest_of_each_series,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from sqlalchemy.orm import Session

    from etprof.history.schema import Run

Outcome = Literal[
    "failed", "regression", "drift", "improvement", "changed", "unchanged", "inconclusive"
]

OUTCOMES: Final[tuple[Outcome, ...]] = (
    "failed",
    "regression",
    "drift",
    "improvement",
    "changed",
    "inconclusive",
    "unchanged",
)
"""In order of urgency."""
FIRST_RUN: Final = 9
"""Exit code of a check whose runs have nothing to be compared with yet."""
_WORSE: Final[tuple[Outcome, ...]] = ("failed", "regression", "drift")
CHECKED: Final = (
    "latency_ns",
    "load_ns",
    "first_inference_ns",
    "peak_rss_bytes",
    "time_to_first_token_ns",
    "prefill_tokens_per_second",
    "decode_tokens_per_second",
)
"""Metrics that are judged unless others are asked for; the rest say the same once more."""


@dataclass(frozen=True)
class CheckRequest:
    """What to compare with what, and how strictly."""

    baseline: str
    """NAME, branch:NAME or window:N."""
    runs: tuple[str, ...] = ()
    """Candidates; none: the newest run of each series."""
    filters: Mapping[str, str] = field(default_factory=dict)
    metrics: tuple[str, ...] = CHECKED
    threshold: float | None = None
    """None: 5 %, and 1 % where a value never varies."""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """By metric, where not the common one."""
    work: bool = False
    """Whether the work of microkernels is judged too: one step more fails."""
    allows_first_run: bool = False
    """Whether a check passes where there is nothing to compare with yet."""


@dataclass(frozen=True)
class CheckedMetric:
    """One metric of one candidate, or a candidate that failed (without metric)."""

    outcome: Outcome
    run: Run
    baseline: tuple[Run, ...]
    reason: str
    metric: str | None = None
    unit: str | None = None
    before: float | None = None
    """The baseline's value: the geometric mean of its runs; of a drift, where it begins."""
    after: float | None = None
    judgement: Judgement | None = None
    departed: tuple[int, ...] = ()
    """Earlier runs that are worse with it."""


@dataclass(frozen=True)
class CheckResult:
    """All that was compared, most urgent first."""

    request: CheckRequest
    entries: tuple[CheckedMetric, ...]
    without_baseline: tuple[Run, ...]
    """Candidates that there is nothing to compare with."""

    @property
    def counts(self) -> dict[Outcome, int]:
        """How often each outcome came up."""
        count_of_outcome = Counter(checked.outcome for checked in self.entries)
        return {outcome: count_of_outcome[outcome] for outcome in OUTCOMES}

    @property
    def exit_code(self) -> int:
        """1 when anything became worse or failed; what is inconclusive does not fail a build.

        9 for first runs alone, unless they are allowed: that is no proof that nothing became worse.
        """
        if not self.entries:
            return 0 if self.request.allows_first_run else FIRST_RUN
        return int(any(self.counts[outcome] for outcome in _WORSE))


def check_history(session: Session, request: CheckRequest) -> CheckResult:
    """Judges every candidate.

    Raises UsageError for a baseline or run that is not there, and where nothing can be judged.
    """
    check_baseline(session, request.baseline)
    candidates: Sequence[Run] = (
        [run for text in request.runs for run in find_runs(session, text)]
        if request.runs
        else newest_of_each_series(session, request.filters)
    )
    if not candidates:
        msg = "no run of this history matches; `etprof history list` shows them, `add` adds one"
        raise UsageError(msg)
    gate = Gate(session, threshold=request.threshold, thresholds=request.thresholds)
    for metric in request.metrics:
        gate.load((candidate.id for candidate in candidates), metric)
    entries: list[CheckedMetric] = []
    compared: list[MetricComparison] = []
    without_baseline: list[Run] = []
    for candidate in candidates:
        if candidate.status == FAILED:
            entries.append(_run_entry(candidate, "failed", candidate.failure or "it failed"))
        elif candidate.wrong_outputs is not None:
            reason = f"its outputs are wrong, so no time counts: {candidate.wrong_outputs}"
            entries.append(_run_entry(candidate, "failed", reason))
        elif not gate.has_baseline(request.baseline, candidate):
            without_baseline.append(candidate)
        else:
            exact = list(_exact_entries(session, gate, request, candidate))
            if not candidate.representative and not exact:
                reason = "its target proves no times, so none are judged"
                entries.append(_run_entry(candidate, "inconclusive", reason))
            entries += exact
            compared += _comparisons(gate, request, candidate)
    entries += _judge_together(compared)
    if not entries and not without_baseline:
        msg = (
            f"no run has {', '.join(request.metrics)}; `etprof history show RUN` lists its metrics"
        )
        raise UsageError(msg)
    entries = [_as_accepted(gate, checked) for checked in entries]
    entries.sort(key=lambda checked: OUTCOMES.index(checked.outcome))
    return CheckResult(request, tuple(entries), tuple(without_baseline))


def _judge_together(compared: Sequence[MetricComparison]) -> list[CheckedMetric]:
    """Judges all comparisons of a check; a drift is a row of its own where there is one."""
    pairs = zip(compared, judge_all(compared), strict=True)
    return [_metric_entry(*pair) for pair in pairs if not pair[0].drift or pair[1].is_drift]


def _as_accepted(gate: Gate, checked: CheckedMetric) -> CheckedMetric:
    """What is worse with a run that somebody accepted is a change, and no regression."""
    judgement = checked.judgement
    if judgement is None or checked.run.id not in gate.accepted_runs(checked.run.series):
        return checked
    accepted = judgement.as_accepted()
    return replace(checked, outcome=accepted.verdict, reason=accepted.reason)


def _is_worse(outcome: Outcome) -> bool:
    return outcome in {"regression", "drift"}


def raise_alarms(session: Session, result: CheckResult, moment: datetime) -> None:
    """Keeps what a check called worse, so that no later baseline has it before it is accepted."""
    for checked in result.entries:
        if _is_worse(checked.outcome) and checked.metric is not None:
            for run_id in {checked.run.id, *checked.departed}:
                session.merge(Alarm(run_id=run_id, metric=checked.metric, raised_at=moment))


def _exact_entries(
    session: Session, gate: Gate, request: CheckRequest, candidate: Run
) -> Iterator[CheckedMetric]:
    """What became of each metric without noise; nothing where no earlier run has any."""
    runs = find_runs_before(session, gate, request.baseline, candidate)
    for compare in (compare_facts, *((compare_work,) if request.work else ())):
        reference = compare_with_standing(gate, runs, candidate, compare)
        if reference is None:
            continue
        for comparison in reference.comparisons:
            judgement = comparison.judgement
            yield CheckedMetric(
                judgement.verdict, candidate, (reference.run,), judgement.reason,
                comparison.metric, comparison.unit, comparison.before, comparison.after, judgement,
            )  # fmt: skip


def title_of(run: Run) -> str:
    """Says in words what a run measured."""
    threads = None if run.threads is None else count_of(run.threads, "thread")
    program = (run.model, run.precision, run.backend, _method(run))
    facts = (*program, sme_label(run.sme_mode), threads, run.variant)
    return ", ".join(fact for fact in facts if fact)


def _method(run: Run) -> str | None:
    return None if run.method in (None, "forward") else run.method


def _run_entry(candidate: Run, outcome: Outcome, reason: str) -> CheckedMetric:
    """What is said of a whole run."""
    return CheckedMetric(outcome, candidate, (), reason)


def _comparisons(gate: Gate, request: CheckRequest, candidate: Run) -> list[MetricComparison]:
    """The steps and the drifts of all metrics that can be tested."""
    comparisons = [
        comparison
        for metric in request.metrics
        for comparison in (
            gate.compare(request.baseline, candidate, metric),
            gate.drift(candidate, metric),
        )
    ]
    return [comparison for comparison in comparisons if comparison is not None]


def _metric_entry(comparison: MetricComparison, judgement: Judgement) -> CheckedMetric:
    return CheckedMetric(
        outcome=judgement.verdict,
        run=comparison.candidate.run,
        baseline=tuple(metric.run for metric in comparison.baseline),
        reason=judgement.reason,
        metric=comparison.candidate.name,
        unit=comparison.candidate.unit,
        before=comparison.before,
        after=comparison.after,
        judgement=judgement,
        departed=comparison.departed,
    )
