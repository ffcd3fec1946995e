"""F1 to F3 and F7: what norms, layout changes, transposes and convolutions cost."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Final

from etprof.analysis.findings.finding import (
    SHOWN_ROWS,
    EvidenceRow,
    Finding,
    ReferenceAnswer,
    Subject,
    describe_reasons,
    rule,
    sum_ns,
    times_of,
)
from etprof.analysis.split.transposes import find_inverse_pairs
from etprof.base.units import count_of, format_duration, format_ratio, format_share

if TYPE_CHECKING:
    from etprof.analysis.insight import OperatorDetail
    from etprof.analysis.split.transposes import InversePair, Place
    from etprof.run.delegation import MethodReport

_LAYOUT_CLASSES: Final = ("layout", "copy", "view")


@rule("F1", "normalisation dominates")
def find_norm_dominance(subject: Subject) -> Finding | None:
    """Norms take a large share, or more than the convolutions."""
    norms = subject.select(_is_norm)
    share = subject.share_of(norms)
    convolutions = sum_ns(subject.in_category("Convolution"))
    beats = 0 < convolutions <= sum_ns(norms)
    if not norms or (share < subject.thresholds.norm_share and not beats):
        return None
    outside = [detail for detail in norms if not detail.row.is_delegated]
    squeezed = _between_layout(subject, norms)
    against = f", more than the convolutions' {format_duration(convolutions)}" if beats else ""
    between = f", {len(squeezed)} between layout operators" if squeezed else ""
    return Finding(
        "Normalisation dominates",
        "high" if outside or squeezed else "medium",
        f"{count_of(len(norms), 'operator')} of norms: {subject.weigh(norms)}{against}; "
        f"{len(outside)} outside the delegate{between}.",
        _norm_action(norms, outside, squeezed),
        *subject.cost(norms),
        ruled_out=() if outside else ("missing delegation: all of them are delegated",),
    )


def _is_norm(detail: OperatorDetail) -> bool:
    """A norm by its operator, or a part of a decomposed one by the module it comes from."""
    origin = detail.attribution.origin if detail.attribution else None
    by_module = origin is not None and "Norm" in origin.module_type
    return detail.row.operator_class.finer == "norm" or (
        by_module and detail.row.operator_class.category in {"Elementwise", "Other"}
    )


def _between_layout(subject: Subject, norms: list[OperatorDetail]) -> list[OperatorDetail]:
    """Norms whose data is moved both before and after them."""
    details = subject.details
    moved = [detail.row.operator_class.finer in _LAYOUT_CLASSES for detail in details]
    inner = zip(moved, details[1:], moved[2:], strict=False)
    return [each for before, each, after in inner if before and after and each in norms]


def _norm_action(
    norms: list[OperatorDetail], outside: list[OperatorDetail], squeezed: list[OperatorDetail]
) -> str:
    """What this export says; advice on batch norms only for batch norms."""
    steps = []
    if any("batch_norm" in detail.row.base for detail in norms):
        steps.append(
            "fold each batch norm into the convolution before it, with the model in eval mode at "
            "export (`torch.nn.utils.fusion.fuse_conv_bn_eval`)"
        )
    reasons = describe_reasons(outside)
    if reasons:
        steps.append(f"make them delegable: the export left them out for these reasons: {reasons}")
    elif outside:
        steps.append(
            "see why they are not delegated in the delegation report (`etprof export` writes it)"
        )
    else:
        steps.append("use fewer or cheaper norms: these are delegated already")
    if squeezed:
        steps.append(
            f"give {count_of(len(squeezed), 'norm')} the layout that the operators around work in: "
            "their data is transposed or copied before and after"
        )
    return "; ".join(steps)


@rule("F2", "many small layout operators")
def find_small_layout_operators(subject: Subject) -> Finding | None:
    """Many operators that only move data, each cheap, together not."""
    limits = subject.thresholds
    small = [
        detail
        for detail in subject.in_class(*_LAYOUT_CLASSES)
        if times_of(detail).mean_ns <= limits.small_layout_ns or subject.share_of([detail]) <= 0.02
    ]
    share = subject.share_of(small)
    if len(small) < limits.small_layout_count or share < limits.small_layout_total_share:
        return None
    each = format_duration(sum_ns(small) / len(small))
    return Finding(
        "Many small layout operators add up",
        "high" if share >= limits.layout_share else "medium",
        f"{len(small)} transposes and copies of {each} each take {subject.weigh(small)}.",
        _layout_action(subject, small),
        *subject.cost(small),
        ruled_out=("one slow copy: none is large by itself",),
    )


def _layout_action(subject: Subject, layout: list[OperatorDetail]) -> str:
    """Says what this model's own operators, graph and export ask for."""
    steps = []
    if subject.in_category("Convolution"):
        steps.append("keep one layout throughout: export with `memory_format=torch.channels_last`")
    report = subject.insight.experiment.program.report
    pairs = find_inverse_pairs(report) if report else ()
    if pairs:
        steps.append(f"remove the {count_of(len(pairs), 'pair')} that undo each other (F2b)")
    modules = dict.fromkeys(detail.module_path for detail in layout if detail.module_path)
    where = f" of {', '.join(list(modules)[:4])}" if modules else ""
    steps.append(f"move the transposes and copies{where} to the model's edge, or leave them out")
    outside = [detail for detail in layout if not detail.row.is_delegated]
    if outside:
        reasons = describe_reasons(outside)
        why = f" ({reasons})" if reasons else ""
        steps.append(
            f"have the {len(outside)} outside the delegate delegated{why}: each delegate call "
            "converts its inputs and outputs"
        )
    return "; ".join(steps)


