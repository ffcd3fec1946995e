"""How much faster is a part of a program, told by a few launches of each side in turns."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from etprof.statistics.order_statistics import Interval
from etprof.statistics.two_samples import mean_interval, mean_p_value

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True)
class LaunchRatio:
    """A ratio of means, baseline ÷ candidate."""

    speed_up: float
    interval: Interval | None
    """95 % interval between launches; with the p None for a single pair of launches."""
    p_value: float | None


def ratio_of_launches(baseline: Sequence[float], candidate: Sequence[float]) -> LaunchRatio:
    """Compares the means of two sides whose launches are pairs, near each other in time.

    Student's t of each pair's share of the log ratio, b / mean(b) - c / mean(c), by the delta
    method (Cochran, Sampling Techniques, 6.4). Raises ValueError for unlike sides, or without time.
    """
    one, other = np.asarray(baseline, float), np.asarray(candidate, float)
    if one.size != other.size or not one.size or one.mean() <= 0 or other.mean() <= 0:
        msg = f"need pairs with time on both sides, got {one.size} and {other.size} launches"
        raise ValueError(msg)
    log = math.log(one.mean() / other.mean())
    logs = (log + one / one.mean() - other / other.mean()).tolist()
    found = mean_interval(logs)
    interval = None
    if found is not None:
        interval = Interval(math.exp(found.low), math.exp(found.high), found.confidence)
    return LaunchRatio(math.exp(log), interval, mean_p_value(logs))
