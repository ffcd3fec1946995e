"""When enough is measured: the rule is fixed before the run and looks at precision alone."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

from etprof.statistics.order_statistics import median_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.run.runner_result import RunnerResult


def is_precise_enough(experiments: Sequence[Sequence[RunnerResult]], half_width: float) -> bool:
    """Whether every experiment's median over blocks is known within ± `half_width` of itself."""
    return all(_half_width(blocks) <= half_width for blocks in experiments)


def _half_width(blocks: Sequence[RunnerResult]) -> float:
    """Half the relative width of the interval of the median over blocks."""
    medians = [statistics.median(block.latency_ns) for block in blocks]
    interval = median_interval(medians)
    if interval is None:
        return float("inf")
    return (interval.high - interval.low) / 2 / statistics.median(medians)
