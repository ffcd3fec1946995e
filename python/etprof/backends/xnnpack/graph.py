"""Reads the graphs that XNNPACK will run back out of a finished program, and where they are from.

A `.pte` holds one blob per delegate call: a header (`XH00` at byte 4), a FlatBuffer with the
graph, and constants. The FlatBuffer is read with the schema and the `flatc` that come with
ExecuTorch. A node carries the debug handle of one operator. XNNPACK's passes merge other operators
into it (an activation, a batch norm, an addition of a bias) and insert nodes of their own (layout
changes and conversions), which carry no handle. So a node comes from
- `exact`: the operators with its handle,
- and the operators without a node of their own that lead into or out of it (`fused`),
- or, for an inserted node, those of the node it prepares or finishes (`inserted`).
"""

from __future__ import annotations

import importlib.resources
import json
import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

from etprof.base.atomic import scratch_folder
from etprof.base.errors import ExportError
from etprof.base.upstream_noise import quiet_upstream

with quiet_upstream():
    from executorch.exir._serialize._flatbuffer import _run_flatc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import torch

_EXTERNAL_OUTPUT = 2
_BATCH_NORM = "native_batch_norm"
_PRODUCTS: Final = {
    "BatchMatrixMultiply": ("bmm",),
    "FullyConnected": ("linear", "addmm", "mm"),
}
"""Nodes that multiply, and the ATen operators that become them, by the start of their names."""
_STEPS: Final = {
    "Add": ("add",), "Subtract": ("sub",), "Multiply": ("mul",), "Divide": ("div",),
    "Sigmoid": ("sigmoid",), "Tanh": ("tanh",), "Clamp": ("relu", "clamp", "hardtanh"),
    "StaticSlice": ("slice_copy",), "StaticReshape": ("view_copy",), "Concatenate": ("cat",),
    **_PRODUCTS,
}  # fmt: skip
"""The same of what a recurrent layer is decomposed into."""
_MOST_NAMED: Final = 32
"""Operators that each node of one handle names. Of a layer of many steps every node would name those
of every step: a quarter of a gigabyte for two layers of twelve steps in both directions."""
_SCHEMA_PACKAGE = "executorch.backends.xnnpack.serialization"
_INPUT_FIELD = re.compile(r"input\d*_id|query_id|key_id|value_id")
_BARE_NON_FINITE = re.compile(r"(?<=[:\[,\s])(-?)(inf|nan)(?=[,\s\]}])")
_NON_FINITE = {"inf": "Infinity", "nan": "NaN"}


@dataclass(frozen=True)
class XnnpackNode:
    """One node of a serialized XNNPACK graph."""

    index: int
    kind: str
    """The node's type without its prefix: `Conv2d`, `FullyConnected`, `StaticTranspose` …"""
    debug_handle: int
    input_ids: tuple[int, ...]
    """Values it reads: inputs, then weights."""
    output_id: int
    """The value it writes; the first one of several."""
    input_types: tuple[str, ...]
    """Element types as XNNPACK names them, such as `fp16`, `qint8`, `qcint4`; inputs, weights.

    Of a product whose dequantised second operand XNNPACK reads as integers: `qcint8`.
    """
    output_type: str
    parameters: dict[str, Any]
    """The node's other fields: ids, kernel size, stride, groups …"""


@dataclass(frozen=True)
class XnnpackGraph:
    """The graph of one delegate call, in the order in which its nodes are executed."""

    nodes: tuple[XnnpackNode, ...]
    constant_ids: frozenset[int]
    """Values stored in the program, and single numbers: no layout concerns them at run time."""
    output_ids: frozenset[int] = frozenset()
    """Values that the caller gets."""
    weight_bytes: int = 0
    """Of the constants that it reads."""

    def count_readers(self, node: XnnpackNode) -> int:
        """Returns how many nodes read what `node` writes, one more where the caller does."""
        readers = sum(node.output_id in reader.input_ids for reader in self.nodes)
        return readers + (node.output_id in self.output_ids)


@lru_cache(maxsize=1)
def read_xnnpack_graph(blob: bytes) -> XnnpackGraph:
    """Returns the graph inside a delegate's blob; raises ExportError when it is not XNNPACK's."""
    if blob[4:8] != b"XH00":
        msg = "a delegate of the program is not XNNPACK's, or of another ExecuTorch version"
        raise ExportError(msg)
    offset = int.from_bytes(blob[10:14], "little")
    size = int.from_bytes(blob[14:18], "little")
    document = _decode(blob[offset : offset + size])
    types = dict(_value_types(document["xvalues"]))
    nodes = [_read_node(index, node, types) for index, node in enumerate(document["xnodes"])]
    output_ids = frozenset(_output_ids(document["xvalues"]))
    nodes = _with_read_integers(nodes, set(_centred_ids(document["xvalues"])), output_ids)
    constants = frozenset(_constant_ids(document["xvalues"]))
    return XnnpackGraph(
        tuple(nodes), constants, output_ids, _sum_weights(document.get("constant_data", []))
    )


