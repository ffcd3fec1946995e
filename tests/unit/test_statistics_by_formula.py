"""What reports say of noise, compared with SciPy and formulas that are written out here."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats
from scipy.optimize import brentq
from scipy.special import polygamma, psi

from etprof.statistics.calibration import calibrate
from etprof.statistics.runs import find_drift, fit_prior, moderated, spread_of_neighbours
from etprof.statistics.two_samples import Spread, difference_of_groups, pooled_spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

LOGS = (0.01, -0.02, 0.03, 0.0, 0.015, -0.005, 0.02, 0.04)


def bounds_of_deviation(values: NDArray[np.float64], freedom: int) -> tuple[float, float, float]:
    """Bonett 2006: chi-square's interval, with fewer degrees of freedom where tails are heavy."""
    count = len(values)
    deviation = math.sqrt(np.sum(values**2) / freedom)
    kurtosis = count * np.sum(values**4) / np.sum(values**2) ** 2
    varies = (kurtosis - (count - 3) / (count - 1)) / count
    known = min(freedom, 2 / varies)
    low, high = (deviation * math.sqrt(known / stats.chi2.ppf(p, known)) for p in (0.975, 0.025))
    return deviation, low, high


@pytest.mark.parametrize("tails", [2, 30])
def test_the_bounds_of_the_noise(tails: int) -> None:
    random = np.random.default_rng(tails)
    levels = np.array([[100.0], [104.0], [97.0]])
    ones = levels * np.exp(0.01 * random.standard_t(tails, size=(3, 24)))
    others = levels * np.exp(0.001 * random.normal(size=(3, 24)))
    found = calibrate([*zip(ones.tolist(), others.tolist(), strict=True)], pairs=6)
    logs = np.log(ones / others)
    centred = (logs - np.median(logs, axis=1, keepdims=True)).ravel()
    expected = bounds_of_deviation(centred, centred.size - 3)
    assert (found.noise.value, found.noise.low, found.noise.high) == pytest.approx(expected)
    # AND 24 pairs are four comparisons of six a run; their rate is bounded as Clopper and Pearson do
    assert (found.measured_pairs, found.comparisons) == (72, 12)
    exact = stats.binomtest(found.false_alarms, 12, alternative="less").proportion_ci(0.95)
    assert found.most_false_alarms == pytest.approx(exact.high)
    # AND runs vary by their own values
    between = found.between_runs
    assert between is not None
    values = np.log([np.median(both) for both in np.hstack([ones, others])])
    expected = bounds_of_deviation(values - values.mean(), 2)
    spread = between.spread
    assert (spread.value, spread.low, spread.high) == pytest.approx(expected)


def test_false_alarms_are_bounded_by_their_number() -> None:
    # GIVEN one of four comparisons that is an alarm
    logs = [0.01, -0.01] * 9 + [0.5, 0.51, 0.52, 0.5, 0.51, 0.52]
    found = calibrate([(np.exp(logs).tolist(), [1.0] * 24)], pairs=6)
    assert (found.comparisons, found.false_alarms) == (4, 1)
    exact = stats.binomtest(1, 4, alternative="less").proportion_ci(0.95)
    assert found.most_false_alarms == pytest.approx(exact.high)


def test_a_drift_is_the_line_of_least_squares() -> None:
    found = find_drift([9.0, *LOGS])
    assert found is not None
    line = stats.linregress(range(8), LOGS)
    assert found.runs == 8
    assert found.start == pytest.approx(line.intercept)
    assert found.total.change == pytest.approx(7 * line.slope)
    assert found.total.p_value == pytest.approx(line.pvalue, abs=1e-6)
    reach = stats.t.ppf(0.975, 6) * 7 * line.stderr
    assert found.total.interval.high - found.total.change == pytest.approx(reach)
    # AND a line fits a ramp better than any step does, and of this series a step is better
    assert found.is_steady is False
    ramp = find_drift([0.01 * n + 0.001 * (-1) ** n for n in range(8)])
    assert ramp is not None
    assert ramp.is_steady is True


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_step_anywhere_is_no_drift(cut: int) -> None:
    found = find_drift([0.0] * cut + [0.1] * (8 - cut))
    assert found is not None
    assert found.is_steady is False


