"""Whose a process is, for certain: nobody else's is ever ended (S2)."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from etprof.base.process import HOLDERS_VARIABLE
from etprof.targets.leftovers import Process, find_lost, list_processes, mark_of

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


@on_linux
def test_a_name_may_hold_anything(tmp_path: Path) -> None:
    program = tmp_path / "a) S 1 (b"
    program.symlink_to("/bin/sleep")
    with subprocess.Popen([program, "60"], start_new_session=True) as process:
        (found,) = (each for each in list_processes() if each.id == process.pid)
        process.kill()
    assert found == Process(process.pid, process.pid, os.getuid(), program.name)


@on_linux
def test_a_number_that_came_to_another_process_is_told() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        mark = mark_of(process.pid)
        assert mark
        assert mark == mark_of(process.pid)
        assert mark != mark_of(os.getpid()) or mark_of(os.getpid()) is None
        process.kill()
        # Dead, although nobody has collected it yet.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert mark_of(process.pid) is None
    assert mark_of(process.pid) is None


LOST = "{lock.st_dev}:{lock.st_ino}:{space}:{process}:{mark}"


@contextmanager
def holding(stream: IO[str], **values: object) -> Iterator[subprocess.Popen[bytes]]:
    """A command that has the file open, for a holder that has ended unless `values` say more."""
    names: dict[str, object] = {"lock": os.fstat(stream.fileno())}
    names |= {"space": Path("/proc/self/ns/pid").stat().st_ino, "process": 2**22 + 1, "mark": 1}
    environment = {HOLDERS_VARIABLE: f"0:0:0:1:1 {LOST.format(**(names | values))}"}
    command = ["sleep", "60"]
    with subprocess.Popen(
        command, pass_fds=[stream.fileno()], start_new_session=True, env=environment
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def lock(tmp_path: Path) -> Iterator[IO[str]]:
    """A lock that this process has no more open by the time that it is looked for."""
    with (tmp_path / "phone.lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield stream


@on_linux
def test_what_holds_the_lock_for_nobody_is_lost(lock: IO[str]) -> None:
    with holding(lock) as process:
        state = os.fstat(lock.fileno())
        lock.close()
        assert [lost.id for lost in find_lost(state)] == [process.pid]


@on_linux
def test_only_who_holds_the_lock_is_a_leftover(lock: IO[str]) -> None:
    """One that merely waits for it has the same file open."""
    with Path(lock.name).open() as other, holding(other):
        assert find_lost(os.fstat(lock.fileno())) == []
        state = os.fstat(lock.fileno())
        lock.close()
        assert find_lost(state) == []


@on_linux
@pytest.mark.parametrize("values", ["living", "another space", "another file"])
def test_what_is_held_for_someone_is_not_lost(lock: IO[str], values: str) -> None:
    """S3-4: what may live is left alone, and what cannot be told as well."""
    others: dict[str, dict[str, object]] = {
        "living": {"process": os.getpid(), "mark": mark_of(os.getpid())},
        "another space": {"space": 1},
        "another file": {"lock": Path("/").stat()},
    }
    state = os.fstat(lock.fileno())
    with holding(lock, **others[values]):
        lock.close()
        assert find_lost(state) == []


@on_linux
def test_nothing_is_lost_while_an_etprof_has_the_lock(lock: IO[str]) -> None:
    """S3-4: whatever else is said of a holder, this process is one, and lives."""
    with holding(lock):
        assert find_lost(os.fstat(lock.fileno())) == []


@on_linux
def test_what_another_user_has_is_not_ours_to_end(
    lock: IO[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with holding(lock):
        state = os.fstat(lock.fileno())
        lock.close()
        monkeypatch.setattr(os, "getuid", lambda: 2**20)
        assert find_lost(state) == []
