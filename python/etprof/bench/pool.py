"""What a pool of devices takes and tells, whoever runs it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.bench.combinations import Unit
    from etprof.bench.execution import Outcome


@dataclass(frozen=True)
class Task:
    """A unit with its program and the folder of its run."""

    unit: Unit
    program: Path
    run: Path


class Reporter(Protocol):
    """Is told how a matrix goes on, from any thread."""

    def say(self, text: str) -> None:
        """Something that people should read."""

    def step(self, unit: Unit, text: str, done: int, total: int) -> None:
        """A launch of a unit starts."""

    def finished(self, outcome: Outcome) -> None:
        """A unit has ended, well or not."""
