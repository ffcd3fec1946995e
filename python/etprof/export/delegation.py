"""The delegation report: what runs in the delegate, what does not, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etprof.backends.xnnpack import graph as xnnpack_graph
from etprof.backends.xnnpack import sme
from etprof.export import module_map
from etprof.run.delegation import (
    Delegate,
    DelegateNode,
    MethodReport,
    MethodSummary,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from etprof.export.operators import LoweredDelegate, LoweredMethod
    from etprof.run.delegation import GraphOperator, MemoryPlan

_XNNPACK = "XnnpackBackend"


def describe_method(method: LoweredMethod, plan: MemoryPlan | None) -> MethodReport:
    """Returns the report of one method."""
    by_name = {each.name: each for each in method.operators}
    delegates = tuple(_describe_delegate(each, by_name) for each in method.delegates)
    return MethodReport(
        summary=summarize(method.operators, delegates),
        operators=tuple(method.operators),
        delegates=delegates,
        memory=plan,
    )


def summarize(operators: Sequence[GraphOperator], delegates: Sequence[Delegate]) -> MethodSummary:
    """Returns the totals of one method."""
    real = [each for each in operators if not each.is_quantization]
    inside = [each for each in real if each.delegate is not None]
    total = _sum_macs(real)
    nodes = [node for each in delegates for node in each.nodes]
    predicted = _sum_macs(node for node in nodes if node.prediction and node.prediction.sme2)
    return MethodSummary(
        delegate_calls=len(delegates),
        delegated_operators=len(inside),
        undelegated_operators=sum(
            each.delegate is None and each.instruction is not None for each in operators
        ),
        delegated_operator_share=len(inside) / len(real) if real else None,
        macs=total,
        delegated_macs_share=_sum_macs(inside) / total if total else None,
        predicted_sme2_macs_share=predicted / total if total else None,
    )


def _sum_macs(counted: Iterable[GraphOperator | DelegateNode]) -> int:
    return sum(each.macs or 0 for each in counted)


def _describe_delegate(
    delegate: LoweredDelegate, operators: Mapping[str, GraphOperator]
) -> Delegate:
    own = {**operators, **{each.name: each for each in delegate.operators}}
    nodes: list[module_map.MappedNode] = []
    constants: frozenset[int] = frozenset()
    if delegate.backend == _XNNPACK:
        graph = xnnpack_graph.read_xnnpack_graph(delegate.blob)
        nodes, constants = module_map.map_nodes(graph, delegate.nodes), graph.constant_ids
    workers = credit_work(nodes)
    return Delegate(
        name=delegate.name,
        backend=delegate.backend,
        instruction=delegate.instruction,
        blob_bytes=len(delegate.blob),
        nodes=tuple(_describe_node(each, own, workers, constants) for each in nodes),
    )


def credit_work(nodes: Sequence[module_map.MappedNode]) -> dict[str, int]:
    """Returns, for each operator, the index of the node that does its work.

    Several nodes may stand for one operator, as in attention: then a product multiplies, and where
    nothing is multiplied the first one counts. Inserted nodes do none of it.
    """
    result: dict[str, int] = {}
    own = [each for each in nodes if each.attribution != "inserted"]
    for mapped in sorted(own, key=lambda each: each.node.kind not in sme.PRODUCTS):
        for name in mapped.operators:
            result.setdefault(name, mapped.node.index)
    return result


def _describe_node(
    mapped: module_map.MappedNode,
    operators: Mapping[str, GraphOperator],
    workers: Mapping[str, int],
    constants: frozenset[int],
) -> DelegateNode:
    """Returns a node with the work that it is credited with, what it reads and what it writes."""
    node = mapped.node
    behind = [operators[name] for name in mapped.operators]
    done = [each for each in behind if workers.get(each.name) == node.index]
    return DelegateNode(
        index=node.index,
        kind=node.kind,
        debug_handle=node.debug_handle,
        types=(*node.input_types, node.output_type),
        operators=mapped.operators,
        attribution=mapped.attribution,
        origins=tuple(each.origin for each in behind),
        macs=_sum_macs(done),
        input_bytes=done[0].input_bytes if done else None,
        output_bytes=done[-1].output_bytes if done else None,
        prediction=sme.predict(node),
        inputs=tuple(value for value in node.input_ids if value not in constants),
        output=node.output_id,
        permutation=node.parameters.get("perm"),
    )
