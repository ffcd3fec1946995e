"""Changes of level are found where they are, and only there; the partition is ruptures' own."""

from __future__ import annotations

import numpy as np
import pytest
import ruptures

from etprof.statistics.change_points import find_change_points, segment


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
    assert find_change_points(values.tolist()) == [25, 40]


def test_one_bad_night_is_no_level() -> None:
    assert find_change_points([100.0] * 10 + [200.0] + [100.0] * 10) == []


def test_a_change_without_noise_is_exact_and_a_small_one_not_reported() -> None:
    assert find_change_points([100.0] * 10 + [110.0] * 3) == [10]
    assert find_change_points([100.0] * 10 + [101.0] * 10) == []
    assert find_change_points([100.0] * 10 + [101.0] * 10, least=0.005) == [10]


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 5, [0.0] * 20, [1.0] * 10 + [-1.0] * 10])
def test_too_few_or_impossible_values_have_no_changes(values: list[float]) -> None:
    assert find_change_points(values) == []
