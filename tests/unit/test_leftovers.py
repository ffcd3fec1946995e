"""Whose a process is, for certain: nobody else's is ever ended (S2)."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from etprof.targets.leftovers import Process, find_group, list_processes, mark_of, read_ps

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
# Of macOS 15 and of procps 4, with a process that merely waits to be collected.
SHOWN = """\
    1     1     0 Ss   /sbin/launchd
  812   810   501 S+   /opt/venv/lib/python3.12/site-packages/etprof/bin/etprof-runner
  813   810   501 Z    <defunct>
 4190  4190   501 SNs  /Applications/My App.app/Contents/MacOS/My App
"""


def test_the_table_of_other_systems_is_read() -> None:
    assert list(read_ps(SHOWN)) == [
        Process(1, 1, 0, "launchd"),
        Process(812, 810, 501, "etprof-runner"),
        Process(4190, 4190, 501, "My App"),
    ]


@pytest.mark.skipif(shutil.which("ps") is None, reason="needs ps: `apt install procps`")
def test_both_tables_know_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {each.id: each for each in list_processes()}[os.getpid()]
    assert (known.group, known.user) == (os.getpgid(0), os.getuid())
    monkeypatch.setattr(sys, "platform", "darwin")
    assert known in list_processes()


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


@on_linux
def test_only_who_holds_the_lock_is_a_leftover(tmp_path: Path) -> None:
    """One that merely waits for it has the same file open."""
    path = tmp_path / "phone.lock"
    with path.open("w") as lock, path.open() as other:
        fcntl.flock(lock, fcntl.LOCK_EX)
        found = {}
        for stream in (lock, other):
            command = ["sleep", "60"]
            with subprocess.Popen(
                command, pass_fds=[stream.fileno()], start_new_session=True
            ) as process:
                found[stream] = find_group(process.pid, path.stat()), process.pid
                process.kill()
    holders, holder = found[lock]
    assert [each.id for each in holders] == [holder]
    assert found[other][0] == []


@on_linux
def test_what_other_users_have_in_a_group_protects_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "phone.lock"
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with subprocess.Popen(
            ["sleep", "60"], pass_fds=[lock.fileno()], start_new_session=True
        ) as process:
            monkeypatch.setattr(os, "getuid", lambda: 2**20)
            assert find_group(process.pid, path.stat()) == []
            process.kill()
