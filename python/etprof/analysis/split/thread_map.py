"""Threads × SME mode: where each mode is best, and from how many threads off beats on.

SME units are shared between cores, so SME2 may win with one thread and lose with many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from etprof.statistics.effect import Effect, estimate_effect

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from etprof.analysis.run_analysis import ExperimentAnalysis


@dataclass(frozen=True)
class ThreadCell:
    """One mode at one thread count."""

    sme: str
    threads: int
    median_ns: float
    block_medians: tuple[float, ...]


@dataclass(frozen=True)
class ThreadMap:
    """Latency by mode and threads."""

    cells: tuple[ThreadCell, ...]
    crossover_threads: int | None
    """Least thread count at which off is faster than SME2; None when it never is."""
    effects: Mapping[int, Effect]
    """Off over SME2 by thread count, where both were measured in pairs."""

    @property
    def best(self) -> ThreadCell:
        """The fastest cell."""
        return min(self.cells, key=lambda cell: cell.median_ns)


def build_thread_map(experiments: Sequence[ExperimentAnalysis]) -> ThreadMap | None:
    """Builds the map; None when fewer than two thread counts were timed."""
    cells = tuple(
        ThreadCell(e.sme, e.threads, e.latency.steady.median, e.latency.steady.block_medians)
        for e in experiments
        if e.latency is not None and e.sme is not None and e.threads is not None
    )
    if len({cell.threads for cell in cells}) < 2:
        return None
    effects = _effects(cells)
    slower = sorted(threads for threads, e in effects.items() if e.verdict == "slower")
    return ThreadMap(cells, slower[0] if slower else None, effects)


def _effects(cells: Sequence[ThreadCell]) -> dict[int, Effect]:
    """Compares off with SME2 at each thread count."""
    effects = {}
    for off in (cell for cell in cells if cell.sme == "off"):
        on = next((c for c in cells if (c.sme, c.threads) == ("sme2", off.threads)), None)
        if on is not None and len(on.block_medians) == len(off.block_medians):
            effects[off.threads] = estimate_effect(off.block_medians, on.block_medians)
    return effects
