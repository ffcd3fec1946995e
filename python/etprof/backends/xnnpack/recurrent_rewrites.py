"""Recurrent layers as what one step after the other computes, in operators that XNNPACK takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from etprof.backends.rewrite import GraphRewrite
from etprof.backends.xnnpack.aten_forms import (
    aten_operators,
    divided,
    is_static_float,
    joined,
    reshaped,
    sliced,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from torch import Tensor

_LSTM_GATES, _GRU_GATES = 4, 3


@dataclass(frozen=True)
class _Weights:
    """The parameters of one direction of one layer, as PyTorch lists them."""

    of_input: Tensor
    of_hidden: Tensor
    input_bias: Tensor | None
    hidden_bias: Tensor | None
    projection: Tensor | None

    def recur(self, hidden: Tensor) -> Tensor:
        """Returns what the last hidden state, [batch, hidden], adds to the gates."""
        return aten_operators().linear.default(hidden, self.of_hidden, self.hidden_bias)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class _Sequence:
    """How the layers of one operator follow each other."""

    layers: int
    directions: int
    time_dim: int


def _split_weights(params: Sequence[Tensor], has_biases: bool, runs: int) -> list[_Weights]:
    """Returns the parameters of each direction of each layer."""
    count = len(params) // runs
    biases = 2 if has_biases else 0
    has_projection = count == 2 + biases + 1
    rows = [params[start : start + count] for start in range(0, len(params), count)]
    return [
        _Weights(
            row[0],
            row[1],
            row[2] if has_biases else None,
            row[3] if has_biases else None,
            row[-1] if has_projection else None,
        )
        for row in rows
    ]


def _step_lstm(gates: Tensor, state: Sequence[Tensor], weights: _Weights) -> tuple[Tensor, ...]:
    hidden, cell = state
    enter, forget, new, leave = divided(gates + weights.recur(hidden), 1, _LSTM_GATES)
    cell = forget.sigmoid() * cell + enter.sigmoid() * new.tanh()
    hidden = leave.sigmoid() * cell.tanh()
    if weights.projection is not None:
        hidden = aten_operators().linear.default(hidden, weights.projection)
    return hidden, cell


def _step_gru(gates: Tensor, state: Sequence[Tensor], weights: _Weights) -> tuple[Tensor, ...]:
    (hidden,) = state
    sides = divided(gates, 1, _GRU_GATES), divided(weights.recur(hidden), 1, _GRU_GATES)
    (reset, reset_recurred), (update, update_recurred), (new, new_recurred) = zip(
        *sides, strict=True
    )
    new = (new + new_recurred * (reset + reset_recurred).sigmoid()).tanh()
    return ((hidden - new) * (update + update_recurred).sigmoid() + new,)


def _step_tanh(gates: Tensor, state: Sequence[Tensor], weights: _Weights) -> tuple[Tensor, ...]:
    return ((gates + weights.recur(state[0])).tanh(),)


def _step_relu(gates: Tensor, state: Sequence[Tensor], weights: _Weights) -> tuple[Tensor, ...]:
    return ((gates + weights.recur(state[0])).relu(),)


_Step: TypeAlias = "Callable[[Tensor, Sequence[Tensor], _Weights], tuple[Tensor, ...]]"
"""What computes the next state of the gates of its inputs, [batch, gates], and the last state."""


def _run(
    step: _Step,
    value: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[_Weights],
    sequence: _Sequence,
) -> tuple[Tensor, ...]:
    """Runs all layers; returns the last one's outputs, and every state as PyTorch stacks them.

    `value` is [time, batch, features], or [batch, time, features] where the time dimension is 1;
    each of `states` is [layers * directions, batch, features].
    """
    ends: list[tuple[Tensor, ...]] = []
    for layer in range(sequence.layers):
        outputs = []
        for direction in range(sequence.directions):
            run = layer * sequence.directions + direction
            state = tuple(
                reshaped(sliced(stack, 0, run, run + 1), stack.shape[1:]) for stack in states
            )
            hidden, state = _run_direction(
                step, value, state, weights[run], (sequence.time_dim, direction == 1)
            )
            outputs.append(hidden)
            ends.append(state)
        value = joined(outputs, 2)
    stacks = (
        joined([reshaped(state, [1, *state.shape]) for state in of_one], 0)
        for of_one in zip(*ends, strict=True)
    )
    return value, *stacks


def _run_direction(
    step: _Step,
    value: Tensor,
    state: tuple[Tensor, ...],
    weights: _Weights,
    order: tuple[int, bool],
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Runs one direction of one layer, backwards where `order` says so after the time dimension."""
    time_dim, is_reverse = order
    # One product for the inputs of all steps, as PyTorch does.
    gates = aten_operators().linear.default(value, weights.of_input, weights.input_bias)
    steps, batch, width = value.shape[time_dim], value.shape[1 - time_dim], gates.shape[2]
    outputs: dict[int, Tensor] = {}
    for time in reversed(range(steps)) if is_reverse else range(steps):
        now = reshaped(sliced(gates, time_dim, time, time + 1), [batch, width])
        state = step(now, state, weights)
        shape = [batch, state[0].shape[1]]
        shape.insert(time_dim, 1)
        outputs[time] = reshaped(state[0], shape)
    return joined([outputs[time] for time in range(steps)], time_dim), state


class PlainRecurrences(GraphRewrite):
    """Recurrent layers, one step after the other."""

    name = "plain_recurrences"
    precedes_quantization = False
    changes = (
        "an LSTM, GRU or plain recurrent layer becomes one product for the inputs of all its steps, "
        "and for each step a product, slices, sums and activations"
    )
    legal = "the layer's definition"
    rests_on = (
        "PyTorch decomposes it after the rewrites (torch/_decomp/decompositions.py, "
        "one_layer_lstm_data), with squeeze, split and flip, which XNNPACK's partitioner does not take"
    )

    @classmethod
    def replacements(cls) -> Mapping[str, Callable[..., Any]]:
        """Returns the layers step by step; packed sequences and dropout in training are left alone."""
        return {
            "aten.lstm.input": cls._unrolled(_step_lstm),
            "aten.gru.input": cls._unrolled(_step_gru),
            "aten.rnn_tanh.input": cls._unrolled(_step_tanh),
            "aten.rnn_relu.input": cls._unrolled(_step_relu),
        }

    @staticmethod
    def _unrolled(step: _Step) -> Callable[..., Any]:
        def run(  # noqa: PLR0913, PLR0917 - ATen's
            value: Tensor,
            hx: Tensor | Sequence[Tensor],
            params: Sequence[Tensor],
            has_biases: bool,
            num_layers: int,
            dropout: float,
            train: bool,
            bidirectional: bool,
            batch_first: bool,
        ) -> Any:  # noqa: ANN401
            # An LSTM has two states, the others one.
            states: Sequence[Any] = hx if isinstance(hx, list | tuple) else [hx]
            if not is_static_float(value, *states) or (train and dropout):
                return NotImplemented
            sequence = _Sequence(num_layers, 2 if bidirectional else 1, int(batch_first))
            weights = _split_weights(params, has_biases, sequence.layers * sequence.directions)
            return _run(step, value, states, weights, sequence)

        return run
