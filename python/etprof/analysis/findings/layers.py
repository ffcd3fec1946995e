"""F1 and F3: what norms and convolutions cost."""

from __future__ import annotations

import statistics
from math import fsum
from typing import TYPE_CHECKING, Final

from etprof.analysis.findings.causes import NORMS, find_remedy, kinds_of
from etprof.analysis.findings.finding import (
    EvidenceRow,
    Finding,
    Subject,
    rule,
    sum_ns,
    times_of,
)
from etprof.analysis.findings.layout import LAYOUT_CLASSES
from etprof.backends.backend import CONVERT, OperatorFacts
from etprof.base.records import SME_ON
from etprof.base.units import count_of, format_duration, format_ratio, format_share, format_value

if TYPE_CHECKING:
    from etprof.analysis.findings.causes import Remedy
    from etprof.analysis.insight import OperatorDetail


@rule("F1", "norms that take a large share", reads_operators=True)
def find_norm_dominance(subject: Subject) -> Finding | None:
    """Norms take a large share, or more than convolutions that are no trifle themselves."""
    limits, norms = subject.thresholds, subject.select(is_norm)
    convolutions = [d for d in subject.in_category("Convolution") if not is_norm(d)]
    beats = (
        subject.reaches(norms, limits.least_share)
        and subject.reaches(convolutions, limits.least_share)
        and sum_ns(convolutions) <= sum_ns(norms)
    )
    if not beats and not subject.reaches(norms, limits.norm_share):
        return None
    outside = [detail for detail in norms if not detail.row.is_delegated]
    unfolded = [detail for detail in norms if "batch_norm" in kinds_of(detail)]
    squeezed = _between_layout(subject, norms)
    against = (
        f", more than the convolutions' {format_duration(sum_ns(convolutions))}" if beats else ""
    )
    cast_count = sum(detail.row.operator_class == CONVERT for detail in norms)
    casts = f", {cast_count} of them casts" if cast_count else ""
    between = f", {len(squeezed)} between layout operators" if squeezed else ""
    remedy = find_remedy(subject, outside)
    return Finding(
        "Norms take a large share",
        "high" if outside or squeezed or unfolded else "medium",
        f"{count_of(len(norms), 'operator')} of norms{casts}: {subject.weigh(norms)}{against}; "
        f"{len(outside)} outside the delegate{between}.",
        _norm_action(remedy, outside, unfolded, squeezed),
        *subject.cost(norms),
        ruled_out=() if outside else ("missing delegation: all of them are delegated",),
        **remedy.fields,
    )


def is_norm(detail: OperatorDetail) -> bool:
    """A norm by its operator, by what the model has there, or by the module it is a part of.

    A batch norm that is not folded runs as a depthwise convolution of 1x1.
    """
    kinds = kinds_of(detail)
    if kinds:
        return kinds <= NORMS
    origin = detail.attribution.origin if detail.attribution else None
    by_module = origin is not None and "Norm" in origin.module_type
    return detail.row.operator_class.finer == "norm" or (
        by_module and detail.row.operator_class.category in {"Elementwise", "Other"}
    )


def _between_layout(subject: Subject, norms: list[OperatorDetail]) -> list[OperatorDetail]:
    """Norms whose data is moved both before and after them."""
    details = subject.details
    moved = [detail.row.operator_class.finer in LAYOUT_CLASSES for detail in details]
    inner = zip(moved, details[1:], moved[2:], strict=False)
    return [norm for before, norm, after in inner if before and after and norm in norms]


