"""What a debugger notes of a program: its calls, and the marks of the thread that infers.

Part of `watcher.py`, which runs in the debugger's own Python: nothing newer than Python 3.9.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from typing import Any

Action = Callable[[], None]


class Span:
    """What happened in an inference, or between two of them."""

    def __init__(self, is_execution: bool) -> None:
        """Begins with nothing."""
        self.is_execution = is_execution
        self.marks = ""
        self.times_ns: list[int] = []
        self.calls: Counter[tuple[int, ...]] = Counter()
        """By marks before the call, number of the function, and its first arguments."""

    def mark(self, letter: str, time_ns: int = 0) -> None:
        """Adds a mark: a letter of cpp/kernel_trace/operator_clock.h."""
        self.marks += letter
        self.times_ns.append(time_ns)

    def record(self) -> dict[str, Any]:
        """Returns it for JSON."""
        return {
            "is_execution": self.is_execution,
            "marks": self.marks,
            "times_ns": self.times_ns,
            "calls": [[*key, count] for key, count in sorted(self.calls.items())],
        }


class CallLog:
    """Calls, and the marks of the thread that runs the inferences."""

    def __init__(self) -> None:
        """Begins before the first inference."""
        self.spans = [Span(is_execution=False)]
        self._owner: int | None = None
        self._depths = {"D": 0, "P": 0}
        self._is_reading = False

    def count(self, function: int, arguments: tuple[int, ...]) -> None:
        """Counts a call, of whatever thread."""
        span = self.spans[-1]
        span.calls[(len(span.marks), function, *arguments)] += 1

    def begin_execution(self, thread: int) -> Action | None:
        """Begins an inference; returns what ends it, None within another one."""
        if self._owner is not None:
            return None
        self._owner = thread
        self.spans.append(Span(is_execution=True))
        return self._end_execution

    def _end_execution(self) -> None:
        self._owner = None
        self._depths = {"D": 0, "P": 0}
        self.spans.append(Span(is_execution=False))

    def begin(self, letter: str, thread: int) -> Action | None:
        """Marks the begin of a delegate's call (`D`) or of work for the thread pool (`P`).

        Returns:
            What ends it; None on another thread, and for work outside a delegate's call.
        """
        if thread != self._owner or (letter == "P" and not self._depths["D"]):
            return None
        if not self._depths[letter]:
            self.spans[-1].mark(letter)
        self._depths[letter] += 1
        return functools.partial(self._end, letter)

    def _end(self, letter: str) -> None:
        self._depths[letter] -= 1
        if not self._depths[letter]:
            self.spans[-1].mark(letter.lower())

    def begin_reading(self, thread: int) -> bool:
        """Whether a reading of the clock is the border between two operators.

        What it calls in its turn, such as the vDSO's function of the same name, is none more.
        """
        is_between = self._depths == {"D": 1, "P": 0}
        if thread != self._owner or not is_between or self._is_reading:
            return False
        self._is_reading = True
        return True

    def note_border(self, time_ns: int) -> None:
        """Marks a border with the time that the delegate has read."""
        self._is_reading = False
        self.spans[-1].mark("B", time_ns)
