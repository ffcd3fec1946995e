from __future__ import annotations

import pytest
import torch

from etprof.base.errors import ExportError
from etprof.export.runtime_check import OutputCheck, compare_output, minimum_snr_db


def check(snr_db: float | None, precision_db: float | None) -> OutputCheck:
    return OutputCheck(0, snr_db, 0.0, None, None, precision_db)


@pytest.mark.parametrize(
    ("snr_db", "precision_db", "is_close"),
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
    snr_db: float | None, precision_db: float | None, is_close: bool
) -> None:
    assert check(snr_db, precision_db).is_close(minimum_snr_db("fp16")) == is_close


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