def _norm_action(
    remedy: Remedy,
    outside: list[OperatorDetail],
    unfolded: list[OperatorDetail],
    squeezed: list[OperatorDetail],
) -> str:
    """What this export says; advice on batch norms only for batch norms."""
    steps = []
    if unfolded:
        at = dict.fromkeys(detail.source for detail in unfolded if detail.source)
        where = f" ({', '.join(list(at)[:3])})" if at else ""
        steps.append(
            f"fold {count_of(len(unfolded), 'batch norm')}{where}: a batch norm is folded where it "
            "directly follows a convolution that nothing else reads; move it there, or its scale and "
            "shift into the layer after it"
        )
    if remedy.command:
        steps.append(remedy.command)
    elif outside and not remedy.refusals:
        steps.append(
            "see why they are not delegated in the delegation report (`etprof export` writes it)"
        )
    if squeezed:
        steps.append(
            f"use the memory layout of the neighbouring operators for {count_of(len(squeezed), 'norm')}: "
            "data is transposed or copied before and after"
        )
    if outside:
        return "; ".join(steps)
    return "; ".join(steps) or "use fewer or cheaper norms: these are delegated already"


_LEAST_CONVOLUTIONS: Final = 3
"""With fewer there is no typical convolution to compare with."""


@rule("F3", "a slow convolution", reads_operators=True)
def find_slow_convolution(subject: Subject) -> Finding | None:
    """A convolution that is far slower than its like, by throughput where MACs are known."""
    dense = [d for d in subject.in_category("Convolution") if not _is_depthwise(d)]
    measured = [detail for detail in dense if not detail.rates_are_limits]
    if len(dense) < _LEAST_CONVOLUTIONS:
        return None
    slow = _slow_by_throughput(subject, measured)
    by_throughput = slow is not None
    if slow is None:
        slow = _slow_by_time(subject, dense)
    claims = _excess(subject, slow, dense)
    gained = fsum(
        subject.share_of([subject.details[index]]) * share for index, share in claims.items()
    )
    if not slow or gained < subject.thresholds.least_share:
        return None
    first = slow[0]
    remedy = find_remedy(subject, [] if first.row.is_delegated else [first])
    return Finding(
        title="A convolution is far slower than the others",
        severity="high",
        summary=_slowness(first, dense, by_throughput=by_throughput),
        evidence=subject.show(slow),
        claims=claims,
        action=_slow_action(subject, first, remedy),
        ruled_out=("more work: throughput, not time, is what is low",) if by_throughput else (),
        **remedy.fields,
    )


def _slowness(slow: OperatorDetail, dense: list[OperatorDetail], *, by_throughput: bool) -> str:
    """Sets a slow convolution beside the others, by what it computes where that is known."""
    own_ns = times_of(slow).median_ns
    if by_throughput:
        own, typical = (
            format_value("GFLOP/s", rate) for rate in (slow.gflops, _typical_gflops(dense))
        )
        return (
            f"{slow.name} takes {format_duration(own_ns)} at {own}; half of the convolutions' work is "
            f"computed at {typical} or more."
        )
    median_ns = statistics.median(times_of(detail).median_ns for detail in dense)
    ratio = format_ratio(own_ns / median_ns) if median_ns else ""
    return f"{slow.name} takes {format_duration(own_ns)}, {ratio} the median convolution."


def _is_depthwise(detail: OperatorDetail) -> bool:
    return detail.row.operator_class.finer == "depthwise"


def _slow_by_throughput(
    subject: Subject, dense: list[OperatorDetail]
) -> list[OperatorDetail] | None:
    """Convolutions at a small fraction of the median GFLOP/s; None when MACs are not known."""
    if sum(bool(detail.gflops) for detail in dense) < _LEAST_CONVOLUTIONS:
        return None
    limit = _typical_gflops(dense) / subject.thresholds.slow_convolution_ratio
    return [detail for detail in dense if detail.gflops and detail.gflops * _haste(detail) <= limit]


def _typical_gflops(dense: list[OperatorDetail]) -> float:
    """Returns the rate of the convolution that computes the median multiply-accumulate; 0 if unknown.

    Where most convolutions are slow, the median of their rates is slow too: depthwise ones with more
    taps than XNNPACK has a kernel for, in a network whose work is in a few others.
    """
    rated = sorted(
        (detail.gflops, detail.attribution.macs)
        for detail in dense
        if detail.gflops and detail.attribution and detail.attribution.macs
    )
    half, sum_macs = sum(macs for _, macs in rated) / 2, 0
    for gflops, macs in rated:
        sum_macs += macs
        if sum_macs >= half:
            return gflops
    return 0.0


