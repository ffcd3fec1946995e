"""Programs whose intermediate values are outputs too, inside their delegates as well.

ExecuTorch's taps mark a value of the traced graph as an output and stay opaque to partitioners.
A tap between operators that the delegate makes one of would keep it from doing so; so the program
without taps is lowered first, and only the last of such operators is tapped.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import torch

from etprof.backends.registry import backend_of
from etprof.export import lowering, operators, upstream

if TYPE_CHECKING:
    from etprof.export.lowering import LoweredProgram
    from etprof.export.request import ExportOptions

_LONGEST_HISTORY: Final = 64
"""Graphs that a node went through; more is a circle."""
_NO_WORK: Final = frozenset(
    {"clone", "detach", "alias", "lift_fresh_copy", "access_subclass_inner_tensor"}
)


_HALF_STEPS: Final = {"sigmoid": 3, "softmax": 3, "silu": 4}
"""Roundings of what kernels compute in several steps: an exponential, a sum and a quotient (and a product).
Every other function is one step, or is computed in float32."""


@dataclass(frozen=True)
class Tap:
    """A value to look at."""

    node: torch.fx.Node
    """The operator in the traced graph."""
    tapped_node: torch.fx.Node
    """Whose value is looked at: the operator's, or what is left of it when it was quantised."""
    operator: str
    """What people call it; those that became one with it are named too."""
    summed: float
    """Products in each of its sums; 1 where it multiplies nothing."""
    fused: tuple[torch.fx.Node, ...] = ()
    """The operators that became one, in order."""

    @property
    def steps(self) -> int:
        """Roundings of one value, in half precision."""
        return max(_HALF_STEPS.get(kind, 1) for kind in self.operator.split(" + "))

    @property
    def bytes(self) -> int:
        """Size of the value."""
        value = self.tapped_node.meta["val"]
        return operators.element_count(self.tapped_node) * int(value.element_size())


def trace_names(nodes: Iterable[torch.fx.Node], traced: torch.fx.Graph) -> dict[str, str]:
    """Returns, by the names of lowered nodes, those of the nodes of `traced` they come from."""
    sources = {node.name: _find_source(node, id(traced)) for node in nodes}
    return {name: source for name, source in sources.items() if source is not None}


def _find_source(node: torch.fx.Node, graph_id: int) -> str | None:
    sources: Sequence[Any] = node.meta.get("from_node") or ()
    for _ in range(_LONGEST_HISTORY):
        if not sources:
            return None
        if sources[-1].graph_id == graph_id:
            return str(sources[-1].name)
        sources = sources[-1].from_node
    return None


def find_delegates(lowered: LoweredProgram, method: str, traced: torch.fx.Graph) -> dict[str, int]:
    """Returns the number of the delegate call that computes each node of the traced graph."""
    return {
        name: number
        for number, delegate in enumerate(lowered.methods[method].delegates)
        for name in trace_names(delegate.nodes, traced).values()
    }


def find_fusions(
    lowered: LoweredProgram, method: str, traced: torch.fx.Graph
) -> set[tuple[str, ...]]:
    """Returns the operators of the traced graph that a delegate computes as one, by their names."""
    order = {node.name: index for index, node in enumerate(traced.nodes)}
    working = {node.name for node in traced.nodes if _computes(node)}
    fusions = set()
    for delegate in lowered.methods[method].delegates:
        names = trace_names(delegate.nodes, traced)
        exporter = backend_of(delegate.backend).exporter()
        for node in exporter.read_delegate(delegate.blob, delegate.nodes, operators.is_quantize):
            behind = {names[operator] for operator in node.operators if operator in names} & working
            if len(behind) > 1 and node.attribution != "inserted":
                fusions.add(tuple(sorted(behind, key=order.__getitem__)))
    return fusions


def _computes(node: torch.fx.Node) -> bool:
    """Whether a node gives new floating-point values, not a view, a part or a quantisation."""
    value = node.meta.get("val")
    if node.op != "call_function" or not isinstance(value, torch.Tensor):
        return False
    is_moved = getattr(node.target, "is_view", False) or _is_of_quantization(node)
    kind = operators.target_name(node).partition(".")[0]
    shape = operators.shape_of(node)
    has_values = shape is not None and math.prod(shape) > 0 and value.is_floating_point()
    return has_values and not is_moved and kind not in _NO_WORK


def _is_of_quantization(node: torch.fx.Node) -> bool:
    """Whether a node makes integers, or their scale and zero point, which a delegate keeps to itself."""
    sources = node.all_input_nodes[:1] if operators.target_name(node) == "getitem" else (node,)
    named = any("choose_qparams" in operators.target_name(source) for source in sources)
    return named or operators.is_quantize(node)


def choose_taps(traced: torch.fx.Graph, fusions: Iterable[tuple[str, ...]]) -> list[Tap]:
    """Returns a tap for every operator, in order; of fused ones, for the last of them alone."""
    inside = {name for group in fusions for name in group[:-1]}
    ends: dict[str, tuple[str, ...]] = {group[-1]: group for group in fusions}
    nodes = {node.name: node for node in traced.nodes}
    kinds = {name: operators.target_name(node).partition(".")[0] for name, node in nodes.items()}
    taps = []
    for node in traced.nodes:
        if _computes(node) and node.name not in inside:
            group = ends.get(node.name, (node.name,))
            called = " + ".join(kinds[name] for name in group)
            summed = max(count_summed(nodes[name]) for name in group)
            fused = tuple(nodes[name] for name in group)
            taps.append(Tap(node, _find_tapped_node(node), called, summed, fused))
    return taps


