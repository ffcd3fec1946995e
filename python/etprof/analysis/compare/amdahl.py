"""How far acceleration can go, and what the next bottleneck is worth (Amdahl's law)."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING, TypeAlias

from etprof.analysis.split.operators import class_times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.analysis.compare.alignment import AlignedOperator
    from etprof.analysis.run_analysis import ExperimentAnalysis
    from etprof.analysis.split.operators import OperatorRow, OperatorSplit, PartTimes, SplitTimes
    from etprof.backends.backend import OperatorClass, SmeRoute


@dataclass(frozen=True)
class Bottleneck:
    """A class of operators of the candidate, and the total speedup if it cost nothing."""

    operator_class: OperatorClass
    mean_ns: float
    share: float
    speed_up_if_removed: float


@dataclass(frozen=True)
class AmdahlPanel:
    """The accelerated part of the baseline, and the ceiling that the rest sets."""

    accelerated_operators: int
    accelerated_share: float
    """Fraction of the baseline's time in operators that only the candidate runs on SME."""
    accelerated_speed_up: float | None
    """Of these operators together; None when the candidate's have no time."""
    achieved: float
    """Speedup of the traced totals, baseline ÷ candidate."""
    ceiling: float | None
    """Speedup if the accelerated part took no time, 1 ÷ (1 - share); None when it is all."""
    bottlenecks: tuple[Bottleneck, ...]
    """Classes of the candidate, largest first."""


Accelerated: TypeAlias = "Sequence[tuple[PartTimes, PartTimes]]"
"""Times of operators on both sides."""


def find_accelerated(
    baseline: ExperimentAnalysis,
    candidate: ExperimentAnalysis,
    aligned: Sequence[AlignedOperator],
) -> Accelerated:
    """Returns the operators that only the candidate runs on SME."""
    before_runs, after_runs = _routes(baseline), _routes(candidate)
    return [
        (before, after)
        for pair in aligned
        if pair.baseline
        and pair.candidate
        and (before := pair.baseline_times)
        and (after := pair.candidate_times)
        and after_runs[pair.candidate].takes_sme
        and before_runs[pair.baseline].answer == "excluded"
    ]


def build_amdahl_panel(
    baseline: tuple[ExperimentAnalysis, SplitTimes],
    candidate: tuple[ExperimentAnalysis, SplitTimes],
    accelerated: Accelerated,
) -> AmdahlPanel:
    """Builds the panel."""
    ns_before = fsum(times.mean_ns for times, _ in accelerated)
    ns_after = fsum(times.mean_ns for _, times in accelerated)
    whole_before, whole_after = (times.execute.mean_ns for _, times in (baseline, candidate))
    share = ns_before / whole_before if whole_before else 0.0
    return AmdahlPanel(
        accelerated_operators=len(accelerated),
        accelerated_share=share,
        accelerated_speed_up=ns_before / ns_after if ns_after else None,
        achieved=whole_before / whole_after if whole_after else 1.0,
        ceiling=1 / (1 - share) if share < 1 else None,
        bottlenecks=find_bottlenecks(candidate[0].split),
    )


def _routes(experiment: ExperimentAnalysis) -> dict[OperatorRow, SmeRoute]:
    rows = experiment.split.rows
    return {row: e.route for row, e in zip(rows, experiment.evidence, strict=True)}


def find_bottlenecks(split: OperatorSplit, count: int = 6) -> tuple[Bottleneck, ...]:
    """Returns the `count` largest classes and what removing each would give."""
    return tuple(
        Bottleneck(operator_class, times.mean_ns, times.share, 1 / (1 - times.share))
        for operator_class, times in list(class_times(split).items())[:count]
        if 0 < times.share < 1
    )
