"""Which libraries a runner takes along: read from real ELF files, and from damaged ones."""

from __future__ import annotations

import contextlib
import shutil
import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etprof.base.errors import BuildError, InputFileError
from etprof.base.process import run_command
from etprof.targets.android.libraries import (
    AARCH64,
    ElfFile,
    _string,
    check_api_level,
    check_machine,
    find_libraries,
    read_elf,
)
from etprof.targets.runner import find_host_runner


def note(owner: bytes, kind: int, content: bytes) -> bytes:
    """A note as ELF has it: three sizes, then owner and content to the next multiple of four."""
    words = struct.pack("<III", len(owner), len(content), kind)
    return words + owner + bytes(-len(owner) % 4) + content + bytes(-len(content) % 4)


def make_elf(
    needed: tuple[str, ...] = (), runpath: str = "", machine: int = AARCH64, notes: bytes = b""
) -> bytes:
    """A file with one loaded segment, a dynamic section and notes, as a linker lays them out."""
    strings = b"\0"
    tags = []
    for tag, text in [*((1, name) for name in needed), *([(29, runpath)] if runpath else [])]:
        tags.append((tag, len(strings)))
        strings += text.encode() + b"\0"
    start = 64 + 3 * 56
    address = 0x10000
    tags += [(5, address + start), (10, len(strings)), (0, 0)]
    dynamic = b"".join(struct.pack("<qQ", *tag) for tag in tags)
    size = start + len(strings) + len(dynamic)
    identity = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", identity, 3, machine, 1, 0, 64, 0, 0, 64, 56, 3, 0, 0, 0
    )
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, address, address, size, size, 4096)
    place = start + len(strings)
    section = struct.pack(
        "<IIQQQQQQ", 2, 6, place, address + place, 0, len(dynamic), len(dynamic), 8
    )
    end = place + len(dynamic)
    noted = struct.pack("<IIQQQQQQ", 4, 4, end, address + end, 0, len(notes), len(notes), 4)
    return header + load + section + noted + strings + dynamic + notes


def write_elf(
    path: Path, *needed: str, runpath: str = "", machine: int = AARCH64, notes: bytes = b""
) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(make_elf(needed, runpath, machine, notes))
    return path


def android_note(level: int) -> bytes:
    """As the NDK's crtbrand.S writes it: the level, and two texts of 64 bytes."""
    texts = b"r27c".ljust(64, b"\0") + b"12479018".ljust(64, b"\0")
    return note(b"Android\0", 1, struct.pack("<I", level) + texts)


@pytest.mark.skipif(shutil.which("readelf") is None, reason="no readelf to compare with")
def test_the_reader_agrees_with_readelf_on_a_real_runner() -> None:
    runner = find_host_runner()
    shown = run_command(["readelf", "-dW", runner]).stdout
    names = [line.split("[")[1].rstrip("]") for line in shown.splitlines() if "(NEEDED)" in line]
    assert names
    assert list(read_elf(runner).needed) == names


def test_a_made_up_file_is_read(tmp_path: Path) -> None:
    path = write_elf(tmp_path / "r", "liba.so", "libc.so", runpath="$ORIGIN/lib::/sdk")
    assert read_elf(path) == ElfFile(AARCH64, ("liba.so", "libc.so"), ("$ORIGIN/lib", "/sdk"))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "unpack_from requires a buffer of at least 64 bytes"),
        (b"#!/bin/sh\n" + bytes(100), "it does not begin as one"),
        (make_elf()[:100], "unpack_from requires a buffer of at least"),
        (make_elf(("liba.so",))[:-30], "go beyond its"),
    ],
)
def test_a_file_that_is_none_is_named(tmp_path: Path, data: bytes, reason: str) -> None:
    path = tmp_path / "runner"
    path.write_bytes(data)
    with pytest.raises(InputFileError) as caught:
        read_elf(path)
    assert str(caught.value).startswith(f"{path} is not a 64-bit little-endian ELF program: ")
    assert reason in str(caught.value)


@given(st.data())
def test_no_byte_makes_the_reader_fail_otherwise(data: st.DataObject) -> None:
    content = bytearray(make_elf(("liba.so", "libc.so"), "/sdk"))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with tempfile.NamedTemporaryFile() as file:
        path = Path(file.name)
        path.write_bytes(bytes(content))
        with contextlib.suppress(InputFileError):
            assert isinstance(read_elf(path), ElfFile)


def test_libraries_are_found_at_all_levels(tmp_path: Path) -> None:
    runner = write_elf(tmp_path / "bin/runner", "liba.so", "libc.so", runpath="$ORIGIN/../lib:")
    first = write_elf(tmp_path / "lib/liba.so", "libb.so", "liba.so")
    second = write_elf(tmp_path / "bin/libb.so", "libm.so", "../../etc/passwd")
    assert find_libraries(runner) == (tmp_path / "bin/../lib/liba.so", second)
    assert first.exists()


