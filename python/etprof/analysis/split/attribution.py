"""Finds the node of the exported graph behind each operator of an ETDump.

A delegate's operators may carry no id that the export knows. They run in the order of the delegate's
nodes, and their names follow from the nodes' kinds, so both sequences are aligned per delegate
call; operators outside delegates are found by their instruction.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from etprof.analysis.compare.sequence_alignment import align
from etprof.backends.backend import CONVERT, LAYOUT
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
    """Its index among the delegate's nodes; None outside delegates."""
    kind: str | None = None
    """Of that node."""
    behind: tuple[GraphOperator, ...] = ()
    """The graph's operators that it computes."""


def place_operator(row: OperatorRow, attribution: Attribution | None) -> OperatorRow:
    """Returns a row with the model's module and line, and the class that its data types tell.

    ExecuTorch's `_to_dim_order_copy` changes the layout, the type, or both: its name does not say.
    """
    if attribution is None or attribution.origin is None:
        return row
    location, behind = attribution.origin.location, attribution.behind
    may_cast = row.operator_class == LAYOUT and not row.is_delegated and len(behind) == 1
    operator_class = CONVERT if may_cast and _is_cast(behind[0]) else row.operator_class
    return replace(row, location=location, operator_class=operator_class)


def _is_cast(operator: GraphOperator) -> bool:
    """Reports of earlier versions tell a cast by its bytes alone."""
    if operator.is_cast is None:
        return operator.input_bytes is not None and operator.input_bytes != operator.output_bytes
    return operator.is_cast


def attribute_operators(
    rows: Sequence[OperatorRow], report: MethodReport
) -> tuple[Attribution | None, ...]:
    """Returns the attribution of each row; None where none is certain enough."""
    attributions: list[Attribution | None] = [None] * len(rows)
    operators = {operator.name: operator for operator in report.operators}
    delegates = {delegate.instruction: delegate for delegate in report.delegates}
    for instruction in dict.fromkeys(row.instruction_id for row in rows):
        indices = [i for i, row in enumerate(rows) if row.instruction_id == instruction]
        delegate = delegates.get(instruction)
        if delegate is not None and rows[indices[0]].is_delegated:
            _attribute_delegate(rows, indices, delegate, operators, attributions)
        elif not rows[indices[0]].is_delegated:
            for index in indices:
                attributions[index] = _attribute_kernel(rows[index], report.operators)
    return tuple(attributions)


def _attribute_delegate(
    rows: Sequence[OperatorRow],
    indices: Sequence[int],
    delegate: Delegate,
    operators: dict[str, GraphOperator],
    attributions: list[Attribution | None],
) -> None:
    """Aligns the rows at `indices` with the delegate's nodes and fills in `attributions`."""
    backend = backend_of(delegate.backend)
    delegate_rows = [rows[index] for index in indices]
    names = [backend.row_kind(row.base, row.microkernel_type) for row in delegate_rows]
    kinds = [backend.node_kind(node.kind) for node in delegate.nodes]
    if any(names.count(kind) != kinds.count(kind) for kind in backend.products):
        loose = [list(map(backend.loose_kind, labels)) for labels in (names, kinds)]
        # Only where that explains the difference: a product that is missing stays missing.
        if all(loose[0].count(kind) == loose[1].count(kind) for kind in backend.products):
            names, kinds = loose
    sharing = Counter(
        (node.operators, kind) for node, kind in zip(delegate.nodes, kinds, strict=True)
    )
    crowds = Counter(node.operators for node in delegate.nodes if node.attribution != "inserted")
    row_counts, node_counts = Counter(names), Counter(kinds)
    # Some names are not the node's, as "Invalid Unary Op" of a quantised hard-swish: order tells.
    for row, node_index in align(names, kinds, unmistakable=backend.products):
        node, kind = delegate.nodes[node_index], kinds[node_index]
        graph_operators = [operators[name] for name in node.operators if name in operators]
        certainty = _certainty(
            node, same_kind=kind == names[row], all_ran=row_counts[kind] == node_counts[kind]
        )
        match = _Match(node, node_index, graph_operators, certainty)
        with_macs = [operator for operator in graph_operators if operator.macs]
        if kind in backend.products and len(with_macs) == 1 and sharing[node.operators, kind] == 1:
            attributions[indices[row]] = _as_product(match, with_macs[0])
        else:
            is_alone = crowds[node.operators] == 1 and node.attribution != "inserted"
            attributions[indices[row]] = _as_node(match, is_alone=is_alone)


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
    node_index: int
    graph_operators: Sequence[GraphOperator]
    """The graph operators behind the node."""
    certainty: Certainty

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules of all graph operators, each once."""
        return tuple(
            dict.fromkeys(operator.origin.module_path for operator in self.graph_operators)
        )


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
        node=match.node_index,
        kind=match.node.kind,
        behind=tuple(match.graph_operators),
    )


def _as_node(match: _Match, *, is_alone: bool) -> Attribution:
    """What the report says of a node; sizes only when no other node shares its operators."""
    node, graph_operators = match.node, match.graph_operators
    sizes = (node.input_bytes or 0) + (node.output_bytes or 0)
    return Attribution(
        graph_operators=node.operators,
        modules=match.modules,
        certainty=match.certainty,
        origin=graph_operators[0].origin if graph_operators else None,
        shape=tuple(graph_operators[-1].shape or ()) or None
        if graph_operators and is_alone
        else None,
        macs=node.macs or None if is_alone else None,
        moved_bytes=sizes or None if is_alone else None,
        reason=None,
        prediction=node.prediction,
        node=match.node_index,
        kind=match.node.kind,
        behind=tuple(match.graph_operators),
    )


def _attribute_kernel(row: OperatorRow, operators: Sequence[GraphOperator]) -> Attribution | None:
    """Finds the graph operator of a kernel outside delegates by its instruction and name."""
    for operator in operators:
        same_name = parse_kernel_name(operator.operator).base == row.base
        if (
            operator.instruction is not None
            and operator.instruction == row.instruction_id
            and same_name
        ):
            return Attribution(
                graph_operators=(operator.name,),
                modules=(operator.origin.module_path,),
                certainty="instruction",
                origin=operator.origin,
                shape=tuple(operator.shape) if operator.shape else None,
                macs=operator.macs,
                moved_bytes=(operator.input_bytes or 0) + (operator.output_bytes or 0) or None,
                reason=operator.reason,
                prediction=None,
                behind=(operator,),
            )
    return None
