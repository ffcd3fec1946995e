"""Where an operator lies against what its device can do at most (roofline model).

Williams, Waterman and Patterson 2009 (doi:10.1145/1498765.1498785): an operator takes at least
its operations by the peak of its type, and its bytes by the bandwidth. The third bound is what any
operator takes, however little it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from etprof.analysis.split.operators import OperatorTimes
    from etprof.run.peaks import Peak, Peaks

Bound = Literal["compute", "memory", "overhead"]
NOISE: Final = 0.03
"""An operator that much faster than its roof is told."""


@dataclass(frozen=True)
class RooflinePoint:
    """One operator against the roofs."""

    bound: Bound
    """The largest of the three lower bounds."""
    peak: Peak | None
    """Of its type; None without multiply-accumulates."""
    stream: Peak
    """Of its size."""
    compute_ns: float | None
    """Its operations at the peak; None without multiply-accumulates."""
    memory_ns: float
    """Its bytes at the bandwidth of streams of its size."""
    overhead_ns: float
    """What the smallest stream takes."""
    median_ns: float
    most_ns: float
    """The upper end of what it took: of the interval, and of the clock's step."""

    @property
    def roof_ns(self) -> float:
        """The least that operations and bytes take."""
        return max(self.compute_ns or 0.0, self.memory_ns)

    @property
    def of_roof(self) -> float:
        """The least time by the median: 1 lies on the roof."""
        return self.roof_ns / self.median_ns

    @property
    def distance(self) -> float:
        """How many times as long it takes as the bound that it has."""
        return self.median_ns / max(self.roof_ns, self.overhead_ns)

    @property
    def is_above(self) -> bool:
        """Whether it is faster than the roof by more than noise: work or peaks are then not so."""
        return self.roof_ns > self.most_ns * (1 + NOISE)


@dataclass(frozen=True)
class Roofs:
    """The peaks of one device in one SME mode at one number of threads; rates are 10⁹ a second.

    A roof is the upper end of what its launches reached.
    """

    products: dict[str, Peak]
    """The fastest of each precision."""
    streams: tuple[Peak, ...]
    """The smallest first."""

    @classmethod
    def of(cls, peaks: Peaks | None, sme: str | None, threads: int | None) -> Roofs | None:
        """Chooses those that hold for an experiment; None where nothing was measured so."""
        matching = [p for p in peaks.peaks if (p.sme, p.threads) == (sme, threads)] if peaks else []
        products: dict[str, Peak] = {}
        for peak in sorted(matching, key=lambda peak: peak.high):
            if peak.precision is not None:
                products[peak.precision] = peak
        streams = sorted((p for p in matching if p.moved_bytes), key=lambda p: p.moved_bytes or 0)
        return cls(products, tuple(streams)) if products and streams else None

    def compute(self, precision: str | None) -> Peak:
        """The peak of a type; the highest of all where the type is not known or not measured."""
        highest = max(self.products.values(), key=lambda peak: peak.high)
        return self.products.get(precision or "", highest)

    def bandwidth(self, moved_bytes: int) -> Peak:
        """The fastest stream of the same size or more: caches may hold less better, never more."""
        smaller = [p for p in self.streams if (p.moved_bytes or 0) <= moved_bytes]
        smallest = smaller[-1] if smaller else self.streams[0]
        return _fastest(
            p for p in self.streams if (p.moved_bytes or 0) >= (smallest.moved_bytes or 0)
        )

    def place(
        self, times: OperatorTimes, step_ns: float, macs: int | None, moved_bytes: int,
        precision: str | None,
    ) -> RooflinePoint:  # fmt: skip
        """Places an operator by its work and its time."""
        peak, stream = self.compute(precision) if macs else None, self.bandwidth(moved_bytes)
        compute_ns = 2 * macs / peak.high if macs and peak else None
        memory_ns = moved_bytes / stream.high
        overhead_ns = self.streams[0].least_ns
        bound: Bound = "memory" if memory_ns > (compute_ns or 0.0) else "compute"
        if overhead_ns > max(compute_ns or 0.0, memory_ns):
            bound = "overhead"
        most_ns = max(times.median_ns, times.interval.high if times.interval else 0.0) + step_ns
        return RooflinePoint(
            bound, peak, stream, compute_ns, memory_ns, overhead_ns, times.median_ns, most_ns
        )


def _fastest(peaks: Iterable[Peak]) -> Peak:
    return max(peaks, key=lambda peak: peak.high)
