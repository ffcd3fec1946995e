"""Which earlier export `etprof profile MODEL` takes, and what it says of it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import pytest

import etprof
from etprof import registry
from etprof.base.errors import ExportError
from etprof.cli import main
from etprof.export.request import ExportOptions

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.export.request import ExportRequest

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
        "source": {"sha256": registry.find_model("one/net.py:Net").hash_files()},
        "versions": {"etprof": etprof.__version__, "executorch": version("executorch")},
        "options": asdict(ExportOptions()),
    }
    text = json.dumps({**manifest, **changes})
    program.with_name(f"{program.name}.json").write_text(text, encoding="utf-8")


def test_the_program_of_another_model_of_the_same_name_is_not_taken(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    leave_export(folder)
    # GIVEN code older than the program
    os.utime(folder / "two" / "net.py", (0, 0))
    assert main(["profile", "two/net.py:Net"]) != 0
    assert "exporting two/net.py:Net" in capsys.readouterr().err


@pytest.mark.parametrize(
    "changes",
    [
        {"source": {}},
        {"versions": {"etprof": "0.0.1", "executorch": version("executorch")}},
        {"versions": {"etprof": etprof.__version__, "executorch": "1.0.0"}},
    ],
)
def test_a_program_of_other_code_or_tools_is_not_taken(
    folder: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any]
) -> None:
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


def test_an_export_can_be_demanded(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    leave_export(folder)
    assert main(["profile", "one/net.py:Net", "--export"]) != 0
    assert "exporting one/net.py:Net" in capsys.readouterr().err
