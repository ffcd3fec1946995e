"""Tables of embeddings in 8, 4 or 2 bits: torchao quantises them, ExecuTorch's own kernels read them.

ExecuTorch makes one operator of the dequantisation and the look-up, `embedding_byte`,
`embedding_4bit` or `embedding_2bit` of its quantised kernels, which the runner that comes with etprof has.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import nn

from etprof.base.errors import ExportError
from etprof.export import operators, upstream
from etprof.export.changes.scopes import find_deciding

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from etprof.export.changes.scopes import Scope
    from etprof.model_registry.eager_model import ExportMethod

_KEPT: Final = ("nn_module_stack", "stack_trace", "source_fn_stack", "debug_handle", "from_node")
_LOOK_UP: Final = re.compile(r"embedding\b|embedding_(byte|[24]bit)\b")


def quantize_embeddings(
    methods: Iterable[ExportMethod], scheme: str, scopes: Sequence[Scope]
) -> tuple[str, ...]:
    """Quantises tables in place as `scheme` says (`int4_b32`) and returns their paths.

    One that a scope covers stays as it is. Raises ExportError where none is left, or where a row is
    no whole number of blocks: ExecuTorch has no kernel for the rest of one.
    """
    bits, _, block = scheme.removeprefix("int").partition("_b")
    granularity = upstream.PerGroup(int(block)) if block else upstream.PerAxis(0)
    # Two values of 4 bits or four of 2 share a byte.
    multiple = int(block or (4 if bits == "2" else 2))
    paths: dict[str, None] = {}
    for method in methods:
        tables = {
            path: module
            for path, module in method.module.named_modules()
            if isinstance(module, nn.Embedding) and find_deciding(scopes, path) is None
        }
        for path, table in tables.items():
            if table.embedding_dim % multiple:
                msg = f"--embeddings {scheme}: rows of {path} have {table.embedding_dim} values, not a "
                raise ExportError(
                    f"{msg}multiple of {multiple}; leave it out with --scope {path}=fp32"
                )
        paths |= dict.fromkeys(tables)
        unquantized = {
            path
            for path, table in tables.items()
            if not isinstance(table.weight, upstream.TorchAOTensor)
        }
        config = upstream.IntxWeightOnlyConfig(
            weight_dtype=getattr(torch, f"int{bits}"), granularity=granularity
        )
        upstream.quantize_(
            method.module,
            config,
            filter_fn=lambda _, path, unquantized=unquantized: path in unquantized,
        )
    if not paths:
        msg = f"--embeddings {scheme}: the model has no nn.Embedding that no --scope covers"
        raise ExportError(f"{msg}; leave it out")
    return tuple(paths)


def fuse_look_ups(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Makes one operator of each dequantisation and look-up, which keeps its place in the model."""
    before = {_describe(node): dict(node.meta) for node in _look_ups(program)}
    fusion = upstream.QuantFusionPass(
        _fix_node_meta_val=True, node_value_dict=upstream.constants_of(program)
    )
    fusion(program.graph_module)
    calls = Counter[str]()
    outputs = set(program.graph_signature.user_outputs)
    for node in _look_ups(program):
        # The fused one may stand at another place of the graph.
        meta = before.get(_describe(node), {})
        node.meta.update({name: meta[name] for name in _KEPT if name in meta})
        # As the next pass will call it, so that instructions find their operators.
        target: Any = node.target
        name = target.__name__.replace(".", "_").lower()
        if node.name not in outputs:
            node.name = f"{name}_{calls[name]}" if calls[name] else name
        calls[name] += 1
    # What packs the weights is computed now.
    packed: torch.export.ExportedProgram = upstream.constant_prop_pass(program)
    return packed


def _describe(node: torch.fx.Node) -> tuple[str, str]:
    """Returns the names of the table and of the indices that are looked up in it."""
    table, *indices = node.all_input_nodes
    while table.op == "call_function" and table.all_input_nodes:
        table = table.all_input_nodes[0]
    return table.name, indices[-1].name


def _look_ups(program: torch.export.ExportedProgram) -> list[torch.fx.Node]:
    return [
        node
        for node in program.graph.nodes
        if node.op == "call_function" and _LOOK_UP.search(operators.target_name(node))
    ]
