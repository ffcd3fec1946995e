"""F1 and F2: normalisation that dominates, and data that is moved more than computed on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.analysis.findings.finding import (
    Finding,
    Subject,
    describe_reasons,
    sum_ns,
)
from etprof.analysis.split.transposes import find_inverse_pairs
from etprof.base.units import count_of, format_duration

if TYPE_CHECKING:
    from etprof.analysis.insight import OperatorDetail

_LAYOUT_CLASSES: Final = ("layout", "copy", "view")


def find_norm_dominance(subject: Subject) -> Finding | None:
    """F1: norms take a large share, or more than the convolutions."""
    norms = subject.select(_is_norm)
    share = subject.share_of(norms)
    convolutions = sum_ns(subject.in_category("Convolution"))
    beats = 0 < convolutions <= sum_ns(norms)
    if not norms or (share < subject.thresholds.norm_share and not beats):
        return None
    outside = [detail for detail in norms if not detail.row.is_delegated]
    squeezed = _between_layout(subject, norms)
    against = f", more than the convolutions' {format_duration(convolutions)}" if beats else ""
    return Finding(
        rule="F1",
        title="Normalisation dominates",
        severity="high" if outside or squeezed else "medium",
        experiment=subject.name,
        summary=(
            f"{count_of(len(norms), 'operator')} of norms: {subject.weigh(norms)}{against}; "
            f"{len(outside)} outside the delegate"
            + (f", {len(squeezed)} between layout operators." if squeezed else ".")
        ),
        evidence=subject.show(norms),
        gain_ns=sum_ns(norms),
        action=_norm_action(norms, outside, squeezed),
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


def find_small_layout_operators(subject: Subject) -> Finding | None:
    """F2: many operators that only move data, each cheap, together not."""
    limits = subject.thresholds
    small = [
        detail
        for detail in subject.in_class(*_LAYOUT_CLASSES)
        if detail.typical_ns <= limits.small_layout_ns or subject.share_of([detail]) <= 0.02
    ]
    share = subject.share_of(small)
    if len(small) < limits.small_layout_count or share < limits.small_layout_total_share:
        return None
    return Finding(
        rule="F2",
        title="Many small layout operators add up",
        severity="high" if share >= limits.layout_share else "medium",
        experiment=subject.name,
        summary=(
            f"{len(small)} transposes and copies of {format_duration(sum_ns(small) / len(small))} "
            f"each take {subject.weigh(small)}."
        ),
        evidence=subject.show(small),
        gain_ns=sum_ns(small),
        action=_layout_action(subject, small),
        ruled_out=("one slow copy: none is large by itself",),
    )


def _layout_action(subject: Subject, layout: list[OperatorDetail]) -> str:
    """Says what this model's own operators, graph and export ask for."""
    steps = []
    if subject.in_category("Convolution"):
        steps.append("keep one layout throughout: export with `memory_format=torch.channels_last`")
    pairs = find_inverse_pairs(subject.run.report) if subject.run.report else ()
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


def find_layout_churn(subject: Subject) -> Finding | None:
    """F2c: moving data takes a large part of the inference."""
    movement = subject.in_category("Data Movement")
    share = subject.share_of(movement)
    if share < subject.thresholds.layout_share:
        return None
    return Finding(
        rule="F2c",
        title="Layout churn",
        severity="high",
        experiment=subject.name,
        summary=(
            f"{count_of(len(movement), 'operator')} that only move data: {subject.weigh(movement)}."
        ),
        evidence=subject.show(movement),
        gain_ns=sum_ns(movement),
        action=_layout_action(subject, movement),
    )
