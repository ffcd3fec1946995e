"""What the export says of causes: what operators were decomposed from, and what would mend them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from etprof.backends.registry import BY_NAME, DEFAULT
from etprof.base.upstream_noise import quiet_upstream
from etprof.export import delegation, lowering
from etprof.export.request import ExportOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from etprof.run.delegation import DelegateNode, MethodReport


class Call(nn.Module):
    """A function as a model."""

    def __init__(self, function: Callable[..., Any], *modules: nn.Module) -> None:
        super().__init__()
        self.function = function
        self.parts = nn.ModuleList(modules)

    def forward(self, *inputs: torch.Tensor) -> Any:  # noqa: ANN401
        return self.function(*self.parts, *inputs)


def export(
    function: Callable[..., Any], *modules: nn.Module, **inputs: torch.Tensor
) -> MethodReport:
    with quiet_upstream():
        model = Call(function, *modules).eval().requires_grad_(False)
        if any(each.dtype == torch.float16 for each in inputs.values()):
            model = model.half()
        traced = torch.export.export(model, tuple(inputs.values()))
        lowered = lowering.lower({"forward": traced}, "xnnpack", ExportOptions())
    return delegation.describe_method(lowered.methods["forward"], None)


def nodes_of(report: MethodReport, kind: str) -> list[DelegateNode]:
    return [n for each in report.delegates for n in each.nodes if n.kind == kind]


def halves(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).half()


def test_what_attention_was_decomposed_into_is_one_thing_with_its_rewrite() -> None:
    """F-g: 72 operators had 72 times the same reason, and were one safe softmax."""
    report = export(
        functional.scaled_dot_product_attention,
        q=halves(1, 2, 8, 16), k=halves(1, 2, 8, 16), v=halves(1, 2, 8, 16),
    )  # fmt: skip
    outside = [each for each in report.operators if each.delegate is None]
    assert {"where.self", "any.dim", "eq.Scalar"} <= {each.operator for each in outside}
    assert {(each.traced, each.traced_as) for each in outside} == {
        ("scaled_dot_product_attention", "aten.scaled_dot_product_attention.default")
    }
    assert all("plain_attention" in each.rewrites for each in outside)


def test_a_plain_softmax_is_no_attention() -> None:
    report = export(lambda x: torch.softmax(x * 2, -1), x=halves(1, 8, 8))
    assert {each.traced_as for each in report.operators} == {
        "aten.mul.Tensor",
        "aten.softmax.int",
    }
    assert not any("plain_attention" in each.rewrites for each in report.operators)


@pytest.mark.parametrize(
    ("function", "shape", "rewrite"),
    [
        (lambda x: x.mean((2, 3)), (1, 4, 8, 8), "kept_dimensions"),
        (functional.hardsigmoid, (1, 4, 8), "half_activations"),
        (lambda x: functional.layer_norm(x, (8,)), (1, 4, 8), "spelled_norms"),
        (lambda x: x.float() * 2, (4, 8), "delegated_casts"),
    ],
)
def test_what_stays_outside_names_the_rewrite_that_takes_it_in(
    function: Callable[[torch.Tensor], Any], shape: tuple[int, ...], rewrite: str
) -> None:
    """F-g: causes with commands in place of the partitioner's words."""
    report = export(function, x=halves(*shape))
    assert any(rewrite in o.rewrites for o in report.operators if o.delegate is None)


def test_a_rewrite_says_itself_that_it_is_of_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """A finding had the names of two; a third would have been no way to SME2 on any page."""
    rewrites = BY_NAME[DEFAULT].exporter().rewrites()
    (weights,) = [each for each in rewrites if each.name == "half_pointwise_weights"]
    monkeypatch.setattr(weights, "name", "thin_weights")
    report = export(lambda one, x: one(x), nn.Conv2d(4, 4, 1), x=halves(1, 4, 8, 8))
    assert [node.sme2_rewrites for node in nodes_of(report, "Conv2d")] == [("thin_weights",)]
    monkeypatch.setattr(weights, "gives_sme2_weights", False)
    report = export(lambda one, x: one(x), nn.Conv2d(4, 4, 1), x=halves(1, 4, 8, 8))
    assert [node.sme2_rewrites for node in nodes_of(report, "Conv2d")] == [()]


