"""The end of warm-up is found, and said when there is none."""

from __future__ import annotations

import numpy as np
import pytest

from etprof.statistics.warmup import is_settled, settled_after


def series(*parts: tuple[int, float]) -> list[int]:
    random = np.random.default_rng(3)
    return [int(level * (1 + 0.005 * random.normal())) for n, level in parts for _ in range(n)]


def test_a_steady_series_is_settled_from_the_start() -> None:
    assert settled_after(series((100, 1000))) == 0


@pytest.mark.parametrize("cold", [7, 20, 40])
def test_the_end_of_a_warm_up_is_found(cold: int) -> None:
    found = settled_after(series((cold, 1500), (100, 1000)))
    assert found is not None
    assert abs(found - cold) <= 3


def test_a_series_that_steps_late_never_settles() -> None:
    assert settled_after(series((95, 1000), (5, 1300))) == 0
    assert settled_after(series((75, 1000), (25, 1300))) is None


def test_a_series_that_drifts_never_settles() -> None:
    assert settled_after([1000 + 10 * i for i in range(100)]) is None


def test_single_outliers_do_not_matter() -> None:
    values = series((100, 1000))
    for index in (0, 30, 60, 99):
        values[index] = 9000
    assert settled_after(values) == 0


def test_nothing_is_said_of_short_series() -> None:
    """N9: three inferences without warm-up were "steady from the start"."""
    assert is_settled([5, 4, 3, 2, 1]) is None
    assert is_settled([5] * 19) is None
    assert is_settled([5] * 20) is True
    with pytest.raises(ValueError, match="5 samples do not tell"):
        settled_after([5, 4, 3, 2, 1])
