"""What an int8 export leaves in float32 without being asked: inputs of softmaxes and of norms' roots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from etprof.base.upstream_noise import quiet_upstream
from tests.integration.test_rewrites import Call, eager, halves, quantized, snr_db

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet_upstream():
        yield


def floats_of(module: nn.Module) -> set[str]:
    """Returns the operators of a quantised graph whose results are not quantised."""
    assert isinstance(module, torch.fx.GraphModule)
    return {
        str(node.target).split(".")[1]
        for node in module.graph.nodes
        if node.op == "call_function" and str(node.target).startswith("aten.")
        if not any("quantize" in str(reader.target) for reader in node.users)
    }


def attend(x: torch.Tensor) -> torch.Tensor:
    """Attention with a mask, as models of transformers spell it out."""
    mask = torch.full((8, 8), -3e4).triu(1)
    rows = x * 1.5
    scores = torch.matmul(rows, rows.transpose(1, 2)) / 4.0 + mask
    return torch.matmul(torch.softmax(scores, -1), rows)


def normalise(x: torch.Tensor) -> torch.Tensor:
    """An RMS norm, as models of transformers spell it out."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) + 1.0


def test_a_mask_leaves_the_scores_of_attention_their_digits() -> None:
    """Quantised together, every score that is not masked was the same number: 4 dB."""
    inputs = (halves(1, 8, 16).float(),)
    module = quantized("int8", Call(attend), inputs)
    assert {"add", "div"} <= floats_of(module)
    assert snr_db(eager(Call(attend), inputs), module(*inputs)) > 25


@pytest.mark.parametrize("names", [(), ("kept_dimensions",)])
def test_large_rows_leave_small_rows_their_norm(names: tuple[str, ...]) -> None:
    """Quantised, the mean of a small row's squares was 0, and so was the root of a large one's.

    So it was where a rewrite makes a product of the mean: 17 dB of 26 were left of llama.
    """
    inputs = (halves(1, 8, 16).float() * torch.logspace(-1.5, 1.5, 8)[:, None],)
    module = quantized("int8", Call(normalise), inputs, *names)
    assert {"linear" if names else "mean", "rsqrt"} <= floats_of(module)
    assert snr_db(eager(Call(normalise), inputs), module(*inputs)) > 25


def test_sums_that_others_read_are_quantised() -> None:
    def add(x: torch.Tensor) -> torch.Tensor:
        kept = x + x * 2.0
        return torch.softmax(kept, -1) + kept

    inputs = (halves(1, 8, 16).float(),)
    assert not {"add", "mul"} & floats_of(quantized("int8", Call(add), inputs))


def test_each_step_is_looked_at_once_however_many_ways_lead_to_the_softmax() -> None:
    """Way by way, 16 steps took 4 s, and four times as long for every two more."""

    def fan(x: torch.Tensor) -> torch.Tensor:
        for _ in range(24):
            x = x * 0.5 + x * 0.25
        return torch.softmax(x, -1) + 1.0

    inputs = (halves(1, 8, 16).float(),)
    assert {"mul", "add"} <= floats_of(quantized("int8", Call(fan), inputs))
