"""The interval of a shift by ranks, compared with SciPy's test."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from etprof.statistics.two_samples import shift_interval, t_quantile


@pytest.mark.parametrize("sizes", [(4, 4), (6, 10), (10, 10), (20, 7)])
def test_the_interval_is_that_of_the_rank_sum_test(sizes: tuple[int, int]) -> None:
    random = np.random.default_rng(1)
    baseline, candidate = random.normal(size=sizes[0]), random.normal(1.0, size=sizes[1])
    interval = shift_interval(baseline, candidate)
    assert interval is not None
    for shift, inside in ((interval.low, True), (interval.high, True)):
        for step in (-1e-9, 1e-9):
            moved = candidate - shift - step
            p = stats.mannwhitneyu(moved, baseline, method="exact").pvalue
            is_inside = interval.low < shift + step < interval.high
            assert (p > 0.05) == is_inside, (inside, p)


@pytest.mark.parametrize("sizes", [(3, 3), (1, 10), (0, 5)])
def test_too_few_values_have_no_interval(sizes: tuple[int, int]) -> None:
    assert shift_interval(np.zeros(sizes[0]), np.zeros(sizes[1])) is None


def test_large_samples_have_nearly_the_exact_interval() -> None:
    random = np.random.default_rng(2)
    baseline, candidate = random.normal(size=40), random.normal(size=30)
    interval = shift_interval(baseline, candidate)
    assert interval is not None
    for shift in (interval.low, interval.high):
        p = stats.mannwhitneyu(candidate - shift, baseline, method="exact").pvalue
        assert p == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize("freedom", [4, 5, 7, 10, 30, 200])
def test_quantile_of_student(freedom: int) -> None:
    assert t_quantile(freedom) == pytest.approx(stats.t.ppf(0.975, freedom), rel=1e-9)
