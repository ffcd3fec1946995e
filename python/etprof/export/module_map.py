"""Maps the nodes of a serialized XNNPACK graph to the modules and lines they come from.

A node carries the debug handle of one operator. XNNPACK's passes merge other operators into it
(an activation, a batch norm, an addition of a bias) and insert nodes of their own (layout changes
and conversions), which carry no handle. So a node comes from
- `exact`: the operators with its handle,
- and the operators without a node of their own that lead into or out of it (`fused`),
- or, for an inserted node, those of the node it prepares or finishes (`inserted`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from etprof.export import operators

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import torch

    from etprof.backends.xnnpack.graph import XnnpackGraph, XnnpackNode

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


def map_nodes(xnnpack: XnnpackGraph, nodes: Sequence[torch.fx.Node]) -> list[MappedNode]:
    """Returns every node of `xnnpack` with the operators among the delegate's `nodes` behind it."""
    calls = [node for node in nodes if not _is_bookkeeping(node)]
    handles = {node.debug_handle for node in xnnpack.nodes} - {NO_HANDLE}
    own: dict[int, list[str]] = {}
    for call in calls:
        handle = call.meta.get("debug_handle")
        target = handle if handle in handles else _nearest_handle(call, handles)
        if target is not None:
            own.setdefault(target, []).append(call.name)
    shared = {node.debug_handle for node in xnnpack.nodes if node.kind != "Convert"}
    mapped = [_map_own(node, own, calls, shared) for node in xnnpack.nodes]
    return [
        _map_inserted(entry, mapped) if entry.attribution == "unknown" else entry
        for entry in mapped
    ]


def _is_bookkeeping(node: torch.fx.Node) -> bool:
    """Tells whether the node only picks a result or (de)quantises, sharing its operator's handle."""
    return operators.target_name(node) == "getitem" or operators.is_quantize(node)


def _nearest_handle(call: torch.fx.Node, handles: set[int]) -> int | None:
    """Returns the handle of the node that `call` was merged into: upstream first, then down."""
    for neighbours in (_ancestors(call), _descendants(call)):
        for node in neighbours:
            handle = node.meta.get("debug_handle")
            if handle in handles and not _is_bookkeeping(node):
                return int(handle)
    return None


def _ancestors(call: torch.fx.Node) -> Iterable[torch.fx.Node]:
    return _breadth_first(call, forward=False)


def _descendants(call: torch.fx.Node) -> Iterable[torch.fx.Node]:
    return _breadth_first(call, forward=True)


def _breadth_first(call: torch.fx.Node, *, forward: bool) -> Iterable[torch.fx.Node]:
    seen, queue = {call}, [call]
    while queue and len(seen) < _LARGEST_SEARCH:
        node = queue.pop(0)
        for neighbour in list(node.users) if forward else node.all_input_nodes:
            if neighbour not in seen and neighbour.op == "call_function":
                seen.add(neighbour)
                queue.append(neighbour)
                yield neighbour


def _map_own(
    node: XnnpackNode, own: dict[int, list[str]], calls: list[torch.fx.Node], shared: set[int]
) -> MappedNode:
    names = own.get(node.debug_handle, [])
    # A conversion may share the handle of the operator before it, which it does not compute.
    if not names or (node.kind == "Convert" and node.debug_handle in shared):
        return MappedNode(node, (), "unknown")
    exact = {call.name for call in calls if call.meta.get("debug_handle") == node.debug_handle}
    ordered = sorted(names, key=lambda name: name not in exact)
    return MappedNode(node, tuple(ordered), "exact" if set(names) <= exact else "fused")


def _map_inserted(entry: MappedNode, mapped: list[MappedNode]) -> MappedNode:
    """Gives an inserted node the operators of its first known consumer, else of its producer."""
    for known in (*_readers(entry, mapped), *_writers(entry, mapped)):
        if known.operators:
            return MappedNode(entry.node, known.operators[:1], "inserted")
    return entry


def _readers(entry: MappedNode, mapped: list[MappedNode]) -> Iterable[MappedNode]:
    """Yields the nodes after `entry` that depend on it, nearest first."""
    values = {entry.node.output_id}
    for other in mapped[entry.node.index + 1 :]:
        if values & set(other.node.input_ids):
            values.add(other.node.output_id)
            yield other


def _writers(entry: MappedNode, mapped: list[MappedNode]) -> Iterable[MappedNode]:
    """Yields the nodes before `entry` that it depends on, nearest first."""
    values = set(entry.node.input_ids)
    for other in reversed(mapped[: entry.node.index]):
        if other.node.output_id in values:
            values |= set(other.node.input_ids)
            yield other
