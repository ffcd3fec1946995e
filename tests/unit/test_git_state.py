"""What a manifest says of git is what git says, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from etprof.base.process import run_command
from etprof.measuring.pipeline import measure
from etprof.measuring.plan import Experiment, Settings, plan
from etprof.run.git_state import is_tracked, read_git_state
from etprof.run.manifest import GitState, load_manifest
from etprof.run.program import Program
from tests.world.sim_target import SimTarget
from tests.world.spec import plain

WORKFLOW = ("GITHUB_SHA", "GITHUB_HEAD_REF", "GITHUB_REF_NAME")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with one commit on branch `work`, outside of any workflow."""
    for name in WORKFLOW:
        monkeypatch.delenv(name, raising=False)
    git(tmp_path, "init", "-q", "-b", "work")
    (tmp_path / "file").write_text("one")
    git(tmp_path, "add", "file")
    commit = ("-c", "user.name=A", "-c", "user.email=a@b", "commit", "-q", "-m", "First")
    git(tmp_path, *commit)
    return tmp_path


def git(folder: Path, *words: str) -> str:
    completed = run_command(["git", *words], folder=folder)
    assert completed.exit_code == 0, completed.stderr
    return completed.stdout.strip()


def state_of(folder: Path) -> GitState:
    state = read_git_state(folder)
    assert state is not None
    return state


def test_commit_and_branch_are_known(tree: Path) -> None:
    assert state_of(tree) == GitState(
        commit=git(tree, "rev-parse", "HEAD"), branch="work", dirty=False
    )


def test_changed_files_make_it_dirty_and_new_ones_do_not(tree: Path) -> None:
    (tree / "out_model").write_text("measured")
    assert state_of(tree).dirty is False
    (tree / "file").write_text("two")
    assert state_of(tree).dirty is True


def test_only_files_of_the_commit_are_tracked(tree: Path) -> None:
    installed = tree / ".venv" / "model.py"
    installed.parent.mkdir()
    installed.write_text("of a package")
    assert is_tracked(tree / "file")
    assert not is_tracked(installed)
    assert not is_tracked(tree / "missing")


def test_a_detached_head_has_the_branch_that_the_workflow_names(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tree, "checkout", "-q", "--detach")
    assert state_of(tree).branch is None
    monkeypatch.setenv("GITHUB_SHA", git(tree, "rev-parse", "HEAD"))
    monkeypatch.setenv("GITHUB_REF_NAME", "12/merge")
    assert state_of(tree).branch == "12/merge"
    monkeypatch.setenv("GITHUB_HEAD_REF", "feature")
    assert state_of(tree).branch == "feature"


def test_a_workflow_of_another_commit_says_nothing(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tree, "checkout", "-q", "--detach")
    monkeypatch.setenv("GITHUB_SHA", "0" * 40)
    monkeypatch.setenv("GITHUB_REF_NAME", "main")
    assert state_of(tree).branch is None


def test_a_measurement_writes_it_into_its_manifest(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tree)
    model = tree / "m.pte"
    model.write_bytes(b"program")
    measure(
        program=Program(name="m", label="m", model=model),
        target=SimTarget(plain()),
        run=tree / "run",
        planned=plan([Experiment(name="off")], Settings(blocks=1), SimTarget(plain())),
        progress=lambda *_: None,
    )
    manifest = load_manifest(tree / "run")
    assert manifest is not None
    commit = git(tree, "rev-parse", "HEAD")
    assert manifest.git == GitState(commit=commit, branch="work", dirty=False)


def test_outside_of_git_nothing_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert read_git_state(tmp_path) is None


def test_without_git_nothing_is_known(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tree))
    assert read_git_state(tree) is None


@pytest.mark.parametrize(
    "setting", ["core.fsmonitor", "filter.own.clean", "filter.own.process", "included"]
)
def test_no_program_of_the_tree_is_run(tree: Path, setting: str) -> None:
    """What a stranger's .git names would run in an unpacked folder, as `git status` does."""
    program = tree / "planted"
    program.write_text(f"#!/bin/sh\ntouch {tree}/run\nexit 1\n")
    program.chmod(0o755)
    (tree / ".git/info").mkdir(exist_ok=True)
    (tree / ".git/info/attributes").write_text("* filter=own\n")
    if setting == "included":
        (tree / "more").write_text('[filter "own"]\n\tclean = ./planted\n')
        git(tree, "config", "include.path", "../more")
    else:
        git(tree, "config", setting, "./planted")
    (tree / "file").write_text("two")
    assert state_of(tree).commit == git(tree, "rev-parse", "HEAD")
    assert not is_tracked(program)
    assert not (tree / "run").exists()
    assert state_of(tree).dirty is (True if setting == "core.fsmonitor" else None)


def test_filters_of_the_user_are_the_users(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "settings").write_text('[filter "own"]\n\tclean = cat\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tree / "settings"))
    assert state_of(tree).dirty is False
