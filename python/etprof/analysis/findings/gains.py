"""What the command of a finding gains, predicted from the operators that its rewrites replace.

A rewrite takes its operators into the delegate, where they still take time. So the gain is the time of
the operators that the rewrites replace, times a factor that was measured (`FACTORS`), and the overhead
of the delegate calls that merge where nothing is left between them. Other findings have a gain only
where two settings were measured against each other; the rest have none, since nobody knows it.

The worst finding takes its operators, the next one what is left of its own: no nanosecond is gained
twice. A gain is the share of the inference times its timed latency, so that a tracer's cost is
nobody's gain.
"""

from __future__ import annotations

from dataclasses import replace
from math import fsum
from typing import TYPE_CHECKING, Final, NamedTuple

from etprof.analysis.findings.causes import rewrites_behind
from etprof.analysis.findings.commands import command_in, rewrites_in
from etprof.analysis.findings.finding import EVERYTHING
from etprof.backends.backend import DELEGATE_OVERHEAD
from etprof.statistics.order_statistics import Interval
from etprof.statistics.two_samples import mean_interval

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from etprof.analysis.findings.finding import Finding, Subject
    from etprof.analysis.run_analysis import ExperimentAnalysis

Claims = dict[int, float]


class Factors(NamedTuple):
    """What a command gains, as a multiple of the time of the operators that it replaces."""

    low: float
    point: float
    high: float


MEASURED: Final = Factors(1.0, 1.0, 1.0)
"""Of a difference between two settings that were measured."""
_USUAL: Final = Factors(0.75, 1.0, 1.25)
FACTORS: Final = {
    **dict.fromkeys(
        ("delegated_casts", "early_selects", "folded_constants", "half_activations",
         "plain_attention", "plain_products", "shared_results", "whole_powers"), _USUAL,
    ),
    "kept_dimensions": Factors(0.1, 0.8, 1.25),
    "plain_views": Factors(-0.3, 0.7, 1.25),
    "spelled_norms": Factors(-0.5, 0.5, 1.2),
}  # fmt: skip
"""By the rewrite that replaces an operator, as `gains.py` and `faulty_models.py` of benchmarks/ measured on
an x86-64 host. A roll and a nearest upsampling may take longer inside the delegate than outside. A norm
becomes several operators: in float32 they take as long as the portable norm, or longer. The rewrites
that are not here have no prediction: those of weights and scales choose another kernel for the
same operators, and which operators merged transposes remove is not known."""
_MERGED: Final = Factors(0.0, 1.0, 1.0)
"""Of the overhead of calls that merge: what is inside them may keep some of it."""


class TimeToGain:
    """What is left of an inference of one experiment."""

    def __init__(self, experiment: ExperimentAnalysis) -> None:
        part_times = [times for _, times in experiment.split.parts]
        self._whole_ns = experiment.inference_ns or 0.0
        self._launches = [list(times.launches_ns) for times in part_times]
        self._shares = [times.share for times in part_times]
        self._totals = [fsum(column) for column in zip(*self._launches, strict=True)]
        self._taken: Claims = {}

    @property
    def inference_ns(self) -> float:
        """The timed latency of an inference; 0 without times."""
        return self._whole_ns

    def spread(self, claims: Mapping[int, float]) -> Claims:
        """Returns claims by part; one on everything is one on each."""
        every = claims.get(EVERYTHING, 0.0)
        return {
            index: min(max(claims.get(index, 0.0), every), 1.0)
            for index in range(len(self._shares))
            if index in claims or every
        }

    def measure(self, claims: Mapping[int, float]) -> float:
        """Returns what claims by part are together, in ns of the timed latency."""
        return fsum(self._shares[index] * share for index, share in claims.items()) * self._whole_ns

    def take(
        self, claims: Mapping[int, float], factors: Mapping[int, Factors] | None = None
    ) -> tuple[float, Interval | None]:
        """Takes what is left of claims by part; returns what it gains in ns, with its interval.

        Each part gains its time by its factors, where it has some.
        """
        of_part = factors or {}
        remaining = {
            index: (max(share - self._taken.get(index, 0.0), 0.0), of_part.get(index, MEASURED))
            for index, share in claims.items()
        }
        self._taken = merge((self._taken, claims))
        low, point, high = (
            {index: share * factor[end] for index, (share, factor) in remaining.items()}
            for end in range(3)
        )
        return self.measure(point), self._interval(low, high)

    def _interval(self, low_claims: Claims, high_claims: Claims) -> Interval | None:
        """From the lower end of one to the upper end of the other; no more than an inference."""
        low, high = (mean_interval(self._launch_shares(each)) for each in (low_claims, high_claims))
        if low is None or high is None:
            return None
        low_ns, high_ns = (
            min(max(end, -1.0), 1.0) * self._whole_ns for end in (low.low, high.high)
        )
        return Interval(low_ns, high_ns, low.confidence)

    def _launch_shares(self, claims: Claims) -> list[float]:
        return [
            fsum(self._launches[index][launch] * share for index, share in claims.items()) / total
            for launch, total in enumerate(self._totals)
            if total
        ]


