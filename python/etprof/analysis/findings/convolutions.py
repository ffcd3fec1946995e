"""F3: convolutions that are slow, not delegated, or without an SME2 kernel by nature."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final

from etprof.analysis.findings.finding import (
    EvidenceRow,
    Finding,
    Subject,
    describe_reasons,
    sum_ns,
)
from etprof.base.units import count_of, format_duration, format_ratio, format_share

if TYPE_CHECKING:
    from etprof.analysis.insight import OperatorDetail

_LEAST_CONVOLUTIONS: Final = 3
"""With fewer there is no typical convolution to compare with."""


def find_slow_convolution(subject: Subject) -> Finding | None:
    """F3: a convolution that is far slower than its like, by throughput where MACs are known."""
    dense = [d for d in subject.in_category("Convolution") if not _is_depthwise(d)]
    if len(dense) < _LEAST_CONVOLUTIONS:
        return None
    slow = _slow_by_throughput(subject, dense)
    by_throughput = slow is not None
    if slow is None:
        slow = _slow_by_time(subject, dense)
    if not slow:
        return None
    first = slow[0]
    median_ns = statistics.median(detail.row.median_ns for detail in dense)
    return Finding(
        rule="F3",
        title="A convolution is far slower than the others",
        severity="high",
        experiment=subject.name,
        summary=(
            f"{first.row.label} takes {format_duration(first.row.median_ns)}, "
            f"{format_ratio(first.row.median_ns / median_ns) if median_ns else ''} the median "
            f"convolution{' for its work' if by_throughput else ''}."
        ),
        evidence=subject.show(slow),
        gain_ns=_excess_ns(slow, dense),
        action=_slow_action(first),
        ruled_out=("more work: throughput, not time, is what is low",) if by_throughput else (),
    )


def _is_depthwise(detail: OperatorDetail) -> bool:
    return detail.row.operator_class.finer == "depthwise"


def _slow_by_throughput(
    subject: Subject, dense: list[OperatorDetail]
) -> list[OperatorDetail] | None:
    """Convolutions at a small fraction of the median GFLOP/s; None when MACs are not known."""
    rates = [detail.gflops for detail in dense if detail.gflops]
    if len(rates) < _LEAST_CONVOLUTIONS:
        return None
    limit = statistics.median(rates) / subject.thresholds.slow_convolution_ratio
    return [detail for detail in dense if detail.gflops and detail.gflops <= limit]


def _slow_by_time(subject: Subject, dense: list[OperatorDetail]) -> list[OperatorDetail]:
    median_ns = statistics.median(detail.row.median_ns for detail in dense)
    limit = subject.thresholds.slow_convolution_ratio * median_ns
    return [detail for detail in dense if median_ns and detail.row.median_ns >= limit]


def _excess_ns(slow: list[OperatorDetail], dense: list[OperatorDetail]) -> float:
    """Time above what the work would take at the median rate, else above the median time."""
    rates = [detail.gflops for detail in dense if detail.gflops]
    median_ns = statistics.median(detail.row.median_ns for detail in dense)
    excess = 0.0
    for detail in slow:
        macs = detail.attribution.macs if detail.attribution else None
        expected = 2 * macs / statistics.median(rates) if macs and rates else median_ns
        excess += max(detail.row.median_ns - expected, 0.0)
    return excess


def _slow_action(detail: OperatorDetail) -> str:
    """Says what is known of this very convolution."""
    if not detail.row.is_delegated:
        return f"have it delegated: {describe_reasons([detail]) or 'see the delegation report'}"
    if detail.why_not_sme2 is not None:
        return f"{detail.why_not_sme2.text} ({detail.why_not_sme2.source})"
    return (
        f"it runs {detail.kernel_hint or 'a plain kernel'}: check its shape, padding, "
        "stride and groups against the others, and try a shape that is a multiple of theirs"
    )


def find_undelegated_convolution(subject: Subject) -> Finding | None:
    """F3b: a convolution runs outside the delegate."""
    outside = subject.select(
        lambda d: d.row.operator_class.category == "Convolution" and not d.row.is_delegated
    )
    if not outside:
        return None
    reasons = describe_reasons(outside)
    return Finding(
        rule="F3b",
        title="Convolutions outside the delegate",
        severity="high",
        experiment=subject.name,
        summary=(
            f"{count_of(len(outside), 'convolution')} on ExecuTorch's portable kernels: "
            f"{subject.weigh(outside)}."
        ),
        evidence=subject.show(outside),
        gain_ns=sum_ns(outside),
        action=f"fix the export: {reasons or 'its delegation report says why they were left out'}",
    )


def note_depthwise(subject: Subject) -> Finding | None:
    """F3c: depthwise convolutions never take SME2; that is no failure."""
    depthwise = subject.in_class("depthwise")
    share = subject.share_of(depthwise)
    if share < subject.thresholds.depthwise_share:
        return None
    return Finding(
        rule="F3c",
        title="Depthwise convolutions have no SME2 kernel",
        severity="note",
        experiment=subject.name,
        summary=(
            f"{count_of(len(depthwise), 'depthwise convolution')}: {format_share(share)}; "
            f"{depthwise[0].row.backend.title} has no SME2 microkernel for them, whatever the type in "
            "their name."
        ),
        evidence=(
            *subject.show(depthwise, 3),
            EvidenceRow("together", format_duration(sum_ns(depthwise))),
        ),
        gain_ns=None,
        action="nothing to fix; a model with fewer depthwise convolutions gains more from SME2",
    )
