"""The regression gate over a history: newest runs against a baseline, metric by metric."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Final, Literal

from etprof.base.units import count_of
from etprof.history.gate import DEFAULT_THRESHOLD, Judgement, judge_against
from etprof.history.noise import NoiseFloors
from etprof.history.schema import FAILED, Metric, Run
from etprof.history.selection import (
    baseline_runs,
    check_baseline,
    find_runs,
    newest_of_each_series,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy.orm import Session

Outcome = Literal["failed", "regression", "improvement", "unchanged", "inconclusive"]

OUTCOMES: Final[tuple[Outcome, ...]] = (
    "failed",
    "regression",
    "improvement",
    "inconclusive",
    "unchanged",
)
"""In order of urgency."""
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
    threshold: float = DEFAULT_THRESHOLD
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """By metric, where not the common one."""


@dataclass(frozen=True)
class Checked:
    """One metric of one candidate, or a candidate that failed (without metric)."""

    outcome: Outcome
    run: Run
    baseline: tuple[Run, ...]
    reason: str
    metric: str | None = None
    unit: str | None = None
    before: float | None = None
    """The baseline's value: the median of its runs."""
    after: float | None = None
    judgement: Judgement | None = None


@dataclass(frozen=True)
class CheckResult:
    """All that was compared, most urgent first."""

    request: CheckRequest
    entries: tuple[Checked, ...]
    without_baseline: tuple[Run, ...]
    """Candidates that there is nothing to compare with."""

    @property
    def counts(self) -> dict[Outcome, int]:
        """How often each outcome came up."""
        found = Counter(entry.outcome for entry in self.entries)
        return {outcome: found[outcome] for outcome in OUTCOMES}

    @property
    def exit_code(self) -> int:
        """1 when anything became worse or failed; what is inconclusive does not fail a build."""
        return int(self.counts["failed"] > 0 or self.counts["regression"] > 0)


def check_history(session: Session, request: CheckRequest) -> CheckResult:
    """Judges every candidate; raises UsageError for a baseline or run that is not there."""
    check_baseline(session, request.baseline)
    candidates: Sequence[Run] = (
        [run for text in request.runs for run in find_runs(session, text)]
        if request.runs
        else newest_of_each_series(session, request.filters)
    )
    newest = max((run.measured_at for run in candidates), default=None)
    noise = NoiseFloors(session, until=newest)
    entries: list[Checked] = []
    alone: list[Run] = []
    for candidate in candidates:
        baselines = baseline_runs(session, request.baseline, candidate)
        if candidate.status == FAILED:
            entries.append(_told(candidate, baselines, "failed", candidate.failure or "it failed"))
        elif candidate.wrong_outputs is not None:
            reason = f"its outputs are wrong, so no time counts: {candidate.wrong_outputs}"
            entries.append(_told(candidate, baselines, "failed", reason))
        elif not baselines:
            alone.append(candidate)
        elif not candidate.representative:
            reason = "its target proves no times, so none are judged"
            entries.append(_told(candidate, baselines, "inconclusive", reason))
        else:
            entries += _judge_metrics(noise, request, candidate, baselines)
    entries.sort(key=lambda entry: OUTCOMES.index(entry.outcome))
    return CheckResult(request, tuple(entries), tuple(alone))


def title_of(run: Run) -> str:
    """Says in words what a run measured."""
    threads = None if run.threads is None else count_of(run.threads, "thread")
    what = (run.model, run.precision, run.backend, _method(run))
    facts = (*what, f"SME {run.sme_mode}", threads, run.variant)
    return ", ".join(fact for fact in facts if fact)


def _method(run: Run) -> str | None:
    return None if run.method in (None, "forward") else run.method


def _told(candidate: Run, baselines: Sequence[Run], outcome: Outcome, reason: str) -> Checked:
    """What is said of a whole run."""
    return Checked(outcome, candidate, tuple(baselines), reason)


def _judge_metrics(
    noise: NoiseFloors, request: CheckRequest, candidate: Run, baselines: Sequence[Run]
) -> list[Checked]:
    """Judges the metrics that both sides have."""
    after = {metric.name: metric for metric in candidate.metrics}
    before: dict[str, list[Metric]] = {}
    for run in baselines:
        for metric in run.metrics:
            before.setdefault(metric.name, []).append(metric)
    return [
        _judge_metric(noise, request, after[name], before[name])
        for name in request.metrics
        if name in after and name in before
    ]


def _judge_metric(
    noise: NoiseFloors, request: CheckRequest, after: Metric, before: Sequence[Metric]
) -> Checked:
    run, name = after.run, after.name
    floor = noise.floor(run.device, name, before=run.measured_at)
    threshold = request.thresholds.get(name, request.threshold)
    judgement = judge_against(before, after, threshold, noise=floor)
    return Checked(
        outcome=judgement.verdict,
        run=run,
        baseline=tuple(metric.run for metric in before),
        reason=judgement.reason,
        metric=name,
        unit=after.unit,
        before=median(metric.value for metric in before),
        after=after.value,
        judgement=judgement,
    )
