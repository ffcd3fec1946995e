"""F8 to F11, and why not SME2: what SME changed between off and on, and what it left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from etprof.analysis.findings.finding import (
    SHOWN_ROWS,
    EvidenceRow,
    Finding,
    Subject,
    rule,
    slowest_first,
    sum_ns,
)
from etprof.base.records import SME_ON
from etprof.base.units import count_of, format_duration, format_ratio, format_share

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etprof.analysis.compare.comparison import Change, ComparedTimes, Comparison
    from etprof.analysis.insight import OperatorDetail

_COMPUTE: Final = ("Convolution", "GEMM")


def _compared(subject: Subject) -> tuple[Comparison, ComparedTimes] | None:
    """The comparison with SME off, where both sides were timed."""
    found = subject.comparison
    return (found, found.times) if found and found.times else None


@rule("F8", "less convolution than the reference", lambda s: _compared(s) if s.reference else None)
def note_convolution_share(
    subject: Subject, compared: tuple[Comparison, ComparedTimes]
) -> Finding | None:
    """A smaller share of convolution than the reference's, because it became faster."""
    change, answer = compared[1].categories["Convolution"], subject.answers[2]
    if change.delta_ns >= 0 or not 0 < answer.share < answer.reference_share:
        return None
    return Finding(
        "Convolution takes less than in the reference",
        "good",
        f"Convolution is {format_share(answer.share)} of an inference, in the reference "
        f"{format_share(answer.reference_share)}, and its time fell.",
        f"none: convolution became faster with {_unit(subject)} on",
        (_change_row("Convolution", change),),
    )


def _unit(subject: Subject) -> str:
    """The mode in words."""
    return "SME2" if subject.insight.experiment.sme == "sme2" else "SME"


@rule("F9", "the bottleneck has moved", _compared)
def find_bottleneck_shift(
    subject: Subject, compared: tuple[Comparison, ComparedTimes]
) -> Finding | None:
    """After SME2 the time is elsewhere."""
    limits, categories = subject.thresholds, compared[1].categories
    before, after = _compute_shares(categories)
    movement = categories["Data Movement"]
    shrank = before >= limits.shift_before_share and after <= limits.shift_after_share
    moved = (
        movement.candidate_share >= limits.shift_movement_share
        and movement.candidate_share > movement.baseline_share
        and after < before
    )
    if not (shrank or moved):
        return None
    name, largest = max(
        (item for item in categories.items() if item[0] not in _COMPUTE),
        key=lambda item: item[1].candidate_ns,
    )
    return Finding(
        "The bottleneck has moved",
        "medium",
        f"Convolution and GEMM fell from {format_share(before)} to {format_share(after)} of an "
        f"inference; {name} is now {format_share(largest.candidate_share)}.",
        f"work on {name} now: a larger share is not more time ("
        f"{format_duration(largest.baseline_ns)} before, "
        f"{format_duration(largest.candidate_ns)} after), but it is what is left",
        tuple(_change_row(name, c) for name, c in categories.items()),
        gain_ns=largest.candidate_ns,
    )


def _compute_shares(categories: Mapping[str, Change]) -> tuple[float, float]:
    changes = [categories[name] for name in _COMPUTE]
    return sum(c.baseline_share for c in changes), sum(c.candidate_share for c in changes)


def _change_row(name: str, change: Change) -> EvidenceRow:
    times = f"{format_duration(change.baseline_ns)} → {format_duration(change.candidate_ns)}"
    shares = f"{format_share(change.baseline_share)} → {format_share(change.candidate_share)}"
    return EvidenceRow(name, f"{times}, {shares}")


def _products_with_sme(subject: Subject) -> list[OperatorDetail] | None:
    """Convolutions and products, where the runner reports an SME mode in force."""
    is_on = subject.insight.experiment.sme in SME_ON
    return subject.in_category(*_COMPUTE) if is_on else None


@rule("F10", "SME2 without effect", _products_with_sme, is_timed=False)
def find_no_effect(subject: Subject, compute: list[OperatorDetail]) -> Finding | None:
    """SME was in force, yet nothing shows it, or what shows it is not faster."""
    routes = [detail.evidence.route.answer for detail in compute]
    if "proven" in routes or "named" in routes:
        return _no_speed_up(subject, routes.count("proven"), routes.count("named"))
    if "unknown" in routes:
        return None  # nothing shows it, and nothing speaks against it
    reasons = dict.fromkeys(d.why_not_sme2.text for d in compute if d.why_not_sme2)
    unit = _unit(subject)
    return Finding(
        f"{unit} was on, but no operator used it",
        "high",
        f"None of {len(compute)} convolutions and matrix products ran on {unit}.",
        "; ".join(list(reasons)[:3]) or "check the runner's build: `etprof doctor`",
        subject.show(compute),
        ruled_out=("the mode: the runner reports it in force",),
    )


