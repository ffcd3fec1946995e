"""Whether the per-operator breakdown agrees with the timed latency, and why where it does not.

Timing launches record nothing; the breakdown is of launches that record every operator. Where the two
are far apart, the breakdown is about the tracer, or about what disturbed those launches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from etprof.base.units import count_of, format_duration, format_ratio, format_share

MOST_DISTANCE: Final = 0.25
"""Share of the timed latency by which a mean execution of the breakdown may be off."""
MOST_RECORDED: Final = 0.5
"""The same where recording explains it. What recording adds is then at most a third of the execution
that the shares are of, so that no share is off by more than 33 points. Without this bound the
allowance for each operator accepted a GRU of 252 operators whose recorded inference took 191 µs
instead of 53 µs: two thirds of it were the tracer's."""
RECORDING_NS: Final = 1000
"""By which each operator may make a recorded execution longer: its events, the clock's marks, and
caches that a short launch has not warmed. On a quiet x86-64 host an event took 0.3 to 0.45 µs and
an operator 0.4 to 0.6 µs, from 8 operators to 985; toy_cnn's eight took 5 to 8 µs of 32."""


@dataclass(frozen=True)
class BreakdownAgreement:
    """The executions of the breakdown beside the timed latency; times in ns."""

    recorded_ns: float
    """Mean of `Method::execute` with the event tracer."""
    quietest_ns: float
    """The same in the operator launch in which it was shortest."""
    latency_ns: float
    """Median of an inference without the tracer, above 0."""
    operators: int
    """That a recorded execution has events of."""

    @property
    def distance(self) -> float:
        """How far the breakdown is off the latency, as a share of it."""
        return self.recorded_ns / self.latency_ns - 1

    @property
    def excess_ns(self) -> float:
        """What a recorded execution takes beyond the latency; 0 where it takes less."""
        return max(self.recorded_ns - self.latency_ns, 0.0)

    @property
    def most_distance(self) -> float:
        """How far it may be above the latency, as a share of it."""
        return max(min(self._explained, MOST_RECORDED), MOST_DISTANCE)

    @property
    def _explained(self) -> float:
        """Up to which distance recording explains it."""
        return MOST_DISTANCE + RECORDING_NS * self.operators / self.latency_ns

    @property
    def is_in_doubt(self) -> bool:
        """Whether they are too far apart for a finding or a gain to rest on the breakdown."""
        return not -MOST_DISTANCE <= self.distance <= self.most_distance

    @property
    def is_recording(self) -> bool:
        """Whether recording alone is too much: in the quietest launch too, and no more than it costs."""
        smallest_excess = self.quietest_ns / self.latency_ns - 1
        return self.is_in_doubt and self.most_distance < smallest_excess <= self._explained

    @property
    def cause(self) -> str:
        """Says why they are too far apart, as far as that is known."""
        if not self.is_recording:
            if self.distance > 1:
                ratio = format_ratio(1 + self.distance)
                return f"operator times add up to {ratio} the timed latency"
            distance = format_share(abs(self.distance))
            return f"operator times and the timed latency differ by {distance}"
        cost_ns = (self.quietest_ns - self.latency_ns) / self.operators
        return (
            f"recording adds about {format_duration(cost_ns)} to each of "
            f"{count_of(self.operators, 'event')}: a recorded inference takes at least "
            f"{format_duration(self.quietest_ns)}, an unrecorded one {format_duration(self.latency_ns)}"
        )

    @property
    def way_out(self) -> str:
        """Says what gives figures that can be relied on."""
        if not self.is_recording:
            return (
                "Measure again on a quiet machine, or judge changes by the latency, which is timed "
                "without recording (`profile --against`)."
            )
        return (
            "Measuring again does not change that. Judge changes by the latency, which is timed "
            "without recording (`optimize`, `profile --against`), or profile a larger "
            "batch, for which recording is a smaller part."
        )
