"""What a caller of `etprof.etdump.reader` relies on."""

from __future__ import annotations

import gc
import io
import re
import subprocess
import sys
import threading
import time
import weakref
from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np
import pytest

from etprof.base.errors import BuildError, InputFileError
from etprof.etdump import reader as etdump
from etprof.etdump.reader import ETDump, TensorEntry, events_frame, load_etdump, read_tensor
from tests import etdump_writer as writer
from tests.etdump_sample import Sample

if TYPE_CHECKING:
    from pathlib import Path

    from _typeshed import DataclassInstance


def write_profile(*events: writer.Table, **layout: bool) -> bytes:
    block = writer.event_block(b"Execute", [writer.event(profile=event) for event in events])
    return bytes(writer.write_etdump(writer.etdump([block]), **layout).data)


def write_debug(*values: writer.Table | None) -> bytes:
    events = [writer.event(debug=writer.debug_event(value)) for value in values]
    return bytes(writer.write_etdump(writer.etdump([writer.event_block(events=events)])).data)


TWO_EVENTS = write_profile(
    writer.profile_event(delegate_debug_id_str=b"GEMM #1", start_time=10, end_time=30),
    writer.profile_event(b"DELEGATE_CALL", start_time=5, end_time=45),
)


def parts_of(dump: ETDump) -> list[DataclassInstance]:
    return [
        getattr(dump, part.name)
        for part in fields(dump)
        if part.name
        not in {"version", "size_bytes", "names", "first_block", "ns_per_tick", "_texts", "_data"}
    ]


def columns_of(dump: ETDump) -> dict[str, np.ndarray]:
    return {
        f"{type(part).__name__}.{column.name}": getattr(part, column.name)
        for part in parts_of(dump)
        for column in fields(part)
    }


def test_path_bytes_and_file_give_the_same(tmp_path: Path) -> None:
    path = tmp_path / "two.etdump"
    path.write_bytes(TWO_EVENTS)
    with path.open("rb") as file:
        dumps = [load_etdump(source) for source in (path, str(path), TWO_EVENTS, file)]
    dumps.append(load_etdump(io.BytesIO(TWO_EVENTS)))
    first = dumps.pop(0)
    for other in dumps:
        assert (other.names, other.size_bytes) == (first.names, first.size_bytes)
        for name, column in columns_of(first).items():
            np.testing.assert_array_equal(columns_of(other)[name], column, err_msg=name)


def test_every_column_is_a_read_only_view_of_one_table() -> None:
    # GIVEN a file with something in every column
    columns = columns_of(load_etdump(bytes(Sample().written.data)))
    assert len(columns) == 45
    assert all(column.size for column in columns.values())
    # THEN none is a copy
    assert {str(type(column.base)) for column in columns.values()} == {
        "<class 'etprof._etdump.EventTable'>"
    }
    assert len({id(column.base) for column in columns.values()}) == 1
    for name, column in columns.items():
        assert not column.flags.writeable, name
        with pytest.raises(ValueError, match="cannot set WRITEABLE"):
            column.flags.writeable = True


def test_columns_have_the_dtypes_that_the_class_says() -> None:
    for part in parts_of(load_etdump(TWO_EVENTS)):
        for column in fields(part):
            dtype = getattr(part, column.name).dtype
            assert column.type == f"NDArray[np.{dtype}]", f"{type(part).__name__}.{column.name}"


@pytest.mark.slow
def test_a_column_outlives_its_dump() -> None:
    # GIVEN a column of a file large enough that freed memory would be given back
    events = [writer.profile_event(start_time=n) for n in range(20_000)]
    dump = load_etdump(write_profile(*events))
    column = dump.profile.start_time
    # WHEN everything else is gone
    del dump
    gc.collect()
    # THEN
    np.testing.assert_array_equal(column, np.arange(20_000))


@pytest.mark.slow
def test_the_table_goes_with_its_last_column() -> None:
    columns = load_etdump(TWO_EVENTS).profile
    gone = weakref.ref(columns.name_id)
    del columns
    gc.collect()
    assert gone() is None


def test_an_open_dump_survives_the_file_being_replaced(tmp_path: Path) -> None:
    path = tmp_path / "meta.etdump"
    path.write_bytes(write_profile(writer.profile_event(metadata=b"\x01\x02\x03")))
    dump = load_etdump(path)
    path.unlink()
    path.write_bytes(TWO_EVENTS)
    assert dump.profile_metadata(0) == b"\x01\x02\x03"


