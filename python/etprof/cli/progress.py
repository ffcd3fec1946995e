"""Progress on standard error, for everything that takes more than two seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from etprof.base.text import clean_lines
from etprof.base.units import format_duration

if TYPE_CHECKING:
    from rich.console import Console

_PERIOD_S: Final = 30.0
"""Between lines of a log: what shows a bar on a terminal would be silent there for minutes."""


class ProgressLog:
    """Says where long work is, in lines of a log, for standard error that is not a terminal.

    Work that is over within a period says nothing.
    """

    def __init__(self, period_s: float = _PERIOD_S) -> None:
        self._period_s = period_s
        self._text = ""
        self._is_over = threading.Event()
        self._started_ns = time.monotonic_ns()

    def start(self) -> None:
        """Begins to say so, from a thread that does not keep the process alive."""
        self.stop()
        self._started_ns = time.monotonic_ns()
        self._is_over = threading.Event()
        threading.Thread(target=self._run, args=(self._is_over,), daemon=True).start()

    def update(self, text: str) -> None:
        """Sets what the next line says."""
        self._text = text

    def stop(self) -> None:
        """Says no more."""
        self._is_over.set()

    def _run(self, is_over: threading.Event) -> None:
        while not is_over.wait(self._period_s):
            say(f"{self._text}: {format_duration(time.monotonic_ns() - self._started_ns)} so far")


def make_console(*, on_error: bool = False) -> Console:
    """Returns rich's console; a reader that went away ends the process as it ends others, with 141."""
    from rich.console import Console

    class PipeConsole(Console):
        def on_broken_pipe(self) -> None:
            # rich would exit with 1, which means a regression here. This is inside its handler.
            raise  # noqa: PLE0704

    return PipeConsole(file=sys.stderr if on_error else None)


@contextmanager
def show_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Shows a bar with the remaining time; lines of a log where standard error is no terminal."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = make_console(on_error=True)
    log = ProgressLog()
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    if not console.is_terminal:
        log.update("starting")
        log.start()
    try:
        with bar:
            task = bar.add_task("starting", total=None)

            def show(text: str, done: int, total: int) -> None:
                bar.update(task, description=text, completed=done, total=total)
                log.update(f"{text}, {done} of {total} done")

            yield show
    finally:
        log.stop()


def say(text: str) -> None:
    """Prints a message that is not part of the report."""
    print(clean_lines(text), file=sys.stderr)
