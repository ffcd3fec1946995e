"""Further inputs of a comparison: samples, and the example with noise or in another order."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from etprof.base.errors import ExportError
from etprof.export.quality.input_spread import _has_state, _ratios_of, _vary, _worst_ratio
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


def test_values_get_noise_within_their_range_and_masks_and_numbers_stay() -> None:
    image = torch.arange(24.0).reshape(1, 2, 3, 4).to(memory_format=torch.channels_last)
    mask, tokens = torch.tensor([[True, False]]), torch.tensor([[3, 1, 4, 1, 5]])
    method = ExportMethod(nn.Identity(), (image, mask, 2.5), {"tokens": tokens})
    first, *others = _vary(method, 4)
    assert first is method
    assert len(others) == 3
    for other in others:
        values = other.inputs[0]
        assert values.stride() == image.stride()
        assert values.min() >= 0
        assert values.max() <= 23
        relative = (values / image - 1)[image > 0]
        assert 0.02 < float(relative.abs().mean()) < 0.2
        assert other.inputs[1] is mask
        assert other.inputs[2] == 2.5
        assert other.kwarg_inputs["tokens"] is tokens
    # The same in every search.
    again = _vary(method, 4)
    assert all(
        torch.equal(a.inputs[0], b.inputs[0]) for a, b in zip(others, again[1:], strict=True)
    )


def test_tokens_alone_are_reordered() -> None:
    tokens = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6]])
    inputs = [method.inputs[0] for method in _vary(ExportMethod(nn.Identity(), (tokens,)), 5)]
    assert all(sorted(values.flatten().tolist()) == [1, 1, 2, 3, 4, 5, 6, 9] for values in inputs)
    assert len({tuple(values.flatten().tolist()) for values in inputs}) == 5


def test_the_users_own_samples_come_first() -> None:
    samples = [(torch.full((1, 4), float(number)),) for number in range(3)]
    other_shape = [(torch.ones(2, 4),)]
    example = torch.arange(4.0).reshape(1, 4)
    method = ExportMethod(nn.Identity(), (example,), calibration=[*other_shape, *samples])
    inputs = [varied.inputs[0] for varied in _vary(method, 5)]
    assert [values.tolist() for values in inputs[1:4]] == [s[0].tolist() for s in samples]
    assert not torch.equal(inputs[4], example)
    assert len(_vary(method, 2)) == 2


@pytest.mark.parametrize(
    "leaf",
    [torch.ones(1, 3), torch.tensor([0, 1]), torch.arange(4.0).to(torch.complex64)],
    ids=["one value", "a flag", "complex"],
)
def test_inputs_that_cannot_be_varied_are_one(leaf: torch.Tensor) -> None:
    method = ExportMethod(nn.Identity(), (leaf,))
    assert _vary(method, 4) == [method]


def test_state_is_known() -> None:
    assert _has_state(ExportMethod(Counter(), (torch.arange(4.0),)))
    assert not _has_state(ExportMethod(nn.Identity(), (torch.arange(4.0),)))


def test_a_model_that_refuses_other_values_is_told() -> None:
    methods = _vary(ExportMethod(SortedValues(), (torch.arange(60),)), 3)
    with pytest.raises(ExportError, match=r"fails on like inputs: .*not sorted"):
        _ratios_of("forward", methods, [], ExportRequest("toy_cnn"))
    with pytest.raises(ExportError, match=r"fails on its inputs: .*not sorted"):
        _has_state(methods[1])


def test_the_worst_output_counts_and_one_that_says_nothing_does_not() -> None:
    exact, near, far = torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.05]), torch.tensor([3.0, 4.5])
    # 25 of signal to 0.25 of noise are 20 dB.
    assert _worst_ratio([near, far], [exact, None, exact]) == pytest.approx(20.0)
    assert _worst_ratio([exact], [exact]) == 200.0
    assert _worst_ratio([torch.tensor([3.0, float("nan")]), exact], [exact, exact]) == -3000.0
    same = torch.tensor([2.0, 2.0])
    assert _worst_ratio([torch.tensor([9.0, 2.0]), far], [same, exact]) == pytest.approx(20.0)
    with pytest.raises(ExportError, match="gives 1 outputs, the eager model 2"):
        _worst_ratio([exact], [exact, exact])
