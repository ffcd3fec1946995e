"""What a model's calls change: when two values of it are the same."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from etprof.export.state import _are_equal, unchanged_buffers

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


def test_buffers_have_their_tensors_and_values_back() -> None:
    """In place, in a new tensor, or in a larger one: what calls do to a cache is no state after."""
    module = nn.Module()
    for name in ("in_place", "new", "larger"):
        module.register_buffer(name, torch.tensor([1.0, 2.0]))
    tensors = dict(module.named_buffers())
    with unchanged_buffers(module):
        module.in_place.add_(5)  # type: ignore[operator]
        module.new = torch.zeros(2)
        module.larger = torch.zeros(3)
    after = dict(module.named_buffers())
    assert {name: value.tolist() for name, value in after.items()} == {
        "in_place": [1, 2], "new": [1, 2], "larger": [0, 0, 0],
    }  # fmt: skip
    assert after["in_place"] is tensors["in_place"]
    assert after["new"] is tensors["new"]
    with unchanged_buffers(module, {"new"}):
        module.in_place.add_(5)  # type: ignore[operator]
        module.new.add_(5)
    assert module.in_place.tolist() == [6, 7]  # type: ignore[operator]
    assert module.new.tolist() == [1, 2]
