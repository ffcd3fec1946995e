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
        parts = [times for _, times in experiment.split.parts]
        self._whole_ns = experiment.inference_ns or 0.0
        self._launches = [list(each.launches_ns) for each in parts]
        self._shares = [each.share for each in parts]
        self._totals = [sum(column) for column in zip(*self._launches, strict=True)]
        self._taken: Claims = {}

    def spread(self, claims: Mapping[int, float]) -> Claims:
        """Returns claims by part; one on everything is one on each."""
        every = claims.get(EVERYTHING, 0.0)
        return {
            place: min(max(claims.get(place, 0.0), every), 1.0)
            for place in range(len(self._shares))
            if place in claims or every
        }

    def measure(self, claims: Mapping[int, float]) -> float:
        """Returns what claims by part are together, in ns of the timed latency."""
        return sum(self._shares[place] * share for place, share in claims.items()) * self._whole_ns

    def take(self, claims: Mapping[int, float]) -> tuple[float, Interval | None]:
        """Takes what is left of claims by part; returns it in ns, with its interval."""
        own = {
            place: max(share - self._taken.get(place, 0.0), 0.0) for place, share in claims.items()
        }
        self._taken = merge((self._taken, claims))
        return self.measure(own), self._interval(own)

    def _interval(self, own: Claims) -> Interval | None:
        shares = [
            sum(self._launches[place][launch] * share for place, share in own.items()) / total
            for launch, total in enumerate(self._totals)
            if total
        ]
        found = mean_interval(shares)
        if found is None:
            return None
        low, high = (min(max(end, 0.0), 1.0) * self._whole_ns for end in (found.low, found.high))
        return Interval(low, high, found.confidence)


def merge(several: Iterable[Mapping[int, float]]) -> Claims:
    """Returns the largest claim on each part."""
    found: Claims = {}
    for claims in several:
        for place, share in claims.items():
            found[place] = max(found.get(place, 0.0), share)
    return found


def divide_gains(findings: Sequence[Finding], time: TimeToGain) -> tuple[Finding, ...]:
    """Gives each finding its own gain, the first ones first."""
    divided: list[tuple[Finding, Claims]] = []
    for each in findings:
        finding = each
        claims = time.spread(finding.claims)
        rivals = [(other, theirs) for other, theirs in divided if _overlap(claims, theirs)]
        gain_ns, interval = time.take(claims)
        if claims:
            finding = replace(finding, gain_ns=gain_ns, interval=interval)
        if rivals:
            finding = replace(
                finding,
                shares_with=tuple(other.rule for other, _ in rivals),
                together_ns=time.measure(merge([claims, *(theirs for _, theirs in rivals)])),
            )
        divided.append((finding, claims))
    return tuple(finding for finding, _ in divided)


def _overlap(one: Claims, other: Claims) -> bool:
    return any(share and other.get(place) for place, share in one.items())
