"""`etprof bench` as a user runs it: real exports, the real runner, the real history and gate."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.world.host import Done
from tests.world.host import etprof as run_etprof

GATE_MODEL = Path(__file__).parents[1] / "gate_model"
MEASUREMENT = {"blocks": 6, "runs": 5, "warmup": 2, "min_seconds": 0.02, "etdump_runs": 2}
BROKEN_MODEL = """
from etprof.model_registry.eager_model import EagerModelBase

class Broken(EagerModelBase):
    def get_eager_model(self):
        raise RuntimeError("no weights today")

    def get_example_inputs(self):
        return ()
"""
MENDED_MODEL = BROKEN_MODEL.replace(
    'raise RuntimeError("no weights today")', "import torch; return torch.nn.ReLU()"
).replace("return ()", "import torch; return (torch.zeros(4),)")


def etprof(folder: Path, *words: object) -> Done:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ETPROF_LOCKS", str(folder / "locks"))
        # Wide enough that no cell folds, however long the path of the temporary folder is.
        return run_etprof(folder, *words, columns=10_000)


def write_matrix(folder: Path, **changes: object) -> Path:
    path = folder / "matrix.json"
    path.write_text(json.dumps({"name": "test", "measurement": MEASUREMENT, **changes}))
    return path


def summary(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "out_bench/test/summary.json").read_text())
    return document


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished matrix: a model that works, at two thread counts, and one that does not."""
    path = tmp_path_factory.mktemp("bench")
    (path / "broken.py").write_text(BROKEN_MODEL)
    models = [f"{path}/broken.py:Broken", "toy_cnn"]
    completed = etprof(path, "bench", write_matrix(path, models=models, threads=[1, 2]))
    assert completed.exit_code == 5, completed.stderr
    (path / "stdout.txt").write_text(completed.stdout)
    (path / "stderr.txt").write_text(completed.stderr)
    return path


def test_every_experiment_has_a_row_and_a_failure_has_one_too(folder: Path) -> None:
    rows = {(row["model"], row["threads"]): row for row in summary(folder)["rows"]}
    assert {key: row["status"] for key, row in rows.items()} == {
        ("Broken", 1): "failed",
        ("Broken", 2): "failed",
        ("toy_cnn", 1): "ok",
        ("toy_cnn", 2): "ok",
    }
    assert rows["toy_cnn", 1]["metrics"]["latency_ns"]["value"] > 0
    assert "no weights today" in rows["Broken", 1]["failure"]
    shown = (folder / "stdout.txt").read_text()
    assert "no weights today" in shown
    assert "| toy\\_cnn |" in (folder / "out_bench/test/summary.md").read_text()


def test_the_failure_is_in_the_history_on_the_same_device(folder: Path) -> None:
    completed = etprof(folder, "history", "export", "all.json")
    assert completed.exit_code == 0, completed.stderr
    runs = json.loads((folder / "all.json").read_text())["runs"]
    assert sorted((run["model"], run["status"]) for run in runs) == [
        ("Broken", "failed"),
        ("Broken", "failed"),
        ("toy_cnn", "ok"),
        ("toy_cnn", "ok"),
    ]
    assert len({run["device"] for run in runs}) == 1
    assert len({run["sme_mode"] for run in runs}) == 1


def test_the_run_directory_is_whole_and_can_be_repeated(folder: Path) -> None:
    run = folder / "out_bench/test/runs/host/toy_cnn_xnnpack_fp32"
    assert (run / "report.html").is_file()
    assert etprof(folder, "validate", run).exit_code == 0
    again = etprof(folder, "run", "--from-manifest", run, "--dry-run")
    assert again.exit_code == 0, again.stderr


