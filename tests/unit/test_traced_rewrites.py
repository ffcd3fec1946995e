"""Rewrites of traced programs, without a lowering: what they find, and that the result is the same."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from etprof.backends.rewrite import find_constants
from etprof.backends.xnnpack.program_rewrites import (
    FixedClamps,
    FoldedBatchNorms,
    FoldedConstants,
    PlainBroadcasts,
)
from etprof.base.upstream_noise import quiet_upstream


def settled(norm: Any) -> Any:  # noqa: ANN401 - a batch norm
    norm.running_mean.copy_(torch.linspace(-1, 1, norm.num_features))
    norm.running_var.copy_(torch.linspace(0.5, 2, norm.num_features))
    if norm.affine:
        norm.weight.data.copy_(torch.linspace(0.8, 1.3, norm.num_features))
        norm.bias.data.copy_(torch.linspace(1, -1, norm.num_features))
    return norm


class Normed(nn.Module):
    """A norm, after an activation, before a layer."""

    def __init__(self, layer: nn.Module, channels: int, **how: bool) -> None:
        super().__init__()
        kind = nn.BatchNorm1d if isinstance(layer, nn.Linear) else nn.BatchNorm2d
        self.norm, self.layer = settled(kind(channels, **how)), layer

    def forward(self, x: torch.Tensor) -> Any:  # noqa: ANN401
        return self.layer(self.norm(torch.relu(x)))


def trace(model: nn.Module, *inputs: torch.Tensor) -> torch.export.ExportedProgram:
    return torch.export.export(model.eval().requires_grad_(requires_grad=False), inputs)


@pytest.mark.parametrize(
    ("layer", "shape", "how"),
    [
        (nn.Conv2d(8, 4, 3), (2, 8, 6, 6), {}),
        (nn.Conv2d(8, 4, 1, bias=False), (1, 8, 6, 6), {}),
        (nn.Conv2d(8, 4, 3, stride=2, dilation=2), (1, 8, 9, 9), {"affine": False}),
        (nn.Linear(8, 4), (3, 8), {}),
        (nn.Linear(8, 4, bias=False), (3, 8), {}),
    ],
)
def test_a_norm_becomes_a_part_of_the_layer_after_it(
    layer: nn.Module, shape: tuple[int, ...], how: dict[str, bool]
) -> None:
    torch.manual_seed(2)
    inputs = torch.randn(shape)
    model = Normed(layer, 8, **how)
    program = trace(model, inputs)
    (place,) = FoldedBatchNorms.find_places(program)
    (reader,) = place.users
    stack = reader.meta["nn_module_stack"]
    FoldedBatchNorms.edit(program, place)
    graph = program.graph
    graph.lint()
    assert not [node for node in graph.nodes if "batch_norm" in str(node.target)]
    # What was made for the layer is the layer's: its module, and none of its values.
    made = [node for node in graph.nodes if "rsqrt" in str(node.target)]
    assert [node.meta["nn_module_stack"] for node in made] == [stack]
    assert "val" not in made[0].meta
    program.graph_module.recompile()
    (found,) = torch.fx.Interpreter(program.graph_module).run(*_values(program, inputs))
    assert torch.allclose(found, model(inputs), atol=1e-5)


def _values(program: torch.export.ExportedProgram, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """What the graph's placeholders stand for, in their order."""
    signature, given = program.graph_signature, iter(inputs)
    held = signature.inputs_to_parameters | signature.inputs_to_buffers
    return [
        program.state_dict[held[node.name]] if node.name in held else next(given)
        for node in program.graph.nodes
        if node.op == "placeholder"
    ]


