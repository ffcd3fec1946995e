"""The run as a Perfetto trace: one process per experiment, all aligned at zero.

Field numbers: protos/perfetto/trace/ of google/perfetto. Open the file at ui.perfetto.dev, which
reads it in the browser. Only durations are measured: XNNPACK does not record when an operator
starts, so operators are laid end to end inside their call, and each says so.
Wire format: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from etprof.views.formats import Format
from etprof.views.trace import TRACK, trace_processes

if TYPE_CHECKING:
    from etprof.analysis.assessment import Assessment
    from etprof.views.trace import Slice, TraceProcess

_PACKET: Final = 1
_TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _TRACK_DESCRIPTOR, _SEQUENCE_FLAGS = 8, 10, 11, 60, 13
_SEQUENCE_CLEARED: Final = 1
_SLICE_BEGIN, _SLICE_END, _COUNTER = 1, 2, 4
_TRACKS_A_PROCESS: Final = 100
_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH: Final = 2


def encode_trace(assessment: Assessment) -> bytes:
    """Returns the trace of the steady executions of every experiment, with its counters."""
    packets = []
    for process in trace_processes(assessment):
        packets += _process_packets(process)
    return b"".join(message(_PACKET, packet) for packet in packets)


def _process_packets(process: TraceProcess) -> list[bytes]:
    """One process with a track of events and a track for each counter."""
    number = process.number
    uuid = number * _TRACKS_A_PROCESS
    flags = integer(_SEQUENCE_FLAGS, _SEQUENCE_CLEARED) + integer(_SEQUENCE, number)
    packets = [
        _descriptor(uuid, process.name, pid=number) + flags,
        _descriptor(uuid + 1, TRACK, pid=number, parent=uuid),
    ]
    for event in process.slices:
        packets += _slice_packets(event, uuid + 1, number)
    for track, counter in enumerate(process.counters, start=uuid + 2):
        packets.append(_descriptor(track, counter.name, parent=uuid, unit=counter.unit))
        packets += [
            _event_packet(
                time_ns,
                integer(9, _COUNTER) + integer(11, track) + double(44, value),
                number,
            )
            for time_ns, value in counter.points
        ]
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


def _slice_packets(event: Slice, track: int, sequence: int) -> list[bytes]:
    """Begin and end of one slice."""
    notes = message(
        4, text(10, "start") + text(6, "synthetic" if event.is_synthetic else "measured")
    )
    notes += message(4, text(10, "label") + text(6, event.label))
    if event.category:
        notes += message(4, text(10, "category") + text(6, event.category))
    begin = (
        integer(9, _SLICE_BEGIN)
        + integer(11, track)
        + text(23, event.name)
        + text(22, event.category or "container")
        + notes
    )
    end = integer(9, _SLICE_END) + integer(11, track)
    return [
        _event_packet(event.start_ns, begin, sequence),
        _event_packet(event.end_ns, end, sequence),
    ]


def _event_packet(time_ns: int, event: bytes, sequence: int) -> bytes:
    return (
        integer(_TIMESTAMP, time_ns) + integer(_SEQUENCE, sequence) + message(_TRACK_EVENT, event)
    )


def varint(value: int) -> bytes:
    """Encodes an unsigned integer, or a negative one as its 64-bit complement."""
    value &= 2**64 - 1
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def integer(field: int, value: int) -> bytes:
    """Encodes a field of an integer, enum or bool type."""
    return varint(field << 3 | _VARINT) + varint(value)


def double(field: int, value: float) -> bytes:
    """Encodes a field of type double."""
    return varint(field << 3 | _FIXED64) + struct.pack("<d", value)


def message(field: int, content: bytes) -> bytes:
    """Encodes a field of a message or bytes type."""
    return varint(field << 3 | _LENGTH) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """Encodes a field of type string; bytes that were no UTF-8 become question marks."""
    return message(field, value.encode("utf-8", "replace"))


FORMAT = Format(of_run=lambda run: {"report.perfetto-trace": encode_trace(run)})
