"""Progress on standard error, for everything that takes more than two seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from etprof.base.text import clean_lines


@contextmanager
def show_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Shows a bar with the remaining time; nothing when standard error is not a terminal."""
    console = Console(file=sys.stderr)
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("starting", total=None)

        def show(text: str, done: int, total: int) -> None:
            bar.update(task, description=text, completed=done, total=total)

        yield show


def say(text: str) -> None:
    """Prints a message that is not part of the report."""
    print(clean_lines(text), file=sys.stderr)
