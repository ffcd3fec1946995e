"""Each option's effect on the program, checked by running it with etprof-runner."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from etprof.base.errors import ExportError
from etprof.base.process import run_command
from etprof.cli import main
from etprof.export.memory_plan import measure_external
from etprof.export.request import ExportOptions, ExportRequest
from etprof.export.runtime_check import check_bundle
from etprof.run.delegation import DelegationReport
from etprof.tables.export import kinds_table
from etprof.targets.runner import find_host_runner

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.export.request import ExportedFiles
    from tests.integration.conftest import Exports


def toy(options: ExportOptions | None = None) -> ExportRequest:
    return ExportRequest("toy_cnn", "fp32", options=options or ExportOptions())


def read(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def node_kinds(files: ExportedFiles) -> list[list[str]]:
    delegates = read(files.report)["methods"]["forward"]["delegates"]
    return [[node["kind"] for node in each["nodes"]] for each in delegates]


def run_and_compare(files: ExportedFiles, folder: Path, *flags: object) -> None:
    """Runs the program on its example input; its output file must be eager's."""
    outputs = folder / "outputs"
    words = [
        *(find_host_runner(), "--model", files.pte, "--input", files.data / "input_0.bin"),
        *("--iterations", 1, "--outputs", outputs, "--result", folder / "result.json", *flags),
    ]
    completed = run_command([str(word) for word in words], timeout_s=60)
    assert completed.exit_code == 0, completed.stderr
    np.testing.assert_allclose(
        np.fromfile(outputs / "output_0.bin", dtype="<f4"),
        np.fromfile(files.data / "reference_0.bin", dtype="<f4"),
        rtol=1e-4,
        atol=1e-5,
    )


def test_channels_last_spares_the_layout_changes(exports: Exports, tmp_path: Path) -> None:
    assert "StaticTranspose" in node_kinds(exports.get(toy()))[0]
    files = exports.get(toy(ExportOptions(channels_last=True)))
    assert "StaticTranspose" not in node_kinds(files)[0]
    assert read(files.manifest)["methods"]["forward"]["inputs"][0]["dim_order"] == [0, 2, 3, 1]
    run_and_compare(files, tmp_path)


def test_external_constants_leave_the_program(exports: Exports, tmp_path: Path) -> None:
    inside, outside = exports.get(toy()), exports.get(toy(ExportOptions(external_constants=True)))
    weights_bytes = 3978 * 4
    assert read(outside.report)["size"]["constant_bytes"] == 0
    assert read(outside.report)["size"]["external_bytes"] == outside.external_data.stat().st_size
    assert outside.external_data.stat().st_size >= weights_bytes
    assert inside.pte.stat().st_size - outside.pte.stat().st_size >= weights_bytes
    assert read(outside.manifest)["ptd"]["size_bytes"] == outside.external_data.stat().st_size
    # AND what is in the file is as ExecuTorch's own reader of its header says
    from executorch.extension.flat_tensor.serialize.serialize import FlatTensorHeader

    head = FlatTensorHeader.from_bytes(outside.external_data.read_bytes()[8:48])
    assert read(outside.report)["size"]["external_weight_bytes"] == head.segment_data_size
    assert weights_bytes <= head.segment_data_size < outside.external_data.stat().st_size
    run_and_compare(outside, tmp_path, "--data", outside.external_data)


@pytest.mark.parametrize(
    ("start", "damage", "problem"),
    [
        (4, b"ET12", "is not a .ptd"),
        (6, b"x1", "is not a .ptd"),
        (8, b"eh00", "is not a .ptd"),
        (12, bytes(4), "is not a .ptd"),
        (40, b"\xff" * 8, "shorter than its header says"),
        (16, b"\xff" * 16, "shorter than its header says"),
    ],
)
def test_a_damaged_file_of_weights_is_refused(
    exports: Exports, tmp_path: Path, start: int, damage: bytes, problem: str
) -> None:
    whole = exports.get(toy(ExportOptions(external_constants=True))).external_data.read_bytes()
    damaged = tmp_path / "damaged.ptd"
    damaged.write_bytes(whole[:start] + damage + whole[start + len(damage) :])
    with pytest.raises(ExportError, match=problem):
        measure_external(damaged)
    damaged.write_bytes(whole[:47])
    with pytest.raises(ExportError, match="ends within its header"):
        measure_external(damaged)