def merge(claim_sets: Iterable[Mapping[int, float]]) -> Claims:
    """Returns the largest claim on each part."""
    merged: Claims = {}
    for claims in claim_sets:
        for index, share in claims.items():
            merged[index] = max(merged.get(index, 0.0), share)
    return merged


def divide_gains(
    findings: Sequence[Finding], subject: Subject, time: TimeToGain
) -> tuple[Finding, ...]:
    """Gives each finding the gain of its own command, the first ones first.

    Of several findings with one command the first has it. Where the times of the operators do not
    agree with the latency, nothing is predicted.
    """
    divided: list[tuple[Finding, Claims]] = []
    commands: set[str] = set()
    can_predict = subject.is_timed and not subject.insight.experiment.is_in_doubt
    for unweighed in findings:
        claimed = time.spread(unweighed.claims)
        undivided = replace(unweighed, time_ns=time.measure(claimed) or None)
        command = command_in(undivided.action)
        is_first = command is not None and command not in commands
        commands |= {command} if command else set()
        if EVERYTHING in undivided.claims:
            finding, claims = _with_gain(undivided, claimed, time, divided)
        elif command and is_first and can_predict:
            factors = _factors(subject, rewrites_in(command))
            merged = _merged_calls(subject, factors)
            replaced = dict.fromkeys(factors, 1.0) | merged
            factors |= dict.fromkeys(merged, _MERGED)
            finding, claims = _with_gain(undivided, replaced, time, divided, factors)
        else:
            finding, claims = undivided, {}
        divided.append((finding, claims))
    return tuple(finding for finding, _ in divided)


def _factors(subject: Subject, rewrites: Sequence[str]) -> dict[int, Factors]:
    """Returns the factors of the operators that an export with `rewrites` replaces, by their places.

    None if one of them has no prediction. Rewrites that the program was exported with are in the
    command too, and replace nothing more.
    """
    exported = subject.insight.experiment.program.exported
    done = {rewrite.name for rewrite in exported.rewrites} if exported else set()
    added = set(rewrites) - done
    if not added <= FACTORS.keys():
        return {}
    by_place: dict[int, Factors] = {}
    for index, detail in enumerate(subject.details):
        names = [name for name in rewrites_behind(detail) if name in added]
        if names:
            by_place[index] = FACTORS[names[0]]
    return by_place


def _merged_calls(subject: Subject, replaced: Collection[int]) -> Claims:
    """Claims the delegate's overhead of the calls between which nothing stays outside."""
    split = subject.split
    calls: list[int | None] = []
    merging = 0
    gap: list[bool] = []
    for index, row in enumerate(split.rows):
        if not row.is_delegated:
            gap.append(index in replaced)
        elif not calls or row.instruction_id != calls[-1]:
            merging += bool(calls and gap and all(gap))
            calls.append(row.instruction_id)
            gap = []
    if not merging:
        return {}
    return {
        len(split.rows) + index: merging / len(calls)
        for index, row in enumerate(split.overheads)
        if row.operator_class == DELEGATE_OVERHEAD
    }


def _with_gain(
    finding: Finding,
    claims: Claims,
    time: TimeToGain,
    divided: Sequence[tuple[Finding, Claims]],
    factors: Mapping[int, Factors] | None = None,
) -> tuple[Finding, Claims]:
    """Returns a finding with its gain and whom it shares it with; unchanged without claims."""
    if not claims:
        return finding, claims
    rivals = [(rival, theirs) for rival, theirs in divided if _overlap(claims, theirs)]
    gain_ns, interval = time.take(claims, factors)
    finding = replace(
        finding, gain_ns=gain_ns, interval=interval, latency_ns=time.inference_ns or None
    )
    if rivals:
        finding = replace(
            finding,
            shares_with=tuple(rival.rule for rival, _ in rivals),
            together_ns=time.measure(merge([claims, *(theirs for _, theirs in rivals)])),
        )
    return finding, claims


def _overlap(claims: Claims, rival_claims: Claims) -> bool:
    return any(share and rival_claims.get(index) for index, share in claims.items())
