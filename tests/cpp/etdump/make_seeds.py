"""Writes the ETDumps that the native reader tests and the fuzz target start from.

usage: make_seeds.py FOLDER. Needs nothing but Python.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from tests import etdump_writer as writer


def make_everything() -> writer.Table:
    """Two event blocks with every table, vector, string and scalar of the schema."""
    tensor = writer.tensor_entry(6, [2, 3], [3, 1], 64)
    listed = [writer.tensor_entry(4, [], [], -1), writer.tensor_entry(1, [5], [1], 128)]
    value = writer.value_entry(
        5,
        tensor=tensor,
        tensors=listed,
        int_value=-5,
        float_value=0.5,
        double_value=0.25,
        bool_value=True,
        output=True,
    )
    profile = writer.profile_event(
        b"DELEGATE_CALL",
        chain_index=1,
        instruction_id=2,
        delegate_debug_id_int=3,
        delegate_debug_id_str=b"GEMM #1",
        metadata=b"\x01\x02\x03",
        start_time=100,
        end_time=250,
    )
    debug = writer.debug_event(
        value,
        name=b"add",
        chain_index=4,
        instruction_id=5,
        delegate_debug_id_int=6,
        delegate_debug_id_str=b"\xff",
    )
    load = [writer.event(profile=writer.profile_event(b"Method::init", end_time=7))]
    execute = [
        writer.event(allocation=writer.allocation_event(1, 4096)),
        writer.event(profile=profile),
        writer.event(debug=debug),
        writer.event(debug=writer.debug_event()),
        writer.event(),
    ]
    allocators = [writer.allocator(b"planned"), writer.allocator()]
    return writer.etdump(
        [
            writer.event_block(b"Default", load),
            writer.event_block(b"Execute", execute, allocators=allocators, bundled_input_index=9),
        ],
        version=1,
    )


def make_shared_events() -> writer.Table:
    """A small file that describes a tree of ten thousand events; the fuzzer takes up to 4096 bytes."""
    events = [writer.event(profile=writer.profile_event(b"a"))] * 200
    return writer.etdump([writer.event_block(b"Execute", events) for _ in range(50)])


def make_executions() -> writer.Table:
    """Executions of three events; each has one of a delegate that is called as an execution is."""
    events = [
        writer.event(profile=profile)
        for turn in range(3)
        for profile in (
            writer.profile_event(b"native_call_%d" % turn),
            writer.profile_event(b"Method::execute", delegate_debug_id_int=turn),
            writer.profile_event(b"Method::execute", delegate_debug_id_str=b"GEMM #%d" % turn),
            writer.profile_event(b"Method::execute"),
        )
    ]
    return writer.etdump(
        [writer.event_block(b"First", events[:5]), writer.event_block(b"Execute", events[5:])]
    )


def make_seeds() -> dict[str, bytes]:
    """Returns the seeds by name."""
    everything = make_everything()
    layouts = {
        "everything": writer.write_etdump(everything),
        "bare": writer.write_etdump(everything, size_prefix=False),
        "unaligned": writer.write_etdump(everything, aligned=False, reverse_fields=True),
        "no_blocks": writer.write_etdump(writer.etdump()),
        "no_events": writer.write_etdump(writer.etdump([writer.event_block(b"Execute", [])])),
        "pieces": writer.write_etdump(make_executions()),
        "shared_events": writer.write_etdump(make_shared_events()),
    }
    return {name: bytes(written.data) for name, written in layouts.items()}


def main() -> None:
    """Writes every seed into the folder on the command line."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in make_seeds().items():
        (folder / f"{name}.etdump").write_bytes(data)


if __name__ == "__main__":
    main()
