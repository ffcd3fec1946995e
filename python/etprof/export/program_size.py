"""Splits the size of a program into what it is made of.

A `.pte` starts with a FlatBuffer (identifier `ET12` at byte 4) and, at byte 8, an extended header:
`eh00`, its length (u32), then the size of the FlatBuffer, the offset of the segments and the size
of the segments (u64 each, little-endian). Segments hold delegate blobs, constants and named data.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from etprof.base.errors import ExportError
from etprof.base.files import open_regular

if TYPE_CHECKING:
    from pathlib import Path

_HEADER = struct.Struct("<4s4sIQQQ")


@dataclass(frozen=True)
class ProgramSize:
    """Bytes of a program by purpose; they add up to the file."""

    total_bytes: int
    program_bytes: int
    """The FlatBuffer: operators, memory plan, metadata."""
    delegate_bytes: int
    """The graphs of the delegates, without their weights."""
    constant_bytes: int
    """Weights: of delegates (named data) and of operators outside them."""
    padding_bytes: int
    external_bytes: int
    """Weights in `.ptd` files; not part of the total."""


def measure_program(pte: Path, content: Any, external_bytes: int) -> ProgramSize:  # noqa: ANN401
    """Returns the split of file `pte`, whose decoded form is `content`."""
    with open_regular(pte) as stream:
        head = stream.read(4 + _HEADER.size)
    total = pte.stat().st_size
    identifier, magic, _, program_bytes, _, _ = _HEADER.unpack(head[4:])
    if not identifier.startswith(b"ET"):
        msg = f"{pte} is not an ExecuTorch program"
        raise ExportError(msg)
    if not magic.startswith(b"eh"):  # no segments: no constants, no delegates
        return ProgramSize(total, total, 0, 0, 0, external_bytes)
    delegates = sum(len(entry.data) for entry in content.program.backend_delegate_data)
    constants = sum(len(entry.storage) for entry in content.program.constant_buffer)
    named = content.named_data.buffers if content.named_data is not None else ()
    constants += sum(len(getattr(entry, "buffer", entry)) for entry in named)
    used = program_bytes + delegates + constants
    return ProgramSize(total, program_bytes, delegates, constants, total - used, external_bytes)
