"""`etprof run` as a user runs it: config, resume, repeat, validate; killed at any moment."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from etprof.base.limits import USUAL_OPERATOR_LAUNCHES
from etprof.export.exporter import export_model
from etprof.export.request import ExportRequest
from etprof.run.manifest import load_manifest
from tests.world.crashes import states_before_each_change
from tests.world.host import etprof, simulated_host
from tests.world.sim_target import SimTarget


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config")
    export_model(ExportRequest("toy_cnn", "fp32", outdir=path / "out_toy_cnn" / "artifacts"))
    return path


def write_config(folder: Path, name: str, **measurement: object) -> Path:
    config = {
        "model": "out_toy_cnn/artifacts/toy_cnn_xnnpack_fp32.pte",
        "output_root": f"runs/{name}",
        "experiments": [{"name": "one", "threads": 1}, {"name": "two", "num_threads": 2}],
        "measurement": {"blocks": 6, "min_seconds": 0.01, "etdump_runs": 5, **measurement},
        "analysis": {"compare_pairs": [{"baseline": "one", "candidate": "two"}]},
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(config))
    return path


@pytest.fixture(scope="module")
def finished(folder: Path) -> Path:
    completed = etprof(folder, "run", write_config(folder, "finished"))
    assert completed.exit_code == 0, completed.stderr
    return folder / "runs/finished"


def test_a_finished_run_is_valid(finished: Path) -> None:
    completed = etprof(finished, "validate", finished, "--full")
    assert completed.exit_code == 0, completed.stdout
    launches = 2 + 6 * 2 + 2 * USUAL_OPERATOR_LAUNCHES  # outputs, timing, operators
    assert f"{launches} launches finished on linux" in completed.stdout
    manifest = load_manifest(finished)
    assert manifest is not None
    assert manifest.status == "finished"
    order = [launch.experiment for launch in manifest.launches if launch.purpose == "timing"]
    assert len(order) == 12
    # Places are drawn, in each block for itself (N8).
    for start in range(0, len(order), 2):
        assert set(order[start : start + 2]) == {"one", "two"}


def test_a_config_that_names_a_model_works_from_any_folder(folder: Path, tmp_path: Path) -> None:
    """U2: the shipped example needed a program that no command had made, and one folder."""
    path = write_config(folder, "named", blocks=1)
    document = json.loads(path.read_text()) | {"model": "toy_cnn:fp32"}
    del document["output_root"]
    path.write_text(json.dumps(document))
    completed = etprof(tmp_path, "run", path)
    assert completed.exit_code == 0, completed.stderr
    (run,) = (tmp_path / "out_toy_cnn/runs").iterdir()
    manifest = load_manifest(run)
    assert manifest is not None
    assert manifest.config is not None
    assert manifest.config["path"] == str(path)
    # What repeats the run is the program that was measured, not the model's code.
    again = etprof(tmp_path, "run", "--from-manifest", run, "--dry-run")
    assert "toy_cnn_xnnpack_fp32.pte" in again.stdout


def test_every_launch_has_the_state_around_it(finished: Path) -> None:
    manifest = load_manifest(finished)
    assert manifest is not None
    for launch in manifest.launches:
        assert launch.state_before is not None
        assert launch.state_before["load_average"] is not None


def test_a_run_can_be_repeated_from_its_manifest(finished: Path, folder: Path) -> None:
    completed = etprof(
        folder, "run", "--from-manifest", finished, "--output-root", "again", "--only", "two"
    )
    assert completed.exit_code == 0, completed.stderr
    again = load_manifest(folder / "again")
    assert again is not None
    assert {launch.experiment for launch in again.launches} == {"two"}


def test_a_plan_is_shown_without_running(folder: Path) -> None:
    completed = etprof(folder, "run", write_config(folder, "dry"), "--dry-run", "--full")
    assert completed.exit_code == 0
    starts, launches, total = 1 + 2, 2 + 6 * 2 + 2 * USUAL_OPERATOR_LAUNCHES, 1
    assert len(completed.stdout.splitlines()) == starts + launches + total
    assert not (folder / "runs/dry").exists()


def test_the_plan_as_json_has_the_same_launches(folder: Path) -> None:
    config = write_config(folder, "dry")
    shown = etprof(folder, "run", config, "--dry-run", "--full").stdout.splitlines()[4:]
    plan = json.loads(etprof(folder, "run", config, "--dry-run", "--json").stdout)
    assert len(plan["launches"]) == len(shown)
    for launch, line in zip(plan["launches"], shown, strict=False):
        assert launch["experiment"] in line


def test_an_unknown_experiment_is_refused(folder: Path) -> None:
    completed = etprof(folder, "run", write_config(folder, "only"), "--only", "three")
    assert completed.exit_code == 2
    assert completed.stderr == (
        "etprof: --only three: no such experiment; the config has one, two\n"
    )


def test_a_damaged_file_is_found(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    etdump = next((run / "one").glob("*.etdump"))
    data = etdump.read_bytes()
    etdump.write_bytes(data[:-10])
    completed = etprof(tmp_path, "validate", run)
    assert completed.exit_code == 4
    assert f"one/{etdump.name} has changed since it was measured" in completed.stdout


def test_without_its_json_files_a_run_is_incomplete_but_explained(
    finished: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    for name in ("manifest.json", "metrics.json"):
        (run / name).unlink()
    completed = etprof(tmp_path, "validate", run)
    assert completed.exit_code == 1
    assert "lost: latency without event tracer" in completed.stdout
    assert "lost: who measured what" in completed.stdout


def test_a_run_that_is_cut_off_anywhere_is_explained_and_finished(tmp_path: Path) -> None:
    """Each state that a killed process can leave, none by chance."""
    (tmp_path / "model.pte").write_bytes(b"program")
    config = tmp_path / "config.json"
    experiments = [{"name": name, "threads": 1} for name in ("one", "two")]
    measurement = {"blocks": 1, "operator_launches": 2, "etdump_runs": 2}
    document = {"model": "model.pte", "output_root": "run", "experiments": experiments}
    config.write_text(json.dumps({**document, "measurement": measurement}))
    run, copies = tmp_path / "run", tmp_path / "copies"
    with simulated_host(SimTarget), states_before_each_change(run, copies) as states:
        completed = etprof(tmp_path, "run", config)
        assert completed.exit_code == 0, completed.stderr
    assert len(states) > 20
    whole = load_manifest(run)
    assert whole is not None
    kept = []
    for state in states:
        shutil.rmtree(run)
        state.rename(run)
        before = load_manifest(run)
        is_finished = before is not None and before.status == "finished"
        assert etprof(tmp_path, "validate", run).exit_code == int(not is_finished)
        with simulated_host(SimTarget):
            completed = etprof(tmp_path, "run", config, "--resume")
        assert completed.exit_code == 0, completed.stderr
        assert etprof(tmp_path, "validate", run).exit_code == 0
        after = load_manifest(run)
        assert after is not None
        keys = [(each.experiment, each.purpose, each.block) for each in after.launches]
        assert sorted(keys) == sorted((e.experiment, e.purpose, e.block) for e in whole.launches)
        finished = before.launches if before is not None else []
        assert [each for each in after.launches if each in finished] == list(finished)
        kept.append(len(finished))
    assert {*kept} == {*range(max(kept) + 1)}


def test_a_run_that_is_killed_is_finished(folder: Path) -> None:
    """The same once with a real process and a real runner, killed in the middle of its launches."""
    config = write_config(folder, "killed", blocks=40, etdump_runs=2, min_seconds=0.001)
    run = folder / "runs/killed"
    for launches in (0, 5, 20):
        process = start_in_group(folder, config)
        manifest = None
        while manifest is None or len(manifest.launches) <= launches:
            assert process.poll() is None
            manifest = load_manifest(run) if run.exists() else None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert etprof(folder, "validate", run).exit_code == 1
    completed = etprof(folder, "run", config, "--resume")
    assert completed.exit_code == 0, completed.stderr
    assert etprof(folder, "validate", run).exit_code == 0
    manifest = load_manifest(run)
    assert manifest is not None
    assert len(manifest.launches) == 2 + 40 * 2 + 2 * USUAL_OPERATOR_LAUNCHES


def start_in_group(folder: Path, config: Path) -> subprocess.Popen[bytes]:
    """Starts the run in a process group of its own, so that its runner is killed with it."""
    return subprocess.Popen(
        [sys.executable, "-m", "etprof", "run", str(config), "--resume"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
