"""How probable is it that runs depart from their level as far as they did, with nothing changed?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from etprof.statistics.order_statistics import CONFIDENCE
from etprof.statistics.two_samples import p_of_t, t_quantile

if TYPE_CHECKING:
    from etprof.statistics.device_noise import DeviceNoise
    from etprof.statistics.two_samples import GroupDifference


@dataclass(frozen=True)
class SeriesDeparture:
    """A run that departs from the level of its series, with those before it on the same side."""

    metric: str
    logs: Sequence[float]
    """Log values of the runs before, oldest first."""
    log_value: float
    is_worse: bool
    outside: Sequence[int]
    """Indices of the newest runs, one after the other, that departed to the same side."""
    state_chance: float = 0.0
    """That all these are in the worse of two states that the series has; 0 if they are not."""

    @property
    def own_logs(self) -> list[float]:
        """Log values of the runs that do not depart with this one."""
        return [value for index, value in enumerate(self.logs) if index not in self.outside]

    def smallest(self, change: float) -> float:
        """The least change from the level among the runs that depart, in log units."""
        level = self.log_value - change
        changes = (change, *(self.logs[index] - level for index in self.outside))
        return min(changes, key=abs)


def weigh_departure(
    difference: GroupDifference, noise: DeviceNoise, departed: SeriesDeparture
) -> tuple[GroupDifference, float]:
    """Returns a departure with its chance by the device's noise, and that of one run if it decides.

    That several runs in a row all depart so far at least has the chance of one, to their power.

    Args:
        difference: The candidate's from its level, as normal noise has it.
        noise: What is known of the device's.
        departed: What departs.
    """
    if difference.p_value > 1 - CONFIDENCE:
        return difference, 0.0
    if departed.state_chance > difference.p_value:
        return replace(difference, p_value=departed.state_chance), departed.state_chance
    freedom = difference.spread.freedom
    reach = (difference.interval.high - difference.interval.low) / 2
    error = reach / t_quantile(freedom, difference.interval.confidence)
    smallest, own_logs = departed.smallest(difference.change), departed.own_logs
    chance = noise.tail(own_logs, smallest, error, p_of_t(smallest, error, freedom))
    if departed.is_worse:
        chance = max(chance, noise.share_as_far(departed.metric, own_logs, smallest))
    together = chance ** (1 + len(departed.outside))
    if together <= difference.p_value:
        return difference, 0.0
    return replace(difference, p_value=together), chance
