"""A model is called as its program will be: in a row, with other inputs, and left as it was."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest
import torch
from torch import nn

from etprof.export.state import (
    follow_steps,
    list_changes,
    restore_state,
    run_apart,
    run_eager,
    run_steps,
    take_state,
    touches_state,
    vary_inputs,
)
from etprof.model_registry.eager_model import ExportMethod


class Total(nn.Module):
    """Adds up what it is given, in a buffer, and counts its calls in an attribute."""

    total: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("absent", None)
        self.calls = 0

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        self.calls += 1
        self.total.add_(x * scale)
        return self.total + 0


class Remembered(nn.Module):
    """Looks up what it has computed once, which is the same every time."""

    def __init__(self) -> None:
        super().__init__()
        self.table: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.table:
            self.table = [torch.arange(3.0)]
        return x + self.table[0]


class Spoiling(nn.Module):
    """Writes into its own input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.add_(1)


X = torch.tensor([1.0, 2.0, 4.0])


def listed(steps: Any) -> list[list[Any]]:  # noqa: ANN401 - tensors in lists
    return [[value.tolist() for value in step] for step in steps]


def test_a_model_with_state_is_called_four_times_with_shifted_inputs_and_is_as_before() -> None:
    module = Total()
    method = ExportMethod(module, (X,), {"scale": 2.0})
    steps = run_steps(method)
    # Each place further, and the first place after the last.
    inputs = [[1, 2, 4], [4, 1, 2], [2, 4, 1], [1, 2, 4]]
    assert [[step[0].tolist(), step[1]] for step in steps.inputs] == [[x, 2.0] for x in inputs]
    assert listed(steps.outputs) == [[[2, 4, 8]], [[10, 6, 12]], [[14, 14, 14]], [[16, 18, 22]]]
    assert steps.count == 4
    assert steps.of(1) is steps.outputs[0]
    assert steps.of(4) is steps.outputs[3]
    assert set(steps.changed) == {"total", "calls"}
    assert (module.total.tolist(), module.calls) == ([0, 0, 0], 0)
    # The same inferences, each from the initial state.
    assert listed(run_apart(method, 3)) == [[[2, 4, 8]], [[8, 2, 4]], [[4, 8, 2]]]
    assert (module.total.tolist(), module.calls) == ([0, 0, 0], 0)
    assert listed([run_eager(method)]) == [[[2, 4, 8]]]
    assert module.total.tolist() == [0, 0, 0]


def test_what_is_computed_once_and_looked_up_is_no_state() -> None:
    module = Remembered()
    steps = run_steps(ExportMethod(module, (X,)))
    assert steps.changed == ()
    assert listed(steps.outputs) == [[[1, 3, 6]]] * 2
    assert listed(steps.inputs) == [[X.tolist()]] * 2
    # It stays, for the program that is made next looks it up too.
    assert len(module.table) == 1


def test_a_model_without_state_is_called_with_copies_of_its_inputs() -> None:
    given = X.clone()
    steps = run_steps(ExportMethod(Spoiling(), (given,)))
    assert (steps.changed, listed(steps.outputs)) == ((), [[[2, 3, 5]]] * 2)
    assert given.tolist() == X.tolist()


def test_a_converted_model_follows_as_many_calls_as_the_float_model_had() -> None:
    references = run_steps(ExportMethod(Total(), (X,)))
    half = Total().half()
    followed = follow_steps(ExportMethod(half, (X.half(),)), references)
    assert listed(followed.outputs) == listed(references.outputs)
    assert followed.changed == references.changed
    assert half.total.tolist() == [0, 0, 0]
    plain = run_steps(ExportMethod(nn.ReLU(), (X,)))
    followed = follow_steps(ExportMethod(nn.ReLU(), (-X,)), plain)
    assert (listed(followed.outputs), followed.changed) == ([[[0, 0, 0]]] * 2, ())


def test_later_inputs_are_samples_of_the_same_shapes_in_turn() -> None:
    samples = [(X + 1,), (torch.zeros(5),), (X + 2,)]
    method = ExportMethod(Total(), (X,), {"scale": 3.0}, calibration=samples)
    found = [vary_inputs(method, step) for step in range(1, 6)]
    assert listed(inputs for inputs, _ in found) == [
        [each.tolist()] for each in (X, X + 1, X + 2, X + 1, X + 2)
    ]
    assert all(kwarg_inputs == {"scale": 3.0} for _, kwarg_inputs in found)


@pytest.mark.parametrize(
    ("example", "second"),
    [
        ([1.0, 2.0, 3.0], [3.0, 1.0, 2.0]),
        # A mask or a constant stays as it is, and so do whole numbers, which are ids or positions.
        ([0.0, 1.0, 1.0], [0.0, 1.0, 1.0]),
        ([5, 6, 7], [5, 6, 7]),
    ],
)
def test_without_samples_the_values_are_shifted(example: list[float], second: list[float]) -> None:
    method = ExportMethod(nn.ReLU(), (torch.tensor(example),))
    (found,), _ = vary_inputs(method, 2)
    assert found.tolist() == second


def test_state_that_is_new_changed_or_gone_is_named_and_put_back() -> None:
    module: Any = Total()
    module.history = deque([torch.zeros(1)])
    module.names = {"a": [1, None]}
    module.other = object()
    module.inner = Remembered()
    before = take_state(module)
    assert set(before) == {"total", "calls", "history", "names", "inner.table"}
    module.total.fill_(7)
    module.history.append(torch.ones(1))
    module.names["a"][0] = 2
    module.inner.table.append(torch.ones(2))
    del module.calls
    module.made = "later"
    after = take_state(module)
    changed = list_changes(before, after)
    assert changed[-1] == "made"
    assert set(changed) == {"total", "calls", "history", "names", "inner.table", "made"}
    assert list_changes(after, take_state(module)) == []
    kept = module.total
    restore_state(module, before)
    assert list_changes(before, take_state(module)) == []
    assert module.total is kept
    assert (module.calls, module.names, len(module.history)) == (0, {"a": [1, None]}, 1)
    assert not hasattr(module, "made")
    # What is put back is a copy: what later calls do to it is put back again.
    module.names["a"][0] = 3
    restore_state(module, before)
    assert module.names == {"a": [1, None]}


class Cache(nn.Module):
    """Writes into a part of a buffer, and gives it back beside what comes of its input alone."""

    kept: torch.Tensor
    fixed: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.zeros(2, 3))
        self.register_buffer("fixed", torch.ones(2, 3))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        self.kept[0].copy_(x)
        double = self.kept * 2
        return double, double + 1, x * 3, self.fixed * 4, (double + x) * 5


def test_nodes_that_write_a_buffer_or_read_changed_ones_alone_touch_state() -> None:
    module = torch.export.export(Cache(), (X,)).module(check_guards=False)
    nodes = [node for node in module.graph.nodes if node.op == "call_function"]
    touching = [node.name for node in nodes if touches_state(node)]
    # What writes, and what reads something that no input is in: the last product does not.
    assert touching == ["select", "copy_", "mul", "add", "add_1"]
    plain = torch.export.export(nn.ReLU(), (X,)).module(check_guards=False)
    assert not any(touches_state(node) for node in plain.graph.nodes)
