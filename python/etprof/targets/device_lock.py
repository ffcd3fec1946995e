"""A device has one user at a time: a lock that every process of this machine respects."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import platform
import re
import stat
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etprof.base.errors import OutputError, TargetError
from etprof.base.process import sharing, user_name
from etprof.base.text import clean
from etprof.targets.leftovers import find_lost, holder_of, kill_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Waiting = Callable[["MeasuredDevice", "Holder"], None]

FOLDER_VARIABLE: Final = "ETPROF_LOCKS"
_PAUSE_S: Final = 0.05
_SIGNING_PAUSES: Final = 5
_LOOK_S: Final = 1.0
"""Between two looks at whether the holder lives: no more load than needed beside a measurement."""
_LONGEST_END_S: Final = 5.0
"""How long killed processes may take to end, and the lock with them."""
_LONGEST_HOLDER: Final = 300
_FLAGS: Final = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
"""A link, or a pipe that nobody writes to, may have been planted: neither is followed or awaited.
A child process must not keep the lock unasked: adb leaves a server behind that never ends."""


_HELD: Final[set[tuple[int, int]]] = set()
"""Device and number of the files whose locks this process has; what they say, anyone may write."""
_HELD_GUARD: Final = threading.Lock()
"""Held while a lock and what `_HELD` says of it change, or are looked at."""


class DeviceBusyError(TargetError):
    """Another process has the device, and the user does not want to wait."""


@dataclass(frozen=True)
class MeasuredDevice:
    """What one process at a time may measure on."""

    key: str
    """Equal for the same device, by its identity and not by its name."""
    name: str
    """For people."""


@dataclass(frozen=True)
class Holder:
    """Who has a device now."""

    text: str
    """In words for people."""
    is_this_process: bool
    has_been_ended: bool = False
    """It was left by an etprof that was killed, and is killed too: the device is free soon."""


def this_host() -> MeasuredDevice:
    """Returns this machine's CPU: whoever times, exports or analyses on it needs it alone."""
    return MeasuredDevice(f"host_{platform.node() or 'localhost'}", "this host")


def lock_folder() -> Path:
    """Returns ETPROF_LOCKS, or a folder that all users of this machine share."""
    return Path(os.environ.get(FOLDER_VARIABLE) or Path(tempfile.gettempdir(), "etprof-locks"))


@contextlib.contextmanager
def device_lock(device: MeasuredDevice, waiting: Waiting) -> Iterator[None]:
    """Holds the device; the system takes the lock back however this process ends.

    `waiting` is called again and again while another has the device; what it raises ends the
    wait. The same process may not hold a device twice either.
    """
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", device.key).lstrip(".")
    path = lock_folder() / f"{name}.lock"
    descriptor = _open(path)
    try:
        _await_lock(device, descriptor, path, waiting)
        lock = os.fstat(descriptor)
        try:
            _sign(descriptor, _describe_this_process())
            with sharing(descriptor, holder_of(lock)):
                yield
        finally:
            _sign(descriptor, "")
            with _HELD_GUARD:
                _HELD.discard(_identity(lock))
                # Not by closing alone: a child that is being started has the descriptor until it
                # runs.
                fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _await_lock(device: MeasuredDevice, descriptor: int, path: Path, waiting: Waiting) -> None:
    """Returns once this process has the lock."""
    next_look = 0.0
    lock = os.fstat(descriptor)
    while True:
        # Another thread of this process that has just got the lock, or gives it back, is no other
        # process: what it holds and what it says that it holds are looked at together.
        with _HELD_GUARD:
            is_locked = _try_lock(descriptor, path)
            is_ours = _identity(lock) in _HELD
            if is_locked:
                _HELD.add(_identity(lock))
                return
        text = _read_signature(descriptor)
        if time.monotonic() >= next_look:
            ended = _end_leftovers(lock, text)
            next_look = time.monotonic() + _LOOK_S
            if ended is not None:
                waiting(device, ended)
                continue
        waiting(device, Holder(text, is_this_process=is_ours))
        time.sleep(_PAUSE_S)


