"""The one place that starts other programs."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from etprof.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class Completed:
    """A program that ended by itself: how, and what it printed."""

    command: tuple[str, ...]
    exit_code: int
    """As the shell shows it for a signal: negative signal number."""
    stdout: str
    stderr: str

    @property
    def shell_text(self) -> str:
        """The command as it would be typed."""
        return shlex.join(self.command)


class ProgramNotFoundError(TargetError):
    """The program is not on this machine."""


class ProgramTimeoutError(TargetError):
    """The program did not end in its time and was killed."""


def run_command(
    command: Sequence[str | Path],
    *,
    timeout_s: float | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Completed:
    """Runs `command` to its end and returns what it printed, whatever its exit code.

    `environment` is added to this process's own. Raises ProgramNotFoundError when the program
    does not exist and ProgramTimeoutError after `timeout_s` seconds.
    """
    words = tuple(str(word) for word in command)
    if shutil.which(words[0]) is None:
        msg = f"cannot run {words[0]!r}: no such program here; install it or give its full path"
        raise ProgramNotFoundError(msg)
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            check=False,
            cwd=folder,
            encoding="utf-8",
            env={**os.environ, **(environment or {})},
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=timeout_s,
        )
    except subprocess.TimeoutExpired as error:
        msg = f"{words[0]} did not end within {timeout_s:g} s and was stopped: {shlex.join(words)}"
        raise ProgramTimeoutError(msg) from error
    return Completed(words, done.returncode, done.stdout, done.stderr)