@dataclass(frozen=True)
class SumStart:
    """What a product's sums begin with, and where they are complete."""

    end: torch.fx.Node
    """Of what was fused: the product, or the batch norm that is folded into its weights and bias."""
    value: torch.Tensor
    """The bias, of the shape that `end` adds it in."""

    def power_between(self, value: torch.Tensor) -> float:
        """Returns the mean square of what is summed up on the way to `value`, times three.

        The sums so far go from the bias b to the result z in equal steps, so it is (b² + b·z + z²) ÷ 3;
        of a sum that begins with nothing, z² ÷ 3.
        """
        start, end = self.value.double(), value.double()
        return float((start.square() + start * end + end.square()).mean())


def find_sum_start(program: torch.export.ExportedProgram, tap: Tap) -> SumStart | None:
    """Returns it for a convolution or a linear layer with constants; None for other operators.

    A bias that is large beside the result, as after a layer whose values are all positive, is where
    half precision loses most: the result is what is left of two large numbers.
    """
    product, *followers = tap.fused
    kind = operators.target_name(product).partition(".")[0]
    is_image = kind.startswith("conv")
    if not (is_image or kind == "linear"):
        return None
    shape = [1, -1] + [1] * (product.meta["val"].dim() - 2) if is_image else [-1]
    bias_node = product.args[2] if len(product.args) > 2 else None
    bias = _constant(program, bias_node) if isinstance(bias_node, torch.fx.Node) else torch.zeros(1)
    if bias is None:
        return None
    start = bias.float().reshape(shape)
    if followers and operators.target_name(followers[0]).startswith("batch_norm"):
        constants = [_constant(program, parameter) for parameter in followers[0].args[1:5]]
        weight, shift, mean, variance = (
            tensor if tensor is None else tensor.float() for tensor in constants
        )
        if mean is None or variance is None:
            return None
        eps: Any = followers[0].args[7]
        channels = start.expand(1, mean.numel(), *shape[2:])
        folded = torch.nn.functional.batch_norm(channels, mean, variance, weight, shift, eps=eps)
        return SumStart(followers[0], folded)
    return SumStart(product, start)


def _constant(program: torch.export.ExportedProgram, node: object) -> torch.Tensor | None:
    """Returns the value of a weight or buffer in the traced graph; None for anything else."""
    signature = program.graph_signature
    name = getattr(node, "name", "")
    name = signature.inputs_to_parameters.get(name) or signature.inputs_to_buffers.get(name)
    value = program.state_dict.get(name or "")
    return value if isinstance(value, torch.Tensor) else None


def count_summed(node: torch.fx.Node) -> float:
    """Returns how many products an operator sums for each element of its result."""
    name = operators.target_name(node)
    # The traced graph has these under names that lowering replaces.
    if name.startswith("conv") and "transpose" not in name:
        return float(math.prod((operators.shape_of(node.all_input_nodes[1]) or [1])[1:]))
    return (operators.count_macs(node) or 1) / max(operators.element_count(node), 1)


def _find_tapped_node(node: torch.fx.Node) -> torch.fx.Node:
    """Looks behind a quantisation that is the operator's only reader: its integers are the result."""
    tapped_node = node
    for kind in (operators.QUANTIZE, operators.DEQUANTIZE):
        readers = list(tapped_node.users)
        if not readers or not all(operators.is_quantize(reader) for reader in readers):
            return node
        if kind == operators.QUANTIZE and len(readers) > 1:
            return node
        tapped_node = readers[0]
    return tapped_node if operators.DEQUANTIZE in operators.target_name(tapped_node) else node


def split_passes(taps: Sequence[Tap], most_bytes: int, most_taps: int | None) -> list[list[Tap]]:
    """Spreads taps over programs of which none has more outputs, or more bytes of them."""
    passes: list[list[Tap]] = []
    pass_bytes = 0
    for tap in taps:
        is_full = not passes or pass_bytes + tap.bytes > most_bytes or len(passes[-1]) == most_taps
        if is_full:
            passes.append([])
            pass_bytes = 0
        passes[-1].append(tap)
        pass_bytes += tap.bytes
    return passes


def add_taps(
    traced: torch.export.ExportedProgram, taps: Sequence[Tap]
) -> torch.export.ExportedProgram:
    """Returns a copy, of the same weights, that gives the tapped values after its own outputs."""
    shared_tensors = (traced.state_dict, *traced.constants.values())
    shared: dict[int, Any] = {id(tensor): tensor for tensor in shared_tensors}
    tapped = copy.deepcopy(traced, shared)
    nodes = {node.name: node for node in tapped.graph.nodes}
    tapped_nodes = set()
    for tap in taps:
        tapped_node = nodes[tap.tapped_node.name]
        if tap.tapped_node is not tap.node:
            # A delegate leaves out a dequantisation that another operator reads, and its value too.
            with tapped.graph.inserting_after(tapped_node):
                tapped_node = tapped.graph.node_copy(tapped_node)
        tapped_nodes.add(tapped_node)
    rule = (lambda node: node in tapped_nodes, upstream.FULL_TENSOR)
    upstream.tap_intermediate_outputs_(tapped, rule)
    return tapped


def lower_tapped(
    name: str, tapped: torch.export.ExportedProgram, backend: str, options: ExportOptions
) -> LoweredProgram:
    """Lowers a tapped method as it is lowered without taps, and makes its taps plain outputs."""
    lowered = lowering.lower({name: tapped}, backend, options)
    upstream.strip_taps_(lowered.edge)
    return lowered


def name_fusions(groups: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """Writes groups of nodes as text, in order."""
    yield from sorted(" + ".join(group) for group in groups)
