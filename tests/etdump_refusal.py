"""What the reader and the command line make of an ETDump that cannot be read."""

from __future__ import annotations

import contextlib
import io
import tempfile
from pathlib import Path
from typing import NamedTuple

import pytest

from etprof.base.errors import InputFileError
from etprof.cli import main
from etprof.etdump.reader import ETDumpFormatError, load_etdump

AGAIN = "pull the file again, or run the model again"


class Bad(NamedTuple):
    data: bytes
    reason: str
    offset: int
    way_out: str = AGAIN


def refusal(data: bytes) -> ETDumpFormatError:
    with pytest.raises(ETDumpFormatError) as caught:
        load_etdump(data)
    return caught.value


def assert_reader_refuses(bad: Bad) -> None:
    error = refusal(bad.data)
    assert (error.reason, error.offset) == (bad.reason, bad.offset)
    assert str(error) == f"ETDump in memory: {bad.reason} (at byte {bad.offset}); {bad.way_out}"


def assert_refused(bad: Bad) -> None:
    """The same reason ends the reader and the command that is given the bytes as a file."""
    assert_reader_refuses(bad)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bad.etdump"
        path.write_bytes(bad.data)
        assert_path_refused(path, f"{bad.reason} (at byte {bad.offset}); {bad.way_out}")


def assert_path_refused(path: Path, problem: str) -> None:
    """Reader and `etprof analyze` tell the problem; the latter on one line, with exit code 4.

    Nothing else is printed, and nothing appears beside the file.
    """
    there = sorted(path.parent.iterdir()) if path.parent.is_dir() else None
    with pytest.raises(InputFileError) as caught:
        load_etdump(path)
    assert str(caught.value) == f"{path}: {problem}"
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["analyze", str(path)])
    assert (code, out.getvalue(), err.getvalue()) == (4, "", f"etprof: {path}: {problem}\n")
    if there is not None:
        assert sorted(path.parent.iterdir()) == there
