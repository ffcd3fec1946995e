"""How much the process launches of one experiment differ: between, within, and over time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from etprof.base.units import format_share

VARIATION: Final = 0.05
"""From which standard deviation ÷ mean on a measurement is called noisy (rule F13)."""
DRIFT: Final = 0.05
"""From which change between the halves of the launches on, likewise."""
LEAST_BLOCKS: Final = 4
"""Launches of which noise can be told, and samples of which a launch's can."""


@dataclass(frozen=True)
class Noise:
    """Of launches that should all be alike; as shares, but for the medians in ns."""

    between: float
    """Standard deviation ÷ mean of the launches' medians."""
    within: float
    """The same inside a typical launch, by quartiles: single interruptions do not count."""
    drift: float
    """How much longer the second half of the launches takes than the first; below zero, shorter."""
    fastest: float
    slowest: float

    @property
    def trend(self) -> str:
        """The drift in words."""
        return f"{format_share(abs(self.drift))} {'slower' if self.drift > 0 else 'faster'} than the first"

    def is_steady(self, variation: float = VARIATION, drift: float = DRIFT) -> bool:
        """Whether nothing of it is above the limits."""
        return max(self.between, self.within) <= variation and abs(self.drift) <= drift


def launch_noise(blocks: Sequence[Sequence[int]]) -> Noise | None:
    """Returns the noise of an experiment's launches; None for fewer than four, or without times."""
    medians = [statistics.median(block) for block in blocks]
    if len(blocks) < LEAST_BLOCKS or 0 in medians:
        return None
    half = len(medians) // 2
    return Noise(
        between=statistics.stdev(medians) / statistics.fmean(medians),
        within=statistics.median(map(_variation, blocks)),
        drift=statistics.median(medians[-half:]) / statistics.median(medians[:half]) - 1,
        fastest=min(medians),
        slowest=max(medians),
    )


def _variation(block: Sequence[int]) -> float:
    """The interquartile range ÷ 1.35 estimates the standard deviation of normal samples."""
    if len(block) < LEAST_BLOCKS:
        return 0.0
    low, middle, high = statistics.quantiles(block, n=4)
    return (high - low) / 1.349 / middle if middle else 0.0
