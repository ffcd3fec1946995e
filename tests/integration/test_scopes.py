"""Parts of a model in another precision, in programs that are exported and executed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from etprof.base.errors import UsageError
from etprof.cli import main
from etprof.export.exporter import export_model
from etprof.export.request import ExportOptions, ExportRequest
from etprof.model_registry.eager_model import EagerModelBase
from etprof.run.delegation import DelegationReport
from etprof.run.program import load_export_manifest

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.export.request import ExportedFiles
    from tests.integration.conftest import Exports


class Towers(EagerModelBase):
    """Two blocks of two layers each, and a head."""

    def get_eager_model(self) -> nn.Module:
        def block() -> nn.Module:
            return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64))

        return nn.Sequential(block(), block(), nn.Linear(64, 8))

    def get_example_inputs(self) -> tuple[torch.Tensor]:
        return (torch.randn(4, 64),)


def towers(precision: str, *scopes: str) -> ExportRequest:
    model = f"{__file__}:Towers"
    return ExportRequest(model, precision, options=ExportOptions(scopes=scopes))


def products(files: ExportedFiles) -> dict[str, tuple[str, ...]]:
    """Returns by module what the delegate's products multiply: input and weight."""
    report = DelegationReport.model_validate_json(files.report.read_bytes())
    method = report.methods["forward"]
    modules = {each.name: each.origin.module_path for each in method.operators}
    return {
        modules[node.operators[0]]: node.types[:2]
        for delegate in method.delegates
        for node in delegate.nodes
        if node.kind == "FullyConnected"
    }


def caught(files: ExportedFiles) -> dict[str, tuple[int, int | None]]:
    manifest = load_export_manifest(files.pte)
    assert manifest is not None
    return {each.scope: (each.operators, each.quantized) for each in manifest.scopes}


INTEGERS, FLOATS, DYNAMIC = ("qint8", "qcint8"), ("fp32", "fp32"), ("qdint8", "qcint8")


def test_modules_of_an_int8_program_are_left_out_or_scaled_otherwise(exports: Exports) -> None:
    plain = products(exports.get(towers("int8")))
    assert plain == dict.fromkeys(("0.0", "0.2", "1.0", "1.2", "2"), INTEGERS)
    mixed = exports.get(towers("int8", "0=fp32", "2=int8_dynamic"))
    assert products(mixed) == {
        **dict.fromkeys(("0.0", "0.2"), FLOATS),
        **dict.fromkeys(("1.0", "1.2"), INTEGERS),
        "2": DYNAMIC,
    }
    assert caught(mixed) == {"0=fp32": (3, 0), "2=int8_dynamic": (1, 1)}


def test_one_module_alone_is_quantised(exports: Exports) -> None:
    made = exports.get(towers("int8", "*=fp32", "1.0=int8"))
    assert products(made) == {
        **dict.fromkeys(("0.0", "0.2", "1.2", "2"), FLOATS),
        "1.0": INTEGERS,
    }


def test_blocks_of_4_bits_have_sizes_of_their_own(exports: Exports) -> None:
    made = exports.get(towers("8da4w_b32", "0.*=8da4w_b64", "2=fp32"))
    manifest = load_export_manifest(made.pte)
    assert manifest is not None
    assert manifest.quantization is not None
    assert manifest.quantization["methods"]["forward"]["float_layers"] == ["2"]
    assert caught(made) == {"0.*=8da4w_b64": (3, 2), "2=fp32": (1, 0)}
    assert products(made)["2"] == FLOATS
    bytes_of = {each: len(exports.get(towers(each)).pte.read_bytes()) for each in ("8da4w_b32",)}
    # Half as many scales for two layers of 64 x 64, but 8 x 64 weights in float32.
    assert made.pte.stat().st_size != bytes_of["8da4w_b32"]


def test_types_of_operators_are_left_out(exports: Exports) -> None:
    made = exports.get(
        ExportRequest("toy_cnn", "int8", options=ExportOptions(scopes=("type:conv2d=fp32",)))
    )
    assert caught(made) == {"type:conv2d=fp32": (3, 0)}
    report = DelegationReport.model_validate_json(made.report.read_bytes())
    nodes = [node for each in report.methods["forward"].delegates for node in each.nodes]
    found = {
        node.kind: node.types[:2] for node in nodes if node.kind in {"Conv2d", "FullyConnected"}
    }
    assert found == {"Conv2d": FLOATS, "FullyConnected": INTEGERS}


def test_modules_in_modules_are_cast_each_once(exports: Exports) -> None:
    """Of a part in a part the innermost decides, and what is between them is as the outer one."""
    made = exports.get(towers("fp16", "0=fp32", "0.2=fp16", "2=fp32"))
    assert products(made) == {
        **dict.fromkeys(("0.0", "2"), FLOATS),
        **dict.fromkeys(("0.2", "1.0", "1.2"), ("fp16", "fp16")),
    }


def test_names_are_refused_before_anything_runs(tmp_path: Path) -> None:
    stages: list[str] = []

    class Listener:
        def stage_started(self, name: str) -> None:
            stages.append(name)

        def stage_ended(self, stage: object) -> None:
            del stage

        def stage_failed(self) -> None:
            stages.append("failed")

    for scope, told in (("stm=fp32", "did you mean 'stem'"), ("type:linaer=fp32", "'linear'")):
        options = ExportOptions(scopes=(scope,))
        request = ExportRequest("toy_cnn", "int8", outdir=tmp_path, options=options)
        with pytest.raises(UsageError, match=told):
            export_model(request, Listener())
    assert set(stages) == {"import ExecuTorch", "load model"}
    assert not list(tmp_path.iterdir())


def test_what_caught_nothing_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["export", "toy_cnn", "--quantize", "int8", "--outdir", str(tmp_path), "--full"]
    assert main([*words, "--scope", "type:cat=int8_dynamic,stem=fp32"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "type:cat=int8_dynamic caught nothing that the model computes" in told
    assert "stem=fp32 caught" not in told
    assert "parts in another precision" in told


@pytest.mark.slow
def test_a_config_s_parts_reach_the_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two programs of one model and precision in turns, each with its own file."""
    monkeypatch.chdir(tmp_path)
    config = {
        "model": "toy_cnn:int8",
        "output_root": str(tmp_path / "run"),
        "programs": {"mixed": {"model": "toy_cnn:int8", "scopes": ["stem=fp32"]}},
        "experiments": [
            {"name": "plain", "runs": 3},
            {"name": "mixed", "runs": 3, "program": "mixed"},
        ],
        "measurement": {"blocks": 1, "min_seconds": 0.01},
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert main(["run", str(tmp_path / "config.json")]) == 0
    programs = {each.name.partition("_mixed-")[0] for each in tmp_path.rglob("*.pte")}
    assert programs == {"toy_cnn_xnnpack_int8", "toy_cnn_xnnpack_int8.pte"}
    assert "toy_cnn_xnnpack_int8_mixed-" in (tmp_path / "run" / "manifest.json").read_text()