def _slow_by_time(subject: Subject, dense: list[OperatorDetail]) -> list[OperatorDetail]:
    median_ns = statistics.median(times_of(detail).median_ns for detail in dense)
    limit = subject.thresholds.slow_convolution_ratio * median_ns
    return [
        detail
        for detail in dense
        if median_ns and times_of(detail).median_ns / _haste(detail) >= limit
    ]


def _haste(detail: OperatorDetail) -> float:
    """How much faster than its mean it may be by its interval; 1 where there is none."""
    times = times_of(detail)
    if times.interval is None or times.interval.low <= 0:
        return 1.0
    return max(times.mean_ns / times.interval.low, 1.0)


def _excess(
    subject: Subject, slow: list[OperatorDetail], dense: list[OperatorDetail]
) -> dict[int, float]:
    """Claims the time above what the work would take at the median rate, else above the median."""
    typical = _typical_gflops(dense)
    median_ns = statistics.median(times_of(detail).median_ns for detail in dense)
    claims: dict[int, float] = {}
    for detail in slow:
        macs, own_ns = detail.attribution and detail.attribution.macs, times_of(detail).median_ns
        expected = 2 * macs / typical if macs and typical else median_ns
        claims |= subject.claim([detail], max(1 - expected / own_ns, 0.0) if own_ns else 0.0)
    return claims


def _slow_action(subject: Subject, detail: OperatorDetail, remedy: Remedy) -> str:
    """Says what is known of this very convolution; that SME was off says nothing of it."""
    if not detail.row.is_delegated:
        return f"have it delegated: {remedy.command or 'see the delegation report'}"
    if detail.why_not_sme2 is not None and subject.insight.experiment.sme in SME_ON:
        return f"{detail.why_not_sme2.text} ({detail.why_not_sme2.source})"
    return (
        f"it runs {detail.kernel_hint or 'a plain kernel'}: check its shape, padding, "
        "stride and groups against the others, and try a shape that is a multiple of theirs"
    )


@rule("F3b", "convolutions outside the delegate", reads_operators=True)
def find_undelegated_convolution(subject: Subject) -> Finding | None:
    """A convolution runs outside the delegate."""
    outside = subject.select(
        lambda d: d.row.operator_class.category == "Convolution" and not d.row.is_delegated
    )
    if not subject.reaches(outside, subject.thresholds.pair_share):
        return None
    remedy = find_remedy(subject, outside)
    return Finding(
        "Convolutions outside the delegate",
        "high",
        f"{count_of(len(outside), 'convolution')} on ExecuTorch's portable kernels: "
        f"{subject.weigh(outside)}.",
        f"fix the export: {remedy.command or 'its delegation report says why they were left out'}",
        *subject.cost(outside),
        **remedy.fields,
    )


@rule("F3c", "depthwise convolutions", reads_operators=True)
def note_depthwise(subject: Subject) -> Finding | None:
    """Depthwise convolutions never take SME2; that is no failure. Batch norms are none of them."""
    depthwise = [detail for detail in subject.in_class("depthwise") if not is_norm(detail)]
    if not subject.reaches(depthwise, subject.thresholds.depthwise_share):
        return None
    share = subject.share_of(depthwise)
    return Finding(
        title="Depthwise convolutions have no SME2 kernel",
        severity="note",
        summary=(
            f"{count_of(len(depthwise), 'depthwise convolution')}: {format_share(share)}; "
            f"{_why_no_sme2(depthwise[0])}, whatever the type in their name."
        ),
        evidence=(
            *subject.show(depthwise, 3),
            EvidenceRow("together", format_duration(sum_ns(depthwise))),
        ),
        action="",
    )


def _why_no_sme2(detail: OperatorDetail) -> str:
    backend = detail.row.backend
    reason = backend.sme_route(OperatorFacts(backend.read_label(detail.row.label), "sme2")).reason
    return reason.text if reason else "no SME2 kernel is known"
