"""What the reader and its tests' writer take for the schema is what executorch takes for it."""

from __future__ import annotations

import warnings
from dataclasses import asdict

import numpy as np

from etprof.etdump.reader import SCALAR_DTYPES, ValueType
from tests import etdump_writer as writer
from tests.integration.deserialised import deserialise


def test_scalar_types_are_executorchs() -> None:
    with warnings.catch_warnings(action="ignore"):  # of the libraries about themselves
        import torch
        from executorch.exir.scalar_type import ScalarType
        from executorch.exir.tensor import enum_to_scalar_map

    # GIVEN what stands in memory where torch gives no array of the type
    stored = {"QINT8": "int8", "QUINT8": "uint8", "QINT32": "int32"}
    stored |= {"BITS16": "uint16", "UINT64": "uint64"}
    for kind in ScalarType:
        if kind.name in stored:
            assert np.dtype(SCALAR_DTYPES[kind]).name == stored[kind.name]
            continue
        try:
            with warnings.catch_warnings(action="ignore"):
                expected = torch.empty(0, dtype=enum_to_scalar_map[kind]).numpy().dtype
        except (KeyError, TypeError):  # ExecuTorch has no such tensors, or NumPy no such numbers
            assert kind not in SCALAR_DTYPES, kind
        else:
            assert np.dtype(SCALAR_DTYPES[kind]) == expected, kind


def test_value_types_are_executorchs() -> None:
    with warnings.catch_warnings(action="ignore"):
        from executorch.devtools.etdump import schema_flatcc

    names = [kind.name for kind in schema_flatcc.ValueType]
    assert [(kind.name, kind.value) for kind in ValueType] == [*zip(names, range(8), strict=True)]


def make_one_of_everything() -> writer.Table:
    """An event block with a value in every field of the schema, no two of them alike."""
    value = writer.value_entry(
        6,
        tensor=writer.tensor_entry(3, [4, 5], [5, 1], 9),
        tensors=[writer.tensor_entry(6, [2], [1], 8)],
        int_value=-1,
        float_value=0.5,
        double_value=0.1,
        bool_value=True,
        output=False,
    )
    debug = writer.debug_event(
        value,
        name=b"add",
        chain_index=3,
        instruction_id=4,
        delegate_debug_id_int=5,
        delegate_debug_id_str=b"z",
    )
    profile = writer.profile_event(
        b"x",
        chain_index=1,
        instruction_id=2,
        delegate_debug_id_int=3,
        delegate_debug_id_str=b"y",
        metadata=b"\x07",
        start_time=5,
        end_time=6,
    )
    events = [
        writer.event(profile=profile),
        writer.event(allocation=writer.allocation_event(1, 64)),
        writer.event(debug=debug),
    ]
    allocators = [writer.allocator(b"planned")]
    return writer.event_block(b"Execute", events, allocators=allocators, bundled_input_index=8)


def test_our_writer_writes_what_flatc_reads() -> None:
    """Guards the other tests against a writer and a reader that share one mistake."""
    document = writer.write_etdump(writer.etdump([make_one_of_everything()], version=0))
    found = asdict(deserialise(bytes(document.data))[0])
    events = found.pop("events")
    assert found == {
        "name": "Execute",
        "bundled_input_index": 8,
        "allocators": [{"name": "planned"}],
    }
    assert events[0]["profile_event"] == {
        "name": "x",
        "chain_index": 1,
        "instruction_id": 2,
        "delegate_debug_id_int": 3,
        "delegate_debug_id_str": "y",
        "delegate_debug_metadata": b"\x07",
        "start_time": 5,
        "end_time": 6,
    }
    assert events[1]["allocation_event"] == {"allocator_id": 1, "allocation_size": 64}
    assert events[2]["debug_event"] == {
        "name": "add",
        "chain_index": 3,
        "instruction_id": 4,
        "delegate_debug_id_int": 5,
        "delegate_debug_id_str": "z",
        "debug_entry": {
            "val": "TensorList",
            "tensor": {"scalar_type": 3, "sizes": [4, 5], "strides": [5, 1], "offset": 9},
            "tensor_list": {
                "tensors": [{"scalar_type": 6, "sizes": [2], "strides": [1], "offset": 8}]
            },
            "int_value": {"int_val": -1},
            "float_value": {"float_val": 0.5},
            "double_value": {"double_val": 0.1},
            "bool_value": {"bool_val": True},
            "output": {"bool_val": False},
        },
    }
