"""Intervals cover what they say they cover; blocks are the unit."""

from __future__ import annotations

import numpy as np
import pytest

from etprof.statistics.order_statistics import median_interval
from etprof.statistics.summary import summarise, summarise_blocks


def test_summary_of_known_samples() -> None:
    summary = summarise([1, 2, 3, 4, 100])
    assert (summary.count, summary.median, summary.mean) == (5, 3, 22)
    assert (summary.minimum, summary.maximum) == (1, 100)


def test_a_summary_tells_outliers_from_spread() -> None:
    # GIVEN 1 to 20 and one sample far away; quartiles 6 and 16, so that 31 is the last one inside
    inside, outside = (summarise([*range(1, 21), last]) for last in (31, 31.5))
    assert (inside.p75, inside.p90, inside.p95) == (16, 19, 20)
    assert (inside.outliers, outside.outliers) == (0, 1)
    # AND the mean without two samples at each end is that of 3 to 19
    assert outside.trimmed_mean == 11


def test_no_interval_of_95_percent_below_six_values() -> None:
    assert median_interval([1, 2, 3, 4, 5]) is None


@pytest.mark.parametrize(
    ("count", "low", "high", "confidence"),
    # Conover's table: n = 6 whole range 0.969; n = 10 ranks 2 and 9 0.979; n = 20 ranks 6, 15.
    [(6, 1, 6, 0.96875), (10, 2, 9, 0.978515625), (20, 6, 15, 0.958610534667968)],
)
def test_ranks_of_the_interval(count: int, low: int, high: int, confidence: float) -> None:
    interval = median_interval(range(1, count + 1))
    assert interval is not None
    assert (interval.low, interval.high) == (low, high)
    assert interval.confidence == pytest.approx(confidence)


def test_the_interval_covers_the_median_of_a_skewed_distribution() -> None:
    random = np.random.default_rng(7)
    trials = 2000
    truth = np.log(2.0)
    covered = 0
    for _ in range(trials):
        interval = median_interval(random.exponential(size=10).tolist())
        assert interval is not None
        covered += interval.low <= truth <= interval.high
    assert 0.965 <= covered / trials <= 0.99


def test_blocks_weigh_the_same_whatever_their_length() -> None:
    summary = summarise_blocks([[10] * 1000, [20], [30]])
    assert summary.median == 20
    assert summary.block_medians == (10, 20, 30)
    assert summary.interval is None
