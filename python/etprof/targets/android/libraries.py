"""Which shared libraries a runner takes along to a device: read from ELF, every offset checked."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from etprof.base.errors import BuildError, InputFileError
from etprof.base.files import read_input
from etprof.targets.runner import MOST_RUNNER_BYTES

CPP_LIBRARY: Final = "libc++_shared.so"
"""The C++ library of the Android NDK; no device has it."""
NDK_VARIABLES: Final = ("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT", "ANDROID_NDK")
_NDK_LIBRARIES: Final = "toolchains/llvm/prebuilt/*/sysroot/usr/lib/aarch64-linux-android"


def find_libraries(runner: Path) -> tuple[Path, ...]:
    """Returns the libraries that `runner` needs and this machine keeps for it, all levels deep.

    Looked for beside the runner, in its own library paths and, for the C++ library, in the
    Android NDK. What is in none of them, such as libc.so, belongs to the device. Raises
    BuildError when the C++ library is needed and not found, InputFileError for a damaged file.
    """
    libraries: dict[str, Path] = {}
    waiting = [runner]
    while waiting:
        file = waiting.pop()
        elf = read_elf(file)
        folders = [runner.parent, *_own_folders(file, elf)]
        for name in elf.needed:
            if name not in libraries and (path := _find(name, folders)) is not None:
                libraries[name] = path
                waiting.append(path)
    return tuple(libraries[name] for name in sorted(libraries))


def check_machine(runner: Path) -> None:
    """Raises BuildError when the runner is for another machine than an arm64 phone."""
    machine = read_elf(runner).machine
    if machine != AARCH64:
        name = MACHINES.get(machine, f"machine {machine}")
        raise BuildError(
            f"{runner} is built for {name}, but Android devices run aarch64; build one with "
            f"`cmake --workflow --preset android-sme2`"
        )


def check_api_level(runner: Path, device_level: int | None) -> None:
    """Raises BuildError when the runner is built for a newer Android than the device has.

    The device's linker may say of it that it cannot locate some symbol, once it is there.
    """
    level = read_elf(runner).android_api_level
    if level is not None and device_level is not None and level > device_level:
        way_out = "take a device with a newer Android"
        if device_level >= _OLDEST_LEVEL:
            way_out = (
                "configure its preset again, such as `cmake --fresh --preset android-sme2 "
                f"-DANDROID_PLATFORM=android-{device_level}`, and build it, or {way_out}"
            )
        raise BuildError(
            f"{runner} is built for Android API level {level}, and the device has {device_level}: "
            f"{way_out}"
        )


def _own_folders(file: Path, elf: ElfFile) -> Iterator[Path]:
    for folder in elf.runpath:
        text = folder.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", str(file.parent))
        if text.startswith("/"):
            yield Path(text)


def _find(name: str, folders: list[Path]) -> Path | None:
    if "/" in name:
        return None
    search_folders = [*folders, *_ndk_folders()] if name == CPP_LIBRARY else folders
    matches = [folder / name for folder in search_folders if (folder / name).is_file()]
    if matches:
        return matches[0]
    if name == CPP_LIBRARY:
        raise BuildError(
            f"the runner needs {CPP_LIBRARY}, which no device has; copy it beside the runner, or "
            f"set ANDROID_NDK_HOME to the NDK the runner was built with"
        )
    return None


def _ndk_folders() -> Iterator[Path]:
    for variable in NDK_VARIABLES:
        if root := os.environ.get(variable):
            yield from sorted(Path(root).glob(_NDK_LIBRARIES))


AARCH64: Final = 183
MACHINES: Final = {3: "x86", 40: "arm", 62: "x86_64", AARCH64: "aarch64", 243: "riscv"}
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<qQ")
_NOTE = struct.Struct("<III")
_LOAD, _DYNAMIC, _NOTES = 1, 2, 4
_OLDEST_LEVEL: Final = 28
"""Of the presets (CMakePresets.json, ANDROID_PLATFORM): nothing is built for older ones."""
_ANDROID_NOTE: Final = (b"Android\0", 1)
"""Owner and type of the note whose first four bytes are the API level (the NDK's crtbrand.S)."""
_MOST_NOTE_BYTES: Final = 2**16
"""Of all notes of a file; a runner has three, of some 200 bytes."""
_NEEDED, _STRINGS, _STRINGS_SIZE, _RPATH, _RUNPATH = 1, 5, 10, 15, 29
_LONGEST_NAME: Final = 4096
_MOST_DYNAMIC_BYTES: Final = 2**20
"""A library has some thirty entries of 16 bytes; a stranger's gigabyte of them took ten of memory."""


@dataclass(frozen=True)
class ElfFile:
    """What a program or library needs to be loaded."""

    machine: int
    """ELF's number, such as AARCH64."""
    needed: tuple[str, ...]
    """File names of shared libraries, as recorded."""
    runpath: tuple[str, ...]
    """Folders to look for them, `$ORIGIN` not replaced."""
    android_api_level: int | None = None
    """The oldest Android that it is built for; None for other systems."""


class _Segment(NamedTuple):
    kind: int
    offset: int
    address: int
    size: int


def read_elf(path: Path) -> ElfFile:
    """Reads a 64-bit little-endian ELF file; raises InputFileError for anything else."""
    data = read_input(path, most_bytes=MOST_RUNNER_BYTES, way_out="check the path")
    try:
        return _parse(data)
    except (struct.error, ValueError) as error:
        msg = f"{path} is not a 64-bit little-endian ELF program: {error}; check the path"
        raise InputFileError(msg) from None


def _parse(data: bytes) -> ElfFile:
    identity, _, machine, _, _, table, _, _, _, size, count, *_ = _HEADER.unpack_from(data)
    if identity[:6] != b"\x7fELF\x02\x01":
        raise ValueError("it does not begin as one")
    if count and size != _SEGMENT.size:
        raise ValueError(f"its segments have {size} bytes each, not {_SEGMENT.size}")
    segments = [_read_segment(data, table + index * size) for index in range(count)]
    dynamic = next((segment for segment in segments if segment.kind == _DYNAMIC), None)
    tags = [] if dynamic is None else list(_read_tags(data, dynamic))
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
        android_api_level=_read_api_level(data, segments),
    )


