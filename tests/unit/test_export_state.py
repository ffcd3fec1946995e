"""What a model's calls change: when two values of it are the same."""

from __future__ import annotations

import pytest
import torch

from etprof.export.state import _are_equal

NAN = float("nan")


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ([1.0, NAN], [1.0, NAN], True), ([1.0, NAN], [1.0, 2.0], False),
        ([1.0, 2.0], [1.0, NAN], False), ([1.0, 2.0], [1.0, 2.5], False),
    ],
)  # fmt: skip
def test_no_number_equals_itself_alone(one: list[float], other: list[float], is_same: bool) -> None:
    assert _are_equal(torch.tensor(one), torch.tensor(other)) is is_same
    assert _are_equal({"a": [one[1], 1]}, {"a": [other[1], 1]}) is is_same


def test_shape_and_type_count() -> None:
    assert not _are_equal(torch.zeros(2), torch.zeros(1, 2))
    assert not _are_equal(torch.zeros(2), torch.zeros(2, dtype=torch.float16))
    assert not _are_equal([torch.zeros(2)], (torch.zeros(2),))
