"""The one place that starts other programs, and that ends them."""

from __future__ import annotations

import getpass
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from etprof.base.errors import TargetError

HOLDERS_VARIABLE: Final = "ETPROF_HOLDERS"
"""In a command's environment: for whom it holds descriptors, with spaces between."""
_GUARD: Final = Path(__file__).parent / "guard.py"
_LONGEST_END_S: Final = 3.0
"""More than a guard takes; one that was stopped by a signal takes for ever."""
_POINTER_BYTES: Final = 8
_STACK_STEP_BYTES: Final = 16 << 10
"""Several times what flags and a shell's environment take, so that most have one step."""
_RUSAGE_UNIT_BYTES: Final = 1 if sys.platform == "darwin" else 1024
"""Of ru_maxrss: getrusage(2) of Linux has KiB, that of macOS bytes."""


@dataclass(frozen=True)
class Completed:
    """A program that ended by itself: how, and what it printed."""

    command: tuple[str, ...]
    exit_code: int
    """As the shell shows it for a signal: negative signal number."""
    stdout: str
    stderr: str
    peak_rss_bytes: int | None = None
    """Largest resident set of the program; None when its guard was killed."""

    @property
    def shell_text(self) -> str:
        """The command as it would be typed."""
        return shlex.join(self.command)


class ProgramNotFoundError(TargetError):
    """The program is not on this machine."""


class ProgramTimeoutError(TargetError):
    """The program did not end in its time and was killed."""


class CommandStopped(BaseException):
    """Another thread has ended this thread's command; no failure, and nothing to recover from."""


class CommandStop:
    """Ends the commands of threads that work under it (`stoppable`), from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[_Pipe] = set()
        self._is_set = False

    def is_set(self) -> bool:
        """Whether `set` was called."""
        return self._is_set

    def set(self) -> None:
        """Ends the running commands; a caller that waits for one, or starts one, gets CommandStopped."""
        with self._lock:
            self._is_set = True
            for lifeline in self._running:
                lifeline.close(lifeline.writer)

    def enter(self, lifeline: _Pipe) -> None:
        """Takes a command on; raises CommandStopped when there shall be no more."""
        with self._lock:
            if self._is_set:
                raise CommandStopped
            self._running.add(lifeline)

    def leave(self, lifeline: _Pipe) -> None:
        """Forgets a command that has ended; raises CommandStopped when `set` has ended it."""
        with self._lock:
            self._running.discard(lifeline)
            if self._is_set:
                raise CommandStopped


@dataclass(frozen=True)
class _Share:
    """A descriptor that commands hold too."""

    descriptor: int
    holder: str


_STOP: ContextVar[CommandStop | None] = ContextVar("stop", default=None)
_SHARES: ContextVar[tuple[_Share, ...]] = ContextVar("shares", default=())


@contextmanager
def stoppable(stop: CommandStop | None) -> Iterator[None]:
    """Lets `stop` end the commands of this thread in the block; None: nothing does, to tidy up."""
    token = _STOP.set(stop)
    try:
        yield
    finally:
        _STOP.reset(token)


@contextmanager
def sharing(descriptor: int, holder: str) -> Iterator[None]:
    """Keeps `descriptor` open as long as a command lives that this thread starts in the block.

    So a lock on it outlives this process until the command has ended. `holder`, without spaces,
    stands in the environment of each command (`HOLDERS_VARIABLE`), which only its own user writes.
    """
    token = _SHARES.set((*_SHARES.get(), _Share(descriptor, holder)))
    try:
        yield
    finally:
        _SHARES.reset(token)


class _Pipe:
    """A pipe whose ends are closed once, from whatever thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.reader, self.writer = os.pipe()
        self._open = {self.reader, self.writer}

    def close(self, *ends: int) -> None:
        """Closes these ends, or both, as far as they are open."""
        with self._lock:
            for end in self._open & set(ends or (self.reader, self.writer)):
                self._open.remove(end)
                os.close(end)


