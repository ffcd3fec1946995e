"""Finds the node of the exported graph behind each operator of an ETDump.

XNNPACK's operators carry no id that the export knows. They run in the order of the delegate's
nodes, and their names follow from the nodes' kinds, so both sequences are aligned per delegate
call; operators outside delegates are found by their instruction. XNNPACK runs a pointwise
convolution as a fully connected operator, so these two are one kind here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Final

from etprof.analysis.categories import parse_kernel_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.analysis.delegation_report import (
        Delegate,
        GraphOperator,
        MethodReport,
        Origin,
        Prediction,
    )
    from etprof.analysis.operators import OperatorRow

_SYNONYMS: Final = {
    "conv": "product",
    "convolution": "product",
    "fullyconnected": "product",
    "depthwiseconv": "depthwise",
    "convtranspose": "deconvolution",
    "avgpooling": "averagepooling",
    "globalavgpooling": "globalaveragepooling",
    "concatenate": "copy",
    "argmaxpooling": "argmaxpooling",
    "reshape": "copy",
    "bilinear": "resizebilinear",
    "prelu": "leakyrelu",
}
_DEPTHWISE_MICROKERNELS: Final = frozenset({"DWConv", "VMulCAddC"})


@dataclass(frozen=True)
class Attribution:
    """What the export knows of one operator of an ETDump."""

    graph_operators: tuple[str, ...]
    origin: Origin | None
    shape: tuple[int, ...] | None
    macs: int | None
    moved_bytes: int | None
    """Bytes read and written in one call: inputs, weights and outputs."""
    reason: str | None
    """Why it is not delegated."""
    prediction: Prediction | None


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


def kind_of_row(row: OperatorRow) -> str:
    """Returns the kind of an operator of an ETDump; depthwise convolutions are one of their own."""
    if row.microkernel_type in _DEPTHWISE_MICROKERNELS:
        return "depthwise"
    return canonical_kind(row.base)


def canonical_kind(text: str) -> str:
    """Makes one word of an XNNPACK node's kind or operator's name: `MaxPooling2d`, `Max Pooling`."""
    word = re.sub(r"[^a-z]", "", re.sub(r"\d+d?", "", text.lower()))
    word = re.sub(r"^(static|dynamic)(?=.)", "", word)
    return _SYNONYMS.get(word, word)


def _attribute_delegate(
    rows: Sequence[OperatorRow],
    places: Sequence[int],
    delegate: Delegate,
    operators: dict[str, GraphOperator],
    found: list[Attribution | None],
) -> None:
    """Aligns the rows at `places` with the delegate's nodes and fills in `found`."""
    names = [kind_of_row(rows[place]) for place in places]
    kinds = [canonical_kind(node.kind) for node in delegate.nodes]
    for first, start, length in SequenceMatcher(
        None, names, kinds, autojunk=False
    ).get_matching_blocks():
        for step in range(length):
            node = delegate.nodes[start + step]
            known = [operators[name] for name in node.operators if name in operators]
            computes = node.attribution in {"exact", "fused"}
            sizes = (node.input_bytes, node.output_bytes)
            found[places[first + step]] = Attribution(
                graph_operators=node.operators,
                origin=known[0].origin if known else None,
                shape=tuple(known[-1].shape or ()) if known and computes else None,
                macs=node.macs or None,
                moved_bytes=sum(size or 0 for size in sizes) or None,
                reason=None,
                prediction=node.prediction,
            )


def _attribute_kernel(row: OperatorRow, operators: Sequence[GraphOperator]) -> Attribution | None:
    """Finds the graph operator of a kernel outside delegates by its instruction and name."""
    for entry in operators:
        same_name = parse_kernel_name(entry.operator).base == row.base
        if entry.instruction is not None and entry.instruction == row.instruction_id and same_name:
            return Attribution(
                graph_operators=(entry.name,),
                origin=entry.origin,
                shape=tuple(entry.shape) if entry.shape else None,
                macs=entry.macs,
                moved_bytes=(entry.input_bytes or 0) + (entry.output_bytes or 0) or None,
                reason=entry.reason,
                prediction=None,
            )
    return None