def test_the_cpp_library_comes_from_the_ndk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANDROID_NDK_HOME", "ANDROID_NDK_ROOT", "ANDROID_NDK"):
        monkeypatch.delenv(name, raising=False)
    runner = write_elf(tmp_path / "runner", "libc++_shared.so", "liblog.so")
    with pytest.raises(BuildError) as caught:
        find_libraries(runner)
    assert str(caught.value) == (
        "the runner needs libc++_shared.so, which no device has; copy it beside the runner, or set "
        "ANDROID_NDK_HOME to the NDK the runner was built with"
    )
    folder = "toolchains/llvm/prebuilt/linux-x86_64/sysroot/usr/lib/aarch64-linux-android"
    library = write_elf(tmp_path / "ndk" / folder / "libc++_shared.so", "libc.so")
    monkeypatch.setenv("ANDROID_NDK_HOME", str(tmp_path / "ndk"))
    assert find_libraries(runner) == (library,)


def test_a_runner_for_another_machine_is_refused(tmp_path: Path) -> None:
    check_machine(write_elf(tmp_path / "arm"))
    runner = write_elf(tmp_path / "host", machine=62)
    with pytest.raises(BuildError) as caught:
        check_machine(runner)
    assert str(caught.value) == (
        f"{runner} is built for x86_64, but Android devices run aarch64; build one with "
        f"`cmake --workflow --preset android-sme2`"
    )


BUILD_ID = note(b"GNU\0", 3, bytes(range(20)))


@pytest.mark.parametrize(
    ("notes", "level"),
    [
        (b"", None),
        (BUILD_ID, None),
        (android_note(35), 35),
        (BUILD_ID + android_note(28), 28),
        (note(b"GNU\0", 1, bytes(16)) + BUILD_ID, None),
        (note(b"Android\0", 2, struct.pack("<I", 7)), None),
        (note(b"abc", 9, b"12345") + android_note(30), 30),
        (note(b"Android\0", 1, b"\x1e"), None),
        (android_note(35)[:14], None),
        (b"\xff" * 40, None),
    ],
)
def test_the_api_level_is_read_from_the_ndk_s_note(
    tmp_path: Path, notes: bytes, level: int | None
) -> None:
    assert read_elf(write_elf(tmp_path / "runner", notes=notes)).android_api_level == level


def test_notes_without_end_are_not_read(tmp_path: Path) -> None:
    notes = bytes(2**16) + android_note(35)
    assert read_elf(write_elf(tmp_path / "runner", notes=notes)).android_api_level is None


def test_a_runner_of_a_newer_android_is_refused_with_both_levels(tmp_path: Path) -> None:
    """The device's linker says "cannot locate symbol", after everything was copied."""
    runner = write_elf(tmp_path / "runner", notes=android_note(35))
    check_api_level(runner, 35)
    check_api_level(runner, 36)
    check_api_level(runner, None)
    check_api_level(write_elf(tmp_path / "linux"), 1)
    with pytest.raises(BuildError) as caught:
        check_api_level(runner, 30)
    assert str(caught.value) == (
        f"{runner} is built for Android API level 35, and the device has 30: configure its preset "
        "again, such as `cmake --fresh --preset android-sme2 -DANDROID_PLATFORM=android-30`, and "
        "build it, or take a device with a newer Android"
    )
    # No preset is built for what is older.
    with pytest.raises(BuildError, match=r"has 27: take a device with a newer Android$"):
        check_api_level(runner, 27)


def test_notes_of_all_segments_are_read_up_to_a_bound(tmp_path: Path) -> None:
    """Each of 65 535 segments may point at the same bytes: hours of reading."""
    empty = bytes(12 * 3000)
    notes = empty + android_note(35)
    content = bytearray(make_elf(notes=notes))
    (tmp_path / "runner").write_bytes(content)
    assert read_elf(tmp_path / "runner").android_api_level == 35
    # WHEN the segment before it has as many notes
    start = len(content) - len(notes)
    content[64 + 56 : 64 + 2 * 56] = struct.pack(
        "<IIQQQQQQ", 4, 4, start, 0, 0, len(empty), len(empty), 4
    )
    (tmp_path / "runner").write_bytes(content)
    assert read_elf(tmp_path / "runner").android_api_level is None


def test_notes_beyond_the_end_of_a_file_are_none(tmp_path: Path) -> None:
    content = make_elf(("liba.so",), notes=BUILD_ID + android_note(35))
    (tmp_path / "runner").write_bytes(content[:-150])
    elf = read_elf(tmp_path / "runner")
    assert (elf.needed, elf.android_api_level) == (("liba.so",), None)


def test_a_dynamic_section_without_end_is_refused(tmp_path: Path) -> None:
    """The reader took ten bytes of memory for each of a stranger's file."""
    content = bytearray(make_elf())
    size = 2**20 + 16
    struct.pack_into("<Q", content, 64 + 56 + 32, size)
    path = tmp_path / "endless"
    path.write_bytes(bytes(content) + struct.pack("<qQ", 1, 0) * (size // 16))
    with pytest.raises(InputFileError) as caught:
        read_elf(path)
    assert "dynamic section" in str(caught.value)


@pytest.mark.parametrize(("strings", "offset"), [(b"libc.so", 0), (b"libc.so\0", 8), (b"", 0)])
def test_a_name_without_an_end_is_refused(strings: bytes, offset: int) -> None:
    with pytest.raises(ValueError, match=f"the name at {offset} of its string table has no end"):
        _string(strings, offset)
    assert _string(b"\0libc.so\0libm.so\0", 9) == "libm.so"
