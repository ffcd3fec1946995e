"""What an etprof that was killed has left running here: found for certain, named, and ended."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from etprof.base.process import run_command
from etprof.base.text import clean

_PROC: Final = Path("/proc")
_STAT: Final = re.compile(
    r"\d+ \((?P<name>.*)\) (?P<state>\S) \S+ (?P<group>\d+)( \S+){16} (?P<start>\d+) ", re.DOTALL
)
"""/proc/ID/stat; the start is in ticks since the system's own. A name may hold parentheses."""
_PS_LINE: Final = re.compile(
    r" *(?P<id>\d+) +(?P<group>\d+) +(?P<user>\d+) +(?P<state>\S)\S* +(?P<name>.+)"
)
_DEAD: Final = ("Z", "X")


@dataclass(frozen=True)
class Process:
    """One process of this machine that lives; one that merely waits to be collected does not."""

    id: int
    group: int
    user: int
    name: str

    @property
    def text(self) -> str:
        """In words for people."""
        return f"{clean(self.name)} (process {self.id})"


def mark_of(process_id: int) -> str | None:
    """Returns what tells a living process from others that had its number; None when it is gone.

    On Linux that is when it started; elsewhere nothing so cheap is known, and the mark is empty.
    """
    if sys.platform == "linux":
        try:
            text = (_PROC / str(process_id) / "stat").read_text(errors="replace")
        except OSError:
            return None
        match = _STAT.match(text)
        return match["start"] if match and match["state"] not in _DEAD else None
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        # It is somebody else's.
        return ""
    return ""


def list_processes() -> list[Process]:
    """Lists every process that this user may see."""
    if sys.platform == "linux":
        ids = [int(path.name) for path in _PROC.iterdir() if path.name.isdecimal()]
        return [found for found in map(_read_linux, ids) if found is not None]
    columns = ("pid=", "pgid=", "uid=", "stat=", "comm=")
    words = ["ps", "-A", *(word for each in columns for word in ("-o", each))]
    shown = run_command(words, environment={"LC_ALL": "C"})
    return list(read_ps(shown.stdout))


def read_ps(text: str) -> Iterator[Process]:
    """Reads `ps -A -o pid= -o pgid= -o uid= -o stat= -o comm=`."""
    for line in text.splitlines():
        match = _PS_LINE.fullmatch(line)
        if match and match["state"] not in _DEAD:
            number, group, user = (int(match[key]) for key in ("id", "group", "user"))
            yield Process(number, group, user, match["name"].rpartition("/")[2])


def _read_linux(process_id: int) -> Process | None:
    """Reads one process from /proc; None when it does not live."""
    folder = _PROC / str(process_id)
    try:
        text = (folder / "stat").read_text(errors="replace")
        user = folder.stat().st_uid
    except OSError:
        # It has ended between two looks.
        return None
    match = _STAT.match(text)
    if match is None or match["state"] in _DEAD:
        return None
    return Process(process_id, int(match["group"]), user, match["name"])


def find_group(group: int, lock: os.stat_result) -> list[Process]:
    """Lists process group `group`, if all of it is this user's and it holds the lock's file.

    Otherwise the list is empty: the number has come to others, or belongs to another container
    that shares the folder of locks. Who holds a file is known on Linux; elsewhere the group's
    number stays taken as long as one of it lives, and while none does, nothing holds the lock.
    """
    found = [each for each in list_processes() if each.group == group]
    is_ours = bool(found) and all(each.user == os.getuid() for each in found)
    if is_ours and sys.platform == "linux":
        is_ours = any(_holds(each.id, lock) for each in found)
    return found if is_ours else []


def _holds(process_id: int, lock: os.stat_result) -> bool:
    """Whether a process has the file open through whose opening the lock was taken."""
    folder = _PROC / str(process_id)
    try:
        descriptors = list((folder / "fd").iterdir())
    except OSError:
        # It has ended, or runs with other rights.
        return False
    for descriptor in descriptors:
        # Closed between two looks.
        with suppress(FileNotFoundError):
            if os.path.samestat(descriptor.stat(), lock):
                details = (folder / "fdinfo" / descriptor.name).read_text()
                if "FLOCK" in details:
                    return True
    return False


def kill_group(group: int) -> None:
    """Ends a process group at once."""
    # It may have ended by itself meanwhile.
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
