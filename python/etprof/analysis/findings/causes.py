"""What a group of operators is: the model's own operator that the export took apart, and its line.

A partitioner's reason speaks of one operator of the lowered graph. The model has another one there:
72 operators without a rule may be one attention. The export knows what each was decomposed from, and
which of its rewrites would change that.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING, Any, Final

from etprof.analysis.findings.commands import command_in, rewrites_in, rewritten_export
from etprof.analysis.findings.finding import EvidenceRow, Refusal, sum_ns
from etprof.backends.registry import OPAQUE, backend_named
from etprof.base.text import as_operand, command_line, join_names
from etprof.base.units import count_of, format_duration
from etprof.run.delegation import NO_REASON, NO_RULE, NOT_ASKED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from etprof.analysis.findings.finding import Finding, Subject
    from etprof.analysis.insight import OperatorDetail
    from etprof.run.delegation import GraphOperator

_DESCRIPTIONS: Final = {
    "scaled_dot_product_attention": "attention, with its safe softmax and expands",
    "batch_norm": "a batch norm that is not folded into a convolution",
    "layer_norm": "a layer norm",
    "rms_norm": "an RMS norm",
    "group_norm": "a group norm",
    "instance_norm": "an instance norm",
    "mean": "a mean that the delegate does not support",
    "cat": "a concatenation",
    "hardsigmoid": "a hard-sigmoid, computed between casts",
    "hardswish": "a hard-swish",
    "silu": "a SiLU, computed between casts",
    "gelu": "a GELU",
    "expand": "an expand",
    "matmul": "a product of batches, with its expands",
    "to": "a change of type",
    "_to_copy": "a change of type",
}
"""What people call PyTorch's operators; others by their own names."""
_SHOWN_LINES: Final = 3
_SHOWN_NAMES: Final = 3
NEEDLESS_WORK: Final = {
    "shared_results": "{} computed again what was computed before",
    "early_selects": "{} on rows of which some are cut away",
}
"""Rewrites that leave work out, and what they find."""
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
    return fsum(detail.row.times.mean_ns if detail.row.times else 1.0 for detail in details)


def _cause(kind: str, members: Sequence[tuple[OperatorDetail, GraphOperator]]) -> Cause:
    sources = [operator.origin.source for _, operator in members]
    rewrites = dict.fromkeys(name for _, operator in members for name in _delegating(operator))
    return Cause(
        kind,
        tuple(detail for detail, _ in members),
        len({operator.traced for _, operator in members}),
        tuple(dict.fromkeys(str(source) for source in sources if source)),
        tuple(rewrites),
    )


def command_for(
    subject: Subject, causes: Sequence[Cause], *, also: Sequence[str] = ()
) -> str | None:
    """Returns the command that exports with the rewrites for `causes`; None where there are none."""
    names = {*(name for cause in causes for name in cause.rewrites), *also}
    if not names:
        return None
    program = subject.insight.experiment.program
    exported = program.exported
    if exported is not None:
        return f"`{rewritten_export(exported, names)}`"
    model = as_operand(program.model.name if program.model else "MODEL")
    dtype = ["--dtype", program.precision] if program.precision else []
    rewrites = ",".join(sorted(names))
    return f"`{command_line('export', model, *dtype, '--rewrite', rewrites)}`"


@dataclass(frozen=True)
class Remedy:
    """What takes operators into the delegate, and which ones nothing of etprof does."""

    command: str
    """The command, with what it is for and how many operators it replaces; empty without one."""
    operators: int
    replaced: int
    """Of these operators, by the command's rewrites."""
    refusals: tuple[Refusal, ...]

    @property
    def fields(self) -> dict[str, Any]:
        """Returns them as a finding has them."""
        counts = {"operators": self.operators, "replaced_operators": self.replaced}
        return {"refusals": self.refusals} | (counts if self.command else {})


def find_remedy(subject: Subject, details: Sequence[OperatorDetail]) -> Remedy:
    """Returns what operators are and what would take them into the delegate.

    The command is the one for all that is not delegated: findings that share operators give one.
    """
    replaced = [detail for detail in details if _rewrites_of(detail)]
    further_findings = [
        detail for detail in details if not _rewrites_of(detail) and not detail.row.is_delegated
    ]
    outside = [detail for detail in subject.details if not detail.row.is_delegated]
    text, mended = "", find_causes(replaced)
    if mended and (command := command_for(subject, [*find_causes(outside), *mended])):
        effect = _effect(len(replaced), len(details))
        them = "it" if len(replaced) == 1 else "them"
        text = f"{command} {effect}; the export made {them} from {'; '.join(map(str, mended))}"
    return Remedy(text, len(details), len(replaced), _refusals(subject, further_findings))