def test_resume_repeats_what_failed_and_nothing_else(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (tmp_path / "broken.py").write_text(MENDED_MODEL)
    models = [f"{tmp_path}/broken.py:Broken", "toy_cnn"]
    before = (tmp_path / "out_bench/test/runs/host/toy_cnn_xnnpack_fp32/manifest.json").read_bytes()
    matrix = write_matrix(tmp_path, models=models, threads=[1, 2])
    completed = etprof(tmp_path, "bench", matrix, "--resume", "--json")
    assert completed.exit_code == 0, completed.stderr
    assert "toy_cnn xnnpack fp32 on host: finished earlier" in completed.stderr
    rows = json.loads(completed.stdout)["rows"]
    assert [row["status"] for row in rows] == ["ok"] * 4
    after = tmp_path / "out_bench/test/runs/host/toy_cnn_xnnpack_fp32/manifest.json"
    assert after.read_bytes() == before


def test_a_killed_matrix_goes_on_where_it_was(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    changed = {**MEASUREMENT, "blocks": 30}
    matrix = write_matrix(tmp_path, models=["toy_cnn"], measurement=changed)
    manifest = tmp_path / "out_bench/test/runs/host/toy_cnn_xnnpack_fp32/manifest.json"
    command = [sys.executable, "-m", "etprof", "bench", str(matrix), "--resume"]
    environment = {**os.environ, "ETPROF_LOCKS": str(tmp_path / "locks")}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        while len(launches(manifest, blocks=30)) < 3:
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
    kept = launches(manifest, blocks=30)
    outputs, blocks, operators = 1, 30, 6
    assert len(kept) < outputs + blocks + operators
    completed = etprof(tmp_path, "bench", matrix, "--resume")
    assert completed.exit_code == 0, completed.stderr
    assert launches(manifest, blocks=30)[: len(kept)] == kept
    assert len(launches(manifest, blocks=30)) == outputs + blocks + operators


def launches(manifest: Path, *, blocks: int) -> list[dict[str, Any]]:
    """The launches of the run with so many blocks; none while it has not begun.

    The run before it may go at any time: between a look whether it is there and the reading, too.
    """
    try:
        document = json.loads(manifest.read_text())
    except FileNotFoundError:
        return []
    is_current = document["settings"].get("blocks") == blocks
    read: list[dict[str, Any]] = document["launches"] if is_current else []
    return read


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    completed = etprof(tmp_path, "bench", write_matrix(tmp_path, models=["toy_cnn"]), "--dry-run")
    assert completed.exit_code == 0
    assert completed.stdout == (
        "1 program to export, 1 run to measure\n"
        "   1  toy_cnn xnnpack fp32 on host: SME as the device has it; threads 1\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["matrix.json"]


def test_a_dry_run_as_json_has_the_same_plan(tmp_path: Path) -> None:
    matrix = write_matrix(tmp_path, models=["toy_cnn"], precisions=["fp32", "fp16"])
    completed = etprof(tmp_path, "bench", matrix, "--dry-run", "--json")
    plan = json.loads(completed.stdout)
    assert [run["precision"] for run in plan["runs"]] == ["fp32", "fp16"]
    assert plan["left_out"] == []


def test_the_gate_passes_the_same_and_fails_the_slower(tmp_path: Path) -> None:
    """The model is ten times slower and the threshold is threefold: no load decides this."""
    models, codes = shutil.copytree(GATE_MODEL, tmp_path / "models"), []
    for variant in ("steady", "steady", "stalled"):
        changed = f"from . import {variant}\n\nclass GateModel({variant}.GateModel):\n    pass\n"
        (models / "model.py").write_text(changed)
        matrix = write_matrix(tmp_path, models=[f"{models}/model.py:GateModel"])
        completed = etprof(tmp_path, "bench", matrix)
        assert completed.exit_code == 0, completed.stderr
        words = ("--baseline", "window:1", "--threshold", "200", "--metric", "latency_ns")
        checked = etprof(tmp_path, "history", "check", *words)
        codes.append(checked.exit_code)
    assert codes[1:] == [0, 1], checked.stdout
    assert "regression" in checked.stdout
