"""Builds the Arm runners from etprof's own sources, through its CMake presets."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from etprof.base.errors import BuildError
from etprof.base.files import read_bounded
from etprof.base.process import run_command
from etprof.targets.emulator.sysroot import is_native

if TYPE_CHECKING:
    from etprof.base.process import Completed
    from etprof.targets.emulator.cache import Cache

RUNNER_PRESET = "linux-aarch64-sme2"
TRACE_PRESET = "linux-aarch64-sme2-trace"
_LEAST_CMAKE = (3, 28)
_TIMEOUT_S = 3600
_NAMES = "python/etprof/backends/kernel_names.py"
"""What the trace runner's table of microkernels is made with."""
_COMPILERS = ("aarch64-linux-gnu-g++", *(f"aarch64-linux-gnu-g++-{n}" for n in range(15, 11, -1)))


@dataclass(frozen=True)
class BuildTools:
    """The programs that build the runners."""

    cmake: Path
    environment: dict[str, str]


def check_compiler() -> None:
    """Raises BuildError that names the one package to install when there is no compiler."""
    names = ("c++", "g++", "clang++") if is_native() else _COMPILERS
    if not any(shutil.which(name) for name in names):
        package = "g++" if is_native() else "g++-aarch64-linux-gnu"
        raise BuildError(
            f"there is no aarch64 C++ compiler; install one package, on Debian and Ubuntu with "
            f"`apt install {package}`, and run `etprof emulator setup` again"
        )


def find_sources() -> Path:
    """Returns etprof's C++ sources: the checkout's, or those installed with the package."""
    # Not importlib.resources: of an editable installation that is several folders, joined.
    package = Path(__file__).parents[2]
    for folder in (package.parents[1], package / "source"):
        if (folder / "CMakePresets.json").is_file() and (folder / "cpp").is_dir():
            return folder
    raise BuildError(f"etprof's C++ sources are not at {package / 'source'}; install etprof again")


def find_runner(cache: Cache, preset: str) -> Path | None:
    """Returns the built runner of `preset`; None when it was not built by this version.

    Raises InputFileError when it is damaged.
    """
    cache_part = cache.check(f"runner-{preset}")
    if cache_part is None or cache_part.version != version("etprof"):
        return None
    return cache.folder / f"runner-{preset}" / "etprof-runner"


def is_current(cache: Cache, preset: str) -> bool:
    """Whether the runner was built from the sources as they are now."""
    cache_part = cache.load().parts.get(f"runner-{preset}")
    return cache_part is not None and cache_part.source == _source(preset)


def _source(preset: str) -> str:
    return f"preset {preset}, {_sources_identity()}"


def _sources_identity() -> str:
    """A hash over everything that a runner is built from."""
    sources = find_sources()
    digest = hashlib.sha256()
    patterns = ("CMakeLists.txt", "cmake/*", "toolchains/*", "cpp/**/*", _NAMES)
    for path in sorted(p for pattern in patterns for p in sources.glob(pattern) if p.is_file()):
        digest.update(str(path.relative_to(sources)).encode() + read_bounded(path, 2**24))
    return f"sources {digest.hexdigest()[:16]}"


def build_runner(cache: Cache, work: Path, *, preset: str, sdk: Path) -> str:
    """Configures and builds one preset's runner into the cache; returns its version."""
    tools = find_build_tools(work)
    source = _source(preset)
    build = work / f"build-{preset}"
    configure: list[str | Path] = [tools.cmake, "--preset", preset]
    configure += ["-S", find_sources(), "-B", build]
    settings = ["-DETPROF_BUILD_TESTS=OFF", f"-DETPROF_EXECUTORCH_SDK={sdk}"]
    settings.append(f"-DPython3_EXECUTABLE={sys.executable}")
    _run(tools, [*configure, *settings], f"the {preset} runner cannot be configured")
    target: list[str | Path] = ["--build", build, "--target", "etprof-runner"]
    _run(tools, [tools.cmake, *target], f"the {preset} runner does not build")
    runner_folder = work / f"kept-{preset}"
    runner_folder.mkdir()
    shutil.copy2(build / "cpp" / "runner" / "etprof-runner", runner_folder / "etprof-runner")
    cache.add(f"runner-{preset}", version=version("etprof"), source=source, folder=runner_folder)
    return f"built, {source}"


def _run(tools: BuildTools, command: list[str | Path], failure: str) -> None:
    done = run_command(
        command, timeout_s=_TIMEOUT_S, folder=find_sources(), environment=tools.environment
    )
    if done.exit_code != 0:
        raise BuildError(f"{failure}: {_first_error(done)}; repeat it with: {done.shell_text}")


def _first_error(done: Completed) -> str:
    lines = [*done.stderr.splitlines(), *done.stdout.splitlines()]
    error_lines = [line.strip() for line in lines if "error" in line.lower()]
    return (error_lines or lines or [f"exit code {done.exit_code}"])[0]


def find_build_tools(work: Path) -> BuildTools:
    """Returns cmake and ninja of this machine, else fetches both with pip into `work`."""
    if (installed := find_installed_tools()) is not None:
        return installed
    folder = work / "tools"
    if not folder.exists():
        done = run_pip("install", "--target", folder, "cmake>=3.28", "ninja")
        if done.exit_code != 0:
            raise BuildError(
                "pip could not fetch cmake and ninja; install cmake 3.28 or newer, and ninja"
            )
    search = {"PATH": f"{folder / 'bin'}:{_search_path()}", "PYTHONPATH": str(folder)}
    return BuildTools(folder / "bin" / "cmake", search)


def find_installed_tools() -> BuildTools | None:
    """Returns cmake and ninja of this Python's environment or of PATH; None without a new enough pair.

    The environment comes first, for it is not on PATH where nobody has activated it.
    """
    scripts_folder = sysconfig.get_path("scripts")
    for path in (f"{scripts_folder}:{_search_path()}", _search_path()):
        cmake = shutil.which("cmake", path=path)
        if (
            cmake
            and shutil.which("ninja", path=path)
            and _cmake_version(Path(cmake)) >= _LEAST_CMAKE
        ):
            return BuildTools(Path(cmake), {"PATH": path})
    return None


def _search_path() -> str:
    return os.environ.get("PATH", "/usr/bin:/bin")


def run_pip(*arguments: str | Path) -> Completed:
    """Runs this Python's pip to its end."""
    pip: list[str | Path] = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        arguments[0],
        "--quiet",
        *arguments[1:],
    ]
    return run_command(pip, timeout_s=_TIMEOUT_S)


def _cmake_version(cmake: Path) -> tuple[int, int]:
    output = run_command([cmake, "--version"], timeout_s=30).stdout
    match = re.search(r"(\d+)\.(\d+)", output)
    return (int(match[1]), int(match[2])) if match else (0, 0)
