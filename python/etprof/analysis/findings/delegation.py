"""F5, F6, F12 and F16: what runs outside the delegate, overhead, and what cannot be told."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING, Any

from etprof.analysis.findings.causes import find_remedy, show_causes
from etprof.analysis.findings.finding import (
    EvidenceRow,
    Finding,
    Subject,
    overhead_evidence,
    rule,
)
from etprof.backends.backend import ROUNDING
from etprof.backends.registry import BY_NAME, DEFAULT
from etprof.base.units import count_of, format_duration, format_share

if TYPE_CHECKING:
    from etprof.analysis.findings.finding import Severity
    from etprof.analysis.insight import OperatorDetail
    from etprof.analysis.split.operators import OverheadRow
    from etprof.run.delegation import MethodReport


@rule("F5", "fallback to portable kernels", is_timed=False)
def find_fallback(subject: Subject) -> Finding | None:
    """Portable kernels take time, or cheap ones cut the delegate into pieces."""
    portable = subject.select(lambda detail: not detail.row.is_delegated)
    limits = subject.thresholds
    delegated = [detail for detail in subject.details if detail.row.is_delegated]
    if not portable:
        return None
    if not delegated:
        return _nothing_delegated(subject, portable)
    calls = len({detail.row.instruction_id for detail in delegated})
    if not subject.is_timed:
        return _fallback(
            subject, portable, "medium" if calls == 1 else "high", f"; {_calls(calls)}"
        )
    splitting = _splitting(subject)
    is_large = subject.reaches(portable, limits.portable_share)
    if not is_large and not (splitting and subject.reaches(portable, limits.pair_share)):
        return None
    cut = f", cut apart by {count_of(len(splitting), 'cheap operator')}" if splitting else ""
    severity: Severity = (
        "high" if subject.reaches(portable, 2 * limits.portable_share) else "medium"
    )
    weight = f": {subject.weigh(portable)}; {_calls(calls)}{cut}"
    return _fallback(subject, portable, severity, weight)


def _calls(count: int) -> str:
    return count_of(count, "delegate call")


def _fallback(
    subject: Subject, portable: list[OperatorDetail], severity: Severity, weight: str
) -> Finding:
    remedy = find_remedy(subject, portable)
    action = remedy.command
    if not action and not remedy.refusals:
        action = (
            "change the model or the export so that they are delegated; the delegation report "
            "that `etprof export` writes says why each was left out"
        )
    return Finding(
        "Operators fall back to portable kernels",
        severity,
        f"{count_of(len(portable), 'operator')} outside the delegate{weight}.",
        action,
        (*show_causes(portable), *subject.show(portable)),
        subject.claim(portable),
        **remedy.fields,
    )


def _nothing_delegated(subject: Subject, portable: list[OperatorDetail]) -> Finding:
    remedy = find_remedy(subject, portable)
    return Finding(
        "Nothing is delegated",
        "high",
        f"All {count_of(len(portable), 'operator')} run on ExecuTorch's portable kernels, which "
        "are written to be correct, not fast; no delegate and no SME2 is used.",
        (
            remedy.command or f"change the model so that {BY_NAME[DEFAULT].title} takes it"
            if remedy.command or remedy.refusals
            else f"export with `--backend {DEFAULT}`, and see its delegation report for what is left"
        ),
        *subject.cost(portable),
        **remedy.fields,
    )


def _splitting(subject: Subject) -> list[OperatorDetail]:
    """Cheap portable operators with a delegate call before and after them."""
    details = subject.details
    inside = [i for i, detail in enumerate(details) if detail.row.is_delegated]
    return [
        detail
        for detail in details[inside[0] : inside[-1]]
        if not detail.row.is_delegated
        and subject.share_of([detail]) <= subject.thresholds.splitting_operator_share
    ]


@rule("F6", "a large part is of category Other", reads_operators=True)
def find_high_other(subject: Subject) -> Finding | None:
    """What is neither convolution, product, movement nor elementwise is large."""
    other_operators = subject.in_category("Other")
    limits, excess = subject.thresholds, subject.exceeds_reference("Other")
    above = excess >= limits.reference_excess
    if not subject.reaches(other_operators, limits.other_share) and not above:
        return None
    excess_text = f"; {format_share(excess)} more than in the reference" if above else ""
    top = ", ".join(
        dict.fromkeys(
            f"{detail.row.base} at {detail.name}" if detail.row.location else detail.row.base
            for detail in other_operators[:3]
        )
    )
    remedy = find_remedy(subject, other_operators)
    return Finding(
        '"Other" operators are a large part',
        "medium",
        f"{count_of(len(other_operators), 'operator')} of category Other, overhead aside: {subject.weigh(other_operators)}{excess_text}.",
        f"look first at {top}, which take most of it"
        + (f"; {remedy.command}" if remedy.command else ""),
        *subject.cost(other_operators),
        **remedy.fields,
    )


@rule("F12", "overhead", reads_operators=True)
def find_overhead(subject: Subject) -> Finding | None:
    """Time inside the execution that belongs to no operator, and is none of the tracer's."""
    split, limit = subject.split, subject.thresholds.overhead_share
    certain = {
        len(split.rows) + index: _certain_ns(row) for index, row in enumerate(split.overheads)
    }
    recorded = fsum(certain.values())
    agreement = subject.insight.experiment.agreement
    # All that recording adds may lie between operators: the timed latency has none of it.
    recording_ns = agreement.excess_ns if agreement else 0.0
    total = recorded - recording_ns
    # A file whose clock stood still has no time to share out.
    if total <= 0 or total < limit * (subject.total_ns - recording_ns):
        return None
    claims = {
        index: ns / split.parts[index][1].mean_ns * total / recorded
        for index, ns in certain.items()
        if ns > 0
    }
    calls = len(
        {detail.row.instruction_id for detail in subject.details if detail.row.is_delegated}
    )
    mean_ns = fsum(row.times.mean_ns for row in split.overheads if row.operator_class != ROUNDING)
    without = ", without what recording events may add" if recording_ns else ""
    lower_bound = f" (at least {format_duration(total)}{without})" if total < mean_ns else ""
    return Finding(
        title="Framework and delegate overhead",
        severity="medium",
        summary=(
            f"{format_duration(mean_ns)} per inference, {format_share(mean_ns / subject.total_ns)}, "
            f"belongs to no operator{lower_bound}; the program has {count_of(calls, 'delegate call')}."
        ),
        evidence=overhead_evidence(split.overheads),
        claims=claims,
        **_overhead_action(subject, calls),
    )


