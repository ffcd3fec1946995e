"""Change points are found where they are, and only there; the likelihood is the textbook's."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
import ruptures

from etprof.statistics.change_points import Levels, find_change_points, step_in_doubt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def starts(values: list[float], **how: float) -> list[int]:
    return [change.start for change in find_change_points(values, **how)]


def dependent(random: np.random.Generator, count: int, correlation: float) -> NDArray[np.float64]:
    """An AR(1) process of variance 1."""
    values = random.normal(size=count)
    for i in range(1, count):
        values[i] = correlation * values[i - 1] + math.sqrt(1 - correlation**2) * values[i]
    return values


def likelihood(logs: NDArray[np.float64], starts: Sequence[int], correlation: float) -> float:
    """Of a partition, by the covariance of an AR(1) process and each level's weighted mean."""
    squares = worths = 0.0
    for part in np.split(logs, starts):
        apart = np.abs(np.subtract.outer(range(part.size), range(part.size)))
        inverse = np.linalg.inv(correlation**apart / (1 - correlation**2))
        worth = inverse.sum() / (1 - correlation**2)
        level = float(inverse.sum(axis=0) @ part) / inverse.sum()
        squares += float((part - level) @ inverse @ (part - level))
        worths += math.log(worth) / 2
    return -worths - (logs.size - 1) / 2 * math.log(squares + logs.size * 0.001**2)


@pytest.mark.parametrize("correlation", [0.0, 0.6, 0.93])
def test_the_partition_is_the_most_likely_of_all(correlation: float) -> None:
    """N6: none of up to three changes is likelier; the likelihood is that of dense matrices."""
    random = np.random.default_rng(0)
    for cost in (0.5, 2.0, 4.0):
        for _ in range(5):
            logs = np.repeat(random.normal(size=4), 3) + dependent(random, 12, correlation) / 2
            found = Levels(logs, np.array([correlation])).partition(cost)
            every = [
                starts
                for number in range(4)
                for starts in itertools.combinations(range(3, 10), number)
                if all(b - a >= 3 for a, b in itertools.pairwise(starts))
            ]
            scores = [likelihood(logs, each, correlation) - cost * len(each) for each in every]
            own = likelihood(logs, found, correlation) - cost * len(found)
            # Of as many changes the one with the least squares is taken, whatever the levels' worth.
            assert own >= max(scores) - 0.5


@pytest.mark.parametrize("penalty", [1.0, 5.0])
def test_without_dependence_the_partition_is_the_one_that_ruptures_finds(penalty: float) -> None:
    random, changed = np.random.default_rng(0), 0
    for _ in range(10):
        levels = np.repeat(random.normal(size=10) * 2, 15)[: random.integers(20, 90)]
        signal = levels + random.normal(size=levels.size)
        found = Levels(signal, np.zeros(1)).partition(penalty)
        if found:
            search = ruptures.Dynp(model="l2", min_size=3, jump=1).fit(signal[:, None])
            assert found == search.predict(n_bkps=len(found))[:-1]
        changed += bool(found)
    assert changed > 5


@pytest.mark.slow
@pytest.mark.parametrize("length", [10, 30])
@pytest.mark.parametrize("spread", [0.005, 0.05])
def test_noise_is_no_change(length: int, spread: float) -> None:
    random = np.random.default_rng(1)
    alarms = sum(
        bool(find_change_points(np.exp(random.normal(size=length) * spread).tolist()))
        for _ in range(100)
    )
    assert alarms / 100 <= 0.03


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
    assert starts([100.0] * 10 + [101.0] * 10, minimum_change=0.005) == [10]
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


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_runs_that_follow_the_run_before_are_no_change(correlation: float) -> None:
    """N6: 68 to 100 % of strongly autocorrelated series had false changes."""
    random = np.random.default_rng(11)
    trials = 60
    alarms = sum(
        bool(find_change_points(np.exp(0.02 * dependent(random, 60, correlation)).tolist()))
        for _ in range(trials)
    )
    assert alarms / trials <= 0.05


@pytest.mark.parametrize("count", [9, 12, 15])
def test_a_step_of_many_times_the_noise_is_found_in_a_short_series(count: int) -> None:
    """N6: one in four was missed, since the step itself raised the autocorrelation."""
    random = np.random.default_rng(count)
    missed = 0
    for _ in range(60):
        place = int(random.integers(3, count - 2))
        values = np.exp(random.normal(0, 0.004, count)) * np.where(np.arange(count) < place, 1, 1.2)
        missed += starts(values.tolist()) != [place]
    assert missed <= 1


def test_a_step_that_a_drift_may_be_is_in_doubt() -> None:
    """N6: what independent runs would show is neither called a change nor passed over."""
    values = [100.0, 101, 100.5, 102, 101.5, 104, 104.5, 103.5, 105, 104.2]
    assert starts(values) == []
    assert step_in_doubt(values) == pytest.approx(0.03, abs=0.01)
    assert step_in_doubt([100.0, 101, 100.5, 101, 100, 101, 100.5]) is None
    assert step_in_doubt([]) is None


@pytest.mark.parametrize("kind", ["rounded", "disturbed"])
def test_values_that_are_rounded_or_disturbed_are_no_levels(kind: str) -> None:
    """N6: whole microseconds, and bad nights with good ones between, were called levels."""
    random, alarms = np.random.default_rng(5), 0
    for _ in range(60):
        values = 20 * np.exp(0.02 * random.normal(size=50))
        values *= np.where(random.random(50) < 0.1, 1.5, 1) if kind == "disturbed" else 1
        alarms += bool(starts((np.round(values) if kind == "rounded" else values).tolist()))
    assert alarms <= 60 * 0.1


def test_a_long_series_is_looked_through_whole() -> None:
    random = np.random.default_rng(6)
    for count, places in ((201, [100]), (450, [60, 160, 230, 444]), (777, [5, 150, 250, 300, 600])):
        values = np.exp(random.normal(0, 0.004, count))
        for place in places:
            values[place:] *= 1.1
        assert starts(values.tolist()) == places


@pytest.mark.parametrize(("before", "between"), [(0.006, 0.051), (0.006, 0.046), (-0.006, 0.049)])
def test_a_change_where_two_windows_meet_is_told_once(before: float, between: float) -> None:
    """N6: two windows put it on either side of their border, and both or neither told it."""
    values = np.random.default_rng(1).normal(0, 0.004, 320)
    values[:100] += before
    values[150:] += 0.1
    values[149] = between
    (found,) = starts(np.exp(values).tolist())
    assert found in {149, 150}
