"""Models as public reports have them: right ones export, wrong ones do not, and the reason is true.

`python -m tests.reports` runs all of them in every precision; here are a few of each kind.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from etprof.base.errors import ExportError
from etprof.cli import main
from etprof.export import lowering, runtime_check, upstream
from etprof.export.exporter import export_model
from etprof.export.request import ExportRequest
from tests.reports.__main__ import main as reports_main
from tests.reports.files import write_model

if TYPE_CHECKING:
    from pathlib import Path

QUICK = ("Counter", "KeyValueCache", "Assigned")


def export(
    folder: Path,
    model: str,
    arguments: str = "",
    *,
    module: str = "stateful",
    precision: str = "fp32",
    strict: bool = False,
) -> dict[str, Any]:
    """Exports a model of tests/reports; returns its manifest."""
    name = write_model(folder, module, model, arguments)
    request = ExportRequest(name, precision=precision, outdir=folder, strict=strict)
    export_model(request)
    manifest: dict[str, Any] = json.loads(request.files().manifest.read_text())
    return manifest


@pytest.mark.parametrize("model", QUICK)
def test_a_right_program_with_state_exports(tmp_path: Path, model: str) -> None:
    """S-1: the program's second inference was compared with eager's first."""
    method = export(tmp_path, model)["methods"]["forward"]
    assert method["state"]
    assert [step["step"] for step in method["steps"]] == [2, 3, 4]
    checked = [output["step"] for output in method["check"]["outputs"]]
    assert checked == [1, 2, 3, 4]
    assert {verdict["answer"] for verdict in method["check"]["verdicts"]} == {"passed"}


@pytest.mark.parametrize("model", QUICK)
def test_a_wrong_state_is_refused(tmp_path: Path, model: str) -> None:
    """S-1: a state that goes wrong at the first inference shows at the second, or later."""
    with pytest.raises(ExportError, match=r"at inference 2 of 4, output 0 has") as refused:
        export(tmp_path, model, "is_wrong=True")
    # A cache whose position stays gives what an empty one does.
    starts_anew = "every inference starts anew" in str(refused.value)
    assert starts_anew == (model == "KeyValueCache")


def test_state_that_is_no_buffer_is_named(tmp_path: Path) -> None:
    """S-1: an attribute of Python's is a constant of the program."""
    with pytest.raises(ExportError, match="calls change 'calls', which the program does not carry"):
        export(tmp_path, "Forgotten")


def test_an_initial_state_that_was_not_exported_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-1: without ExecuTorch's pass the buffer begins as zeros, or whatever is there."""

    class NoPass(upstream.InitializedMutableBufferPass):  # type: ignore[misc]
        def __init__(self, patterns: list[str]) -> None:
            super().__init__([])
            del patterns

    monkeypatch.setattr(upstream, "InitializedMutableBufferPass", NoPass)
    with pytest.raises(
        ExportError, match="lacks the initial state of buffer 'state', which starts at zero"
    ):
        export(tmp_path, "Counter")


