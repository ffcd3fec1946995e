"""Operators of a delegate find the graph's nodes behind them, and their work."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from etprof.analysis.assessment import assess_run
from etprof.analysis.insight import describe_run
from etprof.backends.xnnpack.labels import canonical_kind
from etprof.base.units import format_value
from etprof.tables.report import report_table
from tests.known_runs import Experiment, Op, Run, analyze

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from etprof.analysis.split.attribution import Attribution


def node(kind: str, *operators: str, attribution: str = "exact", macs: int = 0) -> dict[str, Any]:
    return {"kind": kind, "operators": operators, "attribution": attribution, "macs": macs}


def operator(name: str, macs: int | None = None, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    origin = {"module_path": f"m.{name}", "module_type": "M"}
    return {"name": name, "operator": f"{name}.default", "macs": macs, "origin": origin, **more}


def attribute(
    folder: Path, ops: Sequence[Op], nodes: list[dict[str, Any]], operators: list[dict[str, Any]]
) -> list[Attribution | None]:
    (experiment,) = describe_run(
        analyze(folder / "r", described(ops, nodes, operators))
    ).experiments
    return [detail.attribution for detail in experiment.details]


def described(
    ops: Sequence[Op], nodes: list[dict[str, Any]], operators: list[dict[str, Any]]
) -> Run:
    """A run of a program whose export said what its operators are."""
    delegate = {"name": "d", "backend": "XnnpackBackend", "instruction": 0, "nodes": nodes}
    method = {"operators": operators, "delegates": [delegate]}
    report = {"schema_version": 1, "model": "known", "methods": {"forward": method}}
    return replace(Run([Experiment("e", ops)]), delegation=report)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("Conv2d", "Fully Connected"),  # XNNPACK runs pointwise convolutions so
        ("Conv2d", "Convolution"),
        ("FullyConnected", "Dynamic Fully Connected"),
        ("MaxPooling2d", "Max Pooling"),
        ("AvgPooling2d", "Average Pooling"),
        ("StaticTranspose", "Transpose"),
        ("BatchMatrixMultiply", "Batch Matrix Multiply"),
        ("StaticSlice", "Slice"),
    ],
)
def test_kinds_of_nodes_and_names_of_operators_meet(kind: str, name: str) -> None:
    assert canonical_kind(kind) == canonical_kind(name)


def test_depthwise_and_pointwise_are_not_mixed_up(tmp_path: Path) -> None:
    # GIVEN a node that leaves no operator, between convolutions of both kinds
    ops = [
        Op("Convolution (NHWC, F32) DWConv #1", 5),
        Op("Fully Connected (NC, F32) GEMM #1", 5),
        Op("Convolution (NHWC, F32) DWConv #2", 5),
    ]
    nodes = [
        node("DepthwiseConv2d", "a", macs=1),
        node("StaticReshape", "a", attribution="inserted"),
        node("Conv2d", "b", macs=2),
        node("DepthwiseConv2d", "c", macs=3),
    ]
    found = attribute(tmp_path, ops, nodes, [operator("a", 1), operator("b", 2), operator("c", 3)])
    assert [f.origin.module_path for f in found if f and f.origin] == ["m.a", "m.b", "m.c"]
    assert [f.macs for f in found if f] == [1, 2, 3]
    assert [f.certainty for f in found if f] == ["kind", "kind", "kind"]


def test_what_an_attribution_rests_on_is_told(tmp_path: Path) -> None:
    # GIVEN one of two clamps that left no operator, a name that is not its node's, a layout change
    ops = [
        Op("Transpose (ND, X32) #1", 1),
        Op("Convolution (NHWC, F32) IGEMM #1", 5),
        Op("Clamp (NC, F32) #1", 5),
        Op("Invalid Unary Op (NC) #1", 5),
        Op("native_call_mean.out", 3, 7),
    ]
    nodes = [
        node("StaticTranspose", "a", attribution="inserted"),
        node("Conv2d", "a", "norm", attribution="fused", macs=2),
        node("Clamp", "b"),
        node("Hardswish", "c"),
        node("Clamp", "d"),
    ]
    operators = [operator("a", 2), *map(operator, ("norm", "b", "c", "d"))]
    found = attribute(tmp_path, ops, nodes, [*operators, operator("mean", instruction=7)])
    # THEN each says so, and an operator of several modules names them all
    assert [f.certainty for f in found if f] == [
        "inserted",
        "kind",
        "order",
        "place",
        "instruction",
    ]
    assert found[1] is not None
    assert found[1].modules == ("m.a", "m.norm")


def test_of_nodes_that_share_operators_only_the_product_multiplies(tmp_path: Path) -> None:
    # GIVEN an attention whose nodes all carry the handle of the same three operators
    shared = ("view", "bmm", "softmax")
    ops = [
        Op("Static Reshape (NC) #1", 1),
        Op("Batch Matrix Multiply (NC, F32) GEMM #1", 5),
        Op("Softmax (NC, F32) #1", 2),
    ]
    nodes = [
        node("StaticReshape", *shared, macs=100),
        node("BatchMatrixMultiply", *shared),
        node("Softmax", *shared),
    ]
    sizes = {"shape": [2, 3], "input_bytes": 8, "output_bytes": 24}
    operators = [operator("view"), operator("bmm", 100, **sizes), operator("softmax")]
    found = attribute(tmp_path, ops, nodes, operators)
    assert [f.macs for f in found if f] == [None, 100, None]
    product = found[1]
    assert product is not None
    assert (product.shape, product.moved_bytes) == ((2, 3), 32)
    assert product.origin is not None
    assert product.origin.module_path == "m.bmm"


def test_rates_of_times_near_the_clocks_step_are_limits(tmp_path: Path) -> None:
    """Mutant 14: under ten steps of a delegate's clock of 1 µs a rate is at most as given."""
    ops = [Op(f"Fully Connected (NC, F32) GEMM #{us}", us) for us in (4, 9, 10, 40)]
    nodes = [node("FullyConnected", f"n{op.us}", macs=1000) for op in ops]
    operators = [operator(f"n{op.us}", 1000) for op in ops]
    assessment = assess_run(analyze(tmp_path / "r", described(ops, nodes, operators)))
    rows = report_table(assessment, "operators").records()
    texts = [format_value(str(row["rate_limit"] or ""), row["gflops"]) for row in rows]
    assert texts == ["≤ 0.500", "≤ 0.222", "0.200", "0.0500"]


