"""Finds the node of the exported graph behind each operator of an ETDump.

A delegate's operators may carry no id that the export knows. They run in the order of the delegate's
nodes, and their names follow from the nodes' kinds, so both sequences are aligned per delegate
call; operators outside delegates are found by their instruction.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from etprof.analysis.compare.sequence_alignment import align
from etprof.backends.portable import parse_kernel_name
from etprof.backends.registry import backend_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.analysis.split.operators import OperatorRow
    from etprof.run.delegation import (
        Delegate,
        DelegateNode,
        GraphOperator,
        MethodReport,
        Origin,
        Prediction,
    )

Certainty = Literal["instruction", "kind", "order", "place", "inserted"]
"""What an attribution rests on, the surest first.

`instruction`: the ETDump and the export have the same number for it. `kind`: as many operators of its
kind ran as the delegate has nodes, so each is its own. `order`: some nodes of its kind left no
operator, and the alignment with all of the delegate's nodes chose. `place`: its name is not the node's,
and its place among the others decided. `inserted`: a pass put it in; it goes to what it prepares.
"""


@dataclass(frozen=True)
class Attribution:
    """What the export knows of one operator of an ETDump."""

    graph_operators: tuple[str, ...]
    """All that were merged into it."""
    modules: tuple[str, ...]
    """The modules of all of these; the root's path is empty."""
    certainty: Certainty
    origin: Origin | None
    """Of the first one."""
    shape: tuple[int, ...] | None
    macs: int | None
    moved_bytes: int | None
    """Bytes read and written in one call: inputs, weights and outputs."""
    reason: str | None
    """Why it is not delegated."""
    prediction: Prediction | None
    node: int | None = None
    """Its place among the delegate's nodes; None outside delegates."""
    kind: str | None = None
    """Of that node."""
    behind: tuple[GraphOperator, ...] = ()
    """The graph's operators that it computes."""


def attribute_operators(
    rows: Sequence[OperatorRow], report: MethodReport
) -> tuple[Attribution | None, ...]:
    """Returns the attribution of each row; None where none is certain enough."""
    found: list[Attribution | None] = [None] * len(rows)
    operators = {entry.name: entry for entry in report.operators}
    delegates = {entry.instruction: entry for entry in report.delegates}
    for instruction in dict.fromkeys(row.instruction_id for row in rows):
        places = [i for i, row in enumerate(rows) if row.instruction_id == instruction]
        delegate = delegates.get(instruction)
        if delegate is not None and rows[places[0]].is_delegated:
            _attribute_delegate(rows, places, delegate, operators, found)
        elif not rows[places[0]].is_delegated:
            for place in places:
                found[place] = _attribute_kernel(rows[place], report.operators)
    return tuple(found)


def _attribute_delegate(
    rows: Sequence[OperatorRow],
    places: Sequence[int],
    delegate: Delegate,
    operators: dict[str, GraphOperator],
    found: list[Attribution | None],
) -> None:
    """Aligns the rows at `places` with the delegate's nodes and fills in `found`."""
    backend = backend_of(delegate.backend)
    ran_here = [rows[place] for place in places]
    names = [backend.row_kind(row.base, row.microkernel_type) for row in ran_here]
    kinds = [backend.node_kind(node.kind) for node in delegate.nodes]
    if any(names.count(kind) != kinds.count(kind) for kind in backend.products):
        loose = [list(map(backend.loose_kind, each)) for each in (names, kinds)]
        # Only where that explains the difference: a product that is missing stays missing.
        if all(loose[0].count(kind) == loose[1].count(kind) for kind in backend.products):
            names, kinds = loose
    sharing = Counter(
        (node.operators, kind) for node, kind in zip(delegate.nodes, kinds, strict=True)
    )
    crowds = Counter(node.operators for node in delegate.nodes if node.attribution != "inserted")
    ran, kept = Counter(names), Counter(kinds)
    # Some names are not the node's, as "Invalid Unary Op" of a quantised hard-swish: order tells.
    for row, place in align(names, kinds, unmistakable=backend.products):
        node, kind = delegate.nodes[place], kinds[place]
        known = [operators[name] for name in node.operators if name in operators]
        certainty = _certainty(node, same_kind=kind == names[row], all_ran=ran[kind] == kept[kind])
        match = _Match(node, place, known, certainty)
        working = [entry for entry in known if entry.macs]
        if kind in backend.products and len(working) == 1 and sharing[node.operators, kind] == 1:
            found[places[row]] = _as_product(match, working[0])
        else:
            is_alone = crowds[node.operators] == 1 and node.attribution != "inserted"
            found[places[row]] = _as_node(match, is_alone=is_alone)


def _certainty(node: DelegateNode, *, same_kind: bool, all_ran: bool) -> Certainty:
    if node.attribution == "inserted":
        return "inserted"
    if not same_kind:
        return "place"
    return "kind" if all_ran else "order"


@dataclass(frozen=True)
class _Match:
    """A node that an operator was paired with."""

    node: DelegateNode
    place: int
    known: Sequence[GraphOperator]
    """The graph operators behind the node."""
    certainty: Certainty

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules of all graph operators, each once."""
        return tuple(dict.fromkeys(entry.origin.module_path for entry in self.known))


def _as_product(match: _Match, operator: GraphOperator) -> Attribution:
    """A product does the work of the one operator behind it that has any.

    Several nodes may stand for the same operators, as in attention; only the product multiplies.
    """
    return Attribution(
        graph_operators=match.node.operators,
        modules=match.modules,
        certainty=match.certainty,
        origin=operator.origin,
        shape=tuple(operator.shape) if operator.shape else None,
        macs=operator.macs,
        moved_bytes=(operator.input_bytes or 0) + (operator.output_bytes or 0) or None,
        reason=None,
        prediction=match.node.prediction,
        node=match.place,
        kind=match.node.kind,
        behind=tuple(match.known),
    )


def _as_node(match: _Match, *, is_alone: bool) -> Attribution:
    """What the report says of a node; sizes only when no other node shares its operators."""
    node, known = match.node, match.known
    sizes = (node.input_bytes or 0) + (node.output_bytes or 0)
    return Attribution(
        graph_operators=node.operators,
        modules=match.modules,
        certainty=match.certainty,
        origin=known[0].origin if known else None,
        shape=tuple(known[-1].shape or ()) or None if known and is_alone else None,
        macs=node.macs or None if is_alone else None,
        moved_bytes=sizes or None if is_alone else None,
        reason=None,
        prediction=node.prediction,
        node=match.place,
        kind=match.node.kind,
        behind=tuple(match.known),
    )


def _attribute_kernel(row: OperatorRow, operators: Sequence[GraphOperator]) -> Attribution | None:
    """Finds the graph operator of a kernel outside delegates by its instruction and name."""
    for entry in operators:
        same_name = parse_kernel_name(entry.operator).base == row.base
        if entry.instruction is not None and entry.instruction == row.instruction_id and same_name:
            return Attribution(
                graph_operators=(entry.name,),
                modules=(entry.origin.module_path,),
                certainty="instruction",
                origin=entry.origin,
                shape=tuple(entry.shape) if entry.shape else None,
                macs=entry.macs,
                moved_bytes=(entry.input_bytes or 0) + (entry.output_bytes or 0) or None,
                reason=entry.reason,
                prediction=None,
                behind=(entry,),
            )
    return None
