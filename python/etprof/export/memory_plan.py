"""What memory planning decided: the arenas, and which tensors share them at the peak."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etprof.export.node_origin import find_origin

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

_LISTED = 10


@dataclass(frozen=True)
class PlannedTensor:
    """A tensor in a planned arena."""

    node: str
    module_path: str
    arena: int
    offset_bytes: int
    size_bytes: int
    first_use: int
    """Position in the method's execution order; inclusive like `last_use`."""
    last_use: int


@dataclass(frozen=True)
class MemoryPlan:
    """The planned memory of one method; what delegates allocate themselves is not in it."""

    arena_bytes: list[int]
    """Size of each arena, as the runtime allocates it."""
    peak_live_bytes: int
    """Bytes of tensors alive at the worst moment; below the arenas' sum by fragmentation."""
    peak_node: str | None
    tensors_at_peak: list[PlannedTensor]
    """The largest ones, at most ten."""


def describe_plan(graph: torch.fx.Graph, arena_bytes: list[int]) -> MemoryPlan:
    """Returns the plan of an emitted graph, whose nodes carry tensor specifications."""
    tensors = list(list_tensors(graph))
    names = [node.name for node in graph.nodes]
    peak, moment = max(
        ((_live_bytes(tensors, moment), -moment) for moment in range(len(names))), default=(0, 0)
    )
    alive = [each for each in tensors if each.first_use <= -moment <= each.last_use]
    alive.sort(key=lambda each: each.size_bytes, reverse=True)
    return MemoryPlan(arena_bytes, peak, names[-moment] if alive else None, alive[:_LISTED])


def _live_bytes(tensors: list[PlannedTensor], moment: int) -> int:
    return sum(each.size_bytes for each in tensors if each.first_use <= moment <= each.last_use)


def list_tensors(graph: torch.fx.Graph) -> Iterator[PlannedTensor]:
    """Yields each planned tensor once, with the first node that has it."""
    seen: set[int] = set()
    for node in graph.nodes:
        for spec in _specs(node.meta.get("spec")):
            if id(spec) in seen or spec.const or spec.mem_id is None or None in spec.lifetime:
                continue
            seen.add(id(spec))
            yield PlannedTensor(
                node=node.name,
                module_path=find_origin(node).module_path,
                arena=spec.mem_id,
                offset_bytes=spec.mem_offset,
                size_bytes=spec.allocated_memory,
                first_use=spec.lifetime[0],
                last_use=spec.lifetime[1],
            )


def _specs(spec: Any) -> Iterator[Any]:  # noqa: ANN401 - a TensorSpec or a nesting of them
    if isinstance(spec, (list, tuple)):
        for each in spec:
            yield from _specs(each)
    elif hasattr(spec, "lifetime"):
        yield spec