def test_each_delegate_says_what_its_graph_and_weights_take(exports: Exports) -> None:
    report = read(exports.get(toy()).report)
    delegates = report["methods"]["forward"]["delegates"]
    assert sum(each["blob_bytes"] for each in delegates) == report["size"]["delegate_bytes"]
    # All of its weights are in delegates.
    assert sum(each["weight_bytes"] for each in delegates) == 3978 * 4


def test_naive_planning_shares_no_memory(exports: Exports, tmp_path: Path) -> None:
    greedy, naive = exports.get(toy()), exports.get(toy(ExportOptions(memory_planning="naive")))
    plans = [read(each.report)["methods"]["forward"]["memory"] for each in (greedy, naive)]
    assert plans[0]["arena_bytes"] < plans[1]["arena_bytes"]
    assert plans[0]["peak_live_bytes"] == plans[1]["peak_live_bytes"]
    # AND either export says what the other planner takes, or at least
    (not_shared,) = plans[1]["arena_bytes"]
    assert [plan["unshared_bytes"] for plan in plans] == [not_shared, not_shared]
    assert read(naive.manifest)["options"]["memory_planning"] == "naive"
    run_and_compare(naive, tmp_path)


def test_one_delegate_call_per_operator(exports: Exports, tmp_path: Path) -> None:
    files = exports.get(toy(ExportOptions(per_op_mode=True, operators=("linear", "convolution"))))
    summary = read(files.report)["methods"]["forward"]["summary"]
    # Three convolutions, each with its ReLU, and the linear layer; pooling and mean are left out.
    assert (summary["delegate_calls"], summary["undelegated_operators"]) == (4, 2)
    run_and_compare(files, tmp_path)


def test_config_precisions_choose_what_is_delegated(exports: Exports) -> None:
    # GIVEN a quantised model, of which only float operators may be delegated
    options = ExportOptions(config_precisions=("fp32",))
    # AND its outputs are no better for it, which is no matter here
    request = ExportRequest("toy_cnn", "int8", options=options, allow_inaccurate=True)
    files = exports.get(request)
    # THEN the linear layer is in the delegate, in float, and what quantises it stays outside
    method = read(files.report)["methods"]["forward"]
    nodes = [node for each in method["delegates"] for node in each["nodes"]]
    (linear,) = [node for node in nodes if node["kind"] == "FullyConnected"]
    assert linear["types"] == ["fp32", "fp32", "fp32"]
    outside = {each["operator"] for each in method["operators"] if each["delegate"] is None}
    assert any("quantize_per_tensor" in name for name in outside)


def test_a_bundle_has_the_test_case_inside(exports: Exports) -> None:
    files = exports.get(toy(ExportOptions(bundle=True)))
    content = files.bundle.read_bytes()
    assert content[4:8] == b"BP08"
    assert (files.data / "input_0.bin").read_bytes() in content
    assert (files.data / "reference_0.bin").read_bytes() in content
    assert read(files.manifest)["bundle"]["size_bytes"] == len(content)
    # AND ExecuTorch's own runtime has found the program's outputs equal to the expected ones
    found = read(files.manifest)["methods"]["forward"]["check"]["bundle"]
    assert (found["passed"], found["problem"]) == (True, None)
    assert found["absolute_tolerance"] < 1e-4


def test_a_bundle_with_other_outputs_is_found_out(exports: Exports, tmp_path: Path) -> None:
    # GIVEN a bundle whose expected outputs are not the program's
    files = exports.get(toy(ExportOptions(bundle=True)))
    expected = (files.data / "reference_0.bin").read_bytes()
    other = tmp_path / "other.bpte"
    other.write_bytes(files.bundle.read_bytes().replace(expected, bytes(len(expected))))
    # THEN ExecuTorch says so
    assert check_bundle(other, {"forward": 1e-4})["forward"].passed is False


def test_the_portable_backend_delegates_nothing(exports: Exports, tmp_path: Path) -> None:
    files = exports.get(ExportRequest("toy_cnn", "fp32", backend="portable"))
    method = read(files.report)["methods"]["forward"]
    assert method["summary"]["delegate_calls"] == 0
    assert {each["reason"] for each in method["operators"]} == {
        "no partitioner: the backend is portable"
    }
    run_and_compare(files, tmp_path)


