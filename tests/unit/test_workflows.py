"""Workflows: linted, harmless whatever is typed into them, and their steps are scripts of .ci."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from etprof.base.process import run_command
from etprof.bench.matrix import parse_matrix

yaml = pytest.importorskip("yaml", reason="needs PyYAML")

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
ACTION = ROOT / "action.yml"
LANE = ROOT / ".github/workflows/bench-lane.yml"
MAKE_MATRIX = ROOT / ".ci/make_matrix.py"
OURS = re.compile(r"\$\{\{ matrix\.\w+ \}\}")
"""The only thing that may be pasted into a script: words of the workflow file itself."""
MORE = {
    ("docs.yml", "publish"): {"pages": "write", "id-token": "write"},
    ("release.yml", "publish"): {"id-token": "write"},
}
"""The jobs that may do more than read, by workflow and name."""


def load(path: Path) -> dict[Any, Any]:
    """PyYAML takes the key `on` for the word true."""
    document: dict[Any, Any] = yaml.safe_load(path.read_text())
    return document


def jobs(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = load(path)["jobs"]
    return found


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in jobs(path).values():
        yield from job.get("steps", ())


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_nothing_from_outside_is_pasted_into_a_script(path: Path) -> None:
    for step in steps(path):
        assert "${{" not in OURS.sub("", step.get("run", "")), step
        assert "github-script" not in step.get("uses", "")


def test_the_action_pastes_nothing_and_pins_what_it_uses() -> None:
    """Its inputs are of other people's repositories: they reach scripts as variables only."""
    used = load(ACTION)["runs"]["steps"]
    assert [step for step in used if "run" in step]
    for step in used:
        assert "${{" not in step.get("run", "")
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}|", step.get("uses", ""))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_may_read_and_nothing_else_and_end_some_day(path: Path) -> None:
    assert load(path)["permissions"] == {"contents": "read"}
    for name, job in jobs(path).items():
        assert job.get("permissions") == MORE.get((path.name, name))
        assert "uses" in job or 0 < job["timeout-minutes"] <= 720


def test_what_may_write_runs_no_code_of_the_repository() -> None:
    for workflow, name in MORE:
        job = jobs(ROOT / ".github/workflows" / workflow)[name]
        assert not [step for step in job["steps"] if "run" in step]
        used = [step["uses"].partition("@")[0] for step in job["steps"]]
        assert [name for name in used if not name.startswith("actions/")] in (
            [],
            ["pypa/gh-action-pypi-publish"],
        )
        assert "github.event_name == 'push'" in job["if"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_of_others_are_pinned_by_hash(path: Path) -> None:
    used = [each["uses"] for each in (*jobs(path).values(), *steps(path)) if "uses" in each]
    assert used
    assert not [name for name in used if not re.fullmatch(r"\./.+|.+@[0-9a-f]{40}", name)]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_scripts_and_files_that_workflows_name_are_there(path: Path) -> None:
    text = path.read_text()
    for script in re.findall(r"(?<![\w/])\.ci/\w+", text):
        assert os.access(ROOT / script, os.X_OK), script
    for matrix in re.findall(r"configs/examples/\w+\.json", text):
        parse_matrix((ROOT / matrix).read_text(), matrix)
    for called in re.findall(r"uses: \./(\S+)", text):
        assert (ROOT / called).is_file(), called


def test_ci_runs_the_steps_of_the_benchmark_lane_in_their_order() -> None:
    named = [word for step in steps(LANE) for word in bench_steps(step.get("run", ""))]
    (here,) = re.findall(r"\.ci/bench (.*?) \|\|", (ROOT / ".ci/lane").read_text())
    assert named == here.split() == ["install", "measure", "publish", "verdict"]


def bench_steps(script: str) -> list[str]:
    return [word for words in re.findall(r"\.ci/bench ([a-z ]+)", script) for word in words.split()]


def test_on_demand_takes_what_the_issue_asks_for() -> None:
    inputs = load(ROOT / ".github/workflows/bench.yml")[True]["workflow_dispatch"]["inputs"]
    assert {"model", "precision", "backend", "pool", "ref"} <= set(inputs)
    given = jobs(ROOT / ".github/workflows/bench.yml")["bench"]["with"]
    assert {name: f"${{{{ inputs.{name} }}}}" for name in inputs}.items() <= given.items()


def test_nightly_has_a_lane_with_devices_and_one_without() -> None:
    path = ROOT / ".github/workflows/nightly.yml"
    assert load(path)[True]["schedule"]
    assert "self-hosted" in jobs(path)["devices"]["with"]["labels"]
    assert jobs(path)["emulator"]["with"]["labels"] == '["ubuntu-24.04"]'


def test_a_lane_uploads_runs_dashboard_and_comment_even_after_a_failure() -> None:
    uploads = {
        step["with"]["name"].partition("-")[0]: step
        for step in steps(LANE)
        if "upload-artifact" in step.get("uses", "")
    }
    assert set(uploads) == {"runs", "dashboard", "comment"}
    assert {step["if"] for step in uploads.values()} == {"always()"}


def test_actionlint_has_no_complaint() -> None:
    if shutil.which("actionlint") is None:
        pytest.skip("no actionlint here; .ci/lane lints with its npm package")
    completed = run_command([ROOT / ".ci/lint_workflows"])
    assert completed.exit_code == 0, completed.stdout + completed.stderr


def make_matrix(**variables: str) -> tuple[int, str]:
    unset = dict.fromkeys(("MATRIX", "MODEL", "PRECISION", "BACKEND", "POOL", "ETPROF_DEVICES"), "")
    completed = run_command([sys.executable, MAKE_MATRIX], environment={**unset, **variables})
    return completed.exit_code, completed.stdout or completed.stderr


def test_what_is_typed_into_the_form_becomes_a_matrix() -> None:
    chosen = {"PRECISION": "fp32,int8", "BACKEND": "portable, xnnpack", "POOL": "emulator"}
    code, text = make_matrix(MODEL="toy_cnn, resnet18", **chosen)
    assert code == 0
    matrix = parse_matrix(text, "made")
    assert [model.name for model in matrix.models] == ["toy_cnn", "resnet18"]
    assert matrix.precisions == ("fp32", "int8")
    assert matrix.backends == ("portable", "xnnpack")
    assert [device.kind for device in matrix.devices] == ["emulator"]


def test_what_is_typed_into_the_form_is_data_and_no_command() -> None:
    code, text = make_matrix(MODEL='"]}; $(touch /tmp/x) `id` ${{ secrets.x }}\n', POOL="host")
    assert code == 0
    assert json.loads(text)["models"] == ['"]}; $(touch /tmp/x) `id` ${{ secrets.x }}']


def test_a_pool_is_what_the_owner_of_the_runner_lists(tmp_path: Path) -> None:
    phone = {"name": "pixel", "kind": "android", "serial": "1"}
    devices = tmp_path / "devices.json"
    devices.write_text(json.dumps({"phones": [phone]}))
    nightly = str(ROOT / "configs/examples/matrix_nightly.json")
    code, text = make_matrix(MATRIX=nightly, POOL="phones", ETPROF_DEVICES=str(devices))
    assert code == 0
    assert json.loads(text)["devices"] == [phone]
    code, text = make_matrix(POOL="tablets", ETPROF_DEVICES=str(devices))
    assert code == 1
    assert text == (f"the pool 'tablets' is not in ETPROF_DEVICES ({devices}) of this runner\n")
