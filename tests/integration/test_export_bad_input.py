"""What a user can get wrong in an export: one message, the exit code, and no file left."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from etprof.cli import main, run_command_line
from etprof.export.upstream import EXECUTORCH_VERSION
from etprof.run.program import load_export_manifest

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import GraphModule

MODELS = """
    import torch
    from torch import nn

    class Base:
        network = nn.Linear(4, 4)

        def get_eager_model(self):
            return self.network

        def get_example_inputs(self):
            return (torch.linspace(1, 2, 16).view(4, 4),)

    class Function(nn.Module):
        def __init__(self, function):
            super().__init__()
            self.function = function

        def forward(self, x):
            return self.function(x)

    def branch(x):
        if x.sum() > 0:
            return x
        return -x

    class DataDependent(Base):
        network = Function(branch)

    class NoKernel(Base):
        network = Function(lambda x: torch.sort(x)[0])

    class Overflow(Base):
        network = Function(lambda x: (x * 1e4).square())

    class NotFinite(Base):
        network = Function(lambda x: (x - x) / (x - x))

    class CannotBeMade(Base):
        def get_eager_model(self):
            raise RuntimeError("no network here")

    class Misfit(Base):
        network = nn.Linear(8, 8)

    class BadCalibration(Base):
        def get_calibration_data(self):
            return [(torch.randn(4, 4),), (torch.randn(4, 5),)]

    class FewCalibration(Base):
        def get_calibration_data(self):
            return [()]

    class NoneOutput(Base):
        network = Function(lambda x: (x + 1, None))

    class NestedNone(Base):
        network = Function(lambda x: {"a": x + 1, "b": [(x * 2, None)]})

    class NumberOutput(Base):
        network = Function(lambda x: (x + 1, 3))

    class BareTensor(Base):
        def get_example_inputs(self):
            return torch.linspace(1, 2, 16).view(1, 4, 4)

    class BareMethod(Base):
        def get_methods(self):
            from etprof.model_registry.eager_model import ExportMethod

            return {"forward": ExportMethod(self.network, torch.ones(1, 4, 4))}

    class BareSample(Base):
        def get_calibration_data(self):
            return [torch.linspace(1, 2, 16).view(4, 4)]

    class Degenerate(Base):
        network = Function(lambda x: x * 1e-41)

    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.pooler = nn.Linear(32, 32)

        def forward(self, x):
            return (x.relu(), self.pooler(x))[0]

    class UnusedLinear(Base):
        network = Unused()

        def get_example_inputs(self):
            return (torch.linspace(1, 2, 32).view(1, 32),)

    class NothingToQuantise(Base):
        network = nn.ReLU()
