"""Further inputs of a comparison: the example's values in another order, where they have one."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from etprof.base.errors import ExportError
from etprof.export.quality.input_spread import _ratios_of, _reorder, _worst_ratio
from etprof.export.request import ExportRequest
from etprof.model_registry.eager_model import ExportMethod


class SortedValues(nn.Module):
    """Takes values in ascending order alone."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if bool((values.diff() < 0).any()):
            raise ValueError("the values are not sorted")
        return values * 2


class Counter(nn.Module):
    """Adds how often it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: torch.Tensor
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return values + self.calls


def test_values_are_reordered_and_masks_and_flags_stay() -> None:
    image = torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last)
    mask, tokens = torch.tensor([[True, False]]), torch.tensor([[3, 1, 4, 1, 5]])
    method = ExportMethod(nn.Identity(), (image, mask, 2.5), {"tokens": tokens})
    first, *others = _reorder(method, 4)
    assert first is method
    assert len(others) == 3
    for other in others:
        assert not torch.equal(other.inputs[0], image)
        assert other.inputs[0].stride() == image.stride()
        assert torch.equal(other.inputs[0].flatten().sort().values, torch.arange(24.0))
        assert torch.equal(other.inputs[1], mask)
        assert other.inputs[2] == 2.5
        assert sorted(other.kwarg_inputs["tokens"].flatten().tolist()) == [1, 1, 3, 4, 5]
    # The same in every search.
    again = _reorder(method, 4)
    assert all(
        torch.equal(a.inputs[0], b.inputs[0]) for a, b in zip(others, again[1:], strict=True)
    )


def test_inputs_without_another_order_are_one() -> None:
    method = ExportMethod(nn.Identity(), (torch.ones(1, 3), torch.tensor([0, 1])))
    assert _reorder(method, 4) == [method]
    assert _ratios_of("forward", [method], [], ExportRequest("toy_cnn")) is None


def test_a_model_with_state_is_not_compared() -> None:
    methods = _reorder(ExportMethod(Counter(), (torch.arange(4.0),)), 3)
    assert _ratios_of("forward", methods, [], ExportRequest("toy_cnn")) is None


def test_a_model_that_refuses_another_order_is_told() -> None:
    methods = _reorder(ExportMethod(SortedValues(), (torch.arange(6.0),)), 3)
    with pytest.raises(ExportError, match=r"values in another order: .*not sorted"):
        _ratios_of("forward", methods, [], ExportRequest("toy_cnn"))


def test_the_worst_output_counts_and_equal_ones_have_no_ratio() -> None:
    exact, near, far = torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.05]), torch.tensor([3.0, 4.5])
    # 25 of signal to 0.25 of noise are 20 dB.
    assert _worst_ratio([near, far], [exact, None, exact]) == pytest.approx(20.0)
    assert _worst_ratio([exact], [exact]) == float("inf")
    with pytest.raises(ExportError, match="gives 1 outputs, the eager model 2"):
        _worst_ratio([exact], [exact, exact])
