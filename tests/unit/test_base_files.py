"""S6: whatever stands in the place of a file, nothing blocks, and nothing is read without end."""

from __future__ import annotations

import os
import resource
import socket
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from etprof.base.errors import InputFileError, UsageError
from etprof.base.files import MOST_PROGRAM_BYTES, hash_file, open_regular, read_bounded, read_input

GIB = 2**30


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def make_terminal(path: Path) -> None:
    path.symlink_to("/dev/tty")


def make_socket(path: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(path.parent)  # a socket's whole path has at most 107 bytes
    try:
        listener.bind(path.name)
    finally:
        os.chdir(here)
        listener.close()


def make_folder(path: Path) -> None:
    path.mkdir()


def make_loop(path: Path) -> None:
    path.symlink_to(path.name)


MAKERS = [make_pipe, make_endless, make_terminal, make_socket, make_folder, make_loop]


@pytest.mark.parametrize("make", MAKERS)
def test_what_is_no_file_is_refused_at_once(make: Callable[[Path], None], tmp_path: Path) -> None:
    path = tmp_path / "x"
    make(path)
    for read in (open_regular, hash_file, lambda each: read_bounded(each, 100)):
        with pytest.raises(OSError, match="x"):
            read(path)
    with pytest.raises(InputFileError, match=r"^cannot read .*x: .+; make it again$"):
        read_input(path, most_bytes=100, way_out="make it again")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (make_pipe, "a named pipe"),
        (make_endless, "a device"),
        (make_socket, "a socket"),
        (make_folder, "a directory"),
    ],
)
def test_the_message_says_what_it_is(
    make: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
    make(tmp_path / "x")
    with pytest.raises(UsageError, match=words):
        read_input(tmp_path / "x", most_bytes=100, way_out="no", error=UsageError)


def test_a_name_with_a_nul_is_no_file() -> None:
    with pytest.raises(OSError, match="null"):
        read_bounded(Path("a\0b"), 100)


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"12345")
    assert read_bounded(path, 5) == b"12345"
    with pytest.raises(OSError, match="longer than 4 bytes"):
        read_bounded(path, 4)


def test_a_long_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with path.open("wb") as stream:
        stream.truncate(GIB)
    with pytest.raises(OSError, match="longer than 256 MiB"):
        read_bounded(path, GIB // 4)


def test_a_file_that_tells_no_size_is_bounded_too() -> None:
    """The kernel's files have size 0 and hold more."""
    path = Path("/proc/self/maps")
    if not path.exists():
        pytest.skip("only Linux has /proc")
    assert path.stat().st_size == 0
    with pytest.raises(OSError, match="longer than 10 bytes"):
        read_bounded(path, 10)


def test_a_small_file_takes_little_memory_whatever_the_bound(tmp_path: Path) -> None:
    """S6: a bound of 64 GiB is not asked of the machine."""
    path = tmp_path / "small"
    path.write_bytes(b"x" * 1000)
    tracemalloc.start()
    assert read_bounded(path, MOST_PROGRAM_BYTES) == b"x" * 1000
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 2**20


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS is Linux's")
def test_a_file_that_memory_cannot_hold_is_named_with_its_size(tmp_path: Path) -> None:
    """S6: a file within its bound can be larger than what the machine has left."""
    path = tmp_path / "x"
    with path.open("wb") as stream:
        stream.truncate(GIB * 64)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (GIB * 32, limits[1]))
    try:
        with pytest.raises(InputFileError, match=r"x: it has 65536 MiB, more than .* memory"):
            read_input(path, most_bytes=GIB * 64, way_out="give it less")
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
def test_a_file_without_a_size_is_read_whole() -> None:
    """S6: files of the kernel say 0 bytes."""
    path = Path("/proc/self/maps")
    assert path.stat().st_size == 0
    assert len(read_bounded(path, 2**30)) > 1000
    with pytest.raises(OSError, match="longer than 100 bytes"):
        read_bounded(path, 100)
