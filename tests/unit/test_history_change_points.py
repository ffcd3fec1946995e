"""Changes of level are found where they are, and only there; the partition is ruptures' own."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import ruptures

from etprof.statistics.change_points import autocorrelation, find_change_points, segment

if TYPE_CHECKING:
    from numpy.typing import NDArray


def starts(values: list[float], **how: float) -> list[int]:
    return [change.start for change in find_change_points(values, **how)]


def dependent(random: np.random.Generator, count: int, correlation: float) -> NDArray[np.float64]:
    """An AR(1) process of variance 1."""
    values = random.normal(size=count)
    for i in range(1, count):
        values[i] = correlation * values[i - 1] + math.sqrt(1 - correlation**2) * values[i]
    return values


def test_the_partition_is_the_one_that_ruptures_finds() -> None:
    random = np.random.default_rng(0)
    for _ in range(100):
        levels = np.repeat(random.normal(size=10) * 2, 15)[: random.integers(8, 150)]
        signal = levels + random.normal(size=levels.size)
        penalty = random.uniform(2, 20)
        search = ruptures.KernelCPD(kernel="linear", min_size=3).fit(signal[:, None])
        assert segment(signal, penalty, 3) == search.predict(pen=penalty)[:-1]


@pytest.mark.slow
@pytest.mark.parametrize("length", [10, 30, 100])
@pytest.mark.parametrize("spread", [0.005, 0.05])
def test_noise_is_no_change(length: int, spread: float) -> None:
    random = np.random.default_rng(1)
    alarms = sum(
        bool(find_change_points(np.exp(random.normal(size=length) * spread).tolist()))
        for _ in range(200)
    )
    assert alarms / 200 <= 0.05


def test_a_step_is_found_at_its_place() -> None:
    random = np.random.default_rng(2)
    values = np.exp(random.normal(size=60) * 0.005)
    values[25:] *= 1.05
    values[40:] *= 0.9
    assert starts(values.tolist()) == [25, 40]


def test_one_bad_night_is_no_level() -> None:
    assert find_change_points([100.0] * 10 + [200.0] + [100.0] * 10) == []


def test_a_change_without_noise_is_exact_and_a_small_one_not_reported() -> None:
    assert starts([100.0] * 10 + [110.0] * 3) == [10]
    assert starts([100.0] * 10 + [101.0] * 10) == []
    assert starts([100.0] * 10 + [101.0] * 10, least=0.005) == [10]
    (found,) = find_change_points([100.0] * 10 + [110.0] * 3)
    assert (found.earliest, found.latest) == (10, 10)
    assert found.probability > 0.999


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 5, [0.0] * 20, [1.0] * 10 + [-1.0] * 10])
def test_too_few_or_impossible_values_have_no_changes(values: list[float]) -> None:
    assert find_change_points(values) == []


@pytest.mark.parametrize("after", [1, 2])
def test_a_step_that_fewer_than_three_runs_follow_is_not_placed_yet(after: int) -> None:
    """N6: the change was put one or two runs before the step, between the wrong commits."""
    random = np.random.default_rng(after)
    for _ in range(20):
        values = np.exp(random.normal(0, 0.01, 30))
        values[-after:] *= 1.3
        assert starts(values.tolist()) == []


def test_the_place_is_given_with_what_is_open() -> None:
    """N6: where a step is as large as the noise, the commits around it are said to be in question."""
    random = np.random.default_rng(7)
    inside = exact = found = 0
    for _ in range(150):
        place = int(random.integers(10, 50))
        values = random.normal(0, 0.02, 60)
        values[place:] += 0.04
        for change in find_change_points(np.exp(values).tolist()):
            found += 1
            inside += change.earliest <= place <= change.latest
            exact += change.start == place
            assert change.probability >= 0.95
    assert found > 100
    assert inside / found >= 0.93
    assert exact < inside


@pytest.mark.parametrize(("correlation", "most"), [(0.0, 0.02), (0.5, 0.05), (0.9, 0.12)])
def test_runs_that_follow_the_run_before_are_no_change(correlation: float, most: float) -> None:
    """N6: 68 to 100 % of strongly autocorrelated series had false changes."""
    random = np.random.default_rng(11)
    trials = 100
    alarms = sum(
        bool(find_change_points(np.exp(0.02 * dependent(random, 60, correlation)).tolist()))
        for _ in range(trials)
    )
    assert alarms / trials <= most


def test_the_autocorrelation_is_found_beside_a_step() -> None:
    random = np.random.default_rng(12)
    found = []
    for correlation in (0.0, 0.8):
        values = dependent(random, 400, correlation)
        values[200:] += 20
        found.append(autocorrelation(values * 0.01))
    assert found[0] == pytest.approx(0.05, abs=0.1)
    assert found[1] == pytest.approx(0.8, abs=0.12)
