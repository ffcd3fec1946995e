"""The delegation report: what runs in the delegate, what does not, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etprof.backends.registry import backend_of
from etprof.export import operators as graph_operators
from etprof.run.delegation import Delegate, MethodReport, MethodSummary

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    import torch

    from etprof.backends.backend import Backend
    from etprof.export.operators import LoweredDelegate, LoweredMethod
    from etprof.run.delegation import DelegateNode, GraphOperator, MemoryPlan


def describe_method(method: LoweredMethod, plan: MemoryPlan | None) -> MethodReport:
    """Returns the report of one method."""
    by_name = {operator.name: operator for operator in method.operators}
    delegates = tuple(_describe_delegate(delegate, by_name) for delegate in method.delegates)
    return MethodReport(
        summary=summarize(method.operators, delegates),
        operators=tuple(method.operators),
        delegates=delegates,
        memory=plan,
    )


def describe_sources(methods: Mapping[str, MethodReport]) -> str | None:
    """Says what the predictions of these reports rest on; None when there are none."""
    names = [delegate.backend for method in methods.values() for delegate in method.delegates]
    sources = dict.fromkeys(backend_of(name).describe_source() for name in names)
    return "; ".join(filter(None, sources)) or None


def summarize(operators: Sequence[GraphOperator], delegates: Sequence[Delegate]) -> MethodSummary:
    """Returns the totals of one method."""
    real = [operator for operator in operators if not operator.is_quantization]
    inside = [operator for operator in real if operator.delegate is not None]
    total = _sum_macs(real)
    nodes = [node for delegate in delegates for node in delegate.nodes]
    predicted = _sum_macs(node for node in nodes if node.prediction and node.prediction.sme2)
    is_predicted = all(delegate.nodes for delegate in delegates) and all(
        node.prediction is not None and node.prediction.sme2 is not None
        for node in nodes
        if node.macs
    )
    return MethodSummary(
        delegate_calls=len(delegates),
        delegated_operators=len(inside),
        undelegated_operators=sum(
            operator.delegate is None and operator.instruction is not None for operator in operators
        ),
        delegated_operator_share=len(inside) / len(real) if real else None,
        macs=total,
        delegated_macs_share=_sum_macs(inside) / total if total else None,
        predicted_sme2_macs_share=predicted / total if total and is_predicted else None,
    )


def _sum_macs(counted: Iterable[GraphOperator | DelegateNode]) -> int:
    return sum(operator.macs or 0 for operator in counted)


def _describe_delegate(
    delegate: LoweredDelegate, operators: Mapping[str, GraphOperator]
) -> Delegate:
    operators_by_name = {
        **operators,
        **{operator.name: operator for operator in delegate.operators},
    }
    backend = backend_of(delegate.backend)
    nodes = backend.exporter().read_delegate(delegate.blob, delegate.nodes, _is_bookkeeping)
    workers = credit_work(nodes, backend)
    of_weights = {
        rewrite.name for rewrite in backend.exporter().rewrites() if rewrite.gives_sme2_weights
    }
    return Delegate(
        name=delegate.name,
        backend=delegate.backend,
        instruction=delegate.instruction,
        blob_bytes=len(delegate.blob),
        weight_bytes=backend.exporter().weight_bytes(delegate.blob),
        nodes=tuple(_describe_work(node, operators_by_name, workers, of_weights) for node in nodes),
    )


def _is_bookkeeping(node: torch.fx.Node) -> bool:
    return graph_operators.target_name(node) == "getitem" or graph_operators.is_quantize(node)


def credit_work(nodes: Sequence[DelegateNode], backend: Backend) -> dict[str, int]:
    """Returns, for each operator, the index of the node that does its work.

    Several nodes may stand for one operator, as in attention: then a product multiplies, and where
    nothing is multiplied the first one counts. Inserted nodes do none of it.
    """
    result: dict[str, int] = {}
    original_nodes = [node for node in nodes if node.attribution != "inserted"]
    for node in sorted(
        original_nodes, key=lambda n: backend.node_kind(n.kind) not in backend.products
    ):
        for name in node.operators:
            result.setdefault(name, node.index)
    return result


def _describe_work(
    node: DelegateNode,
    operators: Mapping[str, GraphOperator],
    workers: Mapping[str, int],
    of_weights: Collection[str],
) -> DelegateNode:
    """Returns the node with the work that it is credited with, and what would put that on SME2."""
    behind = [operators[name] for name in node.operators]
    lacks = node.prediction is not None and node.prediction.sme2 is False
    missed = dict.fromkeys(name for operator in behind for name in operator.rewrites if lacks)
    done = [operator for operator in behind if workers.get(operator.name) == node.index]
    return node.model_copy(
        update={
            "origins": tuple(dict.fromkeys(operator.origin for operator in behind)),
            "macs": _sum_macs(done),
            "sme2_rewrites": tuple(name for name in missed if name in of_weights),
            "input_bytes": done[0].input_bytes if done else None,
            "output_bytes": done[-1].output_bytes if done else None,
        }
    )
