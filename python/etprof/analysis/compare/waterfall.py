"""Takes the difference of two totals apart: from the baseline's to the candidate's, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING, Final, Literal

from etprof.base.text import layer_or_label
from etprof.base.units import count_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.analysis.compare.alignment import AlignedOperator
    from etprof.analysis.split.operators import OperatorSplit, SplitTimes

_ROUNDING_NS: Final = 1e-3
"""More than sums of floating-point numbers lose, and less than any clock tells."""
StepKind = Literal["operator", "overhead", "unattributed", "total"]


@dataclass(frozen=True)
class WaterfallStep:
    """What one operator or overhead adds to (above zero) or takes from the total; ns."""

    label: str
    kind: StepKind
    baseline_ns: float
    candidate_ns: float
    location: str | None = None
    """The layer that an operator is of; None where that is not known, and of others."""

    @property
    def name(self) -> str:
        """What people look for: the layer, else the label."""
        return layer_or_label(self.location, self.label)

    @property
    def delta_ns(self) -> float:
        """Candidate minus baseline: below zero is time saved."""
        return self.candidate_ns - self.baseline_ns


@dataclass(frozen=True)
class Waterfall:
    """Mean `Method::execute` of both sides and every step between; in ns per inference.

    Means, for only they add up: the steps' deltas are exactly the difference of the totals.
    """

    baseline_ns: float
    candidate_ns: float
    steps: tuple[WaterfallStep, ...]
    """Operators in program order, overheads, and the unattributed rest last."""

    @property
    def residual_ns(self) -> float:
        """What the steps miss of the difference; rounding of floating point at most."""
        return self.candidate_ns - self.baseline_ns - fsum(step.delta_ns for step in self.steps)

    def largest(self, count: int) -> tuple[WaterfallStep, ...]:
        """The `count` largest steps in the order of their size, then the others as one.

        What is nothing but rounding on both sides is no step.
        """
        seen = (
            s for s in self.steps if max(abs(s.baseline_ns), abs(s.candidate_ns)) > _ROUNDING_NS
        )
        ordered = sorted(seen, key=lambda step: -abs(step.delta_ns))
        largest = [step for step in ordered[:count] if abs(step.delta_ns) > _ROUNDING_NS]
        remaining = ordered[len(largest) :]
        return (*largest, _merge(remaining)) if remaining else tuple(largest)


def build_waterfall(
    baseline: tuple[OperatorSplit, SplitTimes],
    candidate: tuple[OperatorSplit, SplitTimes],
    aligned: Sequence[AlignedOperator],
) -> Waterfall:
    """Builds the waterfall of two splits whose operators are `aligned`."""
    steps = [
        WaterfallStep(
            pair.label,
            "operator",
            pair.baseline_times.mean_ns if pair.baseline_times else 0.0,
            pair.candidate_times.mean_ns if pair.candidate_times else 0.0,
            pair.row.location,
        )
        for pair in aligned
    ]
    steps += _overhead_steps(baseline[0], candidate[0])
    totals = baseline[1].execute.mean_ns, candidate[1].execute.mean_ns
    unattributed = [
        total - fsum(values)
        for total, values in zip(
            totals,
            ([s.baseline_ns for s in steps], [s.candidate_ns for s in steps]),
            strict=True,
        )
    ]
    steps.append(WaterfallStep("Unattributed", "unattributed", unattributed[0], unattributed[1]))
    return Waterfall(totals[0], totals[1], tuple(steps))


def _overhead_steps(baseline: OperatorSplit, candidate: OperatorSplit) -> list[WaterfallStep]:
    """Overheads have the same names on both sides."""
    before = {row.label: row.times.mean_ns for row in baseline.overheads}
    after = {row.label: row.times.mean_ns for row in candidate.overheads}
    return [
        WaterfallStep(label, "overhead", before.get(label, 0.0), after.get(label, 0.0))
        for label in dict.fromkeys([*before, *after])
    ]


def _merge(steps: Sequence[WaterfallStep]) -> WaterfallStep:
    return WaterfallStep(
        count_of(len(steps), "other"),
        "operator",
        fsum(step.baseline_ns for step in steps),
        fsum(step.candidate_ns for step in steps),
    )
