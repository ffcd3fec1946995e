"""Whether an operator split is of the inferences that were timed.

Events are recorded in launches of their own, and recording takes time. Where a mean execution of the
split is far from the timed latency, its times are of something else: another state of the machine,
or mostly the recording. Shares may still be right, but no gain or total may be taken from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from etprof.base.units import format_duration, format_share

MOST_DISTANCE: Final = 0.25
"""Share of the timed latency by which a mean execution of the split may be off.

Recording events takes a tenth of an inference of 40 µs, and less of longer ones: more than twice
that is no tracer's cost.
"""


@dataclass(frozen=True)
class Agreement:
    """A mean execution of the split beside the timed latency, in ns."""

    experiment: str
    latency_ns: float
    split_ns: float

    @property
    def distance(self) -> float:
        """How far the split is off, as a share of the latency; above zero when it is longer."""
        return self.split_ns / self.latency_ns - 1

    @property
    def holds(self) -> bool:
        """Whether what the split says may be taken as parts of the timed latency."""
        return abs(self.distance) <= MOST_DISTANCE

    def __str__(self) -> str:
        """What a reader must know of a split that does not agree."""
        return (
            f"{self.experiment}: operator split does not agree with the timed latency: "
            f"{format_duration(self.split_ns)} with tracer, {format_duration(self.latency_ns)} "
            f"without, more than {format_share(MOST_DISTANCE)} apart; waterfall, Amdahl's law and "
            "gains are withheld: measure again when the machine is quiet"
        )
