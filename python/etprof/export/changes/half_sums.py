"""Computes in float32 what ExecuTorch's own kernels sum in half precision.

A kernel outside the delegate that sums halves in a half loses most of them. The operators named
here get float32 inputs and give their results back in float16 or bfloat16; delegates are left as they are.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import torch

from etprof.export import operators, tensors, upstream

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SUMS_HALVES: Final[Mapping[str, str]] = {
    "native_layer_norm": "layer norm",
    "native_group_norm": "group norm",
    "_native_batch_norm_legit": "instance norm",
    "var": "variance",
    "var_mean": "variance",
    "cumsum": "cumulative sum",
    "addmm": "matrix product with bias",
    "convolution": "convolution",
    "avg_pool2d": "average pooling",
}
"""Operators by their name in the edge dialect, and what people call them.

Found by running each alone on random halves, which tests/integration/test_half_sums.py repeats.
PyTorch takes RMS norms apart in float32, and a batch norm sums nothing when it is not trained.
"""
REASON: Final = "etprof casts it to float32, because ExecuTorch would accumulate in half precision"


def widen(program: torch.export.ExportedProgram) -> tuple[dict[str, int], dict[str, str]]:
    """Gives the named operators of a lowered method float32 inputs, in place.

    A weight that nothing else reads becomes float32 itself. Returns how many operators of each
    kind compute in float32 now, and the reasons for the casts by their nodes' names.
    """
    graph = program.graph_module.graph
    counts, reasons = Counter[str](), dict[str, str]()
    wide = [node for node in graph.nodes if _sums_halves(node)]
    for node in wide:
        counts[SUMS_HALVES[_kind(node)]] += 1
        for cast in (*_widen_inputs(program, node, wide), *_narrow_results(graph, node)):
            reasons[cast.name] = REASON
    graph.lint()
    program.graph_module.recompile()
    return dict(counts), reasons


def _kind(node: torch.fx.Node) -> str:
    return operators.target_name(node).partition(".")[0]


def _sums_halves(node: torch.fx.Node) -> bool:
    is_named = node.op == "call_function" and _kind(node) in SUMS_HALVES
    return is_named and any(map(_is_half, node.all_input_nodes))


def _is_half(node: torch.fx.Node) -> bool:
    return _is_half_value(node.meta.get("val"))


def _widen_inputs(
    program: torch.export.ExportedProgram, node: torch.fx.Node, wide: Iterable[torch.fx.Node]
) -> Iterator[torch.fx.Node]:
    """Makes every half-precision input float32; yields the casts that this takes."""
    readers = set(wide)
    for source in node.all_input_nodes:
        if not _is_half(source):
            continue
        if set(source.users) <= readers and _widen_weight(program, source):
            continue
        with program.graph_module.graph.inserting_before(node):
            cast = _cast(program.graph_module.graph, source, torch.float32, node)
        node.replace_input_with(source, cast)
        yield cast


def _widen_weight(program: torch.export.ExportedProgram, source: torch.fx.Node) -> bool:
    """Stores a weight in float32; False for an input, or a buffer that the model changes."""
    signature = program.graph_signature
    name = signature.inputs_to_parameters.get(source.name)
    name = name or signature.inputs_to_buffers.get(source.name)
    changed = signature.buffers_to_mutate.values()
    if name is None or name in changed or name not in program.state_dict:
        return False
    weight = program.state_dict[name]
    wide = weight.detach().float()
    is_parameter = isinstance(weight, torch.nn.Parameter)
    program.state_dict[name] = (
        torch.nn.Parameter(wide, requires_grad=False) if is_parameter else wide
    )
    source.meta["val"] = source.meta["val"].float()
    return True


def _narrow_results(graph: torch.fx.Graph, node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """Casts the results that are read back to what they were; yields the casts.

    None where no result was half: of a half and a float32 input, PyTorch makes float32.
    """
    value = node.meta["val"]
    is_tuple = isinstance(value, tuple | list)
    results = list(node.users) if is_tuple else [node]
    halves = filter(_is_half_value, value if is_tuple else (value,))
    half = next((halve.dtype for halve in halves), None)
    if half is None:
        return
    node.meta["val"] = type(value)(map(_float, value)) if is_tuple else _float(value)
    for result in results:
        if not _is_half_value(result.meta.get("val")) and is_tuple:
            continue
        result.meta["val"] = _float(result.meta["val"])
        readers = list(result.users)
        with graph.inserting_after(result):
            cast = _cast(graph, result, half, node)
        for reader in readers:
            reader.replace_input_with(result, cast)
        yield cast


def _is_half_value(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in tensors.HALF_PRECISIONS


def _float(value: Any) -> Any:  # noqa: ANN401 - a tensor, or None for a result nobody asks for
    return value.float() if _is_half_value(value) else value


def _cast(
    graph: torch.fx.Graph, source: torch.fx.Node, dtype: torch.dtype, of: torch.fx.Node
) -> torch.fx.Node:
    """Adds a cast of `source` that stands where `of` does in the model's code."""
    value = source.meta["val"]
    arguments: Any = {"dtype": dtype, "dim_order": list(value.dim_order())}
    cast = graph.call_function(upstream.EDGE_CAST, (source,), arguments)
    metadata_names = (
        "nn_module_stack",
        "stack_trace",
        "source_fn_stack",
        "debug_handle",
        "from_node",
    )
    cast.meta = {name: of.meta[name] for name in metadata_names if name in of.meta}
    cast.meta["val"] = value.to(dtype)
    return cast
