"""Paths and files that hold no ETDump: each ends in its own message and way out."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from etprof.base.errors import InputFileError, UsageError
from etprof.etdump.reader import ETDumpFormatError, load_etdump
from tests import etdump_writer as writer
from tests.etdump_refusal import AGAIN, assert_path_refused

SOUND = bytes(writer.write_etdump(writer.etdump([writer.event_block(b"Execute")])).data)


def make_missing(folder: Path) -> Path:
    return folder / "missing.etdump"


def make_loop(folder: Path) -> Path:
    (folder / "loop").symlink_to(folder / "loop")
    return folder / "loop"


def make_long_name(folder: Path) -> Path:
    return folder / ("x" * 300)


def make_file_as_folder(folder: Path) -> Path:
    (folder / "file").touch()
    return folder / "file" / "x.etdump"


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (make_missing, "cannot be read (No such file or directory); check the path"),
        (make_loop, "cannot be read (Too many levels of symbolic links); check the path"),
        (make_long_name, "cannot be read (File name too long); check the path"),
        (make_file_as_folder, "cannot be read (Not a directory); check the path"),
    ],
)
def test_path_that_leads_nowhere(
    tmp_path: Path, make: Callable[[Path], Path], problem: str
) -> None:
    path = make(tmp_path)
    with pytest.raises(InputFileError) as caught:
        load_etdump(path)
    assert str(caught.value) == f"{path}: {problem} and its permissions"


def test_path_with_a_nul() -> None:
    # In Python's words, which differ between 3.11 and 3.13.
    words = r"cannot be read \((open: )?embedded null (byte|character in path)\); check the"
    with pytest.raises(InputFileError, match=words):
        load_etdump("a\0b")


def test_directory(tmp_path: Path) -> None:
    with pytest.raises(InputFileError) as caught:
        load_etdump(tmp_path)
    assert str(caught.value) == f"{tmp_path}: is a directory; give the ETDump inside it"


def test_pipe_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    problem = "cannot be read (it is a named pipe, not a file); check the path and its permissions"
    assert_path_refused(pipe, problem)


def test_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "private.etdump"
    path.write_bytes(SOUND)
    path.chmod(0)
    code = (
        "import os, sys\n"
        "from etprof import _etdump; from etprof.etdump.reader import load_etdump\n"
        "os.geteuid() or os.setuid(65534)  # root may read everything\n"
        "try: load_etdump(sys.argv[1])\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
    )
    assert done.stdout == (
        f"InputFileError {path}: cannot be read (Permission denied); "
        "check the path and its permissions\n"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and limits the address space")
def test_file_too_large_for_the_memory(tmp_path: Path) -> None:
    # GIVEN a file of 400 MB, and room to map it but not for its columns
    path = tmp_path / "large.etdump"
    document = writer.etdump([writer.event_block(b"Execute")])
    path.write_bytes(writer.write_etdump(document, size_prefix=False).data)
    os.truncate(path, 400_000_000)
    code = (
        "import resource, sys\n"
        "from etprof import _etdump; from etprof.etdump.reader import load_etdump\n"
        "used = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + 500_000_000,) * 2)\n"
        "try: load_etdump(sys.argv[1])\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=True
    )
    assert done.stdout == (
        f"InputFileError {path}: 400000000 bytes need more memory than there is; "
        "record fewer iterations\n"
    )


def test_a_hole_of_a_terabyte_costs_nothing(tmp_path: Path) -> None:
    # GIVEN a sparse file, for which there is neither disk nor memory
    path = tmp_path / "sparse.etdump"
    document = writer.etdump([writer.event_block(b"Execute")])
    path.write_bytes(writer.write_etdump(document, size_prefix=False).data)
    os.truncate(path, 1 << 40)
    # WHEN
    dump = load_etdump(path)
    # THEN
    assert (dump.names, dump.size_bytes) == (("Execute",), 1 << 40)


@pytest.mark.parametrize("name", ["empty.etdump", "größe <b>.etdump"])
def test_empty_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.touch()
    assert_path_refused(
        path,
        "empty (at byte 0); "
        "run the model again with --etdump, on a runner built with the event tracer",
    )


def test_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cut.etdump"
    path.write_bytes(SOUND[:50])
    reason = f"cut short: {len(SOUND)} bytes announced, 50 there"
    assert_path_refused(path, f"{reason} (at byte 50); {AGAIN}")
    with pytest.raises(ETDumpFormatError, match=f"^{re.escape(str(path))}: cut short"):
        load_etdump(str(path))


def test_file_object_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cut.etdump"
    path.write_bytes(b"")
    with (
        path.open("rb") as file,
        pytest.raises(ETDumpFormatError, match=f"^{re.escape(str(path))}: empty"),
    ):
        load_etdump(file)


def test_file_object_in_text_mode() -> None:
    with pytest.raises(UsageError) as caught:
        load_etdump(io.StringIO("x"))  # type: ignore[arg-type]
    assert str(caught.value) == "ETDump in memory: open as text; open it with mode 'rb'"


def test_file_object_that_cannot_be_read(tmp_path: Path) -> None:
    # GIVEN a file open for writing, and the same closed
    path = tmp_path / "x.etdump"
    with path.open("wb") as file:
        for _ in range(2):
            with pytest.raises(UsageError) as caught:
                load_etdump(file)
            expected = f"{path}: is not open for reading bytes; open it with mode 'rb'"
            assert str(caught.value) == expected
            file.close()