@rule("F2c", "layout churn")
def find_layout_churn(subject: Subject) -> Finding | None:
    """Moving data takes a large part of the inference."""
    movement = subject.in_category("Data Movement")
    if subject.share_of(movement) < subject.thresholds.layout_share:
        return None
    what = f"{count_of(len(movement), 'operator')} that only move data"
    action = _layout_action(subject, movement)
    summary = f"{what}: {subject.weigh(movement)}."
    return Finding("Layout churn", "high", summary, action, *subject.cost(movement))


@rule("F7", "more data movement than the reference", lambda s: s.answers)
def find_movement_above_reference(
    subject: Subject, answers: tuple[ReferenceAnswer, ...]
) -> Finding | None:
    """Data movement takes a larger share than in the reference."""
    excess = answers[0].share - answers[0].reference_share
    if excess <= 0:
        return None
    movement = subject.in_category("Data Movement")
    return Finding(
        title="More data movement than in the reference",
        severity="medium",
        summary=(
            f"Data movement is {format_share(answers[0].share)} of an inference, in the reference "
            f"({subject.reference_name}) {format_share(answers[0].reference_share)}."
        ),
        evidence=subject.show(movement),
        gain_ns=min(excess * subject.total_ns, sum_ns(movement)),
        action="see F2: keep one layout and remove transposes and copies",
    )


def _data_flow(subject: Subject) -> MethodReport | None:
    report = subject.insight.experiment.program.report
    return report if report and report.has_data_flow else None


@rule("F2b", "transposes that undo each other", _data_flow)
def find_inverse_transposes(subject: Subject, report: MethodReport) -> Finding | None:
    """The second transpose of a pair gives back what the first one took."""
    pairs = find_inverse_pairs(report)
    if not pairs:
        return None
    measured = {place: detail for detail in subject.details if (place := _place_of(detail))}
    removable = [
        measured[place] for pair in pairs for place in _removable(pair) if place in measured
    ]
    return Finding(
        title="Transposes that undo each other",
        severity="medium",
        summary=(
            f"{count_of(len(pairs), 'pair')} of transposes with the inverse permutation and only "
            f"elementwise operators between them: {subject.weigh(removable)}."
        ),
        evidence=tuple(_evidence(pair, measured) for pair in pairs[:SHOWN_ROWS]),
        gain_ns=sum_ns(removable),
        action=_action(pairs, removable),
        ruled_out=(
            "another permutation: the second is the first one's inverse",
            "an operator between them that needs the layout: there is none",
        ),
    )


def _place_of(detail: OperatorDetail) -> Place | None:
    """Where the export's graph has this operator; None when it is not known."""
    if detail.attribution is None:
        return None
    return detail.row.instruction_id, detail.attribution.node


def _removable(pair: InversePair) -> tuple[Place, ...]:
    return (pair.second,) if pair.is_shared else (pair.first, pair.second)


