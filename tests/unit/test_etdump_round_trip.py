"""Whatever a writer can put into an ETDump, the reader gives back: every field, set or not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from etprof.etdump.reader import ETDump, TensorEntry, load_etdump
from tests import etdump_writer as writer

Fields = dict[str, Any]


def _signed(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, 2**bits - 1)


def _some_of(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Fields]:
    return st.fixed_dictionaries({}, optional=fields)


NAMES = st.sampled_from([b"", b"DELEGATE_CALL", "Größe ☃".encode()]) | st.binary(max_size=12)
NUMBERS = st.lists(_signed(64), max_size=4)
TENSORS = _some_of(scalar_type=_signed(8), sizes=NUMBERS, strides=NUMBERS, offset=_signed(64))
VALUES = _some_of(
    value_type=_signed(8),
    tensor=TENSORS,
    tensors=st.lists(TENSORS, max_size=3),
    int_value=_signed(64),
    float_value=st.floats(width=32, allow_nan=False),
    double_value=st.floats(allow_nan=False),
    bool_value=st.booleans(),
    output=st.booleans(),
)
PROFILE_EVENTS = _some_of(
    name=NAMES,
    chain_index=_signed(32),
    instruction_id=_signed(32),
    delegate_debug_id_int=_signed(32),
    delegate_debug_id_str=NAMES,
    metadata=st.binary(max_size=9),
    start_time=_unsigned(64),
    end_time=_unsigned(64),
)
ALLOCATION_EVENTS = _some_of(allocator_id=_signed(32), size_bytes=_unsigned(64))
DEBUG_EVENTS = _some_of(
    value=VALUES,
    name=NAMES,
    chain_index=_unsigned(64),
    instruction_id=_signed(32),
    delegate_debug_id_int=_signed(32),
    delegate_debug_id_str=NAMES,
)
EVENTS: st.SearchStrategy[tuple[str, Fields]] = (
    st.tuples(st.just("profile"), PROFILE_EVENTS)
    | st.tuples(st.just("allocation"), ALLOCATION_EVENTS)
    | st.tuples(st.just("debug"), DEBUG_EVENTS)
    | st.just(("of a later schema", {}))
)
BLOCKS = _some_of(
    name=NAMES,
    bundled_input_index=_signed(32),
    allocators=st.lists(_some_of(name=NAMES), max_size=3),
    events=st.lists(EVENTS, max_size=8),
)
DOCUMENTS = _some_of(version=_unsigned(32), blocks=st.lists(BLOCKS, max_size=4))
LAYOUTS = st.fixed_dictionaries(
    {name: st.booleans() for name in ("size_prefix", "aligned", "share_strings", "reverse_fields")}
)


def build_value(fields: Fields) -> writer.Table:
    parts = dict(fields)
    if "tensor" in parts:
        parts["tensor"] = writer.tensor_entry(**parts["tensor"])
    if "tensors" in parts:
        parts["tensors"] = [writer.tensor_entry(**tensor) for tensor in parts["tensors"]]
    return writer.value_entry(**parts)


def build_event(kind: str, fields: Fields) -> writer.Table:
    if kind == "profile":
        return writer.event(profile=writer.profile_event(**fields))
    if kind == "allocation":
        return writer.event(allocation=writer.allocation_event(**fields))
    if kind == "debug":
        value = build_value(fields["value"]) if "value" in fields else None
        return writer.event(debug=writer.debug_event(**{**fields, "value": value}))
    return writer.event()


def build_block(fields: Fields) -> writer.Table:
    parts = dict(fields)
    if "allocators" in parts:
        parts["allocators"] = [writer.allocator(**item) for item in parts["allocators"]]
    if "events" in parts:
        parts["events"] = [build_event(kind, event) for kind, event in parts["events"]]
    return writer.event_block(**parts)


def build_document(fields: Fields) -> writer.Table:
    blocks = [build_block(block) for block in fields["blocks"]] if "blocks" in fields else None
    return writer.etdump(blocks, version=fields.get("version"))


def name_of(dump: ETDump, name_id: int) -> bytes | None:
    return None if name_id == -1 else dump.raw_names[name_id]


def expected_tensor(fields: Fields) -> TensorEntry:
    return TensorEntry(
        scalar_type=fields.get("scalar_type", 0),
        sizes=tuple(fields.get("sizes", ())),
        strides=tuple(fields.get("strides", ())),
        offset=fields.get("offset", 0),
    )


def expected_value(fields: Fields | None) -> Fields:
    if fields is None:
        fields, present, kind = {}, 0, -1
    else:
        order = "value_type tensor tensors int_value float_value double_value bool_value output"
        present = sum(1 << bit for bit, name in enumerate(order.split()) if name in fields)
        kind = fields.get("value_type", 0)
    tensors = [fields["tensor"]] if "tensor" in fields else []
    return {
        "value_type": kind,
        "value_fields": present,
        "int_value": fields.get("int_value", 0),
        "float_value": fields.get("float_value", 0.0),
        "double_value": fields.get("double_value", 0.0),
        "bool_value": int(fields.get("bool_value", 0)),
        "is_output": int(fields.get("output", -1)),
        "tensors": tuple(map(expected_tensor, tensors + fields.get("tensors", []))),
    }


def expected_event(block: int, position: int, kind: str, fields: Fields) -> Fields:
    place = {"block_index": block, "event_index": position}
    if kind == "allocation":
        return place | {
            "allocator_id": fields.get("allocator_id", 0),
            "size_bytes": fields.get("size_bytes", 0),
        }
    event = place | {
        "name": fields.get("name"),
        "chain_index": fields.get("chain_index", 0),
        "instruction_id": fields.get("instruction_id", -1),
        "delegate_debug_id_int": fields.get("delegate_debug_id_int", -1),
        "delegate_debug_id_str": fields.get("delegate_debug_id_str"),
    }
    if kind == "debug":
        return event | expected_value(fields.get("value"))
    return event | {
        "start_time": fields.get("start_time", 0),
        "end_time": fields.get("end_time", 0),
        "metadata": fields.get("metadata", b""),
        "has_metadata": "metadata" in fields,
    }


def expected_dump(document: Fields) -> Fields:
    expected: Fields = {"version": document.get("version", 0), "blocks": [], "allocators": []}
    expected |= {"profile": [], "allocation": [], "debug": []}
    position = 0
    for index, block in enumerate(document.get("blocks", [])):
        begin = position
        for allocator in block.get("allocators", []):
            expected["allocators"].append((index, allocator.get("name")))
        for kind, fields in block.get("events", []):
            if kind in expected:
                expected[kind].append(expected_event(index, position, kind, fields))
            position += 1
        name, bundled = block.get("name"), block.get("bundled_input_index", -1)
        expected["blocks"].append((name, bundled, begin, position))
    return expected


def row_of(columns: object, row: int) -> Fields:
    """One row of columns as Python values."""
    return {name: getattr(columns, name)[row].item() for name in type(columns).__annotations__}


def with_names(dump: ETDump, row: Fields) -> Fields:
    row["name"] = name_of(dump, row.pop("name_id"))
    row["delegate_debug_id_str"] = name_of(dump, row.pop("delegate_debug_id_str_id"))
    return row


def profile_row(dump: ETDump, row: int) -> Fields:
    found = with_names(dump, row_of(dump.profile, row))
    found["metadata"] = dump.profile_metadata(row)
    found["has_metadata"] = found.pop("metadata_offset") != 0
    assert found.pop("metadata_size") == len(found["metadata"])
    return found


def debug_row(dump: ETDump, row: int) -> Fields:
    found = with_names(dump, row_of(dump.debug, row))
    found["tensors"] = dump.debug_tensors(row)
    assert found.pop("tensor_count") == len(found["tensors"])
    found.pop("tensor_begin")
    return found


def found_dump(dump: ETDump) -> Fields:
    blocks = [row_of(dump.blocks, row) for row in range(len(dump.blocks.name_id))]
    allocators = [row_of(dump.allocators, row) for row in range(len(dump.allocators.name_id))]
    return {
        "version": dump.version,
        "blocks": [
            (
                name_of(dump, block["name_id"]),
                block["bundled_input_index"],
                block["event_begin"],
                block["event_end"],
            )
            for block in blocks
        ],
        "allocators": [(row["block_index"], name_of(dump, row["name_id"])) for row in allocators],
        "profile": [profile_row(dump, row) for row in range(len(dump.profile.name_id))],
        "allocation": [
            row_of(dump.allocations, row) for row in range(len(dump.allocations.size_bytes))
        ],
        "debug": [debug_row(dump, row) for row in range(len(dump.debug.name_id))],
    }


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(document=DOCUMENTS, layout=LAYOUTS)
def test_every_field_reads_back(document: Fields, layout: dict[str, bool]) -> None:
    data = bytes(writer.write_etdump(build_document(document), **layout).data)
    dump = load_etdump(data)
    assert found_dump(dump) == expected_dump(document)
    assert dump.size_bytes == len(data)
    assert np.all(np.diff(dump.profile.event_index.astype(np.int64)) > 0)
