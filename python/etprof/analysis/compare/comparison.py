"""Compares two experiments: latency with its verdict, categories, operators, and what is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from etprof.analysis.compare.alignment import AlignedOperator, align_operators
from etprof.analysis.compare.amdahl import AmdahlPanel, build_amdahl_panel
from etprof.analysis.compare.comparability import Difference, Side, find_differences, find_unknowns
from etprof.analysis.compare.waterfall import Waterfall, build_waterfall
from etprof.analysis.generation import TokenComparison, compare_tokens
from etprof.analysis.output_check import OutputCheck, check_outputs
from etprof.analysis.run_analysis import split_notes
from etprof.analysis.split.cold_start import LedgerEntry, build_ledger, pair_blocks
from etprof.analysis.split.operators import category_totals_ns, class_totals_ns
from etprof.analysis.validity import Validity, check_validity
from etprof.statistics.effect import DEFAULT_MARGIN, Effect

if TYPE_CHECKING:
    from etprof.analysis.run_analysis import ExperimentAnalysis
    from etprof.analysis.split.operators import OperatorSplit
    from etprof.backends.backend import OperatorClass

STEADY_ENTRY = "Steady inference"


@dataclass(frozen=True)
class Change:
    """One quantity on both sides; mean ns per inference and share of `Method::execute`."""

    baseline_ns: float
    candidate_ns: float
    baseline_share: float
    candidate_share: float

    @property
    def delta_ns(self) -> float:
        """Candidate minus baseline: below zero is time saved."""
        return self.candidate_ns - self.baseline_ns

    @property
    def speed_up(self) -> float | None:
        """Baseline ÷ candidate; None when either took no time."""
        if self.baseline_ns <= 0 or self.candidate_ns <= 0:
            return None
        return self.baseline_ns / self.candidate_ns


@dataclass(frozen=True)
class OperatorChange:
    """One operator on both sides."""

    aligned: AlignedOperator
    change: Change
    interval: tuple[float, float] | None
    """Speed-up between the medians' intervals over calls; noise between launches is not in it."""


@dataclass(frozen=True)
class Comparison:
    """Everything that can be said of a candidate beside its baseline."""

    baseline: Side
    candidate: Side
    times_are_meaningful: bool
    differences: tuple[Difference, ...]
    """Settings in which the sides differ although the comparison was allowed."""
    latency: Effect | None
    """Steady latency without tracer, over pairs of blocks; None when it was not timed."""
    ledger: tuple[LedgerEntry, ...]
    categories: dict[str, Change]
    classes: dict[OperatorClass, Change]
    operators: tuple[OperatorChange, ...]
    waterfall: Waterfall
    amdahl: AmdahlPanel
    outputs: tuple[OutputCheck, ...]
    """What both sides computed; empty when it was not kept, or the programs differ."""
    tokens: TokenComparison | None
    """What language models generated on both sides; None when there are no tokens."""
    notes: tuple[str, ...]

    @property
    def outputs_agree(self) -> bool:
        """False when some output is further off than its precision explains."""
        return all(check.is_within for check in self.outputs)

    validity: Validity
    """What surrounds the numbers: without it no verdict is to be believed."""

    @property
    def name(self) -> str:
        """The pair's name, such as `off → sme2`."""
        return f"{self.baseline.experiment.name} → {self.candidate.experiment.name}"


def compare_sides(baseline: Side, candidate: Side, *, margin: float = DEFAULT_MARGIN) -> Comparison:
    """Compares two experiments that may be compared; `margin` is what counts as no difference."""
    before, after = baseline.experiment, candidate.experiment
    aligned = align_operators(before.split.rows, after.split.rows)
    meaningful = baseline.run.is_timed and candidate.run.is_timed
    ledger: tuple[LedgerEntry, ...] = ()
    if meaningful and before.metrics is not None and after.metrics is not None:
        ledger = build_ledger(before.metrics, after.metrics, margin=margin)
    return Comparison(
        baseline=baseline,
        candidate=candidate,
        times_are_meaningful=meaningful,
        differences=find_differences(baseline, candidate),
        latency=next((entry.effect for entry in ledger if entry.label == STEADY_ENTRY), None),
        ledger=ledger,
        categories=_category_changes(before.split, after.split),
        classes=_class_changes(before.split, after.split),
        operators=tuple(_operator_change(pair) for pair in aligned),
        waterfall=build_waterfall(before.split, after.split, aligned),
        amdahl=build_amdahl_panel(before, after, aligned),
        outputs=(outputs := check_outputs(baseline, candidate)),
        tokens=(tokens := _compare_tokens(before, after)),
        notes=(
            *_output_notes(outputs),
            *_token_notes(tokens),
            *_notes(baseline, candidate, meaningful=meaningful),
        ),
        validity=check_validity(baseline, candidate, outputs),
    )