def _certain_ns(row: OverheadRow) -> float:
    """What of an overhead is there for certain: the interval's lower end; of rounding nothing."""
    if row.operator_class == ROUNDING:
        return 0.0
    low = row.times.interval.low if row.times.interval else row.times.mean_ns
    return max(min(low, row.times.mean_ns), 0.0)


def _overhead_action(subject: Subject, calls: int) -> dict[str, Any]:
    """What to do about it, and what of that is not possible, as a finding's fields."""
    if calls > 1:
        outside = [detail for detail in subject.details if not detail.row.is_delegated]
        remedy = find_remedy(subject, outside)
        action = "merge delegate calls by having the operators between them delegated"
        command = f": {remedy.command}" if remedy.command else ""
        return {"action": action + command, **remedy.fields}
    action = (
        "only one delegate call, so this is overhead inside it: remove small operators, or batch "
        "several inputs"
    )
    return {"action": action}


@rule("F16", "the export's description is missing", is_timed=False)
def find_missing_description(subject: Subject) -> Finding | None:
    """Without the export's description operators cannot be tied to modules."""
    generic = [d for d in subject.details if d.row.label.startswith("delegate operator ")]
    if subject.insight.experiment.program.report is not None and not generic:
        return None
    consequence = (
        f"{count_of(len(generic), 'operator')} can only be told by number"
        if generic
        else "operators cannot be tied to modules, source lines and work"
    )
    return Finding(
        title="The export's description is missing",
        severity="note",
        summary=f"No delegation report was found, so {consequence}.",
        evidence=tuple(EvidenceRow(d.row.label, "no name") for d in generic[:3]),
        action=(
            "export with `etprof export MODEL` and keep its .delegation.json and .etrecord beside "
            "the program, or copy the former into the run directory as delegation.json"
        ),
    )


@rule(
    "F18",
    "time without a module",
    lambda s: s.insight.experiment.program.report,
    reads_operators=True,
)
def find_unattributed_time(subject: Subject, _: MethodReport) -> Finding | None:
    """The export's description is there, and operators are not found in it."""
    lost = subject.select(lambda detail: detail.attribution is None)
    if subject.share_of(lost) <= subject.thresholds.unattributed_share:
        return None
    return Finding(
        title="Time without a module",
        severity="note",
        summary=(
            f"{count_of(len(lost), 'operator')} ({subject.weigh(lost)}) without a module, source line "
            "or work: no node of the export's description matches with certainty."
        ),
        evidence=subject.show(lost),
        action=(
            "sums by module and source do not include these operators; if the program and its "
            "delegation report belong together, please report the operators' names as a bug"
        ),
    )