def patience(say: Callable[[str], None], *, wait: bool = True) -> Waiting:
    """Returns a `waiting` that tells once who has the device; without `wait`, it gives up.

    Waits in silence for other threads of this process, and never gives up because of them.
    """
    announced: list[Holder] = []

    def waiting(device: MeasuredDevice, holder: Holder) -> None:
        if holder.is_this_process:
            return
        if holder.has_been_ended:
            say(f"Ended on {device.name}: {holder.text}")
            return
        if not wait:
            raise DeviceBusyError(
                f"{device.name} is in use by {holder.text}; two measurements would disturb each "
                "other: try again when it has ended, or leave out --no-wait"
            )
        if not announced:
            announced.append(holder)
            say(f"Waiting for {device.name}, in use by {holder.text}; --no-wait fails instead")

    return waiting


def _identity(lock: os.stat_result) -> tuple[int, int]:
    return lock.st_dev, lock.st_ino


def _try_lock(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise _refusal(path, error) from error
    return True


def _describe_this_process() -> str:
    """Names this process to people; flags are left out: they may hold secrets."""
    program = Path(sys.argv[0])
    is_module = program.stem == "__main__"
    command = " ".join([program.parent.name if is_module else program.name, *sys.argv[1:2]])
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return f"{command} (process {os.getpid()} of {user_name()}, since {since})"


def _sign(descriptor: int, text: str) -> None:
    """Says in the lock's file who has it; a disk that is full takes nothing away from the lock."""
    data = text.encode(errors="replace")
    with contextlib.suppress(OSError):
        # Never empty in between: this process may be killed at any moment.
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))


def _read_signature(descriptor: int) -> str:
    """Reads who has the lock; the file is anyone's to write, so its text is no more than text."""
    for _ in range(_SIGNING_PAUSES):
        data = os.pread(descriptor, _LONGEST_HOLDER, 0)
        if data:
            break
        # Whoever has just got the lock may still be signing it.
        time.sleep(_PAUSE_S)
    return clean(data.decode(errors="replace")) or "another process"


def _end_leftovers(lock: os.stat_result, text: str) -> Holder | None:
    """Ends what has the lock if it was left by an etprof that lives no more; None if it was not."""
    leftovers = find_lost(lock)
    if not leftovers:
        return None
    for group in {process.group for process in leftovers}:
        kill_group(group)
    deadline = time.monotonic() + _LONGEST_END_S
    while find_lost(lock) and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
    # What guards a command bears Python's name; the others say more.
    names = (
        ", ".join(process.text for process in leftovers if process.id != process.group)
        or leftovers[0].text
    )
    holder_text = f"{names}, left by {text}, which was killed"
    return Holder(holder_text, is_this_process=False, has_been_ended=True)


def _open(path: Path) -> int:
    """Opens the lock's file; the first user makes it, for all."""
    try:
        _make_folder(path.parent)
        descriptor = _open_or_make(path)
    except OSError as error:
        raise _refusal(path, error) from error
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        # Under a second name it may be a file that someone wants to see overwritten.
        os.close(descriptor)
        raise _refusal(path, OSError(errno.EINVAL, "it is not a file of its own"))
    return descriptor


def _open_or_make(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | _FLAGS)
    except FileNotFoundError:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | _FLAGS, 0o666)
        with contextlib.suppress(PermissionError):
            # Past the umask; somebody else may have made it in this moment.
            os.fchmod(descriptor, 0o666)
        return descriptor
    except PermissionError:
        # Reading is enough to lock; that nobody can see who has it is the lesser evil.
        return os.open(path, os.O_RDONLY | _FLAGS)


def _refusal(path: Path, error: OSError) -> OutputError:
    msg = f"cannot lock {path}: {error.strerror}; name another folder with {FOLDER_VARIABLE}"
    return OutputError(msg)


def _make_folder(folder: Path) -> None:
    """Makes a folder like /tmp: everyone may add to it, and remove only what is theirs."""
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o1777)