def run_command(  # noqa: PLR0913 - keyword-only: what, where, how long
    command: Sequence[str | Path],
    *,
    timeout_s: float | None = None,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    keeps_device: bool = False,
    sees_our_end: bool = False,
    fill_variable: str | None = None,
) -> Completed:
    """Runs `command` to its end and returns what it printed, whatever its exit code.

    `environment` is added to this process's own. However this process ends, the command and all
    that it has started end within 2 s (what made itself a daemon apart), and so they do after
    `timeout_s` seconds. With `keeps_device` the command itself holds the lock of the device that
    this thread has, and not only what guards it. With `sees_our_end` its standard input stays
    open until this process ends; without, it is empty. `fill_variable` is one more variable of its
    environment, as long as it takes for what the kernel lays on the program's stack (strings and
    pointers of command line and environment) to be a multiple of 16 KiB.

    Raises ProgramNotFoundError when the program does not exist, ProgramTimeoutError after
    `timeout_s`, OSError when the system cannot start it.
    """
    argv = tuple(str(argument) for argument in command)
    executable = shutil.which(argv[0])
    if executable is None:
        msg = f"cannot run {argv[0]!r}: no such program here; install it or give its full path"
        raise ProgramNotFoundError(msg)
    # A path with a folder in it means a place seen from `folder`.
    program = argv[0] if os.sep in argv[0] else executable
    call = _Call(
        argv=(program, *argv),
        environment={**os.environ, **(environment or {})},
        folder=folder,
        keeps_device=keeps_device,
        sees_our_end=sees_our_end,
        fill_variable=fill_variable,
    )
    with closing(_Pipe()) as lifeline, closing(_Pipe()) as status, _registered(lifeline):
        process = call.start(lifeline, status)
        try:
            stdout, stderr = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            msg = (
                f"{argv[0]} did not end within {timeout_s:g} s and was stopped: {shlex.join(argv)}"
            )
            raise ProgramTimeoutError(msg) from error
        finally:
            lifeline.close()
            _await_end(process)
        exit_code, peak_rss_bytes = _read_status(status, process, argv[0])
        return Completed(argv, exit_code, stdout, stderr, peak_rss_bytes)


@contextmanager
def _registered(lifeline: _Pipe) -> Iterator[None]:
    """Lets another thread end this thread's command."""
    stop = _STOP.get()
    if stop is None:
        yield
        return
    stop.enter(lifeline)
    try:
        yield
    finally:
        stop.leave(lifeline)


@dataclass(frozen=True, kw_only=True)
class _Call:
    """A command for the guard."""

    argv: tuple[str, ...]
    """The program's path, then its words, the first of which is the name it is called by."""
    environment: Mapping[str, str]
    folder: Path | None
    keeps_device: bool
    sees_our_end: bool
    fill_variable: str | None = None

    def _environment(self, holders: Mapping[str, str]) -> dict[str, str]:
        """Returns the command's environment, filled up where that is asked for."""
        environment = {**self.environment, **holders}
        if self.fill_variable is not None:
            environment[self.fill_variable] = ""
            used = stack_bytes(self.argv, environment)
            environment[self.fill_variable] = "x" * (-used % _STACK_STEP_BYTES)
        return environment

    def start(self, lifeline: _Pipe, status: _Pipe) -> subprocess.Popen[str]:
        """Starts the guard with its ends of the two pipes."""
        shares = _SHARES.get()
        descriptors = [share.descriptor for share in shares]
        holders = {HOLDERS_VARIABLE: " ".join(share.holder for share in shares)} if shares else {}
        guard = [
            *(sys.executable, "-I", "-S", _GUARD),
            *(str(lifeline.reader), str(status.writer)),
            "lifeline" if self.sees_our_end else "none",
            "" if self.keeps_device else ",".join(map(str, descriptors)),
        ]
        process = subprocess.Popen(
            [*guard, *self.argv],
            cwd=self.folder,
            encoding="utf-8",
            env=self._environment(holders),
            errors="replace",
            pass_fds=(lifeline.reader, status.writer, *descriptors),
            # No terminal: its signals come to etprof alone, and nobody is asked for a password.
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        lifeline.close(lifeline.reader)
        status.close(status.writer)
        return process


def stack_bytes(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    """Returns what execve(2) lays on the stack: each string with its end, and a pointer to it.

    `argv` begins with the program's path, which Linux lays there too (AT_EXECFN, getauxval(3)).
    """
    texts = [*argv, *(f"{name}={value}" for name, value in environment.items())]
    return sum(len(os.fsencode(text)) + 1 + _POINTER_BYTES for text in texts)


def _await_end(process: subprocess.Popen[str]) -> None:
    """Waits for a guard that has been told to end, or has ended; returns when all is over."""
    try:
        process.wait(_LONGEST_END_S)
    except subprocess.TimeoutExpired:
        # Not waited for yet, so the number is still its own.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    finally:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _read_status(
    status: _Pipe, process: subprocess.Popen[str], name: str
) -> tuple[int, int | None]:
    """Reads what the guard wrote when its command had ended.

    Returns:
        The command's exit code, or the guard's own signal when somebody has killed that; and the
        command's peak of resident memory in bytes.

    Raises:
        OSError: the system could not start the command.
    """
    text = os.read(status.reader, 64).decode()
    if text.startswith("!"):
        number = int(text[1:])
        raise OSError(number, os.strerror(number), name)
    if not text:
        return process.returncode, None
    exit_code, peak = map(int, text.split())
    return exit_code, peak * _RUSAGE_UNIT_BYTES


def user_name() -> str:
    """Returns the name of who runs this process."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        # A container may run as a number that has no name.
        return f"user {os.getuid()}"
