"""The regression gate over a history: newest runs against a baseline, metric by metric."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from sqlalchemy import select

from etprof.base.units import count_of, format_count
from etprof.history.gate import Gate, Judgement, MetricComparison, Verdict, judge_all
from etprof.history.schema import FAILED, OperatorWork, Run, RunWork
from etprof.history.selection import (
    NEWEST_FIRST,
    check_baseline,
    find_runs,
    newest_of_each_series,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy.orm import Session

Outcome = Literal["failed", "regression", "drift", "improvement", "unchanged", "inconclusive"]

OUTCOMES: Final[tuple[Outcome, ...]] = (
    "failed",
    "regression",
    "drift",
    "improvement",
    "inconclusive",
    "unchanged",
)
"""In order of urgency."""
NOTHING_COMPARED: Final = 9
"""Exit code of a check whose runs have nothing to be compared with."""
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


WORK: Final[Mapping[str, tuple[str, str]]] = {
    "calls": ("kernel_calls", "count"),
    "macs": ("work_macs", "count"),
    "padded_macs": ("work_padded_macs", "count"),
    "steps": ("work_steps", "count"),
    "bytes": ("work_bytes", "bytes"),
    "instructions": ("instructions", "count"),
}
"""Each count of `OperatorWork`, with its name as a metric and its unit.

The baseline is the least that any of its runs has: more stays more while one with less is in it.
"""
_NAMED: Final = 3
"""Operators that a reason lists."""


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
    """Whether exact work is judged too: one step more fails."""


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

        9 when nothing was compared: that is no proof that nothing became worse.
        """
        if not self.entries:
            return NOTHING_COMPARED
        return int(any(self.counts[outcome] for outcome in _WORSE))


def check_history(session: Session, request: CheckRequest) -> CheckResult:
    """Judges every candidate; raises UsageError for a baseline or run that is not there."""
    check_baseline(session, request.baseline)
    candidates: Sequence[Run] = (
        [run for text in request.runs for run in find_runs(session, text)]
        if request.runs
        else newest_of_each_series(session, request.filters)
    )
    gate = Gate(session, threshold=request.threshold, thresholds=request.thresholds)
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
        elif not candidate.representative and not (request.work and candidate.work):
            reason = "its target proves no times, so none are judged"
            entries.append(_run_entry(candidate, "inconclusive", reason))
        else:
            compared += _comparisons(gate, request, candidate)
        if request.work and candidate.status != FAILED and candidate.wrong_outputs is None:
            entries += _work_entries(session, gate, request, candidate)
    pairs = zip(compared, judge_all(compared), strict=True)
    # A drift is a row of its own where there is one; the test for it counts in any case.
    entries += [_metric_entry(*pair) for pair in pairs if not pair[0].drift or pair[1].is_drift]
    entries.sort(key=lambda checked: OUTCOMES.index(checked.outcome))
    return CheckResult(request, tuple(entries), tuple(without_baseline))


def _work_entries(
    session: Session, gate: Gate, request: CheckRequest, candidate: Run
) -> Iterator[CheckedMetric]:
    """What became of each count; nothing where no run of the baseline has counts."""
    numbers = gate.runs_before(request.baseline, candidate)
    now = work_of(candidate)
    if now is None:
        return
    runs = session.scalars(select(Run).where(Run.id.in_(numbers)).order_by(*NEWEST_FIRST))
    counted_runs = [(run, before) for run in runs if (before := work_of(run))]
    # How much is computed depends on the length.
    counted_runs = [
        (run, before) for run, before in counted_runs if before.svl_bits == now.svl_bits
    ]
    for count, (metric, unit) in WORK.items():
        comparable = counted_runs
        if count == "instructions":
            comparable = [
                counted_run
                for counted_run in counted_runs
                if counted_run[1].has_instructions and now.has_instructions
            ]
        if not comparable:
            continue
        fewest, before = min(comparable, key=lambda counted_run: _total(counted_run[1], count))
        judgement = _judge_work(count, before, now)
        totals = _total(before, count), _total(now, count)
        yield CheckedMetric(
            judgement.verdict, candidate, (fewest,), judgement.reason, metric, unit, *totals,
            judgement,
        )  # fmt: skip


def work_of(run: Run) -> RunWork | None:
    """Returns what was counted of a run; None where nothing was."""
    return RunWork.model_validate(run.work) if run.work else None


def _total(work: RunWork, count: str) -> int:
    return sum(getattr(operator, count) for operator in work.operators.values())


def _judge_work(count: str, before: RunWork, now: RunWork) -> Judgement:
    """Judges exactly: counts do not vary, so one more is one more."""
    old, new = _total(before, count), _total(now, count)
    verdict: Verdict = "unchanged"
    if new != old:
        verdict = "regression" if new > old else "improvement"
    change = new / old - 1 if old else None
    reason = (
        f"exact: {_describe_work_difference(count, before.operators, now.operators) or 'the same'}"
    )
    return Judgement(verdict, change, change, change, 0.0, reason, smallest=0.0)


def _describe_work_difference(
    count: str, before: Mapping[str, OperatorWork], now: Mapping[str, OperatorWork]
) -> str:
    """Names the operators whose counts differ, the largest difference first."""
    nothing = OperatorWork(calls=0)
    differing = [
        (name, old, new)
        for name in {**before, **now}
        if (old := getattr(before.get(name, nothing), count))
        != (new := getattr(now.get(name, nothing), count))
    ]
    differing.sort(key=lambda difference: -abs(difference[2] - difference[1]))
    texts = [
        f"{name} {format_count(old)} → {format_count(new)}" for name, old, new in differing[:_NAMED]
    ]
    if len(differing) > _NAMED:
        texts.append(f"and {count_of(len(differing) - _NAMED, 'operator')} more")
    return ", ".join(texts)


def title_of(run: Run) -> str:
    """Says in words what a run measured."""
    threads = None if run.threads is None else count_of(run.threads, "thread")
    program = (run.model, run.precision, run.backend, _method(run))
    facts = (*program, f"SME {run.sme_mode}", threads, run.variant)
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
    )
