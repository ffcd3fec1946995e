"""Signals that end etprof raise an exception: finished work is kept, `finally` blocks run."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_ECHO_S: Final = 1.0
"""`timeout` and terminals send the same signal twice: what comes so soon is no second wish."""


_INSIST_S: Final = 0.25
"""Until a swallowed exception is raised again."""


class Interrupted(KeyboardInterrupt):
    """A signal asks etprof to end; SIGTERM and SIGHUP as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.signal = signal.Signals(number)

    @property
    def text(self) -> str:
        """In words for people."""
        asked = self.signal is not signal.SIGINT
        return f"interrupted by {self.signal.name}" if asked else "interrupted"

    @property
    def exit_code(self) -> int:
        """As shells show the end by a signal."""
        return 128 + self.signal


@contextmanager
def interruptible() -> Iterator[None]:
    """Raises Interrupted in the block for the first signal; a later one ends the process at once.

    Libraries swallow exceptions, PyTorch and NumPy while they are imported for one. So Interrupted
    is raised again until the block ends by it, and takes the place of any error that came of it.
    Who started etprof may have had signals ignored, as nohup has SIGHUP: they stay ignored. Does
    nothing outside the main thread, where no signal ever arrives.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = _Handler()
    # None: a handler that is not Python's belongs to whoever has embedded it.
    before = {each: signal.getsignal(each) for each in (*_ENDING, signal.SIGALRM)}
    caught = [each for each, how in before.items() if how not in {signal.SIG_IGN, None}]
    try:
        for each in caught:
            signal.signal(each, handler.interrupt)
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
        for each in caught:
            signal.signal(each, before[each])


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


def _is_tidying_up() -> bool:
    """Whether the main thread is in a `finally` or `except` on the way out."""
    error = sys.exc_info()[1]
    while error is not None and not isinstance(error, Interrupted):
        error = error.__context__
    return error is not None
