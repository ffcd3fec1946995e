"""Reads which machine and which shared libraries an ELF file is for; every offset is checked."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from etprof.base.errors import InputFileError
from etprof.base.files import read_input

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AARCH64: Final = 183
MACHINES: Final = {3: "x86", 40: "arm", 62: "x86_64", AARCH64: "aarch64", 243: "riscv"}
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRINGS, _STRINGS_SIZE, _RPATH, _RUNPATH = 1, 5, 10, 15, 29
_LONGEST_NAME: Final = 4096
_MOST_BYTES: Final = 2**30
"""A runner with debug information has a tenth of that."""


@dataclass(frozen=True)
class ElfFile:
    """What a program or library needs to be loaded."""

    machine: int
    """ELF's number, such as AARCH64."""
    needed: tuple[str, ...]
    """File names of shared libraries, as recorded."""
    runpath: tuple[str, ...]
    """Folders to look for them, `$ORIGIN` not replaced."""


@dataclass(frozen=True)
class _Segment:
    kind: int
    offset: int
    address: int
    size: int


def read_elf(path: Path) -> ElfFile:
    """Reads a 64-bit little-endian ELF file; raises InputFileError for anything else."""
    data = read_input(path, most_bytes=_MOST_BYTES, way_out="check the path")
    try:
        return _parse(data)
    except (struct.error, ValueError) as error:
        msg = f"{path} is not a 64-bit little-endian ELF program: {error}; check the path"
        raise InputFileError(msg) from None


def _parse(data: bytes) -> ElfFile:
    identity, _, machine, _, _, table, _, _, _, size, count, *_ = _HEADER.unpack_from(data)
    if identity[:6] != b"\x7fELF\x02\x01":
        msg = "it does not begin as one"
        raise ValueError(msg)
    if count and size != _SEGMENT.size:
        msg = f"its segments have {size} bytes each, not {_SEGMENT.size}"
        raise ValueError(msg)
    segments = [_read_segment(data, table + index * size) for index in range(count)]
    tags = [entry for s in segments if s.kind == _DYNAMIC for entry in _read_tags(data, s)]
    values = dict(tags)
    strings = b""
    if _STRINGS in values:
        start = _file_offset(segments, values[_STRINGS])
        strings = _part(data, start, values.get(_STRINGS_SIZE, 0))
    paths = [_string(strings, value) for tag, value in tags if tag in {_RPATH, _RUNPATH}]
    return ElfFile(
        machine=machine,
        needed=tuple(_string(strings, value) for tag, value in tags if tag == _NEEDED),
        runpath=tuple(folder for path in paths for folder in path.split(":") if folder),
    )


def _read_segment(data: bytes, offset: int) -> _Segment:
    if offset > len(data):
        msg = f"its segment table points to {offset}, beyond its {len(data)} bytes"
        raise ValueError(msg)
    kind, _, position, address, _, size, _, _ = _SEGMENT.unpack_from(data, offset)
    return _Segment(kind, position, address, size)


def _read_tags(data: bytes, dynamic: _Segment) -> Iterator[tuple[int, int]]:
    """Yields tag and value of the dynamic section up to its end mark."""
    section = _part(data, dynamic.offset, dynamic.size)
    for tag, value in _ENTRY.iter_unpack(section[: len(section) // _ENTRY.size * _ENTRY.size]):
        if tag == 0:
            return
        yield tag, value


def _file_offset(segments: list[_Segment], address: int) -> int:
    """Turns an address of the loaded file into a position in the file."""
    for segment in segments:
        if segment.kind == _LOAD and 0 <= address - segment.address < segment.size:
            return segment.offset + address - segment.address
    msg = f"address {address:#x} is in none of its segments"
    raise ValueError(msg)


def _part(data: bytes, offset: int, size: int) -> bytes:
    if offset + size > len(data):
        msg = f"{size} bytes at {offset} go beyond its {len(data)} bytes"
        raise ValueError(msg)
    return data[offset : offset + size]


def _string(strings: bytes, offset: int) -> str:
    end = strings.find(b"\0", offset, offset + _LONGEST_NAME)
    if offset >= len(strings) or end < 0:
        msg = f"the name at {offset} of its string table has no end"
        raise ValueError(msg)
    return strings[offset:end].decode("utf-8", "surrogateescape")
