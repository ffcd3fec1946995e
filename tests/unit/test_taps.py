"""Which values of a traced graph are looked at, and how far each may be from eager's."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch

from etprof.base.errors import UsageError
from etprof.numerics import taps
from etprof.numerics.session import _choose_modes
from tests.world.sim_target import SimTarget
from tests.world.spec import RunSpec

if TYPE_CHECKING:
    from etprof.numerics.taps import Tap


class Net(torch.nn.Module):
    """A convolution with its norm, a linear layer, and operators that compute nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)
        self.norm = torch.nn.BatchNorm2d(4)
        self.line = torch.nn.Linear(16, 5)
        self.bare = torch.nn.Linear(5, 2, bias=False)

    def forward(self, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        image = torch.relu(self.norm(self.conv(value)))
        flat = image.clone().view(1, 16)
        scores = torch.softmax(self.line(flat), -1)
        return self.bare(scores), scores.argmax(-1)


@pytest.fixture(scope="module")
def program() -> torch.export.ExportedProgram:
    torch.manual_seed(5)
    net = Net().eval()
    for name, value in (("running_mean", 0.3), ("running_var", 2.0)):
        getattr(net.norm, name).fill_(value)
    net.norm.weight.data.fill_(1.5)
    net.norm.bias.data.fill_(-0.25)
    return torch.export.export(net, (torch.ones(1, 3, 4, 4),))


def chosen(
    program: torch.export.ExportedProgram, fusions: tuple[tuple[str, ...], ...] = ()
) -> dict[str, Tap]:
    return {tap.operator: tap for tap in taps.choose_taps(program.graph, fusions)}


def test_every_operator_that_computes_is_looked_at(program: torch.export.ExportedProgram) -> None:
    found = taps.choose_taps(program.graph, ())
    assert [tap.operator for tap in found] == [
        "conv2d", "batch_norm", "relu", "linear", "softmax", "linear",
    ]  # fmt: skip
    assert all(tap.tapped_node is tap.node and tap.fused == (tap.node,) for tap in found)
    # What multiplies nothing counts as one product.
    assert [max(tap.summed, 1) for tap in found] == [27, 1, 1, 16, 1, 5]
    assert [tap.steps for tap in found] == [1, 1, 1, 1, 3, 1]
    assert [tap.bytes for tap in found] == [64, 64, 64, 20, 20, 8]


def test_of_what_became_one_operator_the_last_is_looked_at(
    program: torch.export.ExportedProgram,
) -> None:
    names = [tap.node.name for tap in taps.choose_taps(program.graph, ())]
    found = chosen(program, (tuple(names[:3]),))
    assert list(found) == ["conv2d + batch_norm + relu", "linear", "softmax"] or next(
        iter(found)
    ) == ("conv2d + batch_norm + relu")
    tap = found["conv2d + batch_norm + relu"]
    assert (tap.node.name, [node.name for node in tap.fused]) == (names[2], names[:3])
    assert tap.summed == 27


def test_sums_begin_with_the_bias_through_the_norm(program: torch.export.ExportedProgram) -> None:
    state = program.state_dict
    names = [tap.node.name for tap in taps.choose_taps(program.graph, ())]
    by_operator = taps.choose_taps(program.graph, (tuple(names[:2]),))
    fused, relu, line, softmax, bare = by_operator
    start = taps.find_sum_start(program, fused)
    assert start is not None
    assert start.end.name == names[1]
    expected = (state["conv.bias"] - 0.3) / (2 + 1e-5) ** 0.5 * 1.5 - 0.25
    assert start.value.shape == (1, 4, 1, 1)  # which `allclose` does not ask
    assert torch.allclose(start.value, expected.reshape(1, 4, 1, 1))
    alone = taps.find_sum_start(program, replace(fused, fused=fused.fused[:1]))
    assert alone is not None
    assert (alone.end.name, alone.value.shape) == (names[0], (1, 4, 1, 1))
    assert torch.equal(alone.value.flatten(), state["conv.bias"])
    start = taps.find_sum_start(program, line)
    assert start is not None
    assert torch.equal(start.value, state["line.bias"])
    start = taps.find_sum_start(program, bare)
    assert start is not None
    assert start.value.tolist() == [0.0]
    assert taps.find_sum_start(program, relu) is None
    assert taps.find_sum_start(program, softmax) is None


def test_the_power_on_the_way_to_a_result_by_hand(program: torch.export.ExportedProgram) -> None:
    """(b² + b·z + z²), and z² of a sum that begins with nothing."""
    node = next(iter(program.graph.nodes))
    start = taps.SumStart(node, torch.tensor([1.0, -2.0]))
    assert start.power_between(torch.tensor([3.0, 2.0])) == ((1 + 3 + 9) + (4 - 4 + 4)) / 2
    nothing = taps.SumStart(node, torch.zeros(1))
    assert nothing.power_between(torch.tensor([3.0, 1.0])) == 5.0


def test_programs_hold_so_many_taps_and_bytes(program: torch.export.ExportedProgram) -> None:
    found = taps.choose_taps(program.graph, ())

    def sizes(most_bytes: int, most_taps: int | None) -> list[list[int]]:
        passes = taps.split_passes(found, most_bytes, most_taps)
        assert [tap for one in passes for tap in one] == found
        return [[tap.bytes for tap in one] for one in passes]

    assert sizes(10**6, None) == [[64, 64, 64, 20, 20, 8]]
    assert sizes(128, None) == [[64, 64], [64, 20, 20, 8]]
    assert sizes(127, None) == [[64], [64], [64, 20, 20, 8]]
    assert sizes(10**6, 4) == [[64, 64, 64, 20], [20, 8]]
    # One that is larger than may be has a program to itself.
    assert sizes(1, 9) == [[64], [64], [64], [20], [20], [8]]
    assert taps.split_passes([], 1, 1) == []


def test_nodes_are_known_by_the_graph_that_they_come_from() -> None:
    class Source:
        def __init__(self, name: str, graph_id: int, before: tuple[Source, ...] = ()) -> None:
            self.name, self.graph_id, self.from_node = name, graph_id, before

    traced = torch.fx.Graph()
    other = id(traced) + 1
    lowered = torch.fx.Graph()
    histories: dict[str, tuple[Source, ...]] = {
        "direct": (Source("conv", id(traced)),),
        "through": (Source("x", other, (Source("y", other, (Source("relu", id(traced)),)),)),),
        "last": (Source("no", id(traced)), Source("mul", id(traced))),
        "lost": (Source("x", other),),
        "none": (),
    }
    circle = Source("c", other)
    circle.from_node = (circle,)
    histories["circle"] = (circle,)
    nodes = [lowered.placeholder(name) for name in histories]
    for node, history in zip(nodes, histories.values(), strict=True):
        node.meta["from_node"] = history
    assert taps.trace_names(nodes, traced) == {"direct": "conv", "through": "relu", "last": "mul"}
    assert list(taps.name_fusions([("b", "c"), ("a",)])) == ["a", "b + c"]


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # PyTorch's own, in its deepcopy
def test_a_tapped_program_gives_the_values_after_its_own(
    program: torch.export.ExportedProgram,
) -> None:
    found = taps.choose_taps(program.graph, ())
    tapped = taps.add_taps(program, found[:2])
    outputs = tapped.graph.output_node().args[0]
    own = program.graph.output_node().args[0]
    assert isinstance(outputs, tuple)
    assert isinstance(own, tuple)
    assert len(outputs) == len(own) + 2
    # AND the program itself is as it was, and its weights are not copied.
    assert len(program.graph.output_node().args[0]) == len(own)
    pointers = {name: value.data_ptr() for name, value in program.state_dict.items()}
    assert {name: value.data_ptr() for name, value in tapped.state_dict.items()} == pointers


def test_modes_are_those_that_were_asked_for_in_the_targets_order() -> None:
    target = SimTarget(RunSpec())
    assert target.sme_modes() == ("sme2", "sme1", "off")
    assert _choose_modes((), target) == ("sme2", "sme1", "off")
    assert _choose_modes(("off", "sme2"), target) == ("sme2", "off")
    with pytest.raises(UsageError, match=r"--sme auto: the CPU of .* has sme2, sme1, off"):
        _choose_modes(("auto",), target)
