"""Calibration recovers the noise it is given, and what can be told apart with it."""

from __future__ import annotations

import numpy as np
import pytest

from etprof.statistics.calibration import calibrate


def series(noise: float, *, bias: float = 0.0, pairs: int = 60) -> tuple[list[float], list[float]]:
    random = np.random.default_rng(9)
    first = 100 * np.exp(noise * random.normal(size=pairs))
    second = 100 * np.exp(noise * random.normal(size=pairs) - bias)
    return first.tolist(), second.tolist()


def test_the_noise_is_found() -> None:
    result = calibrate(*series(0.01))
    assert result.noise == pytest.approx(0.01 * np.sqrt(2), rel=0.25)
    assert result.overall.verdict in {"no difference", "inconclusive"}


@pytest.mark.slow
def test_a_quiet_machine_finds_smaller_effects() -> None:
    quiet, noisy = calibrate(*series(0.005)), calibrate(*series(0.05))
    assert quiet.smallest_effect is not None
    assert noisy.smallest_effect is not None
    assert quiet.smallest_effect < 0.035 < noisy.smallest_effect < 0.15


@pytest.mark.slow
def test_a_machine_that_favours_one_side_gives_itself_away() -> None:
    assert calibrate(*series(0.01, bias=0.05)).false_alarm_rate > 0.9
    assert calibrate(*series(0.03)).false_alarm_rate <= 0.1


def test_hopeless_noise_finds_nothing() -> None:
    assert calibrate(*series(1.0)).smallest_effect is None


def test_too_few_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="5 pairs were measured; a comparison has 10"):
        calibrate(*series(0.01, pairs=5))