"""

NEXT = "; give {file}:Base or {file}:DataDependent or {file}:NoKernel"
CASES = {
    "number-output": (
        ["NumberOutput"],
        6,
        "output 1 of the eager model has type int; return only tensors",
    ),
    "bare-tensor": (
        ["BareTensor"],
        6,
        "get_example_inputs gives a Tensor, not a tuple of inputs; for one input `return (x,)`",
    ),
    "bare-tensor-of-a-method": (
        ["BareMethod"],
        6,
        "method 'forward' gives a Tensor, not a tuple of inputs; for one input `return (x,)`",
    ),
    "bare-sample": (
        ["BareSample", "--quantize", "int8"],
        6,
        (
            "calibration sample 0 of method 'forward' gives a Tensor, not a tuple of inputs; for one "
            "input `return (x,)`"
        ),
    ),
    "traced-branch": (
        ["DataDependent"],
        6,
        (
            "torch.export cannot trace method 'forward': GuardOnDataDependentSymNode: Could not guard "
            "on data-dependent expression Eq(u0, 1) (unhinted: Eq(u0, 1)).  (Size-like symbols: none) "
            "({file}:23: if x.sum() > 0:); a program cannot branch on values: use torch.where, or "
            "torch.cond for whole branches"
        ),
    ),
    "no-kernel": (
        ["NoKernel"],
        6,
        (
            f"ExecuTorch {EXECUTORCH_VERSION} has no kernel for sort.default ({{file}}:31: network = "
            "Function(lambda x: torch.sort(x)[0])) in method 'forward'; write that part of the model "
            "otherwise"
        ),
    ),
    "constructor": (
        ["CannotBeMade"],
        6,
        "model '{file}:CannotBeMade' cannot be created: RuntimeError: no network here",
    ),
    "inputs-do-not-fit": (
        ["Misfit"],
        6,
        (
            "the model fails on its own example inputs: RuntimeError: mat1 and mat2 shapes cannot be "
            "multiplied (4x4 and 8x8)"
        ),
    ),
    "calibration-shape": (
        ["BadCalibration", "--quantize", "int8"],
        6,
        (
            "calibration sample 1 of method 'forward': input 0 is float32[4, 5], the example is "
            "float32[4, 4]"
        ),
    ),
    "calibration-count": (
        ["FewCalibration", "--quantize", "int8"],
        6,
        "calibration sample 0 of method 'forward' has 0 inputs, the example has 1",
    ),
    "nothing-to-quantise": (
        ["NothingToQuantise", "--quantize", "8da4w"],
        6,
        (
            "method 'forward' has nothing that 4-bit quantisation (linear layers with rows of a "
            "multiple of 32) can quantise; export it as fp16"
        ),
    ),
    "nothing-quantised-in-use": (
        ["UnusedLinear", "--quantize", "8da4w"],
        6,
        (
            "method 'forward' uses no layer that was quantised: its outputs depend on none; export it "
            "as fp16"
        ),
    ),
    "no-class": (["Absent"], 2, "{file} has no class 'Absent'" + NEXT),
    "no-interface": (
        ["Function"],
        6,
        (
            "{file}:Function needs function: write a function that returns one, such as `def make(): "
            "return Function(function=…)`, and name it: {file}:make"
        ),
    ),
    "rule": (
        ["Base", "--operators", "linaer"],
        2,
        "--operators 'linaer': XNNPACK's partitioner has no such rule; did you mean 'linear'?",
    ),
    "dtype-contradicts": (
        ["Base", "--quantize", "int8"],
        2,
        "--quantize int8 starts from fp32; drop --dtype fp16",
    ),
    "no-checkpoint": (
        ["Base", "--weights", "absent.pt"],
        4,
        "cannot read checkpoint absent.pt: No such file or directory",
    ),
}


@pytest.mark.parametrize(("words", "code", "message"), CASES.values(), ids=CASES)
def test_a_mistake_is_one_message(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    code: int,
    message: str,
) -> None:
    file = tmp_path / "models.py"
    file.write_text(textwrap.dedent(MODELS), encoding="utf-8")
    name, *flags = words
    if "--dtype" not in flags and "--quantize" not in flags:
        flags += ["--dtype", "fp32"]
    if message.endswith("drop --dtype fp16"):
        flags += ["--dtype", "fp16"]
    out = tmp_path / "out"
    assert main(["export", f"{file}:{name}", "--outdir", str(out), "--quiet", *flags]) == code
    captured = capsys.readouterr()
    assert captured.err == f"etprof: {message.format(file=file)}\n"
    assert captured.out == ""
    assert not out.exists() or list(out.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "answer", "reason"),
    [
        ("NoneOutput", "passed", ""),
        ("NestedNone", "passed", ""),
        ("Degenerate", "unknown", "output 0 is not scored: of the reference, it is 2e-41 at most"),
        ("NotFinite", "unknown", "16 of its 16 values are not finite"),
    ],
)
def test_outputs_without_a_score_are_told(
    tmp_path: Path, name: str, answer: str, reason: str
) -> None:
    """X3: None among the outputs and a degenerate reference; neither is a fault of the program."""
    file = tmp_path / "models.py"
    file.write_text(textwrap.dedent(MODELS), encoding="utf-8")
    words = ["--outdir", str(tmp_path), "--quiet", "--dtype", "fp32"]
    assert main(["export", f"{file}:{name}", *words]) == 0
    manifest = load_export_manifest(tmp_path / f"{name}_xnnpack_fp32.pte")
    assert manifest is not None
    check = manifest.methods["forward"].check
    assert check is not None
    assert {each.answer for each in check.verdicts} == {answer}
    assert all(reason in each.reason for each in check.verdicts)


def test_what_overflows_is_wrong_and_stays_for_whoever_looks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """X1: a failed verdict is exit code 6, unless it is allowed; the program carries it."""
    file = tmp_path / "models.py"
    file.write_text(textwrap.dedent(MODELS), encoding="utf-8")
    words = ["export", f"{file}:Overflow", "--outdir", str(tmp_path), "--quiet"]
    assert main(words) == 6
    (line,) = capsys.readouterr().err.splitlines()
    assert "output 0 has 16 values that are not finite on one side only" in line
    manifest = load_export_manifest(tmp_path / "Overflow_xnnpack_fp16.pte")
    assert manifest is not None
    assert len(manifest.failed) == 1
    assert main([*words, "--allow-inaccurate"]) == 0


def test_a_model_that_does_not_exist_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    for name, message in {
        "toy_cn": "no model is called 'toy_cn'; did you mean 'toy_cnn'? known: ",
        f"{tmp_path}/absent.py:Net": f"model file {tmp_path}/absent.py does not exist",
    }.items():
        assert main(["export", name, "--outdir", str(out), "--quiet"]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"etprof: {message}")
        assert not out.exists()


def test_no_model_and_two_models_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    hint = "etprof: give one model, as in `etprof export toy_cnn`; `etprof models` lists them\n"
    for words in ([], ["toy_cnn", "--model", "vit_tiny"]):
        assert main(["export", *words]) == 2
        assert capsys.readouterr().err == hint


CHECKPOINTS = {
    "names": (
        {"weight": torch.zeros(4, 4), "biass": torch.zeros(4)},
        "checkpoint {file} does not fit Linear: missing: bias; unexpected: biass",
    ),
    "shapes": (
        {"weight": torch.zeros(4, 8), "bias": torch.zeros(4)},
        (
            "checkpoint {file} does not fit Linear: "
            "of another shape: weight ([4, 8] instead of [4, 4])"
        ),
    ),
    "no-dict": (torch.zeros(3), "checkpoint {file} holds no state dict but a Tensor"),
    "no-checkpoint": (b"not a checkpoint", "cannot read checkpoint {file}: "),
}


@pytest.mark.parametrize(("content", "message"), CHECKPOINTS.values(), ids=CHECKPOINTS)
def test_a_checkpoint_that_does_not_fit_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: object, message: str
) -> None:
    file, weights = tmp_path / "models.py", tmp_path / "weights.pt"
    file.write_text(textwrap.dedent(MODELS), encoding="utf-8")
    if isinstance(content, bytes):
        weights.write_bytes(content)
    else:
        torch.save(content, weights)
    out = tmp_path / "out"
    words = ["--weights", str(weights), "--outdir", str(out), "--quiet"]
    assert main(["export", f"{file}:Base", *words]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"etprof: {message.format(file=weights)}")
    assert not out.exists()


def test_a_checkpoints_weights_are_the_programs(tmp_path: Path) -> None:
    # GIVEN a training checkpoint whose weights make the layer the identity
    file, weights, out = tmp_path / "models.py", tmp_path / "weights.pt", tmp_path / "out"
    file.write_text(textwrap.dedent(MODELS), encoding="utf-8")
    state = nn.Linear(4, 4).state_dict() | {"weight": torch.eye(4), "bias": torch.zeros(4)}
    torch.save({"epoch": 3, "state_dict": state}, weights)
    words = ["--weights", str(weights), "--dtype", "fp32", "--outdir", str(out), "--quiet"]
    # WHEN
    assert run_command_line(["export", f"{file}:Base", *words]) == 0
    # THEN the outputs are the inputs
    data = out / "Base_xnnpack_fp32.pte.data"
    assert (data / "reference_0.bin").read_bytes() == (data / "input_0.bin").read_bytes()


@pytest.mark.parametrize(
    ("stage", "flags"),
    [
        ("to_edge_transform_and_lower", ["--dtype", "fp32"]),
        ("prepare_pt2e", ["--quantize", "int8"]),
    ],
)
def test_a_failing_stage_names_operator_and_source_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    stage: str,
    flags: list[str],
) -> None:
    """Issue 16.5: what a pass raises while it looks at a node is told of that node."""

    def fail(
        programs: Mapping[str, ExportedProgram] | GraphModule, *_: object, **__: object
    ) -> None:
        graph = (programs["forward"] if isinstance(programs, Mapping) else programs).graph
        for node in graph.nodes:
            if "sort" in str(node.target):
                raise IndexError

    monkeypatch.setattr(f"etprof.export.upstream.{stage}", fail)
    file = tmp_path / "models.py"
    file.write_text(textwrap.dedent(MODELS), encoding="utf-8")
    words = [*flags, "--outdir", str(tmp_path / "out"), "--quiet"]
    assert main(["export", f"{file}:NoKernel", *words]) == 6
    (told,) = capsys.readouterr().err.splitlines()
    # Of the function that `forward` calls.
    line = "network = Function(lambda x: torch.sort(x)[0])"
    number = textwrap.dedent(MODELS).splitlines().index(f"    {line}") + 1
    assert f"at sort.default (sort) ({file}:{number}: {line}); " in told


def test_whatever_the_quantiser_raises_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """X3: its passes end in an IndexError for a language model with integer indices."""

    def fail(*_: object) -> None:
        msg = "list index out of range\nand more"
        raise IndexError(msg)

    monkeypatch.setattr("etprof.export.upstream.prepare_pt2e", fail)
    file = tmp_path / "models.py"
    file.write_text(textwrap.dedent(MODELS), encoding="utf-8")
    words = ["--quantize", "int8", "--outdir", str(tmp_path / "out"), "--quiet"]
    assert main(["export", f"{file}:Base", *words]) == 6
    assert capsys.readouterr().err == (
        "etprof: method 'forward': 8-bit quantisation (int8) fails: IndexError: list index out of "
        "range; export it as fp16, or as 8da4w\n"
    )
