"""What an etprof that was killed has left running here: found for certain, named, and ended.

Only what other users cannot write counts: whose a process is, which lock it holds, and with what
environment it was started. Where the kernel does not tell (/proc), nothing is ended.
"""

from __future__ import annotations

import os
import re
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from etprof.base.process import HOLDERS_VARIABLE
from etprof.base.text import clean

_PROC: Final = Path("/proc")
_STAT: Final = re.compile(
    r"\d+ \((?P<name>.*)\) (?P<state>\S) \S+ (?P<group>\d+)( \S+){16} (?P<start>\d+) ", re.DOTALL
)
"""/proc/ID/stat; the start is in ticks since the system's own. A name may hold parentheses."""
_HOLDERS: Final = f"{HOLDERS_VARIABLE}="
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
    """Lists every process that this user may see; none where the kernel does not tell (/proc)."""
    try:
        ids = [int(path.name) for path in _PROC.iterdir() if path.name.isdecimal()]
    except FileNotFoundError:
        return []
    return [process for process in map(_read_process, ids) if process is not None]


def _read_process(process_id: int) -> Process | None:
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


def holder_of(lock: os.stat_result) -> str:
    """Returns what names this process, as who holds `lock`, in the environment of its commands."""
    numbers = (lock.st_dev, lock.st_ino, _namespace(os.getpid()), os.getpid())
    return ":".join(map(str, (*numbers, mark_of(os.getpid()))))


def find_lost(lock: os.stat_result) -> list[Process]:
    """Lists the process groups that hold the lock's file for an etprof that lives no more.

    All of them are this user's, and so was that etprof. Empty while anything else of this user
    has the lock: an etprof itself, or what another container, whose numbers are others, has.
    """
    living = [process for process in list_processes() if process.user == os.getuid()]
    lost = {process.id for process in living if _is_lost(process.id, lock)}
    # Who looks does so beside a measurement, so at the files of all processes only with a reason.
    holding = [process for process in living if lost and _holds(process.id, lock)]
    if not lost.issuperset(process.id for process in holding):
        return []
    groups = {process.group for process in holding}
    return [process for process in living if process.group in groups]


def _is_lost(process_id: int, lock: os.stat_result) -> bool:
    """Whether a process was started to hold the lock for an etprof that has ended."""
    try:
        variables = (_PROC / str(process_id) / "environ").read_text(errors="replace").split("\0")
    except OSError:
        # It has ended, or runs with other rights.
        return False
    space = _namespace(os.getpid())
    held = re.compile(rf"\b{lock.st_dev}:{lock.st_ino}:{space}:(?P<number>\d+):(?P<mark>\d+)\b")
    holders = [
        match for line in variables if line.startswith(_HOLDERS) for match in held.finditer(line)
    ]
    is_seen = bool(holders) and _namespace(process_id) == space
    return is_seen and all(mark_of(int(match["number"])) != match["mark"] for match in holders)


def _namespace(process_id: int) -> int:
    """Returns the number of the container, of a sort, in which process ids mean what they say."""
    try:
        return (_PROC / str(process_id) / "ns" / "pid").stat().st_ino
    except OSError:
        return 0


def _holds(process_id: int, lock: os.stat_result) -> bool:
    """Whether a process has the file open through whose opening the lock was taken."""
    folder = _PROC / str(process_id)
    try:
        descriptors = list((folder / "fd").iterdir())
    except OSError:
        # It has ended, or runs with other rights.
        return False
    for descriptor in descriptors:
        # Closed between two looks, or of a process with other rights.
        with suppress(OSError):
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
