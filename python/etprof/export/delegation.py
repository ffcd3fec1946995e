"""The delegation report: what runs in the delegate, what does not, and why."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from etprof.backends.xnnpack import graph as xnnpack_graph
from etprof.backends.xnnpack import sme
from etprof.export import module_map

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from etprof.export.memory_plan import MemoryPlan
    from etprof.export.operators import LoweredDelegate, LoweredMethod, Operator

SCHEMA_VERSION = 1
_XNNPACK = "XnnpackBackend"


def describe_method(method: LoweredMethod, plan: MemoryPlan | None) -> dict[str, Any]:
    """Returns the report of one method as JSON-ready data."""
    by_name = {each.name: each for each in method.operators}
    delegates = [_describe_delegate(each, by_name) for each in method.delegates]
    return {
        "summary": summarize(method, delegates),
        "operators": [asdict(each) for each in method.operators],
        "delegates": delegates,
        "memory": None if plan is None else asdict(plan),
    }


def summarize(method: LoweredMethod, delegates: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the totals of one method; shares are of multiply-accumulates."""
    real = [each for each in method.operators if not each.is_quantization]
    inside = [each for each in real if each.delegate is not None]
    total = _sum_macs(real)
    predicted = sum(
        node["macs"] for each in delegates for node in each["nodes"] if node["prediction"]["sme2"]
    )
    return {
        "delegate_calls": len(method.delegates),
        "delegated_operators": len(inside),
        "undelegated_operators": sum(
            each.delegate is None and each.instruction is not None for each in method.operators
        ),
        "delegated_operator_share": len(inside) / len(real) if real else None,
        "macs": total,
        "delegated_macs_share": _sum_macs(inside) / total if total else None,
        "predicted_sme2_macs_share": predicted / total if total else None,
    }


def _sum_macs(operators: Iterable[Operator]) -> int:
    return sum(each.macs or 0 for each in operators)


def _describe_delegate(delegate: LoweredDelegate, operators: dict[str, Operator]) -> dict[str, Any]:
    own = operators | {each.name: each for each in delegate.operators}
    nodes: list[module_map.MappedNode] = []
    constants: frozenset[int] = frozenset()
    if delegate.backend == _XNNPACK:
        graph = xnnpack_graph.read_xnnpack_graph(delegate.blob)
        nodes, constants = module_map.map_nodes(graph, delegate.nodes), graph.constant_ids
    workers = credit_work(nodes)
    return {
        "name": delegate.name,
        "backend": delegate.backend,
        "instruction": delegate.instruction,
        "blob_bytes": len(delegate.blob),
        "nodes": [
            {**_describe_node(each, own, workers), **_describe_flow(each.node, constants)}
            for each in nodes
        ],
    }


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
    mapped: module_map.MappedNode, operators: dict[str, Operator], workers: dict[str, int]
) -> dict[str, Any]:
    """Returns a node with the work that it is credited with."""
    node = mapped.node
    behind = [operators[name] for name in mapped.operators]
    done = [each for each in behind if workers.get(each.name) == node.index]
    return {
        "index": node.index,
        "kind": node.kind,
        "debug_handle": node.debug_handle,
        "types": [*node.input_types, node.output_type],
        "operators": list(mapped.operators),
        "attribution": mapped.attribution,
        "origins": [asdict(each.origin) for each in behind],
        "macs": _sum_macs(done),
        "input_bytes": done[0].input_bytes if done else None,
        "output_bytes": done[-1].output_bytes if done else None,
        "prediction": asdict(sme.predict(node)),
    }


def _describe_flow(node: xnnpack_graph.XnnpackNode, constants: frozenset[int]) -> dict[str, Any]:
    """Returns what it reads at run time and writes, by number, and how it transposes."""
    return {
        "inputs": [value for value in node.input_ids if value not in constants],
        "output": node.output_id,
        "permutation": node.parameters.get("perm"),
    }
