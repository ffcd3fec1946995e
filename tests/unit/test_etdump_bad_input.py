"""Bytes that are no sound ETDump: each ends in its own message, offset, way out and exit code."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import fields

import pytest

from etprof.etdump.reader import load_etdump
from tests import etdump_writer as writer
from tests.etdump_refusal import Bad, assert_reader_refuses, assert_refused, refusal
from tests.etdump_sample import Sample

OTHER_FILE = "give a run directory, or an ETDump such as `etprof-runner --etdump` writes"

SAMPLE = Sample()
SOUND = bytes(SAMPLE.written.data)
TABLES = sorted(SAMPLE.tables())
OFFSETS = sorted(SAMPLE.offsets())


def test_the_sample_is_sound() -> None:
    # GIVEN the file that all rows below damage in one place, THEN it reads whole when it is not
    dump = load_etdump(SOUND)
    assert len(dump.profile.name_id) == len(dump.debug.name_id) == 1
    assert len(dump.allocations.size_bytes) == len(dump.allocators.name_id) == 1
    assert len(dump.tensors.offset) == 2


@pytest.mark.parametrize("length", [1, 3, 4, 7, 8, 11])
def test_less_than_a_header(length: int) -> None:
    reason = f"cut short: {length} bytes are no whole header"
    assert_refused(Bad(SOUND[:length], reason, length))


def test_no_bytes() -> None:
    way_out = "run the model again with --etdump, on a runner built with the event tracer"
    assert_refused(Bad(b"", "empty", 0, way_out))


def test_truncated_anywhere() -> None:
    for length in range(12, SAMPLE.size):
        reason = f"cut short: {SAMPLE.size} bytes announced, {length} there"
        assert_reader_refuses(Bad(SOUND[:length], reason, length))


@pytest.mark.parametrize("length", [12, 13, 16, SAMPLE.size // 2, SAMPLE.size - 1])
def test_truncated_behind_the_header(length: int) -> None:
    reason = f"cut short: {SAMPLE.size} bytes announced, {length} there"
    assert_refused(Bad(SOUND[:length], reason, length))


# A bare buffer does not tell its length. What these lead to stands behind something that is read
# before it, and is missed first when the file is cut.
MISSED_LATER = {
    *("Event", "RunData.events", "AllocationEvent", "DebugEvent", "Value", "Tensor", "TensorList"),
    "DebugEvent.delegate_debug_id_str",
}
BARE = Sample(size_prefix=False)
BARE_DATA = bytes(BARE.written.data)


@pytest.mark.parametrize("what", sorted({*BARE.offsets()} - MISSED_LATER))
def test_bare_file_cut_where_something_starts(what: str) -> None:
    at = BARE.offsets()[what]
    target = at + struct.unpack_from("<I", BARE_DATA, at)[0]
    reason = f"offset of {what} leads to byte {target} of {target + 3}"
    assert_refused(Bad(BARE_DATA[: target + 3], reason, at))


@pytest.mark.parametrize("what", sorted({*BARE.counts()} - MISSED_LATER))
def test_bare_file_cut_before_a_vector_ends(what: str) -> None:
    at, width = BARE.counts()[what]
    count = struct.unpack_from("<I", BARE_DATA, at)[0]
    left = count * width - 1
    reason = f"{what} claims {count} elements of {width} bytes where {left} bytes follow"
    assert_refused(Bad(BARE_DATA[: at + 4 + left], reason, at))


@pytest.mark.parametrize("kind", ["ETDump", "RunData", "Allocator", "ProfileEvent", "Int", "Bool"])
def test_bare_file_cut_before_a_table_ends(kind: str) -> None:
    table = BARE.tables()[kind]
    (size,) = struct.unpack_from("<H", BARE_DATA, BARE.written.vtable(table) + 2)
    at = BARE.written.node(table)
    reason = f"{kind} table of {size} bytes reaches past the end"
    assert_refused(Bad(BARE_DATA[: at + size - 1], reason, at))


def test_bare_file_cut_anywhere() -> None:
    # GIVEN every cut that takes away anything the reader needs; the last bytes are a string's end
    for length in range(8, len(BARE_DATA) - 2):
        # THEN it is noticed
        assert refusal(BARE_DATA[:length]).offset <= length


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(SOUND[:8] + b"ED01" + SOUND[12:], id="later identifier"),
        pytest.param(SOUND[:8] + b"ed00" + SOUND[12:], id="lower case"),
        pytest.param(b"\0" + SOUND, id="shifted by one byte"),
        pytest.param(b"\x20\0\0\0ET12" + bytes(64), id="a program"),
        pytest.param(b"PK\x03\x04" + bytes(64), id="an ETRecord"),
        pytest.param(b"event,duration_ms\nadd,1\n", id="a CSV"),
        pytest.param(bytes(4096), id="zeros"),
    ],
)
def test_something_else(data: bytes) -> None:
    assert_refused(Bad(data, 'no identifier "ED00" at byte 4 or 8', 4, OTHER_FILE))


def test_size_prefix_beyond_the_file() -> None:
    data = SAMPLE.written.patch(0, "I", 0xFFFFFFFF)
    reason = f"cut short: {0xFFFFFFFF + 4} bytes announced, {SAMPLE.size} there"
    assert_refused(Bad(data, reason, SAMPLE.size))


@pytest.mark.parametrize("what", OFFSETS)
def test_offset_of_zero(what: str) -> None:
    at = SAMPLE.offsets()[what]
    assert_refused(Bad(SAMPLE.written.patch(at, "I", 0), f"offset of {what} is 0", at))


@pytest.mark.parametrize("what", OFFSETS)
@pytest.mark.parametrize("distance", [0x7FFFFFFF, 0xFFFFFFFC], ids=["far", "backward"])
def test_offset_out_of_range(what: str, distance: int) -> None:
    # GIVEN an offset far ahead, or one that leads backward if taken for a signed number
    at = SAMPLE.offsets()[what]
    reason = f"offset of {what} leads to byte {at + distance} of {SAMPLE.size}"
    assert_refused(Bad(SAMPLE.written.patch(at, "I", distance), reason, at))


@pytest.mark.parametrize("what", OFFSETS)
def test_offset_to_the_last_three_bytes(what: str) -> None:
    at = SAMPLE.offsets()[what]
    target = SAMPLE.size - 3
    reason = f"offset of {what} leads to byte {target} of {SAMPLE.size}"
    assert_refused(Bad(SAMPLE.written.patch(at, "I", target - at), reason, at))


@pytest.mark.parametrize("what", sorted(SAMPLE.counts()))
@pytest.mark.parametrize("count", [0xFFFFFFFF, 0x80000000, SAMPLE.size])
def test_vector_longer_than_the_file(what: str, count: int) -> None:
    at, width = SAMPLE.counts()[what]
    left = SAMPLE.size - at - 4
    reason = f"{what} claims {count} elements of {width} bytes where {left} bytes follow"
    assert_refused(Bad(SAMPLE.written.patch(at, "I", count), reason, at))


@pytest.mark.parametrize("what", sorted(SAMPLE.string_lengths()))
def test_string_longer_than_the_file(what: str) -> None:
    at = SAMPLE.string_lengths()[what]
    left = SAMPLE.size - at - 4
    reason = f"{what} claims {left + 1} elements of 1 bytes where {left} bytes follow"
    assert_refused(Bad(SAMPLE.written.patch(at, "I", left + 1), reason, at))


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("size", [0, 2, 3, 5, 0xFFFE])
def test_vtable_of_an_impossible_size(kind: str, size: int) -> None:
    at = SAMPLE.written.vtable(SAMPLE.tables()[kind])
    reason = f"vtable of {kind} claims a size of {size} bytes"
    assert_refused(Bad(SAMPLE.written.patch(at, "H", size), reason, at))


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("distance", [2**31 - 1, -(2**31)], ids=["before", "behind"])
def test_vtable_outside_the_file(kind: str, distance: int) -> None:
    at = SAMPLE.written.node(SAMPLE.tables()[kind])
    reason = f"vtable of {kind} is outside the file"
    assert_refused(Bad(SAMPLE.written.patch(at, "i", distance), reason, at))


@pytest.mark.parametrize("kind", TABLES)
def test_table_that_is_its_own_vtable(kind: str) -> None:
    at = SAMPLE.written.node(SAMPLE.tables()[kind])
    reason = f"vtable of {kind} claims a size of 0 bytes"
    assert_refused(Bad(SAMPLE.written.patch(at, "i", 0), reason, at))


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("size", [0, 3])
def test_table_smaller_than_a_table(kind: str, size: int) -> None:
    at = SAMPLE.written.vtable(SAMPLE.tables()[kind])
    reason = f"vtable of {kind} claims a table of {size} bytes"
    assert_refused(Bad(SAMPLE.written.patch(at + 2, "H", size), reason, at))


@pytest.mark.parametrize("kind", TABLES)
def test_table_larger_than_the_file(kind: str) -> None:
    table = SAMPLE.tables()[kind]
    data = SAMPLE.written.patch(SAMPLE.written.vtable(table) + 2, "H", 0xFFFF)
    reason = f"{kind} table of 65535 bytes reaches past the end"
    assert_refused(Bad(data, reason, SAMPLE.written.node(table)))


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("place", [1, 3, 0xFFFF])
def test_field_outside_its_table(kind: str, place: int) -> None:
    table = SAMPLE.tables()[kind]
    vtable = SAMPLE.written.vtable(table)
    field = next(key for key, value in table.fields.items() if value is not None)
    (size,) = struct.unpack_from("<H", SOUND, vtable + 2)
    data = SAMPLE.written.patch(vtable + 4 + 2 * field, "H", place)
    reason = f"vtable of {kind} puts field {field} at byte {place} of a table of {size} bytes"
    assert_refused(Bad(data, reason, vtable))


FIELDS = [
    (kind, key, struct.calcsize("<" + value.format) if isinstance(value, writer.Scalar) else 4)
    for kind in TABLES
    for key, value in SAMPLE.tables()[kind].fields.items()
    if value is not None
]


def test_the_sample_has_every_field() -> None:
    # GIVEN the schema's 43 fields; of an Event's three, each has one
    assert len(FIELDS) == 43 - 2


@pytest.mark.parametrize(("kind", "field", "width"), FIELDS)
def test_field_that_ends_behind_its_table(kind: str, field: int, width: int) -> None:
    # GIVEN a field whose last byte alone is outside
    vtable = SAMPLE.written.vtable(SAMPLE.tables()[kind])
    (size,) = struct.unpack_from("<H", SOUND, vtable + 2)
    place = size - width + 1
    reason = f"vtable of {kind} puts field {field} at byte {place} of a table of {size} bytes"
    assert_refused(Bad(SAMPLE.written.patch(vtable + 4 + 2 * field, "H", place), reason, vtable))


KINDS = {
    "profile": writer.profile_event(),
    "allocation": writer.allocation_event(),
    "debug": writer.debug_event(),
}


@pytest.mark.parametrize("left_out", [*KINDS, None])
def test_event_of_several_kinds(left_out: str | None) -> None:
    event = writer.event(**{kind: table for kind, table in KINDS.items() if kind != left_out})
    written = writer.write_etdump(writer.etdump([writer.event_block(events=[event])]))
    reason = "Event is of two kinds at once"
    assert_refused(Bad(bytes(written.data), reason, written.node(event)))


OVERLAP = "tables and vectors overlap: together they claim more bytes than there are"


def shared_event() -> writer.Table:
    return writer.etdump([writer.event_block(events=[Sample().events[0]] * 50_000)])


def shared_tables_without_vectors() -> writer.Table:
    bare = [writer.event(profile=writer.profile_event())] * 2_000
    return writer.etdump([writer.event_block(events=bare)])


def shared_allocator() -> writer.Table:
    return writer.etdump([writer.event_block(allocators=[writer.allocator()] * 2_000)])


def shared_events_vector() -> writer.Table:
    events = [writer.event(profile=writer.profile_event()) for _ in range(2_000)]
    return writer.etdump([writer.event_block(events=events) for _ in range(2_000)])


def shared_block() -> writer.Table:
    return writer.etdump([Sample().block] * 20_000)


def shared_tensors() -> writer.Table:
    tensors = [writer.tensor_entry(6, range(1_000), range(1_000), 0)] * 1_000
    value = writer.value_entry(6, tensors=tensors)
    events = [writer.event(debug=writer.debug_event(value)) for _ in range(1_000)]
    return writer.etdump([writer.event_block(events=events)])


def shared_metadata() -> writer.Table:
    events = [writer.event(profile=writer.profile_event(metadata=bytes(60_000)))] * 2_000
    return writer.etdump([writer.event_block(events=events)])


@pytest.mark.parametrize(
    "build",
    [
        shared_event,
        shared_tables_without_vectors,
        shared_allocator,
        shared_events_vector,
        shared_block,
        shared_tensors,
        shared_metadata,
    ],
)
def test_a_small_file_that_describes_a_huge_tree(build: Callable[[], writer.Table]) -> None:
    # GIVEN thousands of offsets to the same tables
    data = bytes(writer.write_etdump(build()).data)
    # WHEN THEN it is refused, for no writer does so and the columns would not fit in memory
    assert refusal(data).reason == OVERLAP


@pytest.mark.slow
def test_strings_that_overlap() -> None:
    # GIVEN 20,000 names that each claim nearly the whole file and differ in where they start
    count = 20_000
    events = [writer.event(profile=writer.profile_event(b"a")) for _ in range(count)]
    written = writer.write_etdump(writer.etdump([writer.event_block(events=events)]))
    filler = struct.pack("<I", count * 4) * (2 * count)
    begin = len(written.data)
    data = written.data + filler
    for index, event in enumerate(events):
        profile = event.fields[0]
        assert isinstance(profile, writer.Table)
        at = written.field(profile, 0)
        struct.pack_into("<I", data, at, begin + 4 * index - at)
    # WHEN THEN
    expected = "strings overlap: together they claim more bytes than there are"
    assert refusal(bytes(data)).reason == expected


def events_of(*events: writer.Table) -> writer.Table:
    return writer.etdump([writer.event_block(events=list(events))])


# The densest tables there are: no field but those that lead to them.
DENSE = {
    "blocks": lambda: writer.etdump([writer.event_block() for _ in range(5_000)]),
    "allocators": lambda: writer.etdump(
        [writer.event_block(allocators=[writer.allocator() for _ in range(5_000)])]
    ),
    "profile": lambda: events_of(
        *(writer.event(profile=writer.profile_event()) for _ in range(5_000))
    ),
    "allocations": lambda: events_of(
        *(writer.event(allocation=writer.allocation_event()) for _ in range(5_000))
    ),
    "debug": lambda: events_of(*(writer.event(debug=writer.debug_event()) for _ in range(5_000))),
    "tensors": lambda: events_of(
        writer.event(
            debug=writer.debug_event(
                writer.value_entry(tensors=[writer.tensor_entry() for _ in range(5_000)])
            )
        )
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("part", DENSE)
def test_memory_is_a_small_multiple_of_the_file(part: str) -> None:
    data = bytes(writer.write_etdump(DENSE[part](), aligned=False).data)
    columns = getattr(load_etdump(data), part)
    arrays = [getattr(columns, column.name) for column in fields(columns)]
    assert len(arrays[0]) == 5_000
    assert sum(array.nbytes for array in arrays) < 8 * len(data)
