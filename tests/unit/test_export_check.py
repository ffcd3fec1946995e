from __future__ import annotations

import pytest
import torch

from etprof.base.errors import ExportError
from etprof.export.runtime_check import compare_output, is_close
from etprof.run.program import CheckedOutput, find_minimum_snr_db


def check(snr_db: float | None, precision_db: float | None) -> CheckedOutput:
    return CheckedOutput(index=0, snr_db=snr_db, snr_db_precision=precision_db)


@pytest.mark.parametrize(
    ("snr_db", "precision_db", "expected"),
    [
        (None, None, True),  # equal
        (41.0, 60.0, True),  # far from what is possible, but good
        (33.1, 32.6, True),  # the network amplifies rounding: eager is no better
        (30.1, 33.0, True),
        (29.9, 33.0, False),
        (-1.8, 60.3, False),  # a wrong kernel
    ],
)
def test_an_output_is_held_against_its_precision(
    snr_db: float | None, precision_db: float | None, expected: bool
) -> None:
    assert is_close(check(snr_db, precision_db), find_minimum_snr_db("fp16")) == expected


def test_the_ratio_is_of_signal_to_error_power() -> None:
    reference = torch.tensor([[3.0, 4.0]])
    result = compare_output(0, reference + torch.tensor([[0.3, 0.4]]), reference, reference)
    assert result.snr_db == pytest.approx(20.0, abs=1e-4)
    assert result.max_abs_error == pytest.approx(0.4)
    assert result.top1_agreement == 1.0
    assert result.snr_db_precision is None


def test_what_is_not_finite_is_refused() -> None:
    output = torch.tensor([1.0, float("nan"), float("inf")], dtype=torch.float16)
    with pytest.raises(ExportError) as caught:
        compare_output(2, output, torch.zeros(3), torch.zeros(3))
    assert str(caught.value).startswith(
        "output 2 has 2 values that are not finite in float16, unlike eager; "
    )


def test_a_converted_model_that_overflows_is_a_ratio_that_json_can_hold() -> None:
    """Its manifest had -Infinity, which is no JSON and which no reader takes."""
    reference = torch.tensor([1.0, 2.0])
    result = compare_output(0, reference, reference, torch.tensor([float("inf"), float("nan")]))
    assert result.snr_db_precision is not None
    assert result.snr_db_precision < -1000