def _change(
    before_ns: float, after_ns: float, before: OperatorSplit, after: OperatorSplit
) -> Change:
    """Builds a change from totals over all steady executions of each side."""
    return Change(
        before_ns / before.executions,
        after_ns / after.executions,
        before_ns / before.execute_total_ns if before.execute_total_ns else 0.0,
        after_ns / after.execute_total_ns if after.execute_total_ns else 0.0,
    )


def _category_changes(before: OperatorSplit, after: OperatorSplit) -> dict[str, Change]:
    totals = category_totals_ns(after)
    return {
        name: _change(total, totals[name], before, after)
        for name, total in category_totals_ns(before).items()
    }


def _class_changes(before: OperatorSplit, after: OperatorSplit) -> dict[OperatorClass, Change]:
    left, right = class_totals_ns(before), class_totals_ns(after)
    return {
        entry: _change(left.get(entry, 0.0), right.get(entry, 0.0), before, after)
        for entry in dict.fromkeys([*left, *right])
    }


def _operator_change(pair: AlignedOperator) -> OperatorChange:
    before, after = pair.baseline, pair.candidate
    change = Change(
        before.mean_ns if before else 0.0,
        after.mean_ns if after else 0.0,
        before.share if before else 0.0,
        after.share if after else 0.0,
    )
    interval = None
    if before and after and before.median_interval and after.median_interval:
        left, right = before.median_interval, after.median_interval
        if right[0] > 0:
            interval = (left[0] / right[1], left[1] / right[0])
    return OperatorChange(pair, change, interval)


def _output_notes(outputs: tuple[OutputCheck, ...]) -> list[str]:
    """Says so when the sides did not compute the same."""
    wrong = [str(check) for check in outputs if not check.is_within]
    if not wrong:
        return []
    return [f"the sides computed different results, so no speed-up counts: {'; '.join(wrong)}"]


def _compare_tokens(
    before: ExperimentAnalysis, after: ExperimentAnalysis
) -> TokenComparison | None:
    sides = [experiment.metrics.generated if experiment.metrics else None
             for experiment in (before, after)]  # fmt: skip
    return compare_tokens(*sides)


def _token_notes(tokens: TokenComparison | None) -> list[str]:
    """Says so when the sides said different things: kernels round differently, and so may choose."""
    if tokens is None or tokens.first_difference is None:
        return []
    return [f"the sides generated different tokens: {tokens}"]


def _notes(baseline: Side, candidate: Side, *, meaningful: bool) -> list[str]:
    """What stands against taking the comparison at face value."""
    notes = [f"the sides differ in {entry}" for entry in find_differences(baseline, candidate)]
    for side in (baseline, candidate):
        notes += split_notes(side.experiment, times_are_meaningful=meaningful)
    unknown = find_unknowns(baseline, candidate)
    if unknown:
        notes.append(f"whether the sides agree in {', '.join(unknown)} is not known")
    if not meaningful:
        notes.append("times under emulation mean nothing; only structure and kernels are compared")
        return notes
    before, after = baseline.experiment.metrics, candidate.experiment.metrics
    if before is None or after is None:
        notes.append("not timed without tracer on both sides, so there is no verdict")
    elif baseline.run.source != candidate.run.source:
        notes.append(
            "the sides come from different runs, so drift between the runs is part of the difference"
        )
    elif len(pair_blocks(before, after)) < 6:
        notes.append("fewer than six pairs of blocks: no interval of 95 % exists; use --blocks 10")
    return notes
