"""The line that an operator is from: the innermost of the model's own code, helpers included."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch.nn import functional

from etprof.backends.registry import BY_NAME, DEFAULT
from etprof.base.upstream_noise import quiet_upstream
from etprof.export import lowering, upstream
from etprof.export.changes.rewriting import find_missed
from etprof.export.operators import find_origin
from etprof.model_registry.eager_model import ExportMethod

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Values = torch.Tensor


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with quiet_upstream():
        yield


def doubled(function: Callable[..., Values]) -> Callable[..., Values]:
    @functools.wraps(function)
    def call(*values: object) -> Values:
        return function(*values) * 2.0

    return call


def scaled(x: Values) -> Values:
    return torch.cumsum(x, 1)


class Helped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    @doubled
    def norm(self, x: Values) -> Values:
        return torch.sinh(x)

    def forward(self, x: Values) -> Values:
        x = self.linear(self.norm(x))
        return scaled(torch.cosh(x))


def functions(model: nn.Module, *inputs: Values) -> dict[str, str]:
    """Returns the function of the model's line for each operator."""
    program = lowering.trace("forward", ExportMethod(model.eval(), inputs))
    nodes = [node for node in program.graph.nodes if node.op == "call_function"]
    sources = {node.name: find_origin(node).source for node in nodes}
    return {name: source.function for name, source in sources.items() if source is not None}


def test_an_operator_is_of_the_helper_that_calls_it() -> None:
    assert functions(Helped(), torch.zeros(2, 3)) == {
        "sinh": "norm", "mul": "call", "linear": "forward", "cosh": "forward", "cumsum": "scaled",
    }  # fmt: skip


def test_code_of_another_package_is_no_line_to_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """A function of einops, say: the line that calls it is the author's."""
    package_of = upstream._code_of
    monkeypatch.setattr(
        upstream, "_code_of", lambda name: "einops" if name == "einops.py" else package_of(name)
    )
    code = compile("def reduced(x, torch):\n    return torch.cumsum(x, 1)", "einops.py", "exec")
    space: dict[str, Callable[..., Values]] = {}
    exec(code, space)  # noqa: S102 - a package that is not installed

    class Calls(nn.Module):
        def forward(self, x: Values) -> Values:
            return space["reduced"](x, torch)

    assert functions(Calls(), torch.zeros(2, 3)) == {"cumsum": "forward"}


@pytest.mark.parametrize(
    ("filename", "package"),
    [
        ("/env/lib/python3.11/site-packages/einops/einops.py", "einops"),
        ("C:\\env\\Lib\\site-packages\\timm\\layers\\norm.py", "timm"),
        ("/usr/lib/python3/dist-packages/yaml/main.py", "yaml"),
        (functools.__file__, "python"),
        ("<string>", "python"),
        ("/home/m/nets/model.py", ""),
    ],
)
def test_a_file_is_of_a_package_or_of_the_model(filename: str, package: str) -> None:
    assert upstream._code_of(filename) == package


def test_a_pytorch_without_that_place_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.fx.proxy.TracerBase, "_filter_traceback_frames")
    with upstream.lines_of_helpers():
        pass


class Standardised(nn.Module):
    """A convolution whose weights are computed in each inference."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 3, 3, 3))

    def forward(self, x: Values) -> Values:
        return functional.conv2d(x, self.weight - self.weight.mean((1, 2, 3), keepdim=True))


def test_a_convolution_that_waits_for_constants_is_reached_by_folding_them() -> None:
    """XNNPACK takes weights that are stored: 99 % of the latency was gained, and 0.2 % predicted."""
    program = lowering.trace(
        "forward", ExportMethod(Standardised().eval(), (torch.randn(1, 3, 8, 8),))
    )
    rewrites = [r for r in BY_NAME[DEFAULT].exporter().rewrites() if r.name == "folded_constants"]
    missed = find_missed(program, rewrites).of_traced
    assert set(missed) == {"mean", "sub", "conv2d"}
    assert all(names == ["folded_constants"] for names in missed.values())
