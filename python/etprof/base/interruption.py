"""Signals that end etprof raise an exception: finished work is kept, `finally` blocks run."""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ECHO_S: Final = 1.0
"""`timeout` and terminals send the same signal twice: what comes so soon is no second wish."""


_INSIST_S: Final = 0.25
"""Until a swallowed exception is raised again."""
_PROMPT: Final = (signal.SIGTERM, signal.SIGHUP)
"""Signals of whoever kills next: a service manager, a scheduler, a system that shuts down."""
_LONGEST_END_S: Final = 1.2
"""From one of these to the process's end; what it has started ends within half a second of that."""


class Interrupted(KeyboardInterrupt):
    """A signal asks etprof to end; SIGTERM and SIGHUP as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.signal = signal.Signals(number)

    @property
    def text(self) -> str:
        """In words for people."""
        is_request = self.signal is not signal.SIGINT
        return f"interrupted by {self.signal.name}" if is_request else "interrupted"

    @property
    def exit_code(self) -> int:
        """As shells show the end by a signal."""
        return 128 + self.signal


@contextmanager
def interruptible(*, ends_process: bool = False) -> Iterator[None]:
    """Raises Interrupted in the block for the first signal; a later one ends the process at once.

    Libraries swallow exceptions, PyTorch and NumPy while they are imported for one. So Interrupted
    is raised again until the block ends by it, and takes the place of any error that came of it.
    Native code does not hear of it at all: where the block goes on for long after SIGTERM or SIGHUP,
    or after a second Ctrl-C, the process is ended from another thread. With `ends_process` that is so for what follows the
    block too: the process has nothing left to do but end.

    Who started etprof may have had signals ignored, as nohup has SIGHUP: they stay ignored. Does
    nothing outside the main thread, where no signal ever arrives.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler, watch = _Handler(), _Watch()
    # None: a handler that is not Python's belongs to whoever has embedded it.
    before = {number: signal.getsignal(number) for number in (*_ENDING, signal.SIGALRM)}
    caught = [
        number
        for number, previous_handler in before.items()
        if previous_handler not in {signal.SIG_IGN, None}
    ]
    try:
        for number in caught:
            signal.signal(number, handler.interrupt)
        watch.start()
        yield
    except Interrupted:
        raise
    except BaseException as error:
        if handler.first is not None:
            raise Interrupted(handler.first) from error
        raise
    finally:
        if handler.first is not None:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if not ends_process:
            watch.stop()
        for number in caught:
            signal.signal(number, before[number])


@contextmanager
def until_interrupted() -> Iterator[None]:
    """Ends the block at a signal, for what has no other end: no failure."""
    try:
        yield
    except KeyboardInterrupt:
        signal.setitimer(signal.ITIMER_REAL, 0)


class _Handler:
    """What signals do in an interruptible block."""

    def __init__(self) -> None:
        self.first: int | None = None
        self._first_at = 0.0

    def interrupt(self, number: int, _frame: FrameType | None) -> None:
        """Raises Interrupted, unless that is on its way already."""
        if self.first is None:
            if number == signal.SIGALRM:
                return
            self.first, self._first_at = number, time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, _INSIST_S, _INSIST_S)
            raise Interrupted(number)
        if number != signal.SIGALRM and time.monotonic() - self._first_at > _ECHO_S:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        if not _is_tidying_up():
            raise Interrupted(self.first)


class _Watch:
    """Ends the process where Python's own handlers do not: in native code they never run.

    The system's handler writes each signal's number into a pipe, whatever the main thread does.
    """

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._before = -1
        self._first_at = self._deadline = math.inf
        self._number = 0
        self._thread = threading.Thread(target=self._watch, daemon=True, name="signals")

    def start(self) -> None:
        """Watches from now on."""
        self._before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._thread.start()

    def stop(self) -> None:
        """Watches no more."""
        try:
            signal.set_wakeup_fd(self._before)
        except (OSError, ValueError):
            # Whoever had set it has closed it meanwhile.
            signal.set_wakeup_fd(-1)
        os.close(self._writer)
        self._thread.join()
        os.close(self._reader)

    def _watch(self) -> None:
        while self._deadline > (now := time.monotonic()):
            rest_s = None if self._deadline == math.inf else self._deadline - now
            ready, _, _ = select.select([self._reader], [], [], rest_s)
            numbers = os.read(self._reader, 64) if ready else None
            if numbers == b"":
                return
            for number in numbers or ():
                self._hear(number)
        ended = Interrupted(self._number)
        # Not by print: the main thread may hold the stream.
        with suppress(OSError):
            os.write(2, f"etprof: {ended.text} while it was busy; finished work is kept\n".encode())
        os._exit(ended.exit_code)

    def _hear(self, number: int) -> None:
        if number not in _ENDING:
            return
        now = time.monotonic()
        self._first_at = min(self._first_at, now)
        deadline = math.inf
        if number in _PROMPT:
            deadline = now + _LONGEST_END_S
        elif now - self._first_at > _ECHO_S:
            # The main thread would have ended the process by now, if it could.
            deadline = now + _INSIST_S
        if deadline < self._deadline:
            self._deadline, self._number = deadline, number


def _is_tidying_up() -> bool:
    """Whether the main thread is in a `finally` or `except` on the way out."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, Interrupted):
        error = error.__context__
    return error is not None
