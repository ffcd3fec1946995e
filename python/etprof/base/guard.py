"""Runs one command, and ends it with all that it started when whoever asked for it is gone.

A program of its own, started by `etprof.base.process` as the leader of a new session:

    python -I -S guard.py LIFELINE STATUS INPUT HELD PROGRAM WORD…

LIFELINE is the end of a pipe whose other end only etprof has; nothing is ever sent. However
etprof ends, SIGKILL included, the system closes that other end. STATUS takes the exit code (for a
signal its negative number) and the peak of resident memory as getrusage has it (KiB on Linux,
bytes on macOS), or `!` and the number of the error that kept PROGRAM from starting.
INPUT is `lifeline` where the command has the lifeline as standard input, else `none`. HELD are
descriptors, with commas, that stay open here and that the command does not get.

It waits without using the CPU, and imports little: every command waits for it to start.
"""

from __future__ import annotations

import _thread
import os
import sys
import time

_GRACE_S = 0.5
"""From SIGTERM to SIGKILL: time to remove what is half written; all is over within 2 s."""
_TERM, _KILL = 15, 9
_IGNORED_BY_PYTHON = (13, 25)
"""SIGPIPE and SIGXFSZ, alike on Linux and macOS; other programs expect their default."""


def _end_all() -> None:
    """Kills this process group, this process included: no number that others may have by now."""
    os.killpg(0, _KILL)


def _watch(lifeline: int, command: int) -> None:
    """Waits for etprof's end, and then ends the command."""
    os.read(lifeline, 1)
    try:
        os.kill(command, _TERM)
        time.sleep(_GRACE_S)
    finally:
        _end_all()


def _start(program: str, argv: list[str], lifeline: int | None) -> int:
    """Starts the command and returns its process id."""
    actions = [] if lifeline is None else [(os.POSIX_SPAWN_DUP2, lifeline, 0)]
    command = os.posix_spawn(
        program, argv, os.environ, file_actions=actions, setsigdef=_IGNORED_BY_PYTHON
    )
    # Whoever reads the command's output waits until all who may write have closed it.
    for stream in (0, 1, 2):
        os.close(stream)
    return command


def main(argv: list[str]) -> None:
    """Runs the command to its end, which is this process's own."""
    lifeline, status = int(argv[0]), int(argv[1])
    for descriptor in (lifeline, status, *map(int, filter(None, argv[3].split(",")))):
        os.set_inheritable(descriptor, False)
    try:
        command = _start(argv[4], argv[5:], lifeline if argv[2] == "lifeline" else None)
        _thread.start_new_thread(_watch, (lifeline, command))
        _, wait_status, usage = os.wait4(command, 0)
        os.write(status, f"{os.waitstatus_to_exitcode(wait_status)} {usage.ru_maxrss}".encode())
    except OSError as error:
        os.write(status, f"!{error.errno}".encode())
    finally:
        # What the command left running would disturb whatever is measured next.
        _end_all()


if __name__ == "__main__":
    main(sys.argv[1:])
