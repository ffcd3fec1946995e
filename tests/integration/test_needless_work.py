"""Rewrites that leave out what is computed twice, or cut away: they compute the same with less work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn import functional

from etprof.base.records import read_record
from etprof.base.upstream_noise import quiet_upstream
from etprof.export import lowering
from etprof.export.exporter import export_model
from etprof.export.request import ExportOptions, ExportRequest
from etprof.model_registry.eager_model import ExportMethod
from etprof.run.delegation import DelegationReport
from tests.integration.test_rewrites import rewriting_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Computation = Callable[["Layers", torch.Tensor], torch.Tensor]

NETS = """
import torch
from torch import nn


class TwoHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk, self.drop = nn.Conv2d(3, 8, 3, padding=1), nn.Dropout()
        self.left, self.right = nn.Conv2d(8, 4, 1), nn.Conv2d(8, 2, 1)

    def features(self, x):
        return self.drop(torch.relu(self.trunk(x)))

    def forward(self, x):
        return self.left(self.features(x)), self.right(self.features(x))


class LastRow(nn.Module):
    def __init__(self):
        super().__init__()
        self.mix, self.norm, self.head = nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 100)

    def forward(self, x):
        return self.head(self.norm(self.mix(x)))[:, -1]
"""
SHAPES = {"TwoHeads": "1x3x8x8", "LastRow": "1x12x8"}
MACS = {"TwoHeads": (2 * 13_824 + 3_072, 13_824 + 3_072), "LastRow": (12 * 864, 864)}
"""Before and after, by hand: 8x8 pixels of 27 products for 8 channels, and of 8 for 6; rows of 864."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet_upstream():
        yield


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize(
    ("name", "rewrite"), [("TwoHeads", "shared_results"), ("LastRow", "early_selects")]
)
def test_a_program_does_no_more_than_what_is_read(
    tmp_path: Path, name: str, rewrite: str, precision: str
) -> None:
    """Both export checks hold, and the work is what a hand would leave."""
    (tmp_path / "net.py").write_text(NETS)
    source = f"{tmp_path / 'net.py'}:{name}"
    macs = []
    for rewrites in ((), (rewrite,)):
        exported = export_model(
            ExportRequest(
                source,
                precision,
                out=tmp_path / f"{len(rewrites)}.pte",
                options=ExportOptions(rewrites=rewrites, example_inputs=(SHAPES[name],)),
            )
        )
        report = read_record(DelegationReport, exported.report, way_out="")
        operators = report.methods["forward"].operators
        macs.append(sum(operator.macs or 0 for operator in operators))
        # What the export says that it misses is what the rewrite finds. Of a layer that is called
        # twice PyTorch's quantiser quantises the first call alone: the calls are not the same there.
        if (rewrite, precision) == ("shared_results", "int8"):
            continue
        assert any(rewrite in operator.rewrites for operator in operators) is not bool(rewrites)
    assert tuple(macs) == MACS[name]