def _with_read_integers(
    nodes: list[XnnpackNode], centred: set[int], output_ids: frozenset[int]
) -> list[XnnpackNode]:
    """Says of products which dequantised operands XNNPACK will read as the integers themselves.

    It does as soon as it loads the graph, where the zero point is 0 and nothing else reads the
    floats (src/subgraph.c, rewrite_dequant_bmm_at, google/XNNPACK).
    """
    readers = Counter(value for node in nodes for value in node.input_ids)
    integers = {
        node.output_id
        for node in nodes
        if node.kind == "Convert"
        and (*node.input_types, node.output_type) == ("qint8", "fp32")
        and node.input_ids[0] in centred
        and readers[node.output_id] == 1
        and node.output_id not in output_ids
    }
    return [
        replace(node, input_types=(node.input_types[0], "qcint8"))
        if node.kind == "BatchMatrixMultiply"
        and node.input_types == ("fp32", "fp32")
        and node.input_ids[1] in integers
        else node
        for node in nodes
    ]


def _centred_ids(values: list[dict[str, Any]]) -> Iterator[int]:
    """Yields the ids of the tensors with one scale and a zero point of 0."""
    for value in values:
        union = value["xvalue_union"]
        if (
            union.get("quant_params_type") == "PerTensorQuant"
            and not union["quant_params"]["zero_point"]
        ):
            yield union["tensor_value"]["id_out"]


def _sum_weights(constants: list[dict[str, Any]]) -> int:
    """Adds up constants; several entries may stand for one blob, which has a name."""
    named = {
        constant.get("named_key") or index: constant["size"]
        for index, constant in enumerate(constants)
    }
    return sum(named.values())


def _decode(flatbuffer: bytes) -> Any:  # noqa: ANN401 - the schema's own structure
    schema = importlib.resources.files(_SCHEMA_PACKAGE).joinpath("schema.fbs").read_bytes()
    with scratch_folder("graph") as folder:
        (folder / "schema.fbs").write_bytes(schema)
        (folder / "graph.bin").write_bytes(flatbuffer)
        _run_flatc(
            [
                *("--json", "--strict-json", "--raw-binary", "--defaults-json"),
                *("-o", str(folder), str(folder / "schema.fbs"), "--", str(folder / "graph.bin")),
            ]
        )
        text = (folder / "graph.json").read_text(encoding="utf-8")
    # flatc writes infinities bare, which is not JSON; Python's reader knows them by another name.
    return json.loads(_BARE_NON_FINITE.sub(lambda match: match[1] + _NON_FINITE[match[2]], text))


def _value_types(values: list[dict[str, Any]]) -> Iterator[tuple[int, str]]:
    """Yields the id and the element type of every tensor."""
    for value in values:
        union = value["xvalue_union"]
        tensor = union.get("tensor_value", union)
        yield tensor["id_out"], tensor["datatype"].removeprefix("xnn_datatype_")


def _constant_ids(values: list[dict[str, Any]]) -> Iterator[int]:
    """Yields the ids of the tensors that have their content in the program, or one element."""
    for value in values:
        union = value["xvalue_union"]
        tensor = union.get("tensor_value", union)
        if tensor["constant_buffer_idx"] or math.prod(tensor["dims"]) == 1:
            yield tensor["id_out"]


def _output_ids(values: list[dict[str, Any]]) -> Iterator[int]:
    """Yields the ids of the values with XNN_VALUE_FLAG_EXTERNAL_OUTPUT (XNNPACK's xnnpack.h)."""
    for value in values:
        union = value["xvalue_union"]
        tensor = union.get("tensor_value", union)
        if tensor["flags"] & _EXTERNAL_OUTPUT:
            yield tensor["id_out"]


def _read_node(index: int, node: dict[str, Any], types: dict[int, str]) -> XnnpackNode:
    kind = node["xnode_union_type"].removeprefix("XNN")
    fields = node["xnode_union"]
    inputs = [value for value in _input_ids(kind, fields) if value in types]
    output = fields["output_id"] if "output_id" in fields else fields["output_value_id"]
    return XnnpackNode(
        index=index,
        kind=kind,
        debug_handle=node["debug_handle"],
        input_ids=tuple(inputs),
        output_id=output,
        input_types=tuple(types[value] for value in inputs),
        output_type=types[output],
        parameters=fields,
    )


