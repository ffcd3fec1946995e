"""Comparison of outputs as numbers."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from etprof.analysis.output_check import mode_tolerance_db
from etprof.base.errors import InputFileError
from etprof.run.accuracy import FLOORS, judge_precision
from etprof.run.tensors import load_tensor
from etprof.statistics.likeness import compare, snr_db


def test_equal_outputs_are_identical_even_where_they_are_no_numbers() -> None:
    values = np.array([1.0, math.nan, math.inf, -math.inf, 0.0])
    parity = compare(0, values, values.copy(), columns=5)
    assert parity.identical
    assert parity.snr_db is None
    assert parity.nonfinite_differences == 0
    assert parity.is_within(200.0)


def test_known_errors_have_known_figures() -> None:
    reference = np.array([10.0, -10.0, 0.001, 10.0])
    parity = compare(0, reference + np.array([0.1, 0.0, 0.0, 0.0]), reference, columns=2)
    assert parity.max_abs == pytest.approx(0.1)
    assert parity.max_rel == pytest.approx(0.01)
    assert parity.snr_db == pytest.approx(10 * math.log10(300 / 0.01), abs=1e-3)
    assert parity.top1 == 1.0
    assert parity.is_within(44.0)
    assert not parity.is_within(45.0)


def test_a_changed_winner_is_seen() -> None:
    assert compare(0, np.array([1.0, 2.0, 3.0, 4.0]), np.array([2.0, 1, 3, 4]), 2).top1 == 0.5


def test_infinity_on_one_side_only_is_never_within() -> None:
    parity = compare(0, np.array([1.0, math.inf]), np.array([1.0, 2.0]), columns=2)
    assert parity.nonfinite_differences == 1
    assert not parity.is_within(0.0)
    assert parity.mse is None  # 0.0 would say that all was equal


def test_outputs_of_other_sizes_are_refused() -> None:
    with pytest.raises(InputFileError, match="output 3 has 2 values, its reference 1"):
        compare(3, np.zeros(2), np.zeros(1), columns=1)


@pytest.mark.parametrize(
    ("types", "least_db"),
    [
        ({"PF32", "X32"}, 90),
        ({"F16", "X16"}, 40),
        ({"F32", "QS8"}, 25),
        ({"QP8", "F32"}, 25),
    ],
)
def test_the_tolerance_follows_the_arithmetic(types: set[str], least_db: float) -> None:
    assert mode_tolerance_db(types) == least_db


def test_bfloat16_is_read(tmp_path: Path) -> None:
    file = tmp_path / "t.bin"
    file.write_bytes(np.array([0x3F80, 0xC000], dtype="<u2").tobytes())
    assert load_tensor(file, "bfloat16", [2]).values().tolist() == [1.0, -2.0]


def test_a_missing_output_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputFileError, match=r"gone\.bin: No such file"):
        load_tensor(tmp_path / "gone.bin", "float32", [1]).values()


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("is_reference", [True, False])
def test_a_single_value_without_its_like_is_too_many(odd: float, is_reference: bool) -> None:
    """M3, tests: one NaN was tolerated, whatever the tolerance."""
    values = np.arange(1.0, 1001.0)
    spoilt = values.copy()
    spoilt[417] = odd
    value, reference = (values, spoilt) if is_reference else (spoilt, values)
    parity = compare(0, value, reference, columns=10)
    assert (parity.identical, parity.nonfinite_differences, parity.mse) == (False, 1, None)
    assert not parity.is_within(-math.inf)


def test_infinities_of_other_signs_and_no_numbers_are_not_alike() -> None:
    """M3, tests: what is not finite on both sides has to be the same all the same."""
    value = np.array([math.inf, math.inf, math.nan, math.nan, 1.0])
    reference = np.array([math.inf, -math.inf, math.nan, math.inf, 1.0])
    parity = compare(0, value, reference, columns=5)
    assert parity.nonfinite_differences == 2
    assert not parity.is_within(0.0)


@pytest.mark.parametrize(
    ("signal", "error", "expected_db"),
    [
        ([3e200, 4e200], [3e198, 4e198], 40.0),  # each value one per cent off
        ([1e200, 2e200], [1e200, -1e200], 10 * math.log10(5 / 2)),
        ([1.0, 1.0], [1e200, 0.0], 10 * math.log10(2) - 4000),
        ([1e200, 0.0], [1.0, 1.0], 4000 - 10 * math.log10(2)),
        ([1e308, 1e308], [math.inf, 0.0], -math.inf),
        ([1e150, 0.0], [0.0, 1e-150], 6000.0),
        ([1e-170, 0.0], [0.0, 1e-171], 20.0),
        ([1e60, 0.0], [0.0, 1e-60], 2400.0),
    ],
)
def test_squares_that_overflow_have_a_ratio(
    signal: list[float], error: list[float], expected_db: float
) -> None:
    assert snr_db(np.array(signal), np.array(error)) == pytest.approx(expected_db, abs=1e-9)


def test_wrong_outputs_of_1e200_fail_with_a_figure() -> None:
    """The ratio was NaN, and the verdict ended in a ValueError."""
    parity = compare(0, np.array([1e200, 3e200]), np.array([2e200, 1e200]), 2)
    assert parity.mse is None
    verdict = judge_precision([parity], FLOORS["fp16"])
    assert verdict.answer == "failed"
    # Σ signal² is 5e400, and so is Σ error².
    assert verdict.snr_db == pytest.approx(0.0, abs=1e-9)
    assert "0 dB signal to noise" in verdict.reason


@pytest.mark.parametrize(
    ("value", "reference"),
    [
        ([1e308, 1.0], [1e-5, 1.0]),
        ([1e308, -1e308], [-1e308, 1e308]),
        ([1.0, 2.0], [1e308, -1e308]),
    ],
)
def test_the_largest_numbers_are_compared_without_a_warning(
    value: list[float], reference: list[float]
) -> None:
    parity = compare(0, np.array(value), np.array(reference), 2)
    assert not parity.identical
    assert parity.snr_db is not None
    assert parity.snr_db < 1