def test_a_mean_that_is_delegated_needs_no_rewrite() -> None:
    report = export(lambda x: x.mean((2, 3), keepdim=True), x=halves(1, 4, 8, 8))
    assert [each.rewrites for each in report.operators] == [()]


def test_pointwise_convolutions_of_halves_name_their_rewrite_and_others_do_not() -> None:
    """F-h: what would put more operators on SME2 is known without measuring."""
    report = export(
        lambda one, three, x: three(one(x)), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 3),
        x=halves(1, 4, 8, 8),
    )  # fmt: skip
    assert [each.rewrites for each in report.operators] == [("half_pointwise_weights",), ()]
    pointwise, full = nodes_of(report, "Conv2d")
    assert (pointwise.sme2_rewrites, full.sme2_rewrites) == (("half_pointwise_weights",), ())
    assert (pointwise.prediction and pointwise.prediction.sme2) is False
    assert pointwise.sme2_precisions == ("fp32", "int8")
    assert full.sme2_precisions == ("fp32", "fp16", "int8")


def test_depthwise_convolutions_have_no_precision_with_sme2() -> None:
    report = export(lambda c, x: c(x), nn.Conv2d(8, 8, 3, groups=8), x=torch.randn(1, 8, 8, 8))
    (node,) = nodes_of(report, "DepthwiseConv2d")
    assert node.sme2_precisions == ()


def test_an_unfolded_batch_norm_is_its_own_operator_not_its_neighbours() -> None:
    """F-b: a depthwise convolution of 1x1 stood for it, with the neighbour's module and MACs."""
    report = export(
        lambda c1, b1, c2, b2, x: b2(torch.relu(c2(b1(torch.relu(c1(x)))))),
        nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8),
        x=torch.randn(1, 4, 8, 8),
    )  # fmt: skip
    norms = nodes_of(report, "DepthwiseConv2d")
    assert [norm.origins[0].module_path for norm in norms] == ["parts.1", "parts.3"]
    assert [(norm.attribution, norm.macs) for norm in norms] == [("exact", 0)] * 2
    convolutions = nodes_of(report, "Conv2d")
    assert all(not any("norm" in name for name in c.operators) for c in convolutions)


def test_a_folded_batch_norm_stays_with_its_convolution() -> None:
    report = export(
        lambda c, b, x: torch.relu(b(c(x))), nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8),
        x=torch.randn(1, 4, 8, 8),
    )  # fmt: skip
    assert not nodes_of(report, "DepthwiseConv2d")
    (convolution,) = nodes_of(report, "Conv2d")
    assert any("batch_norm" in name for name in convolution.operators)


def test_the_last_batch_norm_of_two_is_the_one_that_is_not_folded() -> None:
    report = export(
        lambda c, b1, b2, x: b2(torch.relu(b1(c(x)))),
        nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), nn.BatchNorm2d(8), x=torch.randn(1, 4, 8, 8),
    )  # fmt: skip
    (norm,) = nodes_of(report, "DepthwiseConv2d")
    assert norm.origins[0].module_path == "parts.2"


def test_the_caller_counts_among_the_readers_of_a_value() -> None:
    """F-e: a transpose whose value is an output of the program was told to be removed."""

    def two(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        turned = x.permute(0, 2, 1)
        return turned, torch.relu(turned).permute(0, 2, 1)

    report = export(two, x=torch.randn(1, 4, 8))
    assert [node.readers for node in nodes_of(report, "StaticTranspose")] == [2, 1]
    alone = export(
        lambda x: torch.relu(x.permute(0, 2, 1)).permute(0, 2, 1), x=torch.randn(1, 4, 8)
    )
    assert [node.readers for node in nodes_of(alone, "StaticTranspose")] == [1, 1]