def _input_ids(kind: str, fields: dict[str, Any]) -> list[int]:
    """Returns the ids of inputs and weights; a concatenation has fields for more than it joins."""
    ids = [
        value
        for name, value in sorted(fields.items())
        if name == "filter_id" or _INPUT_FIELD.fullmatch(name)
    ]
    if kind.startswith("Concatenate"):
        return ids[: int(kind.removeprefix("Concatenate"))]
    # Sorting by name puts `filter_id` before `input1_id`; the input comes first for a reader.
    return ids[::-1] if "filter_id" in fields else ids


NO_HANDLE = 65535
"""What ExecuTorch writes for a node that a pass has inserted."""
_LARGEST_SEARCH = 512
"""Nodes around an operator that are asked for a handle; its own is a few steps away."""


@dataclass(frozen=True)
class MappedNode:
    """A node of an XNNPACK graph and the graph operators that it computes."""

    node: XnnpackNode
    operators: tuple[str, ...]
    """Names of the operators; the one that gave the node its handle comes first."""
    attribution: Literal["exact", "fused", "inserted", "unknown"]


def map_nodes(
    xnnpack: XnnpackGraph,
    nodes: Sequence[torch.fx.Node],
    is_bookkeeping: Callable[[torch.fx.Node], bool],
) -> list[MappedNode]:
    """Returns every node of `xnnpack` with the operators among the delegate's `nodes` behind it."""
    calls = [node for node in nodes if not is_bookkeeping(node)]
    handles = {node.debug_handle for node in xnnpack.nodes} - {NO_HANDLE}
    names_by_handle: dict[int, list[str]] = {}
    for call in calls:
        handle = call.meta.get("debug_handle")
        target = handle if handle in handles else _nearest_handle(call, handles, is_bookkeeping)
        if target is not None:
            names_by_handle.setdefault(target, []).append(call.name)
    shared = {node.debug_handle for node in xnnpack.nodes if node.kind != "Convert"}
    mapped = [_map_by_handle(node, names_by_handle, calls, shared) for node in xnnpack.nodes]
    mapped = _map_products(_map_batch_norms(mapped, names_by_handle), calls)
    mapped = _map_steps(mapped, calls)
    return [
        _map_inserted(mapping, mapped) if mapping.attribution == "unknown" else mapping
        for mapping in mapped
    ]


def _nearest_handle(
    call: torch.fx.Node, handles: set[int], is_bookkeeping: Callable[[torch.fx.Node], bool]
) -> int | None:
    """Returns the handle of the node that `call` was merged into: upstream first, then down."""
    for forward in (False, True):
        for node in _breadth_first(call, forward=forward):
            handle = node.meta.get("debug_handle")
            if handle in handles and not is_bookkeeping(node):
                return int(handle)
    return None


def _breadth_first(call: torch.fx.Node, *, forward: bool) -> Iterable[torch.fx.Node]:
    seen, queue = {call}, [call]
    while queue and len(seen) < _LARGEST_SEARCH:
        node = queue.pop(0)
        for neighbour in list(node.users) if forward else node.all_input_nodes:
            if neighbour not in seen and neighbour.op == "call_function":
                seen.add(neighbour)
                queue.append(neighbour)
                yield neighbour


def _map_by_handle(
    node: XnnpackNode,
    names_by_handle: dict[int, list[str]],
    calls: list[torch.fx.Node],
    shared: set[int],
) -> MappedNode:
    names = names_by_handle.get(node.debug_handle, [])
    # A conversion may share the handle of the operator before it, which it does not compute.
    if not names or (node.kind == "Convert" and node.debug_handle in shared):
        return MappedNode(node, (), "unknown")
    exact = {call.name for call in calls if call.meta.get("debug_handle") == node.debug_handle}
    ordered = sorted(names, key=lambda name: name not in exact)
    return MappedNode(node, tuple(ordered), "exact" if set(names) <= exact else "fused")


def _map_batch_norms(
    mapped: list[MappedNode], names_by_handle: dict[int, list[str]]
) -> list[MappedNode]:
    """Gives convolutions that no operator claims the batch norms that they are.

    ExecuTorch's DecomposeBatchNorm makes a depthwise convolution of 1x1 without a handle of each
    batch norm that it cannot fold (backends/xnnpack/_passes/decompose_batch_norm.py). It was counted
    to what stands before it, else after it: the last ones there are those that were not folded.
    """
    lone = [
        mapping
        for mapping in mapped
        if mapping.attribution == "unknown" and "Conv2d" in mapping.node.kind
    ]
    claimed: dict[int, str] = {}
    for lone_node in reversed(lone):
        near = (*_writers(lone_node, mapped), *_readers(lone_node, mapped))
        for handle in dict.fromkeys(mapping.node.debug_handle for mapping in near):
            norms = [name for name in names_by_handle.get(handle, ()) if _BATCH_NORM in name]
            unclaimed = [name for name in norms if name not in claimed.values()]
            if unclaimed:
                claimed[lone_node.node.index] = unclaimed[-1]
                break
    return [_without_norms(mapping, claimed) for mapping in mapped]


