"""What can this machine tell apart? Learned from the same thing measured against itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from etprof.statistics.effect import (
    DEFAULT_MARGIN,
    Effect,
    effect_of_log_ratios,
    estimate_effect,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_DRAWS: Final = 1000
_POWER: Final = 0.8
_LARGEST_EFFECT: Final = 1.0
_STEPS: Final = 10


@dataclass(frozen=True)
class Calibration:
    """Noise of a machine, and what follows for comparisons with `pairs` pairs of blocks."""

    measured_pairs: int
    pairs: int
    noise: float
    """Standard deviation of the pairs' log ratios: about the relative noise of one comparison."""
    false_alarm_rate: float
    """Share of comparisons of a thing with itself that were called faster or slower."""
    smallest_effect: float | None
    """Least true speed-up, minus one, that 80 % of comparisons find; None above 100 %."""
    overall: Effect
    """All pairs together: should be no difference."""


def calibrate(
    baseline: Sequence[float],
    candidate: Sequence[float],
    *,
    pairs: int = 10,
    margin: float = DEFAULT_MARGIN,
) -> Calibration:
    """Learns from A/A data: two series of block medians of the same experiment.

    Comparisons of `pairs` pairs are drawn from the measured ones without repetition. Raises
    ValueError when fewer pairs were measured than one comparison has.
    """
    overall = estimate_effect(baseline, candidate, margin=margin)
    logs = np.asarray(overall.log_ratios)
    if logs.size < pairs:
        msg = f"{logs.size} pairs were measured; a comparison has {pairs}"
        raise ValueError(msg)
    random = np.random.default_rng(0)
    draws = np.stack([random.permutation(logs)[:pairs] for _ in range(_DRAWS)])
    # The same noise without this run's own offset, either sign being as likely as the other.
    centred = (draws - np.median(logs)) * (random.integers(0, 2, size=draws.shape) * 2 - 1)
    return Calibration(
        measured_pairs=logs.size,
        pairs=pairs,
        noise=float(np.std(logs, ddof=1)),
        false_alarm_rate=1 - _share(draws, {"no difference", "inconclusive"}, margin),
        smallest_effect=_smallest_effect(centred, margin),
        overall=overall,
    )


def _share(draws: NDArray[np.float64], verdicts: set[str], margin: float) -> float:
    """Share of the drawn comparisons that end in one of `verdicts`."""
    hits = sum(effect_of_log_ratios(d, margin=margin).verdict in verdicts for d in draws)
    return hits / len(draws)


def _smallest_effect(noise: NDArray[np.float64], margin: float) -> float | None:
    """Finds by bisection the effect that is found with the power wanted."""
    sample = noise[:200]

    def is_found(effect: float) -> bool:
        return _share(sample + math.log1p(effect), {"faster"}, margin) >= _POWER

    low, high = 0.0, _LARGEST_EFFECT
    if not is_found(high):
        return None
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if is_found(middle) else (middle, high)
    return high
