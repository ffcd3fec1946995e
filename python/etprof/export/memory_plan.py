"""What a program takes: the bytes of its file by purpose, and the arenas of its memory plan.

A `.pte` starts with a FlatBuffer (identifier `ET12` at byte 4) and, at byte 8, an extended header:
`eh00`, its length (u32), then the size of the FlatBuffer, the offset of the segments and the size
of the segments (u64 each, little-endian). Segments hold delegate blobs, constants and named data.
A `.ptd` starts alike (`FT01` at byte 4): at byte 8 `FH01`, the header's length (u32, at least 40), then
offset and size of the FlatBuffer, offset and size of the segments (u64 each).
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from etprof.base.errors import ExportError
from etprof.base.files import open_regular
from etprof.export.operators import find_origin
from etprof.run.delegation import MemoryPlan, PlannedTensor, ProgramSize

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import torch


_LISTED = 10


def describe_plan(graph: torch.fx.Graph, arena_bytes: list[int]) -> MemoryPlan:
    """Returns the plan of an emitted graph, whose nodes carry tensor specifications."""
    tensors = list(list_tensors(graph))
    names = [node.name for node in graph.nodes]
    peak, moment = max(
        ((_live_bytes(tensors, moment), -moment) for moment in range(len(names))), default=(0, 0)
    )
    alive = [tensor for tensor in tensors if tensor.first_use <= -moment <= tensor.last_use]
    alive.sort(key=lambda tensor: tensor.size_bytes, reverse=True)
    return MemoryPlan(
        arena_bytes=tuple(arena_bytes),
        unshared_bytes=sum(tensor.size_bytes for tensor in tensors),
        peak_live_bytes=peak,
        peak_node=names[-moment] if alive else None,
        tensors_at_peak=tuple(alive[:_LISTED]),
    )


def _live_bytes(tensors: list[PlannedTensor], moment: int) -> int:
    return sum(
        tensor.size_bytes for tensor in tensors if tensor.first_use <= moment <= tensor.last_use
    )


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
        for nested in spec:
            yield from _specs(nested)
    elif hasattr(spec, "lifetime"):
        yield spec


def draw_memory(methods: Mapping[str, Sequence[PlannedTensor]]) -> dict[str, Any]:
    """Returns a Chrome trace of the planned tensors of every method.

    The format has microseconds only: one of them stands for one step of the program, and each row
    for one place in an arena, so that a row shows which tensors share it.
    """
    events: list[dict[str, Any]] = []
    for process, (method, tensors) in enumerate(methods.items(), start=1):
        events.append(_name("process", f"{method}: planned memory, 1 µs = 1 step", process))
        events += _rows(tensors, process)
        events += _levels(tensors, process)
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _name(kind: str, text: str, process: int, thread: int = 0) -> dict[str, Any]:
    name = {"name": f"{kind}_name", "ph": "M", "pid": process, "tid": thread}
    return {**name, "args": {"name": text}}


def _rows(tensors: Sequence[PlannedTensor], process: int) -> Iterator[dict[str, Any]]:
    """Yields a slice per tensor; those at one offset never live at the same time."""
    locations = sorted({(tensor.arena, tensor.offset_bytes) for tensor in tensors})
    for thread, (arena, offset) in enumerate(locations, start=1):
        yield _name("thread", f"arena {arena} at {offset:,} B", process, thread)
    for tensor in tensors:
        yield {
            "name": tensor.node,
            "ph": "X",
            "pid": process,
            "tid": locations.index((tensor.arena, tensor.offset_bytes)) + 1,
            "ts": tensor.first_use,
            "dur": tensor.last_use - tensor.first_use + 1,
            "args": {"size_bytes": tensor.size_bytes, "module": tensor.module_path},
        }


def _levels(tensors: Sequence[PlannedTensor], process: int) -> Iterator[dict[str, Any]]:
    """Yields the bytes alive in each arena whenever they change."""
    steps = sorted({step for tensor in tensors for step in (tensor.first_use, tensor.last_use + 1)})
    for step in steps:
        alive = [tensor for tensor in tensors if tensor.first_use <= step <= tensor.last_use]
        values = {
            f"arena {arena}": sum(tensor.size_bytes for tensor in alive if tensor.arena == arena)
            for arena in sorted({tensor.arena for tensor in tensors})
        }
        yield {"name": "live bytes", "ph": "C", "pid": process, "ts": step, "args": values}


_HEADER = struct.Struct("<4s4sIQQQ")
_EXTERNAL_HEADER = struct.Struct("<4x4s4sI4Q")


def measure_external(ptd: Path) -> int:
    """Returns the bytes of weights in `ptd`; raises ExportError for a file that is not one."""
    with open_regular(ptd) as stream:
        head = stream.read(_EXTERNAL_HEADER.size)
    if len(head) < _EXTERNAL_HEADER.size:
        raise ExportError(f"{ptd} ends within its header; export the model again")
    identifier, magic, length, start, size, base, weights = _EXTERNAL_HEADER.unpack(head)
    if identifier[:2] != b"FT" or not identifier[2:].isdigit() or magic != b"FH01" or length < 40:
        raise ExportError(
            f"{ptd} is not a .ptd as this ExecuTorch writes it; export the model again"
        )
    if max(start + size, base + weights) > ptd.stat().st_size:
        raise ExportError(f"{ptd} is shorter than its header says; export the model again")
    return int(weights)


def measure_program(pte: Path, content: Any, ptd: Path | None) -> ProgramSize:  # noqa: ANN401
    """Returns the split of file `pte`, whose decoded form is `content`, and of weights beside it."""
    with open_regular(pte) as stream:
        head = stream.read(4 + _HEADER.size)
    total = pte.stat().st_size
    identifier, magic, _, program_bytes, _, _ = _HEADER.unpack(head[4:])
    if not identifier.startswith(b"ET"):
        raise ExportError(f"{pte} is not an ExecuTorch program")
    if not magic.startswith(b"eh"):  # no segments: no constants, no delegates
        program_bytes, delegates, constants = total, 0, 0
    else:
        delegates = sum(len(delegate.data) for delegate in content.program.backend_delegate_data)
        constants = sum(len(constant.storage) for constant in content.program.constant_buffer)
        named = content.named_data.buffers if content.named_data is not None else ()
        constants += sum(len(getattr(buffer, "buffer", buffer)) for buffer in named)
    return ProgramSize(
        total_bytes=total,
        program_bytes=program_bytes,
        delegate_bytes=delegates,
        constant_bytes=constants,
        padding_bytes=total - program_bytes - delegates - constants,
        external_bytes=0 if ptd is None else ptd.stat().st_size,
        external_weight_bytes=None if ptd is None else measure_external(ptd),
    )
