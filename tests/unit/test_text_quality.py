"""How well a language model predicts a text, and what its weights lose when they are rounded."""

from __future__ import annotations

import math
from typing import Literal

import pytest
import torch

from etprof.export.quality import text_quality
from etprof.export.request import Quantization

Granularity = Literal["per_channel", "per_tensor", "per_block"]


def scheme(granularity: Granularity, bits: int = 4, block: int = 0) -> Quantization:
    return Quantization("torchao", bits, granularity, "dynamic", block_size=block or None)


def test_perplexity_by_hand() -> None:
    """An even guess among four has 4, whatever the tokens; the first token is nobody's guess."""
    even = torch.log_softmax(torch.zeros(3, 4), -1)
    assert text_quality.perplexity(even, [3, 0, 1, 2]) == pytest.approx(4.0)
    sure = torch.log(torch.tensor([[0.5, 0.5], [0.25, 0.75]]))
    assert text_quality.perplexity(sure, [0, 0, 1]) == pytest.approx((0.5 * 0.75) ** -0.5)
    # e to 700 is the first that counts as none.
    lost = torch.tensor([[-700.0, 0.0]])
    assert text_quality.perplexity(lost, [1, 0]) is None
    assert text_quality.perplexity(lost, [1, 1]) == 1.0


def test_divergence_by_hand() -> None:
    expected = torch.log(torch.tensor([[0.5, 0.5], [0.25, 0.75]]))
    found = torch.log(torch.tensor([[0.25, 0.75], [0.25, 0.75]]))
    first = 0.5 * math.log(2) + 0.5 * math.log(0.5 / 0.75)
    assert text_quality._divergence(expected, found) == pytest.approx(first / 2)
    assert text_quality._divergence(expected, expected) == 0.0
    # What the model rules out counts nothing; what the program rules out, and eager does not, all.
    sure = torch.tensor([[0.0, -math.inf]])
    assert text_quality._divergence(sure, torch.tensor([[0.0, 0.0]])) == 0.0
    assert text_quality._divergence(expected[:1], sure) is None


@pytest.mark.parametrize(
    ("granularity", "block", "scales"),
    [
        ("per_tensor", 0, [[80, 80, 80, 80], [80, 80, 80, 80]]),
        ("per_channel", 0, [[7.5, 7.5, 7.5, 7.5], [80, 80, 80, 80]]),
        ("per_block", 2, [[1.5, 1.5, 7.5, 7.5], [15, 15, 80, 80]]),
        # A block that does not fit is no block.
        ("per_block", 3, [[7.5, 7.5, 7.5, 7.5], [80, 80, 80, 80]]),
    ],
)
def test_weights_are_rounded_by_their_group_s_largest(
    granularity: Granularity, block: int, scales: list[list[float]]
) -> None:
    weights = torch.tensor([[1.5, -0.4, 7.5, 2.2], [-15.0, 6.1, 80.0, -31.0]])
    # Four bits are -8 to 7 steps, and the largest weight is 7.5 of them.
    steps = torch.tensor(scales) / 7.5
    expected = (weights / steps).round().clamp(-8, 7) * steps
    found = text_quality.round_weights(weights, scheme(granularity, 4, block))
    assert torch.allclose(found, expected)
    fine = text_quality.round_weights(weights, scheme(granularity, 8, block))
    assert (fine - weights).abs().max() < (found - weights).abs().max() / 8


def test_the_layers_that_rounding_changes_most_come_first() -> None:
    module = torch.nn.ModuleDict({
        name: torch.nn.Linear(8, 1, bias=False) for name in ("even", "spiky", "zero")
    })  # fmt: skip
    for name, weights in (("even", [7.5] * 8), ("spiky", [7.5] + [0.4] * 7), ("zero", [0.0] * 8)):
        module[name].weight.data = torch.tensor([weights])
    found = [path for path, _ in text_quality._worst_layers(module, scheme("per_channel"))]
    assert found == ["spiky", "even", "zero"]