def test_kernels_are_found_by_instruction_and_name(tmp_path: Path) -> None:
    ops = [Op("native_call_mean.out", 3, 1), Op("native_call_relu.out", 3, 2)]
    operators = [
        operator("mean", instruction=1, reason="keepdim"),
        operator("gelu", instruction=2),
    ]
    found = attribute(tmp_path, ops, [], operators)
    assert found[0] is not None
    assert found[0].reason == "keepdim"
    assert found[1] is None


def test_a_depthwise_convolution_is_found_whatever_its_microkernel(tmp_path: Path) -> None:
    """F-i: of 7x7 kernels and larger XNNPACK makes an `IGEMM`; 18 of them had no module."""
    ops = [
        Op("Convolution (NHWC, F32) IGEMM #1", 5),
        Op("Fully Connected (NC, F32) GEMM #1", 5),
        Op("Convolution (NHWC, F32) IGEMM #2", 5),
    ]
    nodes = [
        node("DepthwiseConv2d", "a", macs=1),
        node("Conv2d", "b", macs=2),
        node("DepthwiseConv2d", "c", macs=3),
    ]
    operators = [operator("a", 1), operator("b", 2), operator("c", 3)]
    found = attribute(tmp_path, ops, nodes, operators)
    assert [each and each.graph_operators for each in found] == [("a",), ("b",), ("c",)]
    assert [each and each.macs for each in found] == [1, 2, 3]


@pytest.mark.parametrize(("lost_us", "fires"), [(6, True), (4, False)])
def test_time_without_a_module_is_told(tmp_path: Path, lost_us: int, fires: bool) -> None:
    """F-i: no finding said that a fifth of the time is unattributed."""
    # GIVEN an operator that the delegate has no node for
    ops = [
        Op("Fully Connected (NC, F32) GEMM #1", 100 - lost_us),
        Op("Deconvolution (NHWC, F32) IGEMM #1", lost_us),
    ]
    run = described(ops, [node("Conv2d", "a", macs=1)], [operator("a", 1)])
    (findings,) = assess_run(analyze(tmp_path / "r", run)).findings
    assert "F18" in findings.checked
    assert ("F18" in {each.rule for each in findings.findings}) is fires