def _evidence(pair: InversePair, measured: dict[Place, OperatorDetail]) -> EvidenceRow:
    sides = [measured.get(place) for place in (pair.first, pair.second)]
    names = [side.row.label if side else "not measured" for side in sides]
    times = [format_duration(times_of(side).mean_ns) for side in sides if side]
    where = next((side.module_path for side in sides if side and side.module_path), None)
    words = [
        f"permutation {pair.permutation}",
        f"{count_of(pair.between, 'operator')} between",
        *([" + ".join(times)] if times else []),
        *([f"module {where}"] if where else []),
        *(["others read the first one's result too"] if pair.is_shared else []),
    ]
    return EvidenceRow(" … ".join(names), ", ".join(words))


def _action(pairs: tuple[InversePair, ...], removable: list[OperatorDetail]) -> str:
    """Names the lines to change, where the export knows them."""
    lines = dict.fromkeys(detail.source for detail in removable if detail.source)
    where = ""
    if lines:
        where = (
            f". They come from {', '.join(list(lines)[:4])}: what is not written there itself, the "
            "export's decomposition of that line makes"
        )
    kept = sum(pair.is_shared for pair in pairs)
    shared = f"; keep the first of {count_of(kept, 'pair')}, for others read it" if kept else ""
    return (
        "remove both transposes of each pair: what is between them treats every element alike and "
        f"does not care for the layout{shared}{where}"
    )


_LEAST_CONVOLUTIONS: Final = 3
"""With fewer there is no typical convolution to compare with."""


@rule("F3", "a slow convolution")
def find_slow_convolution(subject: Subject) -> Finding | None:
    """A convolution that is far slower than its like, by throughput where MACs are known."""
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
    median_ns = statistics.median(times_of(detail).median_ns for detail in dense)
    return Finding(
        title="A convolution is far slower than the others",
        severity="high",
        summary=(
            f"{first.row.label} takes {format_duration(times_of(first).median_ns)}, "
            f"{format_ratio(times_of(first).median_ns / median_ns) if median_ns else ''} the median "
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
    median_ns = statistics.median(times_of(detail).median_ns for detail in dense)
    limit = subject.thresholds.slow_convolution_ratio * median_ns
    return [detail for detail in dense if median_ns and times_of(detail).median_ns >= limit]


def _excess_ns(slow: list[OperatorDetail], dense: list[OperatorDetail]) -> float:
    """Time above what the work would take at the median rate, else above the median time."""
    rates = [detail.gflops for detail in dense if detail.gflops]
    median_ns = statistics.median(times_of(detail).median_ns for detail in dense)
    excess = 0.0
    for detail in slow:
        macs = detail.attribution.macs if detail.attribution else None
        expected = 2 * macs / statistics.median(rates) if macs and rates else median_ns
        excess += max(times_of(detail).median_ns - expected, 0.0)
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


@rule("F3b", "convolutions outside the delegate")
def find_undelegated_convolution(subject: Subject) -> Finding | None:
    """A convolution runs outside the delegate."""
    outside = subject.select(
        lambda d: d.row.operator_class.category == "Convolution" and not d.row.is_delegated
    )
    if not outside:
        return None
    reasons = describe_reasons(outside)
    return Finding(
        "Convolutions outside the delegate",
        "high",
        f"{count_of(len(outside), 'convolution')} on ExecuTorch's portable kernels: "
        f"{subject.weigh(outside)}.",
        f"fix the export: {reasons or 'its delegation report says why they were left out'}",
        *subject.cost(outside),
    )


@rule("F3c", "depthwise convolutions")
def note_depthwise(subject: Subject) -> Finding | None:
    """Depthwise convolutions never take SME2; that is no failure."""
    depthwise = subject.in_class("depthwise")
    share = subject.share_of(depthwise)
    if share < subject.thresholds.depthwise_share:
        return None
    return Finding(
        title="Depthwise convolutions have no SME2 kernel",
        severity="note",
        summary=(
            f"{count_of(len(depthwise), 'depthwise convolution')}: {format_share(share)}; "
            f"{depthwise[0].row.backend.title} has no SME2 microkernel for them, whatever the type in "
            "their name."
        ),
        evidence=(
            *subject.show(depthwise, 3),
            EvidenceRow("together", format_duration(sum_ns(depthwise))),
        ),
        action="nothing to fix; a model with fewer depthwise convolutions gains more from SME2",
    )
