"""What recurrent layers become: the layer's own outputs and states, step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from etprof.backends.xnnpack.recurrent_rewrites import PlainRecurrences
from tests.unit.test_graph_rewrites import recorded

REPLACEMENTS = PlainRecurrences.replacements()
OPERATORS = {
    "LSTM": "aten.lstm.input", "GRU": "aten.gru.input",
    "RNN_TANH": "aten.rnn_tanh.input", "RNN_RELU": "aten.rnn_relu.input",
}  # fmt: skip
LAYERS: list[tuple[Callable[..., nn.RNNBase], dict[str, Any]]] = [
    (nn.LSTM, {}),
    (nn.LSTM, {"batch_first": True, "num_layers": 2, "bidirectional": True}),
    (nn.LSTM, {"num_layers": 3, "bias": False, "dropout": 0.5}),
    (nn.LSTM, {"proj_size": 3, "bidirectional": True}),
    (nn.LSTM, {"proj_size": 2, "bias": False}),
    (nn.GRU, {"batch_first": True}),
    (nn.GRU, {"num_layers": 2, "bidirectional": True, "bias": False}),
    (nn.RNN, {"bidirectional": True}),
    (nn.RNN, {"nonlinearity": "relu", "num_layers": 2, "batch_first": True}),
]


def make_call(
    layer: nn.RNNBase, *, steps: int = 4, training: bool = False
) -> tuple[str, tuple[Any, ...]]:
    """The operator and its arguments, as the layer's forward calls it, on states other than zero."""
    generator = torch.Generator().manual_seed(5)

    def randn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator)

    batch = 2
    value = randn(batch, steps, layer.input_size) if layer.batch_first else randn(steps, batch, 6)
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    hidden = randn(count, batch, layer.proj_size or layer.hidden_size)
    is_lstm = layer.mode == "LSTM"
    state = [hidden, randn(count, batch, layer.hidden_size)] if is_lstm else hidden
    how = (layer.bias, layer.num_layers, layer.dropout, training, layer.bidirectional)
    return OPERATORS[layer.mode], (value, state, layer._flat_weights, *how, layer.batch_first)


@pytest.mark.parametrize("steps", [1, 4])
@pytest.mark.parametrize(("kind", "how"), LAYERS)
def test_a_layer_step_by_step_is_the_layer(
    kind: Callable[..., nn.RNNBase], how: dict[str, Any], steps: int
) -> None:
    torch.manual_seed(2)
    layer = kind(6, 5, **how).eval().requires_grad_(False)
    name, arguments = make_call(layer, steps=steps)
    _, packet, overload = name.split(".")
    expected = getattr(getattr(torch.ops.aten, packet), overload)(*arguments)
    with recorded() as recorder:
        outputs = REPLACEMENTS[name](*arguments)
    assert len(outputs) == len(expected)
    for output, reference in zip(outputs, expected, strict=True):
        assert output.shape == reference.shape
        assert torch.allclose(output, reference, rtol=1e-5, atol=1e-6)
    outside = {"flip", "squeeze", "split_with_sizes", "unbind", "select", "unsqueeze"}
    assert not outside & set(recorder.names)
    # Whatever the number of steps: one product for all inputs of a direction, and one for each step.
    runs = layer.num_layers * (2 if layer.bidirectional else 1)
    projections = steps if getattr(layer, "proj_size", 0) else 0
    products = [name for name in recorder.names if name in {"mm", "addmm", "linear", "t_mm"}]
    assert len(products) == runs * (1 + steps + projections)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_dropout_in_training_stays(kind: Callable[..., nn.RNNBase]) -> None:
    layer = kind(6, 5, num_layers=2, dropout=0.5)
    name, arguments = make_call(layer, training=True)
    assert REPLACEMENTS[name](*arguments) is NotImplemented