class Layers(nn.Module):
    """Layers and constants, and a function of them and of an input."""

    def __init__(self, function: Computation) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.linear, self.up, self.down = nn.Linear(8, 8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.norm, self.wide_norm = nn.LayerNorm(8), nn.LayerNorm((6, 8))
        self.row, self.column = nn.Buffer(torch.randn(8)), nn.Buffer(torch.randn(6, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, x)


def feed_forward(net: Layers, x: torch.Tensor) -> torch.Tensor:
    x = net.linear(x)
    added: torch.Tensor = net.down(functional.gelu(net.up(net.norm(x))))
    return x + added


def two_readers(rows: torch.Tensor) -> torch.Tensor:
    return rows[:, 0] + rows.sum(1)


MOVED: dict[str, tuple[Computation, int]] = {
    "last row": (lambda net, x: net.linear(x)[:, -1], 2),
    "some rows": (lambda net, x: net.linear(x)[:, 1:3], 2),
    "batch": (lambda net, x: net.linear(x)[1], 2),
    "residual": (lambda net, x: feed_forward(net, x)[:, -1], 7),
    "row of weights": (lambda net, x: (net.linear(x) * net.row + 1.5)[:, 2], 4),
    "norm of the row": (lambda net, x: net.norm(net.linear(x))[:, 0], 3),
    "beside a change": (lambda net, x: net.linear(x)[:, -1] + change_row(x.clone()).sum(), 2),
}


def table(value: torch.Tensor) -> torch.Tensor:
    """As a mask makes one for each layer."""
    return torch.arange(8, device=value.device) / 8.0


def change_row(value: torch.Tensor) -> torch.Tensor:
    """Sets the first row to 1 through a view of a view."""
    value.transpose(1, 2)[..., 0].fill_(1.0)
    return value


STAYS: dict[str, Computation] = {
    "last dimension": lambda net, x: net.linear(x)[..., :3],
    "nothing is cut": lambda net, x: net.linear(x)[:, 0:6],
    "two readers": lambda net, x: two_readers(net.linear(x)),
    "norm over what is cut": lambda net, x: net.wide_norm(net.linear(x))[:, 0],
    "column": lambda net, x: (net.linear(x) + net.column)[:, 2],
    "product of rows": lambda net, x: (net.linear(x) @ x.transpose(1, 2))[:, 0],
    "changed in place": lambda net, x: net.linear(x).add_(1.0)[:, 0],
}


def rewritten(function: Computation, name: str) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Returns what eager and the rewritten graph compute, and how many operators were changed."""
    model = Layers(function)
    x = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = model(x.clone())
        traced = lowering.trace("forward", ExportMethod(model.eval(), (x,)))
        rewriting = rewriting_of(name)
        program = rewriting.before_lowering(traced)
        output: torch.Tensor = program.module()(x.clone())
        return expected, output, rewriting.operators[name]


@pytest.mark.parametrize("case", MOVED)
def test_a_cut_goes_before_what_computes_each_row_alone(case: str) -> None:
    function, operators = MOVED[case]
    expected, output, count = rewritten(function, "early_selects")
    assert count == operators
    assert torch.allclose(output, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", STAYS)
def test_a_cut_stays_where_rows_are_not_computed_alone(case: str) -> None:
    expected, output, count = rewritten(STAYS[case], "early_selects")
    assert (count, torch.equal(output, expected)) == (0, True)


SHARED: dict[str, tuple[Computation, int]] = {
    "a chain": (lambda net, x: net.linear(x).relu() + net.linear(x).relu(), 2),
    "keyword": (lambda _, x: x.sum(1, keepdim=True) + x.sum(1, keepdim=True), 1),
    "another argument": (lambda _, x: x.sum(1) + x.sum(2).sum(1, keepdim=True), 0),
    "true is not one": (lambda _, x: x.sum(1, keepdim=True) * x.sum(1, keepdim=False).sum(), 0),
    "another order": (lambda _, x: (x - 1.0) / (x - 2.0) + (x - 2.0) / (x - 1.0), 2),
    "changed in place": (lambda net, x: net.linear(x).add_(1.0) + net.linear(x), 0),
    "a view is changed": (lambda net, x: change_row(net.linear(x)) + net.linear(x), 0),
    "an input is changed": (lambda net, x: net.linear(x) + change_row(x).sum() + net.linear(x), 0),
    "of tables": (lambda _, x: (x > table(x)) & (x + 1.0 > table(x)) | (x > table(x)), 3),
    "of draws": (lambda _, x: (x + torch.rand(8)) * 0.0 + (x + torch.rand(8)) * 0.0, 0),
    "another is changed": (
        lambda net, x: net.linear(x) + change_row(x.clone()).sum() + net.linear(x), 1
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SHARED)
def test_only_what_is_the_same_is_computed_once(case: str) -> None:
    function, operators = SHARED[case]
    expected, output, count = rewritten(function, "shared_results")
    assert count == operators
    assert torch.equal(output, expected)


def test_two_outputs_may_be_one_value(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\n\nclass Net(nn.Module):\n"
        "    def forward(self, x):\n        return x.relu() + 1.0, x.relu() + 1.0\n"
    )
    options = ExportOptions(rewrites=("shared_results",), example_inputs=("1x3x8",))
    request = ExportRequest(
        f"{tmp_path / 'net.py'}:Net", "fp32", out=tmp_path / "net.pte", options=options
    )
    # It runs the program, and both outputs hold.
    exported = export_model(request)
    report = read_record(DelegationReport, exported.report, way_out="")
    assert sum("add" in operator.name for operator in report.methods["forward"].operators) == 1


def test_two_draws_stay_two() -> None:
    _, output, count = rewritten(
        lambda _, x: torch.rand_like(x) - torch.rand_like(x), "shared_results"
    )
    assert count == 0
    assert output.abs().max() > 0