def test_the_spread_of_neighbours_by_hand() -> None:
    found = spread_of_neighbours(LOGS[:4])
    # Differences -3, 5 and -3 hundredths: the half of their mean square is 43/6; 2·9/8 of freedom.
    assert found is not None
    assert found.deviation == pytest.approx(0.01 * math.sqrt(43 / 6))
    assert found.freedom == pytest.approx(2.25)


def test_the_prior_of_a_device_by_formula() -> None:
    """Smyth 2004, 6.2, with the excess at two standard errors of the log variances' variance."""
    deviations, freedoms = np.array([0.01, 0.04, 0.02, 0.005, 0.08]), np.array([4.0, 6, 5, 9, 12])
    found = fit_prior([Spread(d, f) for d, f in zip(deviations, freedoms, strict=True)])
    assert found is not None
    variances = deviations**2
    assert found.deviation == pytest.approx(math.sqrt(np.average(variances, weights=freedoms)))
    logs = np.log(variances) - psi(freedoms / 2) + np.log(freedoms / 2)
    expected = np.mean(polygamma(1, freedoms / 2))
    # Fourth cumulants and the variance of a sample's variance: κ4/n + 2σ⁴/(n - 1).
    error = math.sqrt(np.mean(polygamma(3, freedoms / 2)) / 5 + 2 * expected**2 / 4)
    excess = np.var(logs, ddof=1) - expected + 2 * error
    half = brentq(lambda x: float(polygamma(1, x)) - excess, 0.01, 100)
    assert found.freedom == pytest.approx(2 * half)


@pytest.mark.parametrize(
    ("own", "freedom", "expected"),
    [
        # F(5, 6) is above 3.11 in 10 of 100: at 1.7 times the deviation it is 2.89, at 1.8 3.24.
        (0.017, 5, math.sqrt((5 * 0.017**2 + 6 * 0.01**2) / 11)),
        (0.018, 5, 0.018),
        (0.005, 5, math.sqrt((5 * 0.005**2 + 6 * 0.01**2) / 11)),
    ],
)
def test_a_series_keeps_to_its_own_spread_where_it_is_far_louder(
    own: float, freedom: int, expected: float
) -> None:
    found = moderated(freedom * own**2, freedom, Spread(0.01, 6))
    assert found.deviation == pytest.approx(expected)
    assert found.freedom == (5 if expected == own else 11)


def test_two_groups_with_what_was_known() -> None:
    before, after, known = [1.0, 1.2, 1.1], [1.4, 1.5, 1.3, 1.9], Spread(0.2, 4)
    squares = 2 * np.var(before, ddof=1) + 3 * np.var(after, ddof=1) + 4 * 0.2**2
    spread = pooled_spread((before, after), known)
    assert (spread.deviation, spread.freedom) == pytest.approx((math.sqrt(squares / 9), 9))
    found = difference_of_groups(before, after, prior=known, confidence=0.9)
    assert found is not None
    error = spread.deviation * math.sqrt(1 / 3 + 1 / 4)
    assert found.change == pytest.approx(np.mean(after) - 1.1)
    assert found.interval.high - found.change == pytest.approx(stats.t.ppf(0.95, 9) * error)
    assert found.p_value == pytest.approx(2 * stats.t.sf(found.change / error, 9), abs=1e-6)
    # AND one degree of freedom is enough, and less is none
    assert difference_of_groups([1.0], [2.0], prior=Spread(0.1, 1)) is not None
    assert difference_of_groups([1.0], [2.0], prior=Spread(0.1, 0.9)) is None
