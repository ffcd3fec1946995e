"""Nodes of a program by partition and by quantised cluster, each in a colour (M3-6)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from etprof.run.delegation import MethodReport
from etprof.views.partitions import OUTSIDE, node_groups, partitions, quantised_clusters
from tests.golden.runs import described
from tests.known_runs import on_off_run, write_run
from tests.world.host import etprof

if TYPE_CHECKING:
    from pathlib import Path

Q, DQ = "quantized_decomposed.quantize_per_tensor", "quantized_decomposed.dequantize_per_tensor"


def node(name: str, operator: str, inputs: str = "", delegate: int | None = 0) -> dict[str, Any]:
    return {
        "name": name, "operator": operator, "inputs": inputs.split(), "delegate": delegate,
        "is_quantization": "quantize" in operator,
    }  # fmt: skip


def report(*nodes: dict[str, Any]) -> MethodReport:
    return MethodReport.model_validate({
        "operators": nodes,
        "delegates": [{"name": "d", "backend": name, "instruction": i, "nodes": []}
                      for i, name in enumerate(("XnnpackBackend", "Other"))],
    })  # fmt: skip


def groups(method: MethodReport) -> dict[str, str]:
    return {name: member.group for name, member in quantised_clusters(method).items()}


def test_each_delegate_call_has_a_colour_and_what_is_outside_is_grey() -> None:
    found = partitions(report(
        node("a", "convolution.default"), node("b", "mean.dim", "a", None),
        node("c", "linear.default", "b", 1), node("d", "relu.default", "c", 1),
    ))  # fmt: skip
    assert [member.group for member in found.values()] == [
        "delegate 0 (XnnpackBackend)", OUTSIDE, "delegate 1 (Other)", "delegate 1 (Other)",
    ]  # fmt: skip
    colours = [found[name].colour for name in "abcd"]
    assert len(set(colours)) == 3
    assert colours[2] == colours[3]
    assert colours[1] == "#bdbdbd"


def test_a_cluster_goes_from_dequantised_inputs_to_a_quantised_result() -> None:
    found = groups(report(
        node("q0", Q, "image"), node("dq0", DQ, "q0"), node("w", DQ, "weight"),
        node("conv", "convolution.default", "dq0 w bias"), node("relu", "relu.default", "conv"),
        node("q1", Q, "relu"), node("dq1", DQ, "q1"), node("pool", "max_pool2d.default", "dq1"),
        node("q2", Q, "pool"), node("dq2", DQ, "q2"),
    ))  # fmt: skip
    first = dict.fromkeys(("dq0", "w", "conv", "relu", "q1"), "cluster 0: convolution, relu")
    second = dict.fromkeys(("dq1", "pool", "q2"), "cluster 1: max_pool2d")
    # THEN what turns the image into integers, and the result back, is in none
    assert found == first | second


def test_a_product_whose_result_stays_in_floats_is_a_cluster_without_what_follows() -> None:
    found = groups(report(
        node("dq", DQ, "choose"), node("w", DQ, "weight"), node("linear", "linear.default", "dq w"),
        node("softmax", "_softmax.default", "linear"), node("norm", "layer_norm.default", "x"),
        node("q", Q, "norm"),
    ))  # fmt: skip
    assert found["linear"] == found["dq"] == "cluster 0: linear"
    assert "norm" not in found
    assert "q" not in found


def test_a_float_path_into_a_quantised_result_is_no_cluster() -> None:
    found = groups(report(
        node("dq", DQ, "image"), node("mean", "mean.dim", "getitem", None),
        node("add", "add.Tensor", "dq mean"), node("q", Q, "add"),
    ))  # fmt: skip
    assert found == {}


def test_a_program_in_floats_has_partitions_alone() -> None:
    assert list(node_groups(report(node("a", "convolution.default")))) == ["partitions"]
    assert node_groups(report()) == {}


def test_a_report_has_a_file_of_colours_also_without_times(tmp_path: Path) -> None:
    for name, meaningful in (("timed", True), ("emulated", False)):
        write_run(
            tmp_path / name, replace(on_off_run(), delegation=described(), meaningful=meaningful)
        )
        done = etprof(tmp_path, "report", name, "--format", "model-explorer")
        assert done.exit_code == 0, done.stderr
        path = tmp_path / name / "report_model_explorer_partitions.json"
        results = json.loads(path.read_text())["results"]
        assert results["stem"] == {"value": "delegate 0 (XnnpackBackend)", "bgColor": "#a6cee3"}
        assert results["mean"] == {"value": OUTSIDE, "bgColor": "#bdbdbd"}
