"""A stand-in for a checkout of ExecuTorch: its folders and targets, and nothing in them.

The source provider can be configured with it in seconds, anywhere. It builds a library that writes
into its own sources, as flatcc does in the real one.
"""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

from etprof.base.process import run_command

ROOT = Path(__file__).parents[1]
SUBMODULES = (
    "backends/xnnpack/third-party/FP16",
    "backends/xnnpack/third-party/FXdiv",
    "backends/xnnpack/third-party/XNNPACK",
    "backends/xnnpack/third-party/cpuinfo",
    "backends/xnnpack/third-party/pthreadpool",
    "kernels/optimized/third-party/eigen",
    "third-party/ao",
    "third-party/flatbuffers",
    "third-party/flatcc",
    "third-party/gflags",
    "third-party/json",
    "third-party/pocketfft",
)
LIBRARIES = (
    "executorch executorch_core xnnpack_backend extension_threadpool etdump flatccrt pthreadpool "
    "kleidiai xnnpack-microkernels-prod custom_ops"
)
CMAKE_LISTS = f"""
cmake_minimum_required(VERSION 3.24)
project(executorch C)
add_subdirectory(backends/xnnpack/third-party/XNNPACK)
foreach(library {LIBRARIES})
  add_library(${{library}} STATIC empty.c)
endforeach()
foreach(group backends extensions kernels)
  add_library(executorch_${{group}} INTERFACE)
  add_library(executorch::${{group}} ALIAS executorch_${{group}})
endforeach()
target_compile_definitions(executorch_core PRIVATE
  TRACER=${{EXECUTORCH_ENABLE_EVENT_TRACER}} LOG=$<IF:$<BOOL:${{EXECUTORCH_XNNPACK_LOG_LEVEL}}>,1,0>)
add_custom_command(TARGET flatccrt POST_BUILD
  COMMAND "${{CMAKE_COMMAND}}" -E make_directory "${{PROJECT_SOURCE_DIR}}/third-party/flatcc/lib"
  COMMAND "${{CMAKE_COMMAND}}" -E touch "${{PROJECT_SOURCE_DIR}}/third-party/flatcc/lib/written"
  VERBATIM)
"""
# As the real one, it changes its own switches without a word.
XNNPACK = """
option(XNNPACK_ENABLE_ARM_SME2 "" OFF)
set(XNNPACK_ENABLE_KLEIDIAI ON)
if(STAND_IN_DROPS_SME)
  set(XNNPACK_ENABLE_ARM_SME2 OFF)
endif()
add_compile_definitions(XNN_ENABLE_ARM_SME=$<BOOL:${XNNPACK_ENABLE_ARM_SME}>)
add_compile_definitions(XNN_ENABLE_ARM_SME2=$<BOOL:${XNNPACK_ENABLE_ARM_SME2}>)
add_library(XNNPACK STATIC ../../../../empty.c)
"""
KLEIDIAI_RECIPE = "  URL https://example.invalid/kleidiai/archive/0123abcd.zip\n"


def pinned_version() -> str:
    """The ExecuTorch version in pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = [line for line in project["dependencies"] if line.startswith("executorch==")]
    return str(pins[0].removeprefix("executorch=="))


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def make_checkout(folder: Path, *, version: str | None = None) -> Path:
    """Makes a git work tree that looks like ExecuTorch to the source provider."""
    write(folder / "version.txt", f"{version or pinned_version()}a0\n")
    write(folder / "CMakeLists.txt", CMAKE_LISTS)
    write(folder / "empty.c", "int empty;\n")
    write(folder / "docs" / "large.md", "not copied\n")
    write(folder / "third-party" / "flatcc" / "lib" / "old.a", "from a build of the user's\n")
    for submodule in SUBMODULES:
        write(folder / submodule / "README.md", "stand-in\n")
    xnnpack = folder / "backends/xnnpack/third-party/XNNPACK"
    write(xnnpack / "CMakeLists.txt", XNNPACK)
    write(xnnpack / "cmake" / "DownloadKleidiAI.cmake", KLEIDIAI_RECIPE)
    commit_all(folder)
    return folder


def make_origin(folder: Path) -> Path:
    """Makes a repository with submodules and the pinned version's tag, to fetch from."""
    origin = make_checkout(folder / "executorch")
    write(folder / "part" / "README.md", "stand-in\n")
    shutil.copytree(origin / "backends/xnnpack/third-party/XNNPACK", folder / "XNNPACK")
    commit_all(folder / "part")
    commit_all(folder / "XNNPACK")
    for submodule in SUBMODULES:
        source = folder / ("XNNPACK" if submodule.endswith("XNNPACK") else "part")
        git(origin, "rm", "-rq", submodule)
        allowed = ("-c", "protocol.file.allow=always")
        git(origin, *allowed, "submodule", "--quiet", "add", source.as_uri(), submodule)
    commit_all(origin)
    git(origin, "tag", f"v{pinned_version()}")
    return origin


def commit_all(folder: Path) -> None:
    for command in (("init", "-q"), ("add", "-A"), ("commit", "-q", "-m", "stand-in")):
        git(folder, *command)


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=test", "-c", "user.email=test@example.invalid")
    done = run_command(["git", "-C", folder, *identity, *words])
    assert done.exit_code == 0, done.stderr
    return done.stdout


def fingerprint(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Time, size and content of every file, those of .git too."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            path.stat().st_size,
            path.read_bytes(),
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