def _no_speed_up(subject: Subject, proven: int, named: int) -> Finding | None:
    times = subject.comparison.times if subject.comparison else None
    if times is None:
        return None
    before = sum(times.categories[name].baseline_ns for name in _COMPUTE)
    after = sum(times.categories[name].candidate_ns for name in _COMPUTE)
    if not after or before / after >= subject.thresholds.accelerated_ratio:
        return None
    unit = subject.insight.sme_unit
    said = [f"{count_of(proven, 'operator')} ran on {unit}"] if proven else []
    said += [f"{count_of(named, 'operator')} named for {unit} (calls not counted)"] if named else []
    shapes = (
        "look at shapes: single-row and very small products pay for packing; measure with one "
        "thread, for cores share the SME2 unit"
    )
    count = "count the microkernels first (`etprof profile MODEL --target emulator`); "
    return Finding(
        f"{unit} {'ran' if proven else 'is named'}, but convolution and GEMM are hardly faster",
        "high",
        f"{' and '.join(said)}, yet convolution and GEMM together are only "
        f"{format_ratio(before / after)} as fast as without.",
        shapes if proven else count + shapes,
        tuple(_change_row(name, times.categories[name]) for name in _COMPUTE),
        ruled_out=(f"missing {unit} kernels: their calls were counted",) if proven else (),
    )


@rule("F11", "SME2 makes it slower", _compared)
def find_slowdown(subject: Subject, compared: tuple[Comparison, ComparedTimes]) -> Finding | None:
    """The whole interval says that SME makes it slower."""
    comparison, times = compared
    if times.latency is None or times.latency.verdict != "slower":
        return None
    changes = [(entry.aligned.row.label, entry.change) for entry in comparison.operators]
    slower = [(label, change) for label, change in changes if change and change.delta_ns > 0]
    slower.sort(key=lambda entry: -entry[1].delta_ns)
    return Finding(
        f"{_unit(subject)} makes this model slower",
        "high",
        f"Speed-up {format_ratio(times.latency.speed_up)} of {comparison.name}, and the "
        "whole interval is below 1.",
        "see which operators lost: packing of the left-hand side (Pack rows), products with one "
        "row, or several threads on one SME2 unit; run with fewer threads, or with SME off",
        tuple(_change_row(*entry) for entry in slower[:SHOWN_ROWS]),
        max(-(times.saved_ns or 0.0), 0.0),
        ("noise: the signed-rank test and its interval agree",),
    )


@dataclass(frozen=True)
class WhyNotGroup:
    """Operators without SME2 for one reason."""

    code: str
    reason: str
    source: str
    operators: tuple[OperatorDetail, ...]
    mean_ns: float | None
    gain_ns: float | None
    """Gain if they sped up as the accelerated operators of this run did; None when none did."""


def explain_missing_sme2(subject: Subject) -> tuple[WhyNotGroup, ...]:
    """Groups the convolutions and products without SME2 by reason, the most time first.

    With SME off there is only one reason, which is no news.
    """
    found: dict[tuple[str, str, str], list[OperatorDetail]] = {}
    for detail in subject.details:
        reason = detail.why_not_sme2
        if reason is not None and subject.insight.experiment.sme != "off":
            found.setdefault((reason.code, reason.text, reason.source), []).append(detail)
    factor = _accelerated_speed_up(subject)
    groups = [
        WhyNotGroup(
            code,
            text,
            source,
            tuple(slowest_first(details)),
            mean_ns := sum_ns(details) if subject.run.run.is_timed else None,
            mean_ns * (1 - 1 / factor) if mean_ns and factor and factor > 1 else None,
        )
        for (code, text, source), details in found.items()
    ]
    return tuple(sorted(groups, key=lambda group: -(group.mean_ns or 0.0)))


def _accelerated_speed_up(subject: Subject) -> float | None:
    """How much faster the operators became that did take SME2, in this very run."""
    times = subject.comparison.times if subject.comparison else None
    return times.amdahl.accelerated_speed_up if times and times.amdahl else None
