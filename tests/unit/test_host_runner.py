"""The host's runner finds ExecuTorch's libraries wherever pip put them."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from etprof.base.process import Completed, run_command
from etprof.targets import local
from etprof.targets.local import LocalTarget
from etprof.targets.runner import find_host_runner, library_environment


@pytest.fixture
def moved_runner(tmp_path: Path) -> Path:
    """The runner in a package folder that has no ExecuTorch beside it."""
    runner = tmp_path / "site-packages" / "etprof" / "bin" / "etprof-runner"
    runner.parent.mkdir(parents=True)
    return Path(shutil.copy(find_host_runner(), runner))


@pytest.mark.skipif(sys.platform != "linux", reason="the loader's words are of Linux")
def test_a_runner_apart_from_executorch_is_told_where_it_is(
    moved_runner: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    alone = run_command([moved_runner, "--build-info"])
    assert alone.exit_code == 127
    assert "cannot open shared object file" in alone.stderr
    environment = library_environment(moved_runner)
    told = run_command([moved_runner, "--build-info"], environment=environment)
    assert told.exit_code == 0, told.stderr


def test_a_runner_beside_executorch_is_told_nothing(moved_runner: Path) -> None:
    (moved_runner.parents[2] / "executorch").mkdir()
    assert library_environment(moved_runner) == {}


def test_what_the_user_set_comes_last(moved_runner: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = "DYLD_LIBRARY_PATH" if sys.platform == "darwin" else "LD_LIBRARY_PATH"
    monkeypatch.setenv(variable, "/of/the/user")
    assert library_environment(moved_runner)[variable].endswith("lib:/of/the/user")


@pytest.mark.parametrize(
    ("features", "modes"),
    [
        ({"sme": True, "sme2": True}, ("sme2", "sme1", "off")),
        ({"sme": True, "sme2": False}, ("sme1", "off")),
        ({"dotprod": True}, ("auto",)),
    ],
)
def test_a_host_offers_the_modes_that_its_cpu_has(
    features: dict[str, bool], modes: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant 63: an Arm machine with SME was asked for none of its modes."""
    said = Completed(("etprof-runner",), 0, json.dumps({"features": features}), "")
    monkeypatch.setattr(local, "ask_host_runner", lambda *_, **__: said)
    assert LocalTarget().sme_modes() == modes
