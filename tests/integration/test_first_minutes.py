"""What `cmake --preset host` says to those who have only just cloned the repository (C5)."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from etprof.base.process import Completed, run_command
from etprof.targets.emulator.build import run_pip

ROOT = Path(__file__).parents[2]
CMAKE = shutil.which("cmake")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CMAKE is None, reason="needs cmake"),
]


def configure(source: Path, build: Path, *settings: str, given: tuple[str, ...] = ()) -> Completed:
    """Preset `host`, where no virtual environment is active and `given` is in the environment."""
    environment = ["env", "-u", "VIRTUAL_ENV", "-u", "CONDA_PREFIX", "-u", "ETPROF_WERROR", *given]
    return run_command(
        [*environment, str(CMAKE), "--preset", "host", "-B", build, *settings],
        folder=source,
        timeout_s=300,
    )


def said(done: Completed) -> str:
    return " ".join((done.stdout + done.stderr).split())


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources, with a virtual environment at the README's place that has nothing in it."""
    clone = tmp_path_factory.mktemp("clone")
    files = ("CMakeLists.txt", "CMakePresets.json", "pyproject.toml")
    for name in (*files, "cmake", "cpp", "python", "tests"):
        (clone / name).symlink_to(ROOT / name)
    made = run_command([sys.executable, "-m", "venv", "--without-pip", clone / ".venv"])
    assert made.exit_code == 0, made.stderr
    return clone


def test_an_older_cmake_is_told_how_to_get_a_newer_one(tmp_path: Path) -> None:
    """C5: 3.25, Debian 12's, could not read the presets, and said no more than that."""
    fetched = run_pip("install", "--target", tmp_path / "old", "cmake==3.25.*")
    if fetched.exit_code != 0:
        pytest.skip("pip cannot fetch CMake 3.25")
    old, build = tmp_path / "old", tmp_path / "build"
    done = run_command(
        [sys.executable, old / "bin" / "cmake", "--preset", "host", "-B", build],
        folder=ROOT,
        environment={"PYTHONPATH": str(old)},
    )
    assert done.exit_code == 1
    assert "CMake 3.28 or newer, and this is 3.25" in said(done)
    assert "pip install cmake ninja" in said(done)


def test_without_ninja_the_package_is_named(clone: Path, tmp_path: Path) -> None:
    done = configure(clone, tmp_path, given=("PATH=/nowhere",))
    assert done.exit_code == 1
    assert "There is no ninja to build with; get one with: pip install ninja" in said(done)


def test_without_pybind11_only_the_python_reader_is_left_out(clone: Path, tmp_path: Path) -> None:
    """C5: the environment that `pip install .` makes has no pybind11, and that was an error.

    The one at the README's place is used, though nobody has activated it.
    """
    runner = "-DETPROF_BUILD_RUNNER=OFF"
    done = configure(clone, tmp_path, runner)
    assert done.exit_code == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("Left out:")]
    assert f"{clone / '.venv' / 'bin'}/python" in line
    assert "pip install pybind11" in line
    ninja = (tmp_path / "build.ninja").read_text()
    assert "etdump_reader_tests" in ninja
    assert "_etdump.cpython" not in ninja
    # An installation without it would be of no use.
    done = configure(clone, tmp_path, runner, "-DSKBUILD=ON", f"-DPython_ROOT_DIR={clone}/.venv")
    assert done.exit_code == 1
    assert "pip install pybind11" in said(done)


def test_without_pip_the_package_is_named(clone: Path, tmp_path: Path) -> None:
    done = configure(clone, tmp_path, "-DETPROF_BUILD_PYTHON=OFF")
    assert done.exit_code == 1
    assert f"{clone / '.venv' / 'bin'}/python" in said(done)
    assert "apt install python3-pip" in said(done)


@pytest.mark.parametrize("sign", [*'[]";,|<>'])
def test_a_folder_in_which_cmake_cannot_build_is_named(
    clone: Path, tmp_path: Path, sign: str
) -> None:
    """U3-13: a compiler that works was said to be broken, or a file of CMake's to be missing."""
    folder = tmp_path / f"a {sign} b"
    shutil.copytree(clone, folder, symlinks=True)
    done = configure(folder, folder / "build", "-DETPROF_BUILD_RUNNER=OFF")
    assert done.exit_code == 1
    assert f"give folders without {sign} in their names" in said(done)


def test_warnings_are_errors_for_developers_alone(tmp_path: Path) -> None:
    """C5: they were in every preset, so a newer compiler stopped a user's build."""
    parts = ("-DETPROF_BUILD_RUNNER=OFF", "-DETPROF_BUILD_PYTHON=OFF")
    for given, expected in ((), False), (("ETPROF_WERROR=ON",), True), ((), False):
        done = configure(ROOT, tmp_path, *parts, given=given)
        assert done.exit_code == 0, done.stderr
        assert ("-Werror" in (tmp_path / "compile_commands.json").read_text()) == expected
