"""What repeated runs of the same thing differ by on a device."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NoiseFloor:
    """Spread of one metric's value over runs that repeat each other (A/A), on one device."""

    device: str
    metric: str
    of_run: float
    """Standard deviation of one run's log value: about its relative spread."""
    freedom: int
    """Degrees of freedom: runs less groups."""
    runs: int
    groups: int
    """Series and revisions with more than one run."""