def test_names_are_interned() -> None:
    # GIVEN the same strings written anew for every event, in an order that changes
    names = [b"a", b"b", b"a", b"a", b"c", b"b", b"a", b"", b"c"] * 50
    dump = load_etdump(write_profile(*map(writer.profile_event, names)))
    assert dump.names == ("Execute", "a", "b", "c", "")
    assert [dump.names[i].encode() for i in dump.profile.name_id] == names


def test_names_are_cleaned_and_stay_apart() -> None:
    """S3: names that look the same once they are cleaned are told apart; their bytes are kept."""
    names = [b"\xff", b"\\xff", b"ok \xed\xa0\x80", b"a\0b", "Größe".encode()]
    dump = load_etdump(write_profile(*map(writer.profile_event, names)))
    assert dump.raw_names[1:] == tuple(names)
    first, *others = dump.names[1:]
    assert re.fullmatch(r"\\xff~[0-9a-f]{16}", first)
    assert others == ["\\xff", "ok \\xed\\xa0\\x80", "a\\x00b", "Größe"]
    assert list(events_frame(dump)["name"]) == list(dump.names[1:])


@pytest.mark.parametrize(
    "document",
    [
        writer.etdump(),
        writer.etdump([]),
        writer.etdump([writer.event_block(b"Execute")]),
        writer.etdump([writer.event_block(b"Execute", [])]),
    ],
    ids=["no vector", "no blocks", "no events vector", "no events"],
)
def test_zero_events_are_columns_of_no_rows(document: writer.Table) -> None:
    dump = load_etdump(bytes(writer.write_etdump(document).data))
    assert len(dump.profile.start_time) == 0
    assert len(events_frame(dump)) == 0


def test_padding_behind_the_buffer_is_no_fault() -> None:
    assert load_etdump(TWO_EVENTS + bytes(60)).names == load_etdump(TWO_EVENTS).names


def test_bare_buffers_read_like_prefixed_ones() -> None:
    event = writer.profile_event(b"add", metadata=b"xyz", end_time=9)
    dump = load_etdump(write_profile(event, size_prefix=False))
    assert dump.names == ("Execute", "add")
    assert dump.profile_metadata(0) == b"xyz"


def test_repr_is_one_short_line() -> None:
    assert repr(load_etdump(TWO_EVENTS)) == (
        f"<ETDump of {len(TWO_EVENTS)} bytes: 1 event blocks, 2 profile events, "
        "0 allocation events, 0 debug events>"
    )


def test_events_frame() -> None:
    frame = events_frame(load_etdump(TWO_EVENTS))
    assert list(frame["block"]) == ["Execute", "Execute"]
    assert frame["name"].isna().tolist() == [True, False]
    assert frame["name"][1] == "DELEGATE_CALL"
    assert frame["delegate_debug_id_str"][0] == "GEMM #1"
    assert (frame["end_time"] - frame["start_time"]).tolist() == [20, 40]


def test_debug_values() -> None:
    tensor = TensorEntry(scalar_type=6, sizes=(2, 3), strides=(3, 1), offset=8)
    entry = writer.tensor_entry(6, [2, 3], [3, 1], 8)
    dump = load_etdump(
        write_debug(
            writer.value_entry(1, int_value=-(2**63)),
            writer.value_entry(2, bool_value=True),
            writer.value_entry(3, float_value=0.5),
            writer.value_entry(4, double_value=1e300),
            writer.value_entry(5, tensor=entry),
            writer.value_entry(6, tensors=[entry, entry]),
            writer.value_entry(5),
            writer.value_entry(99),
            None,
        )
    )
    values = [dump.debug_value(row) for row in range(9)]
    assert values == [-(2**63), True, 0.5, 1e300, tensor, (tensor, tensor), None, None, None]
    assert values[1] is True


def test_debug_values_that_the_file_does_not_have() -> None:
    # GIVEN events that say a type, and log another or none
    listed = [writer.tensor_entry(6)]
    dump = load_etdump(
        write_debug(
            *(writer.value_entry(kind) for kind in range(8)),
            writer.value_entry(5, tensors=listed),
            writer.value_entry(6, tensor=listed[0]),
        )
    )
    # THEN
    assert [dump.debug_value(row) for row in range(10)] == [None] * 10


