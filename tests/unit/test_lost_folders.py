"""Folders of work that a killed process left go; all that is not surely one of them stays."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from pathlib import Path

import pytest

from etprof.base import atomic
from etprof.base.atomic import scratch_folder

MINUTE_S = 60


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files, looked through as by a process that has just begun."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    atomic._remove_lost_folders.cache_clear()
    return tmp_path


def leave(folder: Path, name: str, *, age_s: float, mark: bool = True) -> Path:
    place = folder / name
    place.mkdir()
    (place / "kept.bin").write_bytes(b"work")
    if mark:
        (place / ".scratch").touch()
    moment = time.time() - age_s
    os.utime(place, (moment, moment))
    return place


def test_what_a_killed_process_left_is_removed_by_the_next(temporary: Path) -> None:
    lost = leave(temporary, "etprof-inputs-a", age_s=2 * MINUTE_S)
    stay = [
        leave(temporary, "etprof-inputs-new", age_s=MINUTE_S / 2),
        leave(temporary, "etprof-inputs-unmarked", age_s=2 * MINUTE_S, mark=False),
        leave(temporary, "another-inputs-a", age_s=2 * MINUTE_S),
        leave(temporary, "etprof-in_use-a", age_s=2 * MINUTE_S),
    ]
    # Not a folder, though somebody's lock would be free.
    link = temporary / "etprof-link-a"
    link.symlink_to(leave(temporary, "elsewhere", age_s=2 * MINUTE_S))
    moment = time.time() - 2 * MINUTE_S
    os.utime(link, (moment, moment), follow_symlinks=False)
    stay.append(link)
    descriptors = open_files()
    with (stay[3] / ".scratch").open("rb") as used:
        fcntl.flock(used, fcntl.LOCK_EX)
        with scratch_folder("inputs") as folder:
            assert folder.parent == temporary
            assert folder.name.startswith("etprof-inputs-")
            assert not lost.exists()
    assert not folder.exists()
    assert all((place / "kept.bin").is_file() for place in stay)
    assert open_files() == descriptors
    # AND it looks once only
    again = leave(temporary, "etprof-inputs-b", age_s=2 * MINUTE_S)
    with scratch_folder("inputs"):
        assert again.exists()


def test_a_folder_in_use_is_nobody_elses_to_remove(temporary: Path) -> None:
    """However long it has been in use: another process would take it for a lost one."""
    with scratch_folder("inputs") as folder:
        moment = time.time() - 2 * MINUTE_S
        os.utime(folder, (moment, moment))
        atomic._remove_lost_folders.cache_clear()
        with scratch_folder("others"):
            assert folder.is_dir()
    assert list(temporary.iterdir()) == []
