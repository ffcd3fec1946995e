"""What a kind of target can prove, for planning, reports and the history."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What is true of a launch there, and so what is launched and what is shown."""

    proves_times: bool
    """False for emulators, whose times must never be compared or shown as performance."""
    proves_instructions: bool = False
    """Whether instructions can be counted there, one by one."""


@dataclass(frozen=True)
class RequiredPart:
    """Something that a kind needs beside etprof, and where it is; None when it is not there."""

    name: str
    path: Path | None
    problem: str | None = None
    way_out: str | None = None


@dataclass(frozen=True)
class ReadinessCheck:
    """What is known of one thing that measuring needs, and what to do when it is not there."""

    part: str
    status: Literal["ok", "missing", "note"]
    """A note is of what some uses alone need, or of what makes numbers worse."""
    detail: str
    way_out: str | None = None
