"""The speed-up's statistics keep their promises on data whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from etprof.measuring.plan import Experiment, Settings, plan
from etprof.statistics.effect import (
    estimate_effect,
    hodges_lehmann,
    hodges_lehmann_interval,
    judge,
    sign_flip_p,
)
from etprof.statistics.order_statistics import Interval
from tests.world.sim_target import SimTarget
from tests.world.spec import plain

TRIALS = 2000
PAIRS = 10


def noisy_pairs(
    random: np.random.Generator, *, effect: float, drift: float = 0.0, noise: float = 0.02
) -> tuple[list[float], list[float]]:
    """Block medians as the planner orders them; `drift` is the slow-down over the session."""
    planned = plan(
        [Experiment(name="off"), Experiment(name="on")],
        Settings(blocks=PAIRS, seed=int(random.integers(10**6))),
        SimTarget(plain()),
    )
    launches = [launch for pair in planned.timing for launch in pair]
    times: dict[str, list[float]] = {"off": [0.0] * PAIRS, "on": [0.0] * PAIRS}
    for slot, launch in enumerate(launches):
        slow = 1 + drift * slot / (len(launches) - 1)
        truth = 100.0 if launch.experiment.name == "off" else 100.0 / effect
        # Heavy tails, as real machines have: most blocks quiet, some disturbed.
        factor = np.exp(noise * random.standard_t(4))
        assert launch.block is not None
        times[launch.experiment.name][launch.block] = truth * slow * factor
    return times["off"], times["on"]


@pytest.mark.parametrize("effect", [1.0, 1.05, 3.0])
def test_the_interval_covers_the_truth_95_percent_of_the_time(effect: float) -> None:
    random = np.random.default_rng(11)
    covered = 0
    for _ in range(TRIALS):
        interval = estimate_effect(*noisy_pairs(random, effect=effect)).interval
        assert interval is not None
        covered += interval.low <= effect <= interval.high
    assert 0.93 <= covered / TRIALS <= 0.97


def test_false_alarms_on_the_same_thing_twice_are_at_most_5_percent() -> None:
    random = np.random.default_rng(12)
    alarms = sum(
        estimate_effect(*noisy_pairs(random, effect=1.0)).verdict in {"faster", "slower"}
        for _ in range(TRIALS)
    )
    assert alarms / TRIALS <= 0.05


def test_the_sign_flip_test_rejects_as_often_as_it_says() -> None:
    random = np.random.default_rng(13)
    rejected = sum(
        estimate_effect(*noisy_pairs(random, effect=1.0)).p_value <= 0.05 for _ in range(TRIALS)
    )
    assert 0.03 <= rejected / TRIALS <= 0.06


def test_drift_of_10_percent_does_not_bias_the_estimate() -> None:
    random = np.random.default_rng(14)
    estimates = [
        estimate_effect(*noisy_pairs(random, effect=1.05, drift=0.1)).speed_up
        for _ in range(TRIALS)
    ]
    assert np.mean(estimates) == pytest.approx(1.05, rel=0.005)


def test_noise_too_large_for_the_effect_is_inconclusive() -> None:
    random = np.random.default_rng(15)
    verdicts = [
        estimate_effect(*noisy_pairs(random, effect=1.03, noise=0.2)).verdict for _ in range(200)
    ]
    assert verdicts.count("inconclusive") > 180


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.10, 1.30, "faster"),
        (0.70, 0.90, "slower"),
        (0.99, 1.01, "no difference"),
        (1.001, 1.015, "no difference"),
        (0.95, 1.10, "inconclusive"),
        (0.99, 1.03, "inconclusive"),
        (1.005, 1.03, "faster"),
    ],
)
def test_verdicts(low: float, high: float, verdict: str) -> None:
    assert judge(Interval(low, high, 0.95), 0.01, 0.02) == verdict


def test_the_interval_alone_is_not_enough() -> None:
    assert judge(Interval(1.1, 1.3, 0.95), 0.06, 0.02) == "inconclusive"


def test_below_six_pairs_nothing_can_be_said() -> None:
    effect = estimate_effect([2.0] * 5, [1.0] * 5)
    assert (effect.interval, effect.verdict, effect.speed_up) == (None, "inconclusive", 2.0)


def test_speed_up_is_baseline_over_candidate() -> None:
    effect = estimate_effect([300, 310, 305, 303, 299, 301], [100] * 6)
    assert effect.speed_up == pytest.approx(3.02, abs=0.02)
    assert effect.verdict == "faster"


def test_the_interval_is_wilcoxons() -> None:
    # GIVEN ten values, THEN shifting them by either end makes Wilcoxon's test just not reject
    values = np.random.default_rng(16).normal(0.1, 0.2, size=10)
    interval = hodges_lehmann_interval(values)
    assert interval is not None
    assert interval.confidence == pytest.approx(0.951, abs=0.001)
    for end, outward in ((interval.low, -1e-9), (interval.high, 1e-9)):
        outside = stats.wilcoxon(values - end - outward, method="exact").pvalue
        assert outside == pytest.approx(1 - interval.confidence, abs=0.011)
        assert outside < 0.05


def test_hodges_lehmann_of_known_values() -> None:
    assert hodges_lehmann(np.array([1.0, 2.0, 9.0])) == pytest.approx(3.5)


def test_sign_flip_p_by_hand() -> None:
    # Of the eight sign patterns of (1, 2, 3) two have a sum as extreme as 6.
    assert sign_flip_p(np.array([1.0, 2.0, 3.0])) == 0.25


def test_sign_flip_p_of_many_pairs_agrees_with_the_normal_law() -> None:
    values = np.random.default_rng(17).normal(0.3, 1.0, size=60)
    expected = 2 * stats.norm.sf(abs(values.sum()) / np.sqrt((values**2).sum()))
    assert sign_flip_p(values) == pytest.approx(expected, abs=0.01)


def test_sides_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="got 2 and 1"):
        estimate_effect([1, 2], [1])