def test_values_that_equal_the_schemas_default() -> None:
    # GIVEN what FlatBuffers make of an int 0, a bool False, ...: a table without its field
    zero = writer.Table({})
    values = [writer.Table({0: writer.Scalar("b", kind), 7: zero}) for kind in (1, 2, 3, 4)]
    for value, field in zip(values, (3, 6, 4, 5), strict=True):
        value.fields[field] = zero
    # WHEN
    dump = load_etdump(write_debug(*values))
    # THEN
    assert [repr(dump.debug_value(row)) for row in range(4)] == ["0", "False", "0.0", "0.0"]
    assert dump.debug.is_output.tolist() == [0] * 4


def test_tensor_list_beside_a_tensor() -> None:
    entries = [writer.tensor_entry(6, offset=place) for place in range(3)]
    values = (writer.value_entry(k, tensor=entries[0], tensors=entries[1:]) for k in (5, 6))
    dump = load_etdump(write_debug(*values))
    alone, listed = (dump.debug_value(row) for row in range(2))
    assert isinstance(alone, TensorEntry)
    assert isinstance(listed, tuple)
    assert (alone.offset, [tensor.offset for tensor in listed]) == (0, [1, 2])


def test_tensor_is_read_with_its_strides() -> None:
    # GIVEN a transposed matrix at byte 8 of a debug buffer
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    buffer = bytes(8) + matrix.T.tobytes()
    # WHEN
    found = read_tensor(TensorEntry(6, (2, 3), (1, 2), 8), buffer)
    # THEN
    np.testing.assert_array_equal(found, matrix)
    assert not found.flags.writeable


def test_tensor_without_elements_needs_no_bytes() -> None:
    assert read_tensor(TensorEntry(4, (0, 3), (3, 1), -1), b"").shape == (0, 3)


@pytest.mark.parametrize(
    "tensor",
    [
        TensorEntry(6, (3,), (1,), 0),
        TensorEntry(6, (1,), (1,), 8),
        TensorEntry(6, (1,), (1,), -4),
        TensorEntry(6, (2,), (-1,), 0),
        TensorEntry(6, (2,), (1, 1), 0),
        TensorEntry(6, (-1,), (1,), 0),
        TensorEntry(6, (2**62, 2**62), (1, 1), 0),
        TensorEntry(6, (2,), (2**62,), 0),
        TensorEntry(6, (2,) * 65, (1,) * 65, 0),
    ],
    ids=str,
)
def test_tensor_outside_the_debug_buffer(tensor: TensorEntry) -> None:
    with pytest.raises(InputFileError) as caught:
        read_tensor(tensor, bytes(8))
    assert str(caught.value) == (
        f"{tensor} does not fit a debug buffer of 8 bytes; give the debug buffer of the same run"
    )


def test_tensor_of_a_type_that_numpy_lacks() -> None:
    with pytest.raises(InputFileError, match=r"^tensor of scalar type 15 has"):
        read_tensor(TensorEntry(15, (1,), (1,), 0), bytes(8))


@pytest.mark.slow
def test_other_threads_run_while_a_file_is_parsed() -> None:
    # GIVEN a file that takes some 20 ms, and a thread that counts whenever it is let
    data = write_profile(*(writer.profile_event(b"%d" % n) for n in range(50_000)))
    done = threading.Event()
    ticks = 0

    def count() -> None:
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            time.sleep(0.0001)  # gives the GIL up

    thread = threading.Thread(target=count)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)  # no thread gives up the GIL but of itself
    thread.start()
    try:
        before = ticks
        etdump.load_etdump(data)
        during = ticks - before
    finally:
        done.set()
        sys.setswitchinterval(interval)
        thread.join()
    assert during > 0


def test_reading_imports_neither_pandas_nor_torch() -> None:
    code = (
        "import sys, etprof.etdump.reader as e\n"
        "e.load_etdump(sys.stdin.buffer)\n"
        "print([name for name in ('pandas', 'torch', 'executorch') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=TWO_EVENTS, capture_output=True, check=True
    )
    assert done.stdout == b"[]\n"


def test_reader_that_was_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "etprof._etdump", None)
    monkeypatch.delattr("etprof._etdump", raising=False)
    with pytest.raises(BuildError) as caught:
        load_etdump(TWO_EVENTS)
    assert str(caught.value).startswith("the ETDump reader, etprof._etdump, cannot be imported (")
    assert str(caught.value).endswith("build it with `pip install .` in etprof's source folder")
