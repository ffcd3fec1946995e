"""Draws an export's stages and the memory plan as Chrome traces, for Perfetto and chrome://tracing.

The format has microseconds only. In the trace of the memory plan one of them stands for one step of
the program, and each row for one place in an arena, so that a row shows which tensors share it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from etprof.export.memory_plan import PlannedTensor
    from etprof.export.time_split import TimeSlice

Event = dict[str, Any]


SHORTEST_SHARE = 1 / 2000
"""Of the whole export: shorter slices are left out, so that a level has 2000 of them at most."""


def draw_stages(slices: Sequence[TimeSlice]) -> dict[str, Any]:
    """Returns the trace of the export's stages, and the steps in them, in wall-clock time."""
    total_ns = sum(each.duration_ns for each in slices if len(each.path) == 1)
    events = [
        {
            "name": each.path[-1].name,
            "ph": "X",
            "pid": 1,
            "tid": 1,
            "ts": each.start_ns / 1000,
            "dur": each.duration_ns / 1000,
            "args": {"module": each.path[-1].module} if len(each.path) > 1 else {},
        }
        for each in slices
        if len(each.path) == 1 or each.duration_ns >= total_ns * SHORTEST_SHARE
    ]
    return _document([_name("process", "etprof export", 1), *events])


def draw_memory(methods: Mapping[str, Sequence[PlannedTensor]]) -> dict[str, Any]:
    """Returns the trace of the planned tensors of every method over its steps."""
    events: list[Event] = []
    for process, (method, tensors) in enumerate(methods.items(), start=1):
        events.append(_name("process", f"{method}: planned memory, 1 µs = 1 step", process))
        events += _rows(tensors, process)
        events += _levels(tensors, process)
    return _document(events)


def _document(events: list[Event]) -> dict[str, Any]:
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _name(kind: str, text: str, process: int, thread: int = 0) -> Event:
    name = {"name": f"{kind}_name", "ph": "M", "pid": process, "tid": thread}
    return {**name, "args": {"name": text}}


def _rows(tensors: Sequence[PlannedTensor], process: int) -> Iterator[Event]:
    """Yields a slice per tensor; those at one offset never live at the same time."""
    places = sorted({(each.arena, each.offset_bytes) for each in tensors})
    for thread, (arena, offset) in enumerate(places, start=1):
        yield _name("thread", f"arena {arena} at {offset:,} B", process, thread)
    for each in tensors:
        yield {
            "name": each.node,
            "ph": "X",
            "pid": process,
            "tid": places.index((each.arena, each.offset_bytes)) + 1,
            "ts": each.first_use,
            "dur": each.last_use - each.first_use + 1,
            "args": {"size_bytes": each.size_bytes, "module": each.module_path},
        }


def _levels(tensors: Sequence[PlannedTensor], process: int) -> Iterator[Event]:
    """Yields the bytes alive in each arena whenever they change."""
    steps = sorted({step for each in tensors for step in (each.first_use, each.last_use + 1)})
    for step in steps:
        alive = [each for each in tensors if each.first_use <= step <= each.last_use]
        values = {
            f"arena {arena}": sum(each.size_bytes for each in alive if each.arena == arena)
            for arena in sorted({each.arena for each in tensors})
        }
        yield {"name": "live bytes", "ph": "C", "pid": process, "ts": step, "args": values}
