"""Which earlier export `etprof profile MODEL` takes, and what it says of it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest

import etprof
from etprof.base.errors import ExportError
from etprof.cli import main
from etprof.export.exporter import find_export
from etprof.export.request import ExportOptions, ExportRequest
from etprof.model_registry import registry

if TYPE_CHECKING:
    from pathlib import Path


TOOLS = ("executorch", "torch", "torchao")
VERSIONS = {"etprof": etprof.__version__, **{tool: version(tool) for tool in TOOLS}}
MODEL = "class Net:\n    def get_eager_model(self): ...\n    def get_example_inputs(self): ...\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two models of one name, and an export that only says that it would begin."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "net.py").write_text(MODEL, encoding="utf-8")

    def refuse(request: ExportRequest, _: object) -> None:
        msg = f"exporting {request.model}"
        raise ExportError(msg)

    monkeypatch.setattr("etprof.export.exporter.export_model", refuse)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def leave_export(folder: Path, **changes: Any) -> None:  # noqa: ANN401 - any JSON
    """Leaves what an export of one/net.py leaves; the program itself is none."""
    program = folder / "out_Net" / "artifacts" / "Net_xnnpack_fp16.pte"
    program.parent.mkdir(parents=True)
    program.write_bytes(b"no program")
    manifest = {
        "model": "Net",
        "backend": "xnnpack",
        "precision": "fp16",
        "source": {
            "origin": "one/net.py",
            "sha256": registry.find_model("one/net.py:Net").hash_files(),
        },
        "versions": VERSIONS,
        "options": asdict(ExportOptions()),
    }
    text = json.dumps({**manifest, **changes})
    program.with_name(f"{program.name}.json").write_text(text, encoding="utf-8")


def test_the_program_of_another_model_of_the_same_name_is_not_taken(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN another model beside it, so that both have the hash of the same files
    (folder / "one" / "other.py").write_text(MODEL, encoding="utf-8")
    leave_export(folder)
    # AND code older than the program
    os.utime(folder / "two" / "net.py", (0, 0))
    for model in ("two/net.py:Net", "one/other.py:Net"):
        assert main(["profile", model]) != 0
        assert f"exporting {model}" in capsys.readouterr().err


@pytest.mark.parametrize(
    "changes",
    [
        {"source": {}},
        *({"versions": {**VERSIONS, tool: "0.0.1"}} for tool in VERSIONS),
        {"pte": {"path": "Net_xnnpack_fp16.pte", "sha256": "0" * 64}},
    ],
)
def test_a_program_of_other_code_or_tools_is_not_taken(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]
) -> None:
    """A-D18: after an upgrade of torch `profile` measured the old program, `bench` a new one."""
    leave_export(folder, **changes)
    assert main(["profile", "one/net.py:Net"]) != 0
    assert "exporting one/net.py:Net" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (ExportOptions(), "exported earlier;"),
        (ExportOptions(trace=True, graph=True, bundle=True), "exported earlier;"),
        (
            ExportOptions(channels_last=True, operators=("linear",), memory_planning="naive"),
            "exported earlier with operators, memory-planning, channels-last;",
        ),
    ],
)
def test_a_program_that_is_taken_says_how_it_was_exported(
    folder: Path, capsys: pytest.CaptureFixture[str], options: ExportOptions, told: str
) -> None:
    leave_export(folder, options=json.loads(json.dumps(asdict(options))))
    assert main(["profile", "one/net.py:Net", "--blocks", "1"]) != 0
    assert f"{told} --export makes it anew" in " ".join(capsys.readouterr().err.split())


def test_a_matrix_takes_a_program_with_its_own_options_alone(folder: Path) -> None:
    """A-D18: `profile` takes what was exported with others and says so; a matrix has no word."""
    leave_export(folder, options=json.loads(json.dumps(asdict(ExportOptions(channels_last=True)))))
    request = ExportRequest("one/net.py:Net")
    assert find_export(request) is None
    assert find_export(request, any_options=True) is not None
    (folder / "net.pt").write_bytes(b"weights")
    options = ExportOptions(channels_last=True, weights=folder / "net.pt")
    assert find_export(replace(request, options=ExportOptions(channels_last=True))) is not None
    assert find_export(replace(request, options=options)) is None


def test_an_export_can_be_demanded(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leave_export(folder)
    assert main(["profile", "one/net.py:Net", "--export"]) != 0
    assert "exporting one/net.py:Net" in capsys.readouterr().err
