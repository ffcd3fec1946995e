"""Quantised weights in the delegate's forms stand for the same numbers, and others are left alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from etprof.backends.xnnpack.weight_rewrites import ChannelScales, ChannelWeights
from etprof.base.upstream_noise import quiet_upstream

with quiet_upstream():
    from torch.ao.quantization.fx import _decomposed  # noqa: F401 - registers the operators

AFFINE: dict[str, Callable[..., Any]] = dict(ChannelWeights.replacements())
DEQUANTIZE, QUANTIZE, CHOOSE = (
    AFFINE[f"torchao.{name}_affine.default"]
    for name in ("dequantize", "quantize", "choose_qparams")
)
(PER_TENSOR,) = ChannelScales.replacements().values()
FOUR, EIGHT = (-8, 7), (-128, 127)


def integers(*shape: int, low: int, high: int) -> torch.Tensor:
    return torch.randint(
        low, high + 1, shape, generator=torch.Generator().manual_seed(7), dtype=torch.int8
    )


def test_four_bits_of_a_row_have_its_scale_and_zero_point() -> None:
    value = integers(3, 8, low=-8, high=7)
    scale, zero = torch.tensor([[0.5], [2.0], [0.25]]), torch.tensor([[0], [1], [-2]])
    found = DEQUANTIZE(value, [1, 8], scale, zero, torch.int8, *FOUR)
    assert found.dtype is torch.float32
    assert torch.equal(found, (value - zero) * scale)


def test_eight_bits_of_a_token_have_its_scale_and_zero_point() -> None:
    value = integers(2, 3, 4, low=-128, high=127)
    scale = torch.tensor([0.5, 2.0, 0.25, 1.0, 4.0, 8.0]).reshape(2, 3, 1)
    zero = torch.arange(6).reshape(2, 3, 1)
    found = DEQUANTIZE(value, [1, 1, 4], scale, zero, torch.int8, *EIGHT)
    assert torch.equal(found, (value - zero) * scale)
    assert torch.equal(QUANTIZE(found, [1, 1, 4], scale, zero, torch.int8, *EIGHT), value)


def test_the_scale_of_a_token_covers_it() -> None:
    value = torch.tensor([[-1.0, 3.0, 0.5], [10.0, -10.0, 0.0]])
    scale, zero = CHOOSE(value, "ASYMMETRIC", [1, 3], torch.int8, *EIGHT)
    assert torch.allclose(scale.flatten().float(), torch.tensor([4.0, 20.0]) / 255, rtol=1e-3)
    integer = QUANTIZE(value, [1, 3], scale, zero, torch.int8, *EIGHT)
    again = DEQUANTIZE(integer, [1, 3], scale, zero, torch.int8, *EIGHT)
    assert (again - value).abs().max() <= scale.max()


ROWS, ONE = integers(4, 8, low=-8, high=7), torch.ones(4, 1)
NONE = torch.zeros(4, 1, dtype=torch.int64)


@pytest.mark.parametrize(
    ("replace", "arguments"),
    [
        (DEQUANTIZE, (ROWS, [1, 4], torch.ones(4, 2), NONE, torch.int8, *FOUR)),
        (DEQUANTIZE, (ROWS, [2, 8], ONE, NONE, torch.int8, *FOUR)),
        (DEQUANTIZE, (ROWS, [1, 8], ONE, None, torch.int8, *FOUR)),
        (DEQUANTIZE, (ROWS, [1, 8], ONE, NONE, torch.int8, -7, 7)),
        (DEQUANTIZE, (ROWS.reshape(2, 2, 8), [1, 1, 8], ONE, NONE, torch.int8, *FOUR)),
        (QUANTIZE, (ROWS.float(), [1, 4], ONE, NONE, torch.int8, *EIGHT)),
        (QUANTIZE, (ROWS.float(), [1, 8], ONE, NONE, torch.int8, *FOUR)),
        (CHOOSE, (ROWS.float(), "SYMMETRIC", [1, 8], torch.int8, *EIGHT)),
        (CHOOSE, (ROWS.float(), "ASYMMETRIC", [1, 8], torch.int8, *FOUR)),
        (CHOOSE, (ROWS.float(), "ASYMMETRIC", [1, 4], torch.int8, *EIGHT)),
        (PER_TENSOR, (ROWS, 0.5, 0, *EIGHT, torch.int8)),
        (PER_TENSOR, (ROWS, 0.5, 1, -127, 127, torch.int8)),
        (PER_TENSOR, (ROWS.reshape(2, 2, 8), 0.5, 0, -127, 127, torch.int8)),
        (PER_TENSOR, (ROWS.reshape(2, 4, 2, 2), 0.5, 0, -127, 127, torch.int8)),
        (PER_TENSOR, (ROWS.reshape(2, 8, 1, 2), 0.5, 0, -127, 127, torch.int8)),
    ],
)
def test_what_has_no_such_form_stays(
    replace: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    assert replace(*arguments) is NotImplemented


@pytest.mark.parametrize("shape", [(4, 8), (8, 4, 1, 1)])
def test_one_scale_for_all_is_one_for_each_channel(shape: tuple[int, ...]) -> None:
    value = integers(*shape, low=-127, high=127)
    found = PER_TENSOR(value, 0.5, 0, -127, 127, torch.int8)
    assert torch.equal(found, value * 0.5)
