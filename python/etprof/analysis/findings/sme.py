"""F8 to F11: what SME2 changed between off and on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.analysis.findings.finding import (
    SHOWN_ROWS,
    EvidenceRow,
    Finding,
    Subject,
)
from etprof.base.units import format_duration, format_ratio, format_share

if TYPE_CHECKING:
    from etprof.analysis.compare.comparison import Change, Comparison

_COMPUTE: Final = ("Convolution", "GEMM")


def note_convolution_share(subject: Subject) -> Finding | None:
    """F8: a smaller share of convolution than the reference's, because it became faster."""
    reference = subject.share_in_reference("Convolution")
    if reference is None or subject.comparison is None:
        return None
    change = subject.comparison.categories["Convolution"]
    if change.delta_ns >= 0 or not 0 < change.candidate_share < reference:
        return None
    return Finding(
        rule="F8",
        title="Convolution takes less than in the reference",
        severity="good",
        experiment=subject.name,
        summary=(
            f"Convolution is {format_share(change.candidate_share)} of an inference, in the "
            f"reference {format_share(reference)}, and its time fell."
        ),
        evidence=(_change_row("Convolution", change),),
        gain_ns=None,
        action="none: SME2 is working",
    )


def find_bottleneck_shift(subject: Subject) -> Finding | None:
    """F9: after SME2 the time is elsewhere."""
    comparison = subject.comparison
    if comparison is None:
        return None
    limits = subject.thresholds
    before, after = _compute_shares(comparison)
    movement = comparison.categories["Data Movement"]
    shrank = before >= limits.shift_before_share and after <= limits.shift_after_share
    moved = (
        movement.candidate_share >= limits.shift_movement_share
        and movement.candidate_share > movement.baseline_share
        and after < before
    )
    if not (shrank or moved):
        return None
    largest = max(
        (item for item in comparison.categories.items() if item[0] not in _COMPUTE),
        key=lambda item: item[1].candidate_ns,
    )
    return Finding(
        rule="F9",
        title="The bottleneck has moved",
        severity="medium",
        experiment=subject.name,
        summary=(
            f"Convolution and GEMM fell from {format_share(before)} to {format_share(after)} of an "
            f"inference; {largest[0]} is now {format_share(largest[1].candidate_share)}."
        ),
        evidence=tuple(_change_row(name, c) for name, c in comparison.categories.items()),
        gain_ns=largest[1].candidate_ns,
        action=(
            f"work on {largest[0]} now: a larger share is not more time ("
            f"{format_duration(largest[1].baseline_ns)} before, "
            f"{format_duration(largest[1].candidate_ns)} after), but it is what is left"
        ),
    )


def _compute_shares(comparison: Comparison) -> tuple[float, float]:
    changes = [comparison.categories[name] for name in _COMPUTE]
    return sum(c.baseline_share for c in changes), sum(c.candidate_share for c in changes)


def _change_row(name: str, change: Change) -> EvidenceRow:
    times = f"{format_duration(change.baseline_ns)} → {format_duration(change.candidate_ns)}"
    shares = f"{format_share(change.baseline_share)} → {format_share(change.candidate_share)}"
    return EvidenceRow(name, f"{times}, {shares}")


def find_no_effect(subject: Subject) -> Finding | None:
    """F10: SME2 was in force, yet nothing shows it, or what shows it is not faster."""
    if subject.insight.experiment.sme not in {"sme2", "sme1"}:
        return None
    compute = subject.in_category(*_COMPUTE)
    if not compute:
        return None
    routes = [detail.evidence.route for detail in compute]
    on_sme = sum(route.takes_sme for route in routes)
    if on_sme:
        return _no_speed_up(subject, proven=on_sme)
    if any(route.answer == "unknown" for route in routes):
        return None  # nothing shows it, and nothing speaks against it
    return _no_evidence(subject)


def _no_evidence(subject: Subject) -> Finding:
    compute = subject.in_category(*_COMPUTE)
    reasons = dict.fromkeys(d.why_not_sme2.text for d in compute if d.why_not_sme2)
    return Finding(
        rule="F10",
        title="SME2 was on, but no operator used it",
        severity="high",
        experiment=subject.name,
        summary=f"None of {len(compute)} convolutions and matrix products ran on SME2.",
        evidence=subject.show(compute),
        gain_ns=None,
        action="; ".join(list(reasons)[:3]) or "check the runner's build: `etprof doctor`",
        ruled_out=("the mode: the runner reports it in force",),
    )


def _no_speed_up(subject: Subject, *, proven: int) -> Finding | None:
    comparison = subject.comparison
    if comparison is None or not comparison.times_are_meaningful:
        return None
    before = sum(comparison.categories[name].baseline_ns for name in _COMPUTE)
    after = sum(comparison.categories[name].candidate_ns for name in _COMPUTE)
    if not after or before / after >= subject.thresholds.accelerated_ratio:
        return None
    return Finding(
        rule="F10",
        title="SME2 ran, but convolution and GEMM are hardly faster",
        severity="high",
        experiment=subject.name,
        summary=(
            f"{proven} operators ran on SME2, yet convolution and GEMM together are only "
            f"{format_ratio(before / after)} as fast as without."
        ),
        evidence=tuple(_change_row(name, comparison.categories[name]) for name in _COMPUTE),
        gain_ns=None,
        action=(
            "look at shapes: single-row and very small products pay for packing; measure with one "
            "thread, for cores share the SME2 unit"
        ),
        ruled_out=("missing SME2 kernels: they were used",),
    )


def find_slowdown(subject: Subject) -> Finding | None:
    """F11: the whole interval says that SME2 makes it slower."""
    comparison = subject.comparison
    if comparison is None or comparison.latency is None or comparison.latency.verdict != "slower":
        return None
    slower = sorted(comparison.operators, key=lambda entry: -entry.change.delta_ns)
    rows = [entry for entry in slower if entry.change.delta_ns > 0][:SHOWN_ROWS]
    return Finding(
        rule="F11",
        title="SME2 makes this model slower",
        severity="high",
        experiment=subject.name,
        summary=(
            f"Speed-up {format_ratio(comparison.latency.speed_up)} of {comparison.name}, and the "
            "whole interval is below 1."
        ),
        evidence=tuple(_change_row(entry.aligned.row.label, entry.change) for entry in rows),
        gain_ns=max(comparison.waterfall.candidate_ns - comparison.waterfall.baseline_ns, 0.0),
        action=(
            "see which operators lost: packing of the left-hand side (Pack rows), products with "
            "one row, or several threads on one SME2 unit; run with fewer threads, or with SME off"
        ),
        ruled_out=("noise: the sign-flip test and the interval agree",),
    )
