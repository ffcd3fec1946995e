"""Lists the operators of a lowered method: inside its delegates and outside."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from etprof.export import macs, tensor_shapes
from etprof.export.node_origin import Origin, find_origin

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import torch

NO_RULE = "the partitioner has no rule for this operator"
NO_REASON = "the partitioner gives no reason"
NOT_ASKED = "no partitioner: the backend is portable"


@dataclass
class Operator:
    """One operator of the lowered graph."""

    name: str
    """Name of the graph's node; unique in a method."""
    operator: str
    """ATen's name without namespace, such as `convolution.default`."""
    debug_handle: int | None
    delegate: int | None
    """Number of the delegate call that contains it, in execution order."""
    origin: Origin
    shape: list[int] | None
    macs: int | None
    input_bytes: int
    output_bytes: int
    is_quantization: bool
    """It only turns floats into integers or back; a delegate folds it into its neighbours."""
    inputs: list[str]
    """The graph's nodes that it reads."""
    permutation: list[int] | None
    """How it transposes: dimension i of the result is dimension permutation[i] of its input."""
    reason: str | None = None
    """Why it is not delegated."""
    instruction: int | None = None
    """Its instruction in the program; None inside delegates, and for views that cost nothing."""


@dataclass
class LoweredDelegate:
    """One delegate call and what was put into it."""

    name: str
    backend: str
    blob: bytes
    nodes: list[torch.fx.Node]
    """The graph nodes inside, in execution order."""
    operators: list[Operator] = field(default_factory=list)
    instruction: int | None = None


@dataclass
class LoweredMethod:
    """All operators of one method."""

    operators: list[Operator]
    """Inside and outside of delegates, in execution order."""
    delegates: list[LoweredDelegate]


@dataclass(frozen=True)
class PartitionRules:
    """What the partitioner knew and said."""

    reasons: Mapping[str, str]
    """Its own reasons, by node name."""
    known_targets: frozenset[str]
    """The operators it has rules for."""

    def explain(self, node: torch.fx.Node) -> str:
        """Returns why `node` was left out."""
        if not self.known_targets:
            return NOT_ASKED
        if node.name in self.reasons:
            return self.reasons[node.name]
        known = tensor_shapes.target_name(node) in self.known_targets
        return NO_REASON if known else NO_RULE


def list_operators(graph_module: torch.fx.GraphModule, rules: PartitionRules) -> LoweredMethod:
    """Walks a lowered graph; what picks a delegate's result (`getitem`) is not an operator."""
    method = LoweredMethod([], [])
    for node in call_nodes(graph_module.graph):
        if tensor_shapes.target_name(node) == "executorch_call_delegate":
            delegate = _read_delegate(graph_module, node, len(method.delegates))
            method.delegates.append(delegate)
            method.operators.extend(delegate.operators)
        else:
            method.operators.append(describe_node(node, None, rules.explain(node)))
    return method


def add_instructions(method: LoweredMethod, graph_module: torch.fx.GraphModule) -> None:
    """Adds the instruction numbers from the emitted graph, whose debug handles they are."""
    outside = {each.name: each for each in method.operators if each.delegate is None}
    delegates = {each.name: each for each in method.delegates}
    for node in call_nodes(graph_module.graph):
        instruction = node.meta.get("debug_handle")
        if tensor_shapes.target_name(node) == "executorch_call_delegate":
            holder: Any = node.args[0]
            delegates[holder.name].instruction = instruction
        elif node.name in outside:
            outside[node.name].instruction = instruction


def call_nodes(graph: torch.fx.Graph) -> Iterator[torch.fx.Node]:
    """Yields the nodes that compute something, or call a delegate."""
    for node in graph.nodes:
        if node.op == "call_function" and tensor_shapes.target_name(node) not in {
            "getitem",
            "alloc",
        }:
            yield node


def _read_delegate(
    graph_module: torch.fx.GraphModule, node: torch.fx.Node, number: int
) -> LoweredDelegate:
    holder: Any = node.args[0]
    lowered: Any = getattr(graph_module, holder.target)
    nodes = list(call_nodes(lowered.original_module.graph_module.graph))
    return LoweredDelegate(
        name=holder.name,
        backend=lowered.backend_id,
        blob=bytes(lowered.processed_bytes),
        nodes=nodes,
        operators=[describe_node(inner, number, None) for inner in nodes],
    )


def describe_node(node: torch.fx.Node, delegate: int | None, reason: str | None) -> Operator:
    """Returns what the graph says of one operator."""
    return Operator(
        name=node.name,
        operator=tensor_shapes.target_name(node),
        debug_handle=node.meta.get("debug_handle"),
        delegate=delegate,
        origin=find_origin(node),
        shape=tensor_shapes.shape_of(node),
        macs=macs.count_macs(node),
        input_bytes=tensor_shapes.input_bytes(node),
        output_bytes=tensor_shapes.output_bytes(node),
        is_quantization=tensor_shapes.is_quantize(node),
        inputs=[source.name for source in node.all_input_nodes],
        permutation=tensor_shapes.permutation_of(node),
        reason=reason,
    )