class Twice(nn.Module):
    """A norm that two read."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.layer = settled(nn.BatchNorm2d(8)), nn.Conv2d(8, 8, 1)

    def forward(self, x: torch.Tensor) -> Any:  # noqa: ANN401
        found = self.norm(torch.relu(x))
        return self.layer(found) + found


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        (Normed(nn.Conv2d(8, 4, 3, padding=1), 8), (1, 8, 6, 6)),
        (Normed(nn.Conv2d(8, 4, 3, padding="same"), 8), (1, 8, 6, 6)),
        (Normed(nn.Conv2d(8, 4, 3, padding="valid"), 8), (1, 8, 6, 6)),
        (Normed(nn.Conv2d(8, 8, 3, groups=2), 8), (1, 8, 6, 6)),
        (Normed(nn.ConvTranspose2d(8, 4, 3), 8), (1, 8, 6, 6)),
        (Normed(nn.Linear(6, 4), 3), (2, 3, 6)),
        (Normed(nn.ReLU(), 8), (1, 8, 6, 6)),
        (Twice(), (1, 8, 6, 6)),
        (nn.Sequential(nn.Conv2d(8, 8, 1), settled(nn.BatchNorm2d(8)), nn.Conv2d(8, 4, 1)), (1, 8, 4, 4)),
    ],
)  # fmt: skip
def test_a_norm_that_cannot_be_a_part_of_the_next_layer_stays(
    model: nn.Module, shape: tuple[int, ...]
) -> None:
    assert FoldedBatchNorms.find_places(trace(model, torch.zeros(shape))) == []


class Constants(nn.Module):
    """Values that no input has a part in, and some that one has."""

    table: torch.Tensor
    count: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.arange(6.0))
        self.register_buffer("count", torch.zeros(6))
        self.weight = nn.Parameter(torch.ones(6))

    def forward(self, x: torch.Tensor) -> Any:  # noqa: ANN401
        scaled = torch.sin(self.table * self.weight)
        noise = torch.rand(6)
        self.count.add_(1)
        return x * scaled + torch.cos(self.count) + torch.exp(noise) + torch.tan(x)


def test_what_no_input_has_a_part_in_is_found() -> None:
    with quiet_upstream():
        program = trace(Constants(), torch.zeros(6)).run_decompositions({})
    found = {
        str(node.target).split(".")[1]
        for node in find_constants(program)
        if node.op == "call_function"
    }
    assert {"sin", "mul"} <= found
    assert not {"rand", "cos", "exp", "tan", "add"} & found
    held = {node.name for node in find_constants(program) if node.op == "placeholder"}
    assert held == {"p_weight", "b_table"}
    places = [str(node.target) for node in FoldedConstants.find_places(program)]
    assert sorted(places) == ["aten.mul.Tensor", "aten.sin.default"]


class Large(nn.Module):
    """Twice as many elements as a program should store."""

    def forward(self, x: torch.Tensor) -> Any:  # noqa: ANN401
        return x + torch.ones(2**22 + 1).sum() * torch.full((2**22 + 1,), 2.0)


def test_what_would_make_a_program_too_large_is_computed_each_time() -> None:
    assert FoldedConstants.find_places(trace(Large(), torch.zeros(2**22 + 1))) == []


class Scaled(nn.Module):
    """Squeeze and excitation as its authors wrote it, and other readers of one expand."""

    def __init__(self, also: str = "") -> None:
        super().__init__()
        self.also = also

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> Any:  # noqa: ANN401
        expanded = scale.expand_as(x)
        if self.also == "output":
            return x * expanded, expanded
        if self.also == "both":
            return expanded * x[:, :1].expand(x.shape)
        if self.also == "alone":
            return expanded + torch.broadcast_to(scale, x.shape)
        return x * expanded


@pytest.mark.parametrize(("also", "places"), [("", 1), ("output", 0), ("both", 2), ("alone", 1)])
def test_operators_that_broadcast_need_no_expand(also: str, places: int) -> None:
    """Of two expands that make the shape together, one stays."""
    inputs = (torch.randn(2, 3, 4, 5), torch.randn(1, 3, 1, 1))
    program = trace(Scaled(also), *inputs)
    expected = program.module()(*inputs)
    nodes = PlainBroadcasts.find_places(program)
    assert len(nodes) == places
    for node in nodes:
        PlainBroadcasts.edit(program, node)
    program.graph.lint()
    torch.testing.assert_close(program.module()(*inputs), expected, rtol=0, atol=0)


class Clamped(nn.Module):
    """As T5 does in half precision, or something near it."""

    def __init__(self, near: str) -> None:
        super().__init__()
        self.near = near

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Clamps more where a value is infinite."""
        asked = x + 1 if self.near == "of another value" else x
        is_any = torch.isinf(asked).any() if self.near != "not a number" else asked.isnan().any()
        high = torch.where(is_any, 64504.0, 65504.0 if self.near != "to zero" else 0.0)
        low = -high if self.near != "asymmetric" else torch.zeros_like(high)
        return torch.clamp(x, min=low, max=high)


def test_a_clamp_against_infinities_is_one_between_numbers() -> None:
    """It brought four operators outside the delegate for each layer of a T5."""
    value = torch.tensor([1.5, -2.0, 64000.0, float("inf"), float("-inf")]).half()
    program = trace(Clamped(""), value)
    (clamp,) = FixedClamps.find_places(program)
    FixedClamps.edit(program, clamp)
    program.graph.eliminate_dead_code()
    (edited,) = [node for node in program.graph.nodes if node.op == "call_function"]
    assert str(edited.target) == "aten.clamp.default"
    assert edited.args[1:] == (-64504.0, 64504.0)
    (output,) = torch.fx.Interpreter(program.graph_module).run(*_values(program, value))
    assert output.tolist() == [1.5, -2.0, 64000.0, 64512.0, -64512.0]


@pytest.mark.parametrize("near", ["of another value", "not a number", "to zero", "asymmetric"])
def test_another_clamp_stays(near: str) -> None:
    assert FixedClamps.find_places(trace(Clamped(near), torch.ones(3).half())) == []
