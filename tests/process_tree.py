"""Finds every living process that a command has started, whatever became of its parents."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from pathlib import Path

VARIABLE = "ETPROF_TEST_TREE"
LONGEST_END_S = 2.0
"""What etprof promises: by then nothing lives that it has started."""


class ProcessTree:
    """The processes with one mark in their environment, which children inherit; Linux only."""

    def __init__(self) -> None:
        self._mark = f"{VARIABLE}={secrets.token_hex(8)}".encode()

    @property
    def environment(self) -> dict[str, str]:
        """What the first process is started with, beside the rest."""
        name, _, value = self._mark.decode().partition("=")
        return {name: value}

    def living(self) -> dict[int, str]:
        """Process id → command line; those that only wait to be collected are dead."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if self._mark in (folder / "environ").read_bytes().split(b"\0"):
                    words = (folder / "cmdline").read_bytes().split(b"\0")
                    found[int(folder.name)] = os.fsdecode(b" ".join(words))
            except OSError:
                # It has ended between two looks, or is another user's.
                continue
        return found

    def running(self, text: str) -> list[int]:
        """Process ids whose command line contains `text`, guards apart."""
        return [
            number
            for number, words in self.living().items()
            if text in words and "base/guard.py" not in words
        ]

    def seconds_until_empty(self, limit_s: float = LONGEST_END_S) -> float | None:
        """Waits until none of it lives; None when that takes more than `limit_s`."""
        start = time.monotonic()
        while self.living():
            if time.monotonic() - start > limit_s:
                return None
            time.sleep(0.01)
        return time.monotonic() - start


def wait_for(condition: Callable[[], object], failure: str, *, limit_s: float = 60.0) -> None:
    """Waits until `condition` gives something true; raises TimeoutError."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(failure)
        time.sleep(0.01)
