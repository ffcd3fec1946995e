"""What a group of operators is: the model's own operator that the export took apart, and its line.

A partitioner's reason speaks of one operator of the lowered graph. The model has another one there:
72 operators without a rule may be one attention. The export knows what each was decomposed from, and
which of its rewrites would change that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from etprof.analysis.findings.finding import EvidenceRow, sum_ns
from etprof.base.text import as_operand, command_line
from etprof.base.units import count_of, format_duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from etprof.analysis.findings.finding import Subject
    from etprof.analysis.insight import OperatorDetail
    from etprof.run.delegation import GraphOperator

_DESCRIPTIONS: Final = {
    "scaled_dot_product_attention": "attention, with its safe softmax and expands",
    "batch_norm": "a batch norm that is not folded into a convolution",
    "layer_norm": "a layer norm",
    "rms_norm": "an RMS norm",
    "group_norm": "a group norm",
    "instance_norm": "an instance norm",
    "mean": "a mean in a form that the delegate does not take",
    "cat": "a concatenation",
    "hardsigmoid": "a hard-sigmoid, computed between casts",
    "hardswish": "a hard-swish",
    "silu": "a SiLU, computed between casts",
    "gelu": "a GELU",
    "expand": "an expand, with effect or without",
    "matmul": "a product of batches, with its expands",
    "to": "a change of type",
    "_to_copy": "a change of type",
}
"""What people call PyTorch's operators; others by their own names."""
_SHOWN_LINES: Final = 3
NORMS: Final = frozenset({"batch_norm", "layer_norm", "rms_norm", "group_norm", "instance_norm"})


@dataclass(frozen=True)
class Cause:
    """One operator of the model, wherever it stands, with what became of it."""

    operator: str
    """ATen's name, such as `scaled_dot_product_attention`."""
    details: tuple[OperatorDetail, ...]
    occurrences: int
    """How often the model has it."""
    lines: tuple[str, ...]
    rewrites: tuple[str, ...]
    reasons: tuple[str, ...]
    """What the partitioner said, where no rewrite is known."""

    @property
    def description(self) -> str:
        """What it is, for people."""
        return _DESCRIPTIONS.get(self.operator, f"`{self.operator}` of the model")

    def __str__(self) -> str:
        times = f" ({self.occurrences} times)" if self.occurrences > 1 else ""
        at = f" at {', '.join(self.lines[:_SHOWN_LINES])}" if self.lines else ""
        return f"{self.description}{times}{at}"


def traced_kind(operator: GraphOperator) -> str | None:
    """Returns ATen's name of what an operator was decomposed from, such as `layer_norm`."""
    components = (operator.traced_as or "").split(".")
    return components[1] if len(components) > 1 else None


def kinds_of(detail: OperatorDetail) -> set[str]:
    """Returns ATen's names of all that an operator computes; empty when the export did not say."""
    behind = detail.attribution.behind if detail.attribution else ()
    return {kind for operator in behind if (kind := traced_kind(operator))}


def find_causes(details: Iterable[OperatorDetail]) -> tuple[Cause, ...]:
    """Groups operators by the model's operator that they come from, the most of them first.

    Those of which nothing is known are in no group.
    """
    members_by_kind: dict[str, list[tuple[OperatorDetail, GraphOperator]]] = {}
    for detail in details:
        behind = detail.attribution.behind if detail.attribution else ()
        if behind and (kind := traced_kind(behind[0])):
            members_by_kind.setdefault(kind, []).append((detail, behind[0]))
    causes = [_cause(kind, members) for kind, members in members_by_kind.items()]
    return tuple(sorted(causes, key=lambda cause: -_weight(cause.details)))


def _weight(details: Sequence[OperatorDetail]) -> float:
    """Time where that is known, else how many there are."""
    return sum(detail.row.times.mean_ns if detail.row.times else 1.0 for detail in details)


def _cause(kind: str, members: Sequence[tuple[OperatorDetail, GraphOperator]]) -> Cause:
    sources = [operator.origin.source for _, operator in members]
    rewrites = dict.fromkeys(name for _, operator in members for name in operator.rewrites)
    reasons = dict.fromkeys(
        f"{detail.row.base}: {operator.reason}" for detail, operator in members if operator.reason
    )
    return Cause(
        kind,
        tuple(detail for detail, _ in members),
        len({operator.traced for _, operator in members}),
        tuple(dict.fromkeys(str(source) for source in sources if source)),
        tuple(rewrites),
        tuple(reasons),
    )


def command_for(
    subject: Subject, causes: Sequence[Cause], *, also: Sequence[str] = ()
) -> str | None:
    """Returns the command that exports with the rewrites for `causes`; None where there are none."""
    names = dict.fromkeys([*(name for cause in causes for name in cause.rewrites), *also])
    if not names:
        return None
    program = subject.insight.experiment.program
    exported = program.exported
    # What the program was made with stays: without it the command would make another one.
    before = [] if exported is None else [rewrite.name for rewrite in exported.rewrites]
    model = (
        exported.model_words
        if exported
        else (as_operand(program.model.name if program.model else "MODEL"),)
    )
    dtype = ["--dtype", program.precision] if program.precision else []
    options = exported.option_words if exported else ()
    rewrites = ",".join(dict.fromkeys([*before, *names]))
    return f"`{command_line('export', *model, *dtype, *options, '--rewrite', rewrites)}`"


def describe_remedy(subject: Subject, details: Sequence[OperatorDetail]) -> str:
    """Says what operators are and what would mend them; empty when the export tells neither.

    The command is the one for all that is not delegated: findings that share operators give one.
    """
    causes = find_causes(details)
    mended = [cause for cause in causes if cause.rewrites]
    outside = [detail for detail in subject.details if not detail.row.is_delegated]
    steps = []
    if mended and (command := command_for(subject, [*find_causes(outside), *mended])):
        steps.append(f"{'; '.join(map(str, mended))}: {command} takes them into the delegate")
    unmended = [cause for cause in causes if not cause.rewrites and cause.reasons]
    if unmended:
        explanations = (f"{cause}: {cause.reasons[0].partition(': ')[2]}" for cause in unmended[:4])
        steps.append(f"without a rewrite: {'; '.join(explanations)}")
    return "; ".join(steps) or describe_reasons(details)


def describe_reasons(details: Iterable[OperatorDetail]) -> str:
    """Quotes why the export left these operators out of the delegate; empty when unknown."""
    reasons = dict.fromkeys(
        f"{detail.row.base}: {detail.attribution.reason}"
        for detail in details
        if detail.attribution and detail.attribution.reason
    )
    return "; ".join(list(reasons)[:4])


def show_causes(details: Sequence[OperatorDetail]) -> tuple[EvidenceRow, ...]:
    """Shows each cause with how many operators it became and what they take."""
    return tuple(
        EvidenceRow(
            cause.description,
            f"{count_of(len(cause.details), 'operator')} from {count_of(cause.occurrences, 'place')}"
            + (f", {format_duration(sum_ns(cause.details))}" if _are_timed(cause.details) else ""),
        )
        for cause in find_causes(details)
    )


def _are_timed(details: Sequence[OperatorDetail]) -> bool:
    return all(detail.row.times for detail in details)