def find_inexact(subject: Subject, finding: Finding) -> tuple[str, ...]:
    """Returns the rewrites of a finding's command that round more than what they replace.

    Those that the program was exported with have been judged.
    """
    command = command_in(finding.action)
    exported = subject.insight.experiment.program.exported
    done = {rewrite.name for rewrite in exported.rewrites} if exported else set()
    backend = backend_named(exported.backend if exported else None)
    names = rewrites_in(command) if command else ()
    return tuple(name for name in names if name in backend.inexact_rewrites - done)


def rewrites_behind(detail: OperatorDetail) -> tuple[str, ...]:
    """Returns the rewrites that would change any operator that it computes, in their order."""
    behind = detail.attribution.behind if detail.attribution else ()
    return tuple(name for operator in behind for name in operator.rewrites)


def _rewrites_of(detail: OperatorDetail) -> tuple[str, ...]:
    behind = detail.attribution.behind if detail.attribution else ()
    return _delegating(behind[0]) if behind else ()


def _delegating(operator: GraphOperator) -> tuple[str, ...]:
    """Returns the rewrites that take an operator into the delegate, not those that do less work."""
    return tuple(name for name in operator.rewrites if name not in NEEDLESS_WORK)


def _effect(replaced: int, total: int) -> str:
    """Says how many of its operators a command replaces."""
    if replaced < total:
        return f"replaces {replaced} of these {total} operators"
    return "replaces it" if total == 1 else f"replaces all {total}"


def _refusals(subject: Subject, details: Sequence[OperatorDetail]) -> tuple[Refusal, ...]:
    """Groups operators that nothing replaces by the model's operator, else by their own name."""
    causes = find_causes(details)
    grouped = {id(detail) for cause in causes for detail in cause.details}
    by_name: dict[str, list[OperatorDetail]] = {}
    for detail in details:
        if id(detail) not in grouped:
            by_name.setdefault(detail.row.base, []).append(detail)
    groups = [(cause.operator, str(cause), cause.details) for cause in causes]
    groups += [(name, _located(name, members), tuple(members)) for name, members in by_name.items()]
    refusals = (
        Refusal(operator, f"{subject_text} {why}")
        for operator, subject_text, members in groups
        if (why := _why_outside(subject, operator, members))
    )
    return tuple(refusals)


def _located(name: str, details: Sequence[OperatorDetail]) -> str:
    """Names operators of which the export says no more than where they are."""
    times = f" ({len(details)} times)" if len(details) > 1 else ""
    locations = dict.fromkeys(detail.row.location for detail in details if detail.row.location)
    at = f" at {', '.join(list(locations)[:_SHOWN_LINES])}" if locations else ""
    return f"`{name}`{times}{at}"


def _listed(names: Sequence[str]) -> str:
    """Returns the first names as a list in words."""
    return join_names(names[:_SHOWN_NAMES])


def _why_outside(subject: Subject, operator: str, details: Sequence[OperatorDetail]) -> str:
    """Says why operators of one kind are outside, by the reason that most have; empty if unknown."""
    reasons = [detail.attribution.reason if detail.attribution else None for detail in details]
    counts = Counter(reason for reason in reasons if reason and reason != NOT_ASKED)
    if not counts:
        return ""
    reason = counts.most_common(1)[0][0]
    pairs = zip(details, reasons, strict=True)
    names = list(
        dict.fromkeys(detail.row.base for detail, own_reason in pairs if own_reason == reason)
    )
    exported = subject.insight.experiment.program.exported
    backend = backend_named(exported.backend if exported else None)
    delegate = "the delegate" if backend is OPAQUE else f"the {backend.title} delegate"
    is_itself = names == [operator]
    becomes = "" if is_itself else f"becomes {_listed(names)}, which "
    verb = "has" if is_itself or len(names) == 1 else "have"
    if reason == NO_RULE:
        return f"{becomes}{verb} no operator in {delegate}"
    if reason == NO_REASON:
        return f"stays outside {delegate}, whose partitioner gives no reason"
    return f"stays outside {delegate}: {reason}"


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