def test_a_run_holds_each_inference_against_the_same_of_eager(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S-1, on a device: after any number of launches and warm-ups the verdict is that of the first ones."""
    monkeypatch.chdir(tmp_path)
    model = write_model(tmp_path, "stateful", "Counter")
    briefly = ["--blocks", "2", "--iterations", "2", "--min-seconds", "0.01"]
    assert main(["profile", model, "--dtype", "fp32", *briefly]) == 0
    (run,) = tmp_path.glob("out_*/runs/*")
    kept = sorted(path.name for path in run.glob("*/*_outputs/*"))
    assert kept == ["output_0.bin", *(f"output_0_step_{step}.bin" for step in (2, 3, 4))]
    assert main(["validate", str(run)]) == 0
    # AND GIVEN a third inference that should give something else, it is named
    (pte,) = tmp_path.glob("out_*/artifacts/*.pte")
    manifest = pte.with_name(f"{pte.name}.json")
    document = json.loads(manifest.read_text())
    third = document["methods"]["forward"]["steps"][1]
    for entry in (*third["references"], *third["converted"]):
        file = pte.parent / entry["path"]
        file.write_bytes((np.fromfile(file, "<f4") + 1).tobytes())
        entry["sha256"] = hashlib.sha256(file.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(document))
    other = tmp_path / "other"
    assert main(["profile", str(pte), *briefly, "--out", str(other)]) == ExportError.exit_code
    (note, *_) = json.loads((other / "manifest.json").read_text())["notes"]
    assert "at inference 3 of 4, output 0 has" in note


REFUSED = [
    ("refused.Windows", "fp32", "linear.default of module project", "Failed to define tensor"),
    (
        "refused.ConvolvedWindows", "int8", "linear.default of module windows.project",
        "Failed to define tensor",
    ),
    (
        "refused.PaddedShuffle", "int8", "constant_pad_nd.default",
        "Failed to create StaticConstantPad node",
    ),
    (
        "layouts.LinearNhwc", "int8", "linear.default of module linear",
        "Propagating input shapes failed",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("model", "precision", "operator", "reason"), REFUSED)
def test_what_xnnpack_refuses_stays_outside_and_is_named(
    tmp_path: Path, model: str, precision: str, operator: str, reason: str
) -> None:
    """S-2: the advice was to give weights with --data, or to export with this version."""
    module, _, name = model.partition(".")
    manifest = export(tmp_path, name, module=module, precision=precision)
    named = [fallback for fallback in manifest["fallbacks"] if operator in fallback["name"]]
    assert named
    assert reason in named[0]["reason"]
    assert f"{module}.py:" in named[0]["name"]


def test_strict_exports_end_where_others_fall_back(tmp_path: Path) -> None:
    """S-2: the operator is named with its module and line, and the way out is a true one."""
    with pytest.raises(ExportError, match=r"refuses .*refused\.py:\d+.*leave --strict out"):
        export(tmp_path, "Windows", module="refused", strict=True)


@pytest.mark.parametrize("model", ["ScaledSum", "ScaledBatches"])
def test_factors_of_a_product_and_a_sum_are_kept(tmp_path: Path, model: str) -> None:
    """S-2: XNNPACK got the product without them, and the outputs were wrong by half."""
    method = export(tmp_path, model, module="refused")["methods"]["forward"]
    (output,) = method["check"]["outputs"]
    assert output["snr_db"] is None or output["snr_db"] > 100


@pytest.mark.parametrize(("model", "precision"), [("Volumes", "fp16"), ("GrowingVolumes", "fp32")])
def test_convolutions_over_volumes_are_sums_over_images(
    tmp_path: Path, model: str, precision: str
) -> None:
    """S-2: ExecuTorch has no kernel for them; the advice was to check the inputs."""
    method = export(tmp_path, model, module="refused", precision=precision)["methods"]["forward"]
    assert {verdict["answer"] for verdict in method["check"]["verdicts"]} == {"passed"}


def test_a_kernel_that_refuses_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S-2: "check that the inputs are what the model expects", and they were."""
    monkeypatch.setattr(lowering, "flatten_volumes", lambda program: program)
    expected = (
        r"refuses convolution\.default of module layers\.0 \(.*refused\.py:\d+.* has no kernel"
    )
    with pytest.raises(ExportError, match=expected):
        export(tmp_path, "Volumes", module="refused")


def test_a_kernel_that_is_missing_is_named_with_its_line(tmp_path: Path) -> None:
    """It said "aten::bucketize.Tensor_out", and neither where that is nor what to do."""
    expected = (
        r"has no kernel for bucketize\.Tensor \(.*layouts\.py:\d+: .*\) in method 'forward'; write"
    )
    with pytest.raises(ExportError, match=expected):
        export(tmp_path, "Bucketed", module="layouts")


@pytest.mark.parametrize("model", ["Spectrum", "Scattered"])
def test_what_pytorch_lacks_in_half_precision_is_told_with_its_way_out(
    tmp_path: Path, model: str
) -> None:
    """The advice was to write that part otherwise, where fp32 or a type is all that it takes."""
    expected = (
        r"kernels\.py:\d+: .*\); eager PyTorch runs it in float32: export it as fp32, or write that "
        r"part for half precision; .* as in torch\.zeros\(2, dtype=x\.dtype\)$"
    )
    with pytest.raises(ExportError, match=expected):
        export(tmp_path, model, module="kernels", precision="fp16")
    arguments = "has_type=True" if model == "Scattered" else ""
    precision = "fp16" if arguments else "fp32"
    again = export(tmp_path, model, arguments, module="kernels", precision=precision)
    assert again["methods"]["forward"]["check"]["passed"]


def test_eager_computes_in_float32_what_it_lacks_in_half_precision(tmp_path: Path) -> None:
    """ExecuTorch has a kernel for halves, PyTorch none: the export ended in a traceback."""
    check = export(tmp_path, "SmoothResize", module="kernels", precision="fp16")["methods"][
        "forward"
    ]["check"]
    assert check["passed"]
    assert check["outputs"][0]["snr_db_converted"] > 50


@pytest.mark.parametrize("model", ["Bucketed", "CroppingPad"])
def test_what_has_no_kernel_is_right_once_it_is_written_otherwise(
    tmp_path: Path, model: str
) -> None:
    """The way out of what is refused: comparisons in place of bucketize, a slice before the padding."""
    module = "layouts" if model == "Bucketed" else "public"
    with pytest.raises(
        ExportError, match=rf"{module}\.py:\d+.*write that part of the model otherwise"
    ):
        export(tmp_path, model, module=module)
    manifest = export(tmp_path, model, "is_rewritten=True", module=module)
    assert manifest["methods"]["forward"]["check"]["passed"]


def test_half_precision_is_held_to_what_it_can_do(tmp_path: Path) -> None:
    """L3-7: eager in half precision has some 36 dB of this network, and 40 were asked of a program."""
    method = export(tmp_path, "SettledNet", module="floors", precision="fp16")["methods"]["forward"]
    (output,) = method["check"]["outputs"]
    assert output["snr_db_precision"] < 40
    # Where the CPU sums halves in halves, the program is 3.4 dB further away.
    assert output["snr_db"] > output["snr_db_precision"] - 4.8
    assert {verdict["answer"] for verdict in method["check"]["verdicts"]} == {"passed"}


@pytest.mark.parametrize(
    ("module", "model"),
    [
        ("public", "OneChannel"), ("public", "CircularVolume"), ("public", "ShiftedCache"),
        ("layouts", "RelativeAttention"), ("layouts", "NhwcParameter"),
        ("kernels", "NamedOutputs"), ("kernels", "CountedAverage"), ("kernels", "BestThree"),
    ],
)  # fmt: skip
def test_further_reports_export(tmp_path: Path, module: str, model: str) -> None:
    """Item 7 of the corpus: `python -m tests.reports` has all of them."""
    method = export(tmp_path, model, module=module)["methods"]["forward"]
    assert {verdict["answer"] for verdict in method["check"]["verdicts"]} == {"passed"}


def test_the_command_prints_a_row_for_each_precision(capsys: pytest.CaptureFixture[str]) -> None:
    assert reports_main(["EmptyPad"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[1] for line in table if "EmptyPad" in line] == [
        "fp32",
        "fp16",
        "int8",
    ]
    assert table[-1] == "0 otherwise than they should be"


@pytest.mark.parametrize("model", ["Counter", "Unchanged", "WholeCounter", "KeyValueCache", "Seen"])
def test_quantisation_leaves_state_as_it_is(tmp_path: Path, model: str) -> None:
    """S-1: torchao's conversion folded what a layer reads of the state into a constant.

    And it computed `counter.add_(1)`, which depends on constants alone: the program began with the
    second inference, and a right cache was "not good enough" with 4 dB.
    """
    method = export(tmp_path, model, precision="int8")["methods"]["forward"]
    assert {verdict["answer"] for verdict in method["check"]["verdicts"]} == {"passed"}


def test_a_state_that_tracing_got_wrong_is_refused_in_int8(tmp_path: Path) -> None:
    """A total that grows a tenth too fast is 22 dB from the right one: as near as 8 bits may be."""
    expected = r"lowering is not faithful: at inference 1 of 4, output 0 has 27\.6 dB"
    with pytest.raises(ExportError, match=expected):
        export(tmp_path, "Returned", "is_wrong=True", precision="int8")
    check = export(tmp_path, "Returned", precision="int8")["methods"]["forward"]["check"]
    assert check["passed"]


VARYING = [
    ("Positions", "int8", "on inputs of 1x33, output 0 has"),
    ("MaskedMean", "fp16", "on a padded mask as input 1, output 0 has"),
    ("WideRange", "fp32", "on calibration sample 1, output 0 has"),
]


@pytest.mark.parametrize(("model", "precision", "reason"), VARYING)
def test_what_is_right_on_the_example_alone_is_refused(
    tmp_path: Path, model: str, precision: str, reason: str
) -> None:
    """Item 2: one input of random numbers shows no wrong bound, mask or range."""
    with pytest.raises(ExportError, match=f"lowering is not faithful: {reason}"):
        export(tmp_path, model, "is_wrong=True", module="varying", precision=precision)


@pytest.mark.parametrize(("model", "precision", "reason"), VARYING)
def test_what_is_right_on_all_inputs_passes(
    tmp_path: Path, model: str, precision: str, reason: str
) -> None:
    method = export(tmp_path, model, module="varying", precision=precision)["methods"]["forward"]
    further = method["check"]["further_inputs"]
    assert {row["answer"] for row in further} == {"passed"}
    assert any(f"on {row['inputs']}, " in reason for row in further)
    has_samples = model == "WideRange"
    assert all((row["snr_db"] is not None) == has_samples for row in further)
    assert method["check"]["passed"]


def test_inputs_that_the_model_itself_refuses_judge_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> list[object]:
        raise ValueError("too long\nat line 3")

    monkeypatch.setattr(runtime_check, "run_eager", refuse)
    method = export(tmp_path, "Positions", module="varying")["methods"]["forward"]
    further = method["check"]["further_inputs"]
    assert {row["answer"] for row in further} == {"unknown"}
    assert {row["reason"] for row in further} == {
        "the eager model fails on them: ValueError: too long"
    }
    assert method["check"]["passed"]


def test_a_program_that_fails_on_further_inputs_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object) -> list[object]:
        raise ExportError("it crashes")

    monkeypatch.setattr(runtime_check, "execute", crash)
    with pytest.raises(ExportError, match=r"not faithful: on inputs of 1x\d+, it crashes"):
        export(tmp_path, "Positions", module="varying")
