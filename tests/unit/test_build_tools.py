"""Which CMake and ninja build the runners: the environment's own before PATH's, and none too old."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from etprof.targets.emulator import build

ROOT = Path(__file__).parents[2]
Programs = dict[str, str]
MakeFolder = Callable[[str, Programs], Path]


@pytest.fixture
def make_folder(tmp_path: Path) -> MakeFolder:
    """Makes a folder of programs that print what their version is."""

    def make(name: str, programs: Programs) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        for program, version in programs.items():
            (folder / program).write_text(f"#!/bin/sh\necho '{program} version {version}'\n")
            (folder / program).chmod(0o755)
        return folder

    return make


@pytest.fixture(autouse=True)
def machine(make_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Debian 12 with its own CMake and ninja on PATH, and an environment that nobody activated."""
    folder = make_folder("system", {"cmake": "3.25.1", "ninja": "1.11.1"})
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(folder.parent / "environment"))
    return folder


def test_the_environments_own_tools_are_taken(machine: Path, make_folder: MakeFolder) -> None:
    """`.venv/bin/etprof emulator setup` fetched a CMake that lay beside it."""
    own = make_folder("environment", {"cmake": "4.0.2", "ninja": "1.13.0"})
    tools = build.find_installed_tools()
    assert tools == build.BuildTools(own / "cmake", {"PATH": f"{own}:{machine}"})


def test_ninja_may_come_from_path(machine: Path, make_folder: MakeFolder) -> None:
    own = make_folder("environment", {"cmake": "3.31.6"})
    tools = build.find_installed_tools()
    assert tools == build.BuildTools(own / "cmake", {"PATH": f"{own}:{machine}"})


def test_a_newer_cmake_of_path_stands_in_for_an_old_one(
    machine: Path, make_folder: MakeFolder
) -> None:
    make_folder("environment", {"cmake": "3.27.9"})
    (machine / "cmake").write_text("#!/bin/sh\necho 'cmake version 3.28.0'\n")
    assert build.find_installed_tools() == build.BuildTools(
        machine / "cmake", {"PATH": str(machine)}
    )


@pytest.mark.parametrize("environment", [{}, {"cmake": "3.27.9"}])
def test_an_old_cmake_alone_is_none(environment: Programs, make_folder: MakeFolder) -> None:
    make_folder("environment", environment)
    assert build.find_installed_tools() is None


def test_without_ninja_there_are_no_tools(machine: Path, make_folder: MakeFolder) -> None:
    (machine / "ninja").unlink()
    make_folder("environment", {"cmake": "4.0.2"})
    assert build.find_installed_tools() is None


def test_budgets_end_at_once_without_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were measured for minutes before an old CMake ended them with a message of its own."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    budgets = importlib.import_module("budgets")
    monkeypatch.setattr(budgets, "record", lambda *_: pytest.fail("measured before it could build"))
    monkeypatch.setattr(sys, "argv", ["budgets.py"])
    with pytest.raises(SystemExit) as caught:
        budgets.main()
    assert str(caught.value) == (
        "the runner is built with CMake 3.28 or newer and ninja, and neither this Python's "
        f"environment nor PATH has both; get them with: {sys.executable} -m pip install cmake ninja"
    )
