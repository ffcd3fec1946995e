"""A file is written whole or not at all."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from etprof.base.atomic import replacing, write_json, write_text
from etprof.base.errors import OutputError


def test_folders_are_made_and_files_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.txt"
    write_text(path, "old")
    write_text(path, "new")
    assert path.read_text() == "new"
    assert [p.name for p in path.parent.iterdir()] == ["b.txt"]


def test_a_failure_in_between_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(RuntimeError):
        _fail_while_writing(path)
    assert path.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]


def _fail_while_writing(path: Path) -> None:
    with replacing(path) as stream:
        stream.write(b"half of the n")
        raise RuntimeError


def test_numbers_that_json_does_not_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(tmp_path / "a.json", {"x": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_files_get_the_usual_permissions(tmp_path: Path) -> None:
    mask = os.umask(0o022)
    try:
        write_text(tmp_path / "a.txt", "x")
    finally:
        os.umask(mask)
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o644


def test_a_folder_that_cannot_be_made_is_named() -> None:
    path = Path("/dev/null/folder/a.txt")
    with pytest.raises(OutputError) as caught:
        write_text(path, "x")
    assert str(caught.value) == (
        "cannot write /dev/null/folder/a.txt: /dev/null is a file; choose another folder"
    )


def test_a_file_system_that_cannot_even_be_tidied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("etprof.base.atomic.os.open", refuse)
    monkeypatch.setattr("pathlib.Path.unlink", refuse)
    with pytest.raises(OutputError, match=r"a\.txt: Read-only file system; free space or choose"):
        write_text(tmp_path / "a.txt", "x")
