"""ETDumps to measure on: MobileNetV2 recorded here, and the same file many times over."""

from __future__ import annotations

import struct
import sys
from pathlib import Path

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
    new root that lists all their blocks.
    """

    def number(at: int, form: str = "I") -> int:
        return int(struct.unpack_from("<" + form, source, at)[0])

    root = 4 + number(4)
    run_data = root + number(root - number(root, "i") + 6, "H")
    vector = run_data + number(run_data)
    count = number(vector)
    blocks = [at + number(at) for at in range(vector + 4, vector + 4 + 4 * count, 4)]
    body = source + bytes(-len(source) % 8)
    # Size, root offset, identifier, vtable with one field (the second), root, vector.
    slots_at = 32
    first = slots_at + 4 * count * copies
    first += -first % 8
    size = first + copies * len(body)
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
            file.write(body)
