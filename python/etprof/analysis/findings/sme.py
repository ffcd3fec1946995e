"""F8 to F11, and why not SME2: what SME changed between off and on, and what it left out."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING, Final

from etprof.analysis.findings.finding import (
    SHOWN_ROWS,
    EvidenceRow,
    Finding,
    Subject,
    describe_interval,
    rule,
    slowest_first,
    sum_ns,
)
from etprof.base.records import SME_ON
from etprof.base.text import join_names
from etprof.base.units import count_of, format_duration, format_ratio, format_share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from etprof.analysis.compare.comparison import Change, ComparedTimes, Comparison
    from etprof.analysis.findings.gains import TimeToGain
    from etprof.analysis.insight import OperatorDetail

_COMPUTE: Final = ("Convolution", "GEMM")


def _compared(subject: Subject) -> tuple[Comparison, ComparedTimes] | None:
    """The comparison with SME off, where both sides were timed."""
    comparison = subject.comparison
    return (comparison, comparison.times) if comparison and comparison.times else None


@rule(
    "F8",
    "less convolution than the reference",
    lambda s: _compared(s) if s.reference else None,
    reads_operators=True,
)
def note_convolution_share(
    subject: Subject, compared: tuple[Comparison, ComparedTimes]
) -> Finding | None:
    """A smaller share of convolution than the reference's, because it became faster."""
    change, answer = compared[1].categories["Convolution"], subject.answers[2]
    is_less = 0 < answer.share <= answer.reference_share - subject.thresholds.reference_excess
    if not is_less or not is_faster(change, subject.thresholds.accelerated_ratio):
        return None
    return Finding(
        "Convolution takes less than in the reference",
        "good",
        f"Convolution is {format_share(answer.share)} of an inference, in the reference "
        f"{format_share(answer.reference_share)}, and its time fell.",
        "",
        (_change_row("Convolution", change),),
    )


def is_faster(change: Change, ratio: float) -> bool:
    """Whether it sped up by `ratio`: all of the interval where there is one."""
    speed_up = change.interval.low if change.interval else change.speed_up
    return speed_up is not None and speed_up >= ratio


def _unit(subject: Subject) -> str:
    """The mode in words."""
    return "SME2" if subject.insight.experiment.sme == "sme2" else "SME"


@rule("F9", "the bottleneck has moved", _compared, reads_operators=True)
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
        and movement.candidate_share - movement.baseline_share >= limits.reference_excess
        and after < before
    )
    became_faster = any(is_faster(categories[name], limits.accelerated_ratio) for name in _COMPUTE)
    if not (shrank or moved) or not became_faster:
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
        claims=subject.claim(subject.in_category(name)),
    )


def _compute_shares(categories: Mapping[str, Change]) -> tuple[float, float]:
    changes = [categories[name] for name in _COMPUTE]
    return fsum(c.baseline_share for c in changes), fsum(c.candidate_share for c in changes)


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
        return _no_speed_up(subject, routes)
    latency = subject.comparison.latency if subject.comparison else None
    if "unknown" in routes or (latency is not None and latency.verdict == "faster"):
        return None  # nothing shows it, and nothing speaks against it, or the latency does
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


def _no_speed_up(subject: Subject, routes: Sequence[str]) -> Finding | None:
    """Judges the operators that took SME by themselves: others without a kernel are other news."""
    times = subject.comparison.times if subject.comparison else None
    change = times.accelerated if times else None
    if change is None or change.speed_up is None:
        return None
    at_most = change.interval.high if change.interval else change.speed_up
    is_small = change.baseline_share < subject.thresholds.least_share
    if is_small or at_most >= subject.thresholds.accelerated_ratio:
        return None
    proven, named = routes.count("proven"), routes.count("named")
    unit = subject.insight.sme_unit
    said = [f"{count_of(proven, 'operator')} ran on {unit}"] if proven else []
    said += [f"{count_of(named, 'operator')} named for {unit} (calls not counted)"] if named else []
    shapes = (
        "check the shapes: packing weighs heavily in single-row and very small products; "
        "measure with one thread, because cores share the SME2 unit"
    )
    count = "count the microkernels first (`etprof profile MODEL --target emulator`); "
    all_counted = proven == len(routes)
    return Finding(
        f"{unit} {'ran' if proven else 'is named'}, but what it computes is hardly faster",
        "high",
        f"{join_names(said)}, of {len(routes)}; together they are only "
        f"{format_ratio(change.speed_up)} as fast as without.",
        shapes if proven else count + shapes,
        (_change_row(f"operators on {unit}", change),),
        ruled_out=(f"missing {unit} kernels: all their calls were counted",) if all_counted else (),
    )


@rule("F11", "SME2 makes it slower", _compared)
def find_slowdown(subject: Subject, compared: tuple[Comparison, ComparedTimes]) -> Finding | None:
    """The whole interval says that SME makes it slower."""
    comparison, times = compared
    if times.latency is None or times.latency.verdict != "slower":
        return None
    changes = [(operator.aligned.name, operator.change) for operator in comparison.operators]
    slower = [(label, change) for label, change in changes if change and change.delta_ns > 0]
    slower.sort(key=lambda labelled: -labelled[1].delta_ns)
    return Finding(
        f"{_unit(subject)} makes this model slower",
        "high",
        f"Speedup {format_ratio(times.latency.speed_up, times.latency.half_width)} of {comparison.short_name}, and the "
        "whole interval is below 1.",
        "see which operators lost: packing of the left-hand side (Pack rows), products with one "
        "row, or several threads on one SME2 unit; run with fewer threads, or with SME off",
        tuple(_change_row(*labelled) for labelled in slower[:SHOWN_ROWS]),
        subject.claim_of_latency(max(-(times.saved_ns or 0.0), 0.0)),
        (f"noise: {describe_interval(times.latency)}",),
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
    """Gain if they sped up as the accelerated operators of this run did, beside what findings gain;
    None when none did."""


def explain_missing_sme2(subject: Subject, time: TimeToGain | None) -> tuple[WhyNotGroup, ...]:
    """Groups the convolutions and products without SME2 by reason, the most time first.

    They gain what is left of `time`; None where nothing is timed, or the split is in doubt.

    With SME off there is only one reason, which is no news.
    """
    by_reason: dict[tuple[str, str, str], list[OperatorDetail]] = {}
    for detail in subject.details:
        reason = detail.why_not_sme2
        if reason is not None and subject.insight.experiment.sme != "off":
            by_reason.setdefault((reason.code, reason.text, reason.source), []).append(detail)
    factor = _accelerated_speed_up(subject) or 1.0
    groups = []
    for (code, text, source), members in sorted(
        by_reason.items(), key=lambda item: -_weight(item[1])
    ):
        gain_ns = None
        if time is not None and factor > 1:
            gain_ns, _ = time.take(subject.claim(members, 1 - 1 / factor))
        mean_ns = sum_ns(members) if subject.is_timed else None
        operators = tuple(slowest_first(members))
        groups.append(WhyNotGroup(code, text, source, operators, mean_ns, gain_ns))
    return tuple(groups)


def _weight(details: list[OperatorDetail]) -> float:
    return fsum(detail.row.times.mean_ns for detail in details if detail.row.times)


def _accelerated_speed_up(subject: Subject) -> float | None:
    """How much faster the operators became that did take SME2, in this very run."""
    times = subject.comparison.times if subject.comparison else None
    return times.amdahl.accelerated_speed_up if times and times.amdahl else None
