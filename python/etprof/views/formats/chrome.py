"""The run in Chrome's trace event format, for chrome://tracing, Perfetto and other viewers.

Format: "Trace Event Format", https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU.
Same content as the Perfetto trace; times are µs there, so they have decimals here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from etprof.views.formats import Format
from etprof.views.trace import TRACK, trace_processes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etprof.analysis.assessment import Assessment
    from etprof.views.trace import Counter, Slice, TraceProcess

_US = 1000


def chrome_trace(assessment: Assessment) -> dict[str, Any]:
    """Returns the trace as JSON data: one process per experiment, aligned at zero."""
    events = [e for process in trace_processes(assessment) for e in _process_events(process)]
    return {"displayTimeUnit": "ns", "traceEvents": events}


def _process_events(process: TraceProcess) -> Iterator[dict[str, Any]]:
    pid = process.number
    yield _metadata(pid, "process_name", {"name": process.name})
    yield _metadata(pid, "process_sort_index", {"sort_index": pid})
    yield _metadata(pid, "thread_name", {"name": TRACK})
    yield from (_complete_event(event, pid) for event in process.slices)
    for counter in process.counters:
        yield from _counter_events(counter, pid)


def _metadata(pid: int, name: str, content: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": pid, "name": name, "args": content}


def _complete_event(event: Slice, pid: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "pid": pid,
        "tid": pid,
        "name": event.name,
        "cat": event.category or "container",
        "ts": event.start_ns / _US,
        "dur": (event.end_ns - event.start_ns) / _US,
        "args": {
            "label": event.label,
            "start": "synthetic" if event.is_synthetic else "measured",
        },
    }


def _counter_events(counter: Counter, pid: int) -> Iterator[dict[str, Any]]:
    name = f"{counter.name} ({counter.unit})"
    for time_ns, value in counter.points:
        yield {
            "ph": "C",
            "pid": pid,
            "name": name,
            "ts": time_ns / _US,
            "args": {counter.unit: value},
        }


FORMAT = Format(of_run=lambda run: {"report_chrome_trace.json": chrome_trace(run)})