def _without_norms(mapping: MappedNode, claimed: dict[int, str]) -> MappedNode:
    norm = claimed.get(mapping.node.index)
    if norm is not None:
        return MappedNode(mapping.node, (norm,), "exact")
    remaining = tuple(name for name in mapping.operators if name not in claimed.values())
    return mapping if remaining == mapping.operators else replace(mapping, operators=remaining)


def _map_products(mapped: list[MappedNode], calls: Sequence[torch.fx.Node]) -> list[MappedNode]:
    """Gives each of several products of one handle its own operator, in their common order.

    All that attention or a norm was decomposed into has one handle, and so both of its products.
    """
    operators_of = dict[int, tuple[str, ...]]()
    groups = {
        (mapping.operators, mapping.node.kind)
        for mapping in mapped
        if mapping.node.kind in _PRODUCTS
    }
    for operators, kind in groups:
        nodes = [
            mapping
            for mapping in mapped
            if (mapping.operators, mapping.node.kind) == (operators, kind)
        ]
        product_names = [
            call.name
            for call in calls
            if call.name in operators and aten_name(call) in _PRODUCTS[kind]
        ]
        if len(nodes) == len(product_names):
            for product, name in zip(nodes, product_names, strict=True):
                operators_of[product.node.index] = tuple(
                    operator
                    for operator in operators
                    if operator == name or operator not in product_names
                )
    return [
        replace(mapping, operators=operators_of.get(mapping.node.index, mapping.operators))
        for mapping in mapped
    ]


def _map_steps(mapped: list[MappedNode], calls: Sequence[torch.fx.Node]) -> list[MappedNode]:
    """Gives each node of a handle with many operators its own one, of a kind in their common order.

    Where there are other nodes of a kind than operators, each names the first ones of the kind.
    """
    names = {call.name: aten_name(call) for call in calls}
    groups = dict[tuple[tuple[str, ...], str], list[MappedNode]]()
    for mapping in mapped:
        if len(mapping.operators) > _MOST_NAMED:
            groups.setdefault((mapping.operators, mapping.node.kind), []).append(mapping)
    operators_of = dict[int, tuple[str, ...]]()
    for (operators, kind), nodes in groups.items():
        # The number of inputs is a part of the name: Concatenate2.
        aten_names = _STEPS.get(kind.rstrip("0123456789"), ())
        of_kind = [name for name in operators if names.get(name) in aten_names]
        is_paired = len(of_kind) == len(nodes)
        for number, mapping in enumerate(nodes):
            operators_of[mapping.node.index] = (
                (of_kind[number],) if is_paired else tuple((of_kind or operators)[:_MOST_NAMED])
            )
    return [
        replace(mapping, operators=operators_of.get(mapping.node.index, mapping.operators))
        for mapping in mapped
    ]


def traced_name(call: torch.fx.Node) -> str:
    """Returns the name of the node of the traced graph that `call` comes from, or its own."""
    name, sources = call.name, call.meta.get("from_node")
    while sources:
        name, sources = sources[0].name, sources[0].from_node
    return str(name)


def aten_name(call: torch.fx.Node) -> str:
    """Returns the operator's name alone, such as `bmm`."""
    name = getattr(call.target, "__name__", "")
    return name.removeprefix("aten.").partition(".")[0]


def _map_inserted(inserted: MappedNode, mapped: list[MappedNode]) -> MappedNode:
    """Gives an inserted node the operators of its first known consumer, else of its producer."""
    for neighbour in (*_readers(inserted, mapped), *_writers(inserted, mapped)):
        if neighbour.operators:
            return MappedNode(inserted.node, neighbour.operators[:1], "inserted")
    return inserted


def _readers(mapping: MappedNode, mapped: list[MappedNode]) -> Iterable[MappedNode]:
    """Yields the nodes after `mapping` that depend on it, nearest first."""
    values = {mapping.node.output_id}
    for later in mapped[mapping.node.index + 1 :]:
        if values & set(later.node.input_ids):
            values.add(later.node.output_id)
            yield later


def _writers(mapping: MappedNode, mapped: list[MappedNode]) -> Iterable[MappedNode]:
    """Yields the nodes before `mapping` that it depends on, nearest first."""
    values = set(mapping.node.input_ids)
    for earlier in reversed(mapped[: mapping.node.index]):
        if earlier.node.output_id in values:
            values |= set(earlier.node.input_ids)
            yield earlier
