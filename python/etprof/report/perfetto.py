"""The run as a Perfetto trace: one process per experiment, all aligned at zero.

Field numbers: protos/perfetto/trace/ of google/perfetto. Open the file at ui.perfetto.dev, which
reads it in the browser. Only durations are measured: XNNPACK does not record when an operator
starts, so operators are laid end to end inside their call, and each says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.report.protobuf import double, integer, message, text
from etprof.report.slices import Slice, experiment_slices

if TYPE_CHECKING:
    from etprof.analysis.assessment import Assessment
    from etprof.analysis.run_analysis import ExperimentAnalysis

_PACKET: Final = 1
_TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _TRACK_DESCRIPTOR, _SEQUENCE_FLAGS = 8, 10, 11, 60, 13
_SEQUENCE_CLEARED: Final = 1
_SLICE_BEGIN, _SLICE_END, _COUNTER = 1, 2, 4


def encode_trace(assessment: Assessment) -> bytes:
    """Returns the trace of every steady execution of every experiment."""
    packets = []
    for number, experiment in enumerate(assessment.run.experiments, start=1):
        packets += _experiment_packets(experiment, number)
    return b"".join(message(_PACKET, packet) for packet in packets)


def _experiment_packets(experiment: ExperimentAnalysis, number: int) -> list[bytes]:
    """One process with a track of events, and a counter of raw latencies where timed."""
    process, track, counter = number * 10, number * 10 + 1, number * 10 + 2
    flags = integer(_SEQUENCE_FLAGS, _SEQUENCE_CLEARED) + integer(_SEQUENCE, number)
    packets = [
        _descriptor(process, experiment.name, pid=number) + flags,
        _descriptor(track, "steady executions", pid=number, parent=process),
    ]
    for entry in experiment_slices(experiment):
        packets += _slice_packets(entry, track, number)
    if experiment.metrics is not None:
        packets.append(_descriptor(counter, "latency without tracer", parent=process, unit="ns"))
        packets += _counter_packets(experiment, counter, number)
    return packets


def _descriptor(
    uuid: int, name: str, *, pid: int | None = None, parent: int | None = None, unit: str = ""
) -> bytes:
    """A TrackDescriptor packet: a process, a thread of it, or a counter."""
    content = integer(1, uuid) + text(2, name)
    if parent is None and pid is not None:
        content += message(3, integer(1, pid) + text(6, name))
    elif parent is not None:
        content += integer(5, parent)
        if pid is not None:
            content += message(4, integer(1, pid) + integer(2, pid * 100) + text(5, name))
    if unit:
        content += message(8, text(6, unit))
    return message(_TRACK_DESCRIPTOR, content)


def _slice_packets(entry: Slice, track: int, sequence: int) -> list[bytes]:
    """Begin and end of one slice."""
    notes = message(
        4, text(10, "start") + text(6, "synthetic" if entry.is_synthetic else "measured")
    )
    if entry.category:
        notes += message(4, text(10, "category") + text(6, entry.category))
    begin = (
        integer(9, _SLICE_BEGIN)
        + integer(11, track)
        + text(23, entry.name)
        + text(22, entry.category or "container")
        + notes
    )
    end = integer(9, _SLICE_END) + integer(11, track)
    return [
        _event_packet(entry.start_ns, begin, sequence),
        _event_packet(entry.end_ns, end, sequence),
    ]


def _event_packet(time_ns: int, event: bytes, sequence: int) -> bytes:
    return (
        integer(_TIMESTAMP, time_ns) + integer(_SEQUENCE, sequence) + message(_TRACK_EVENT, event)
    )


def _counter_packets(experiment: ExperimentAnalysis, track: int, sequence: int) -> list[bytes]:
    """Raw latencies end to end, in their order of measuring."""
    packets, now = [], 0
    for block in experiment.metrics.blocks if experiment.metrics else ():
        for latency in block.latency_ns:
            event = integer(9, _COUNTER) + integer(11, track) + double(44, float(latency))
            packets.append(_event_packet(now, event, sequence))
            now += latency
    return packets
