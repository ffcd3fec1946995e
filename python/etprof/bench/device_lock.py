"""One run per device: a lock that every process of this machine respects."""

from __future__ import annotations

import fcntl
import os
import platform
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etprof.errors import OutputError
from etprof.run_directory import safe_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER_VARIABLE: Final = "ETPROF_LOCKS"
_PAUSE_S: Final = 0.05


def host_key() -> str:
    """Names this host's CPU: whoever times, exports or analyses on it needs it alone."""
    return f"host_{platform.node() or 'localhost'}"


def lock_folder() -> Path:
    """Returns ETPROF_LOCKS, or a folder that all users of this machine share."""
    return Path(os.environ.get(FOLDER_VARIABLE) or Path(tempfile.gettempdir(), "etprof-locks"))


@contextmanager
def device_lock(key: str, waiting: Callable[[], None]) -> Iterator[None]:
    """Holds the device `key`; the system takes the lock back however this process ends.

    `waiting` is called again and again while another run has the device; what it raises ends the
    wait. The same process may not hold a device twice either.
    """
    descriptor = _open(lock_folder() / f"{safe_name(key)}.lock")
    try:
        while not _try_lock(descriptor):
            waiting()
            time.sleep(_PAUSE_S)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _open(path: Path) -> int:
    """Opens the lock file for reading, which is enough to lock it; the first user makes it."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        _make_folder(path.parent)
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            return os.open(path, flags | os.O_CREAT, 0o644)
    except OSError as error:
        msg = f"cannot lock {path}: {error.strerror}; name another folder with {FOLDER_VARIABLE}"
        raise OutputError(msg) from error


def _make_folder(folder: Path) -> None:
    """Makes a folder like /tmp: everyone may add to it, and remove only what is theirs."""
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o1777)