def test_the_parts_of_a_program_add_up_to_the_file(exports: Exports) -> None:
    files = exports.get(toy())
    size = read(files.report)["size"]
    parts = [size[f"{part}_bytes"] for part in ("program", "delegate", "constant", "padding")]
    assert sum(parts) == size["total_bytes"] == files.pte.stat().st_size
    assert size["constant_bytes"] >= 3978 * 4
    assert min(parts) >= 0


def test_the_report_tells_module_line_reason_macs_and_bytes(exports: Exports) -> None:
    method = read(exports.get(toy()).report)["methods"]["forward"]
    (outside,) = [each for each in method["operators"] if each["delegate"] is None]
    assert outside["reason"] == "mean.dim only supports keepdim=True"
    assert outside["origin"]["source"]["code"] == "scores: torch.Tensor = self.head(x.mean((2, 3)))"
    stem = next(each for each in method["operators"] if each["origin"]["module_path"] == "stem")
    # 32 x 16 x 16 results of 3 x 3 x 3 products each; image, weights and bias in, results out.
    assert stem["macs"] == 32 * 16 * 16 * 27
    assert stem["input_bytes"] == 4 * (3 * 32 * 32 + 32 * 27 + 32)
    assert stem["output_bytes"] == 4 * 32 * 16 * 16
    assert method["summary"]["macs"] == 221_184 + 73_728 + 524_288 + 640


def slices_of(stage: dict[str, Any], slices: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps that begin and end within the stage."""
    end = stage["ts"] + stage["dur"]
    return [
        each
        for each in slices
        if each["args"] and stage["ts"] <= each["ts"] <= each["ts"] + each["dur"] <= end
    ]


def test_the_command_shows_what_it_found(
    exports: Exports, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["export", "toy_cnn", "--dtype", "fp32", "--outdir", str(tmp_path)]
    assert main([*words, "--explain", "--bundle", "--graph", "--trace", "--full"]) == 0
    shown = capsys.readouterr().out
    for text in (
        "delegate calls",
        "mean.dim",
        "not delegated in forward",
        "SNR against eager fp32",
        "verified by ExecuTorch to",
        "toy_cnn_xnnpack_fp32.bpte",
    ):
        assert text in shown
    # AND operators by kind add up (R061)
    (report,) = tmp_path.glob("*.delegation.json")
    found = DelegationReport.model_validate_json(report.read_text())
    *kinds, total = kinds_table(found).records()
    assert {(each["operator"], each["inside"], each["outside"]) for each in kinds} >= {
        ("convolution.default", 3, 0),
        ("mean.dim", 0, 1),
    }, kinds
    for column in ("inside", "outside", "total"):
        assert total[column] == sum(int(each[column] or 0) for each in kinds)
    # AND the traces: every stage with the steps in it, and as many live bytes at the peak as the
    # report says
    traces = {path.name.split(".")[2]: read(path) for path in tmp_path.glob("*.trace.json")}
    slices = [each for each in traces["stages"]["traceEvents"] if each["ph"] == "X"]
    stages = {each["name"]: each for each in slices if not each["args"]}
    assert {"torch.export", "lower", "bundle"} <= stages.keys()
    inside = {each["name"]: each["args"]["file"] for each in slices_of(stages["lower"], slices)}
    assert {"to_edge_transform_and_lower", "preprocess"} <= inside.keys()
    assert any("/executorch/backends/xnnpack/_passes/" in file for file in inside.values())
    # AND the flame graph names the same
    (page,) = tmp_path.glob("*.stages.html")
    assert "preprocess" in page.read_text(encoding="utf-8")
    (program,) = tmp_path.glob("*.pte")
    # AND the graph shows what is outside the delegate, and what is inside
    (graph,) = tmp_path.glob("*.graph.txt")
    outside, backend, delegated = graph.read_text(encoding="utf-8").partition("XnnpackBackend")
    assert outside.startswith("forward: graph():")
    assert backend
    assert "aten.convolution" not in outside
    assert "aten.convolution" in delegated
    # AND all of this changes nothing in the program
    assert program.read_bytes() == exports.get(toy()).pte.read_bytes()
    levels = [each["args"] for each in traces["memory"]["traceEvents"] if each["ph"] == "C"]
    memory = read(report)["methods"]["forward"]["memory"]
    assert max(sum(each.values()) for each in levels) == memory["peak_live_bytes"]
