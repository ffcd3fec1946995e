"""The stages of an export, the time each one took, and what was seen to run in them."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class StageTime:
    """A finished stage."""

    name: str
    start_ns: int
    """Since the export began."""
    duration_ns: int


@dataclass(frozen=True)
class Step:
    """A function, or the import of a module, as a reader knows it."""

    name: str
    module: str


@dataclass(frozen=True)
class StackSample:
    """The steps that were running at a moment, outermost first."""

    time_ns: int
    """Since the export began."""
    steps: tuple[Step, ...]


class StageListener(Protocol):
    """Hears of stages as they start and end."""

    def stage_started(self, name: str) -> None:
        """A stage has begun."""

    def stage_ended(self, stage: StageTime) -> None:
        """A stage ended without an error."""


class SilentListener:
    """Shows nothing."""

    def stage_started(self, name: str) -> None:
        """Does nothing."""

    def stage_ended(self, stage: StageTime) -> None:
        """Does nothing."""


@dataclass
class StageClock:
    """Times stages and passes them on to a listener."""

    listener: StageListener = field(default_factory=SilentListener)
    times: list[StageTime] = field(default_factory=list)
    samples: list[StackSample] = field(default_factory=list)
    """What was running meanwhile; empty unless somebody watches."""
    _began_ns: int = field(default_factory=time.perf_counter_ns)

    def elapsed_ns(self) -> int:
        """Returns the time since the export began."""
        return time.perf_counter_ns() - self._began_ns

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Times the block as stage `name`; a block that raises is not recorded."""
        self.listener.stage_started(name)
        start_ns = self.elapsed_ns()
        yield
        self.times.append(StageTime(name, start_ns, self.elapsed_ns() - start_ns))
        self.listener.stage_ended(self.times[-1])
