"""ETDumps to measure on: MobileNetV2 recorded here, and the same file many times over."""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

MODEL = "mobilenet_v2"


def record(folder: Path, inferences: int) -> Path:
    """Exports MobileNetV2 (random weights) and records that many inferences in one ETDump."""
    from etprof.base.process import run_command
    from etprof.export.exporter import export_model
    from etprof.export.request import ExportRequest
    from etprof.targets.runner import find_host_runner

    program = export_model(ExportRequest(MODEL, "fp32", outdir=folder)).pte
    path = folder / f"{MODEL}.etdump"
    words = f"--warmup 0 --iterations {inferences - 1} --result {folder / 'result.json'}".split()
    done = run_command([find_host_runner(), "--model", program, "--etdump", path, *words])
    if done.exit_code != 0:
        sys.exit(done.stderr)
    return path


def repeat_blocks(source: bytes, copies: int, path: Path) -> None:
    """Writes an ETDump whose event blocks are those of `source`, `copies` times over.

    Offsets in a FlatBuffer are relative, so copies of the whole file keep working anywhere behind a
    new root that lists all their blocks. Operators end up to a tenth earlier in each copy but the
    first, by a ns: else no copy had a duration that another has not, which is easily counted.
    """
    blocks = list(_elements(source, _field(source, 4 + _number(source, 4), 1)))
    body = np.frombuffer(source + bytes(-len(source) % 8), np.uint8).copy()
    ends = np.array(list(_operator_ends(source, blocks)), np.int64).reshape(-1, 2)
    places = ends[:, :1] + np.arange(8)
    stamps = body[places].view(np.uint64).ravel().astype(np.int64)
    durations = ends[:, 1]
    random = np.random.default_rng(0)
    # Size, root offset, identifier, vtable with one field (the second), root, vector.
    slots_at, count = 32, len(blocks)
    first = slots_at + 4 * count * copies
    first += -first % 8
    size = first + copies * len(body)
    if size >= 1 << 32:
        sys.exit(f"{size} bytes are more than an ETDump's offsets reach; make fewer copies")
    head = struct.pack("<II4s", size - 4, 16, b"ED00")
    head += struct.pack("<HHHH", 8, 8, 0, 4) + struct.pack("<iI", 8, 4)
    head += struct.pack("<I", count * copies)
    with path.open("wb") as file:
        file.write(head)
        for copy in range(copies):
            base = first + copy * len(body)
            slots = [slots_at + 4 * (copy * count + index) for index in range(count)]
            offsets = [base + at - slot for at, slot in zip(blocks, slots, strict=True)]
            file.write(struct.pack(f"<{count}I", *offsets))
        file.write(bytes(first - file.tell()))
        for _ in range(copies):
            file.write(body.tobytes())
            earlier = (durations * random.uniform(0, 0.1, durations.size)).astype(np.int64)
            body[places] = (stamps - earlier).astype(np.uint64)[:, None].view(np.uint8)


def _operator_ends(source: bytes, blocks: list[int]) -> Iterator[tuple[int, int]]:
    """Yields where the end of each operator of XNNPACK or of a kernel stands, and its duration."""
    for block in blocks:
        for event in _elements(source, _field(source, block, 3)):
            if not (slot := _slot(source, event, 0)):
                continue
            profile = slot + _number(source, slot)
            is_operator = _slot(source, profile, 4) or _slot(source, profile, 3)
            if name := _slot(source, profile, 0):
                text = name + _number(source, name)
                is_operator = is_operator or source.startswith(b"native_call_", text + 4)
            start, end = _slot(source, profile, 6), _slot(source, profile, 7)
            if is_operator and start and end:
                yield end, _number(source, end, "Q") - _number(source, start, "Q")


def _number(source: bytes, at: int, form: str = "I") -> int:
    return int(struct.unpack_from("<" + form, source, at)[0])


def _slot(source: bytes, table: int, field: int) -> int:
    """Where a field of a table stands; 0 where the table does not have it."""
    vtable = table - _number(source, table, "i")
    if 4 + 2 * field >= _number(source, vtable, "H"):
        return 0
    offset = _number(source, vtable + 4 + 2 * field, "H")
    return table + offset if offset else 0


def _field(source: bytes, table: int, field: int) -> int:
    """Where the table or vector begins that a field points to; 0 for none."""
    slot = _slot(source, table, field)
    return slot + _number(source, slot) if slot else 0


def _elements(source: bytes, vector: int) -> Iterator[int]:
    """Yields where the tables of a vector begin."""
    count = _number(source, vector) if vector else 0
    for slot in range(vector + 4, vector + 4 + 4 * count, 4):
        yield slot + _number(source, slot)