def _read_api_level(data: bytes, segments: list[_Segment]) -> int | None:
    """Returns what the NDK notes in every program of its own; None also for damaged notes."""
    rest_bytes = _MOST_NOTE_BYTES
    for segment in segments:
        if segment.kind == _NOTES and segment.size <= rest_bytes:
            rest_bytes -= segment.size
            notes = data[segment.offset : segment.offset + segment.size]
            for owner, kind, content in _read_notes(notes):
                if (owner, kind) == _ANDROID_NOTE and len(content) >= 4:
                    return int.from_bytes(content[:4], "little")
    return None


def _read_notes(data: bytes) -> Iterator[tuple[bytes, int, bytes]]:
    """Yields owner, type and content of each note; names and contents end at multiples of four."""
    position = 0
    while position + _NOTE.size <= len(data):
        name_size, size, kind = _NOTE.unpack_from(data, position)
        name = position + _NOTE.size
        content = name + (name_size + 3) // 4 * 4
        yield data[name : name + name_size], kind, data[content : content + size]
        position = content + (size + 3) // 4 * 4


def _read_segment(data: bytes, offset: int) -> _Segment:
    if offset > len(data):
        raise ValueError(f"its segment table points to {offset}, beyond its {len(data)} bytes")
    kind, _, position, address, _, size, _, _ = _SEGMENT.unpack_from(data, offset)
    return _Segment(kind, position, address, size)


def _read_tags(data: bytes, dynamic: _Segment) -> Iterator[tuple[int, int]]:
    """Yields tag and value of the dynamic section up to its end mark."""
    if dynamic.size > _MOST_DYNAMIC_BYTES:
        raise ValueError(f"its dynamic section of {dynamic.size} bytes has no end")
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
    raise ValueError(f"address {address:#x} is in none of its segments")


def _part(data: bytes, offset: int, size: int) -> bytes:
    if offset + size > len(data):
        raise ValueError(f"{size} bytes at {offset} go beyond its {len(data)} bytes")
    return data[offset : offset + size]


def _string(strings: bytes, offset: int) -> str:
    end = strings.find(b"\0", offset, offset + _LONGEST_NAME)
    if offset >= len(strings) or end < 0:
        raise ValueError(f"the name at {offset} of its string table has no end")
    return strings[offset:end].decode("utf-8", "surrogateescape")
