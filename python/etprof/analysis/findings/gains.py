"""One gain for the same time: what findings could gain is divided, so that it adds up to a whole.

A finding claims shares of the parts of an inference: operators, overheads, or everything. The gravest
takes what it claims, the next one what is left of its own, and so on: no nanosecond is gained twice,
and all gains of an experiment add up to an inference at most. A gain is the claimed share of the
inference times its timed latency, so that a tracer's cost is nobody's gain.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from etprof.analysis.findings.finding import EVERYTHING
from etprof.statistics.order_statistics import Interval
from etprof.statistics.two_samples import mean_interval

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from etprof.analysis.findings.finding import Finding
    from etprof.analysis.run_analysis import ExperimentAnalysis

Claims = dict[int, float]


class TimeToGain:
    """What is left of an inference of one experiment."""

    def __init__(self, experiment: ExperimentAnalysis) -> None:
        part_times = [times for _, times in experiment.split.parts]
        self._whole_ns = experiment.inference_ns or 0.0
        self._launches = [list(times.launches_ns) for times in part_times]
        self._shares = [times.share for times in part_times]
        self._totals = [sum(column) for column in zip(*self._launches, strict=True)]
        self._taken: Claims = {}

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
        return sum(self._shares[index] * share for index, share in claims.items()) * self._whole_ns

    def take(self, claims: Mapping[int, float]) -> tuple[float, Interval | None]:
        """Takes what is left of claims by part; returns it in ns, with its interval."""
        remaining = {
            index: max(share - self._taken.get(index, 0.0), 0.0) for index, share in claims.items()
        }
        self._taken = merge((self._taken, claims))
        return self.measure(remaining), self._interval(remaining)

    def _interval(self, claims: Claims) -> Interval | None:
        shares = [
            sum(self._launches[index][launch] * share for index, share in claims.items()) / total
            for launch, total in enumerate(self._totals)
            if total
        ]
        interval = mean_interval(shares)
        if interval is None:
            return None
        low, high = (
            min(max(end, 0.0), 1.0) * self._whole_ns for end in (interval.low, interval.high)
        )
        return Interval(low, high, interval.confidence)


def merge(claim_sets: Iterable[Mapping[int, float]]) -> Claims:
    """Returns the largest claim on each part."""
    merged: Claims = {}
    for claims in claim_sets:
        for index, share in claims.items():
            merged[index] = max(merged.get(index, 0.0), share)
    return merged


def divide_gains(findings: Sequence[Finding], time: TimeToGain) -> tuple[Finding, ...]:
    """Gives each finding its own gain, the first ones first."""
    divided: list[tuple[Finding, Claims]] = []
    for undivided in findings:
        finding = undivided
        claims = time.spread(finding.claims)
        rivals = [(rival, theirs) for rival, theirs in divided if _overlap(claims, theirs)]
        gain_ns, interval = time.take(claims)
        if claims:
            finding = replace(finding, gain_ns=gain_ns, interval=interval)
        if rivals:
            finding = replace(
                finding,
                shares_with=tuple(rival.rule for rival, _ in rivals),
                together_ns=time.measure(merge([claims, *(theirs for _, theirs in rivals)])),
            )
        divided.append((finding, claims))
    return tuple(finding for finding, _ in divided)


def _overlap(claims: Claims, rival_claims: Claims) -> bool:
    return any(share and rival_claims.get(index) for index, share in claims.items())
