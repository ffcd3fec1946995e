"""What every command takes for granted of the system, and what is said where it is missing."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

from etprof.base.errors import InputFileError, TargetError

_READS: Final = frozenset({"analyze", "compare", "report", "validate", "history", "config"})
"""Commands that need neither devices nor a look at processes."""


def check_surroundings(command: str) -> None:
    """Raises what tells, before anything is done, why nothing could be.

    PyTorch ends the process without a working folder, and without /proc neither it nor ExecuTorch
    knows the CPU, nor the loader where a library is.
    """
    if command == "completion":
        return
    check_folder()
    if command in _READS:
        return
    try:
        os.close(os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        msg = (
            f"{os.devnull} cannot be used: {error.strerror}; programs that this starts need it: "
            "mount /dev in this container or chroot"
        )
        raise TargetError(msg) from error
    if sys.platform == "linux" and not Path("/proc/self/stat").exists():
        raise TargetError(
            "/proc is missing, where Linux tells of the CPU and of processes: mount it in this "
            "container or chroot (mount -t proc proc /proc)"
        )


def check_folder() -> None:
    """Raises InputFileError when the working folder is gone."""
    try:
        Path.cwd()
    except OSError as error:
        msg = f"the working folder cannot be used: {error.strerror}; go to one that exists (cd)"
        raise InputFileError(msg) from error
