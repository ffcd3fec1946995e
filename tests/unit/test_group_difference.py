"""Groups of few values, and tables of many tests: compared with SciPy and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from etprof.statistics.two_samples import (
    Spread,
    benjamini_hochberg,
    difference_of_groups,
    holm,
    mean_interval,
    mean_p_value,
    pooled_spread,
    t_quantile,
)

ONE, OTHER = [1.0, 1.2, 0.9, 1.1], [1.3, 1.5, 1.2]


def test_two_groups_are_compared_by_student_s_test() -> None:
    found, expected = difference_of_groups(ONE, OTHER), stats.ttest_ind(OTHER, ONE)
    assert found is not None
    assert found.p_value == pytest.approx(expected.pvalue)
    bounds = expected.confidence_interval(0.95)
    assert (found.interval.low, found.interval.high) == pytest.approx((bounds.low, bounds.high))


def test_the_degrees_of_freedom_are_those_of_the_runs() -> None:
    """N4: a spread of K runs has K - 1 of them, however many launches a run has."""
    found = difference_of_groups([0.0, 0.02, 0.01], [0.05])
    assert found is not None
    assert found.spread.freedom == 2
    assert found.interval.high - found.interval.low == pytest.approx(
        2 * stats.t.ppf(0.975, 2) * 0.01 * np.sqrt(4 / 3)
    )


def test_one_value_a_side_says_nothing() -> None:
    """N1: two runs alone have no spread that a difference could be compared with."""
    assert difference_of_groups([1.0], [2.0]) is None
    known = difference_of_groups([1.0], [2.0], prior=Spread(0.1, 8))
    assert known is not None
    assert known.spread.freedom == 8
    assert known.spread.deviation == pytest.approx(0.1)


def test_what_was_known_counts_by_its_freedom() -> None:
    pooled = pooled_spread([[0.0, 2.0]], Spread(1.0, 3))
    assert pooled.freedom == 4
    assert pooled.deviation == pytest.approx(np.sqrt((2 + 3) / 4))


def test_the_smallest_difference_is_found_8_times_of_10() -> None:
    random = np.random.default_rng(3)
    found = difference_of_groups([0.0] * 3, [0.0] * 3, prior=Spread(1.0, 1000))
    assert found is not None
    seen = 0
    for _ in range(2000):
        one, other = random.normal(size=3), random.normal(size=3) + found.smallest
        test = difference_of_groups(one.tolist(), other.tolist(), prior=Spread(1.0, 1000))
        assert test is not None
        assert (test.p_value <= 0.05) == (test.interval.low > 0 or test.interval.high < 0)
        seen += test.p_value <= 0.05
    assert 0.77 <= seen / 2000 <= 0.83


def test_the_interval_of_a_mean_agrees_with_its_test() -> None:
    values = [0.1, 0.3, 0.2, 0.4, 0.15]
    expected = stats.ttest_1samp(values, 0)
    interval, bounds = mean_interval(values), expected.confidence_interval(0.95)
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((bounds.low, bounds.high))
    assert mean_p_value(values) == pytest.approx(expected.pvalue)
    assert mean_interval([1.0]) is None


@pytest.mark.parametrize("freedom", [1, 2, 4, 4.5, 30, 200, 20_000])
def test_student_s_t_is_the_one_of_scipy(freedom: float) -> None:
    for confidence in (0.6, 0.95, 0.999):
        expected = stats.t.ppf((1 + confidence) / 2, freedom)
        assert t_quantile(freedom, confidence) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("count", [1, 2, 30])
def test_adjusted_p_values(count: int) -> None:
    values = np.random.default_rng(count).uniform(size=count) ** 2
    expected = stats.false_discovery_control(values)
    assert benjamini_hochberg(values.tolist()) == pytest.approx(expected)


def test_holm_by_hand() -> None:
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06])
    assert holm([]) == benjamini_hochberg([]) == ()
