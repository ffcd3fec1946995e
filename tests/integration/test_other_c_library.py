"""Every source of the runner is compiled for another C library than glibc: musl's headers, with Zig.

ExecuTorch's wheel is linked to glibc, so nothing is linked or run. What this keeps out is a function
or a promise that only glibc has, as on Android and macOS neither is.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from importlib.metadata import version
from pathlib import Path

import pytest

from etprof.base.process import run_command

ROOT = Path(__file__).resolve().parents[2]
REQUIRED = os.environ.get("ETPROF_MACOS_REQUIRED") == "1"
ZIG = importlib.util.find_spec("ziglang")
TOOLCHAIN = """
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER "{folder}/clang")
set(CMAKE_CXX_COMPILER "{folder}/clang++")
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(ETPROF_WHEEL_PLATFORM
    --platform manylinux_2_28_aarch64 --python-version 3.11 --implementation cp)
"""
# One word, and of a name that says how it is called: ccache passes on anything else unread.
COMPILER = """#!/bin/sh
# Zig {version}
exec '{zig}' {language} -target aarch64-linux-musl "$@"
"""
# Not Release: with NDEBUG, ExecuTorch's own headers declare an `__assert_fail` that only glibc has.
SETTINGS = (
    "-DCMAKE_BUILD_TYPE=Debug",
    "-DETPROF_BUILD_PYTHON=OFF",
    "-DETPROF_KERNEL_TRACE=ON",
    "-DETPROF_WERROR=ON",
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not REQUIRED and ZIG is None,
        reason="no compiler with another C library; pip install ziglang",
    ),
]


def test_every_source_is_compiled_for_musl(tmp_path: Path) -> None:
    assert ZIG is not None
    assert ZIG.origin is not None
    zig = str(Path(ZIG.origin).with_name("zig")).replace("'", "'\\''")
    for name, language in (("clang", "cc"), ("clang++", "c++")):
        compiler = tmp_path / name
        compiler.write_text(COMPILER.format(zig=zig, language=language, version=version("ziglang")))
        compiler.chmod(0o755)
    toolchain = tmp_path / "musl.cmake"
    toolchain.write_text(TOOLCHAIN.format(folder=tmp_path))
    # Below the clone, whose path ccache leaves out.
    build = ROOT / "build" / "other-c-library"
    shutil.rmtree(build, ignore_errors=True)
    where: list[str | Path] = ["-S", ROOT, "-B", build, "-G", "Ninja"]
    configured = run_command(
        ["cmake", *where, f"-DCMAKE_TOOLCHAIN_FILE={toolchain}", *SETTINGS],
        timeout_s=900,
    )
    assert configured.exit_code == 0, configured.stdout + configured.stderr
    targets = run_command(["ninja", "-C", build, "-t", "targets", "all"]).stdout.splitlines()
    objects = [line.split(":")[0] for line in targets if ".o: " in line]
    ours = {path.name for path in (ROOT / "cpp").rglob("*.cpp")} - {"module.cpp"}
    assert ours <= {Path(each).name.removesuffix(".o") for each in objects}
    compiled = run_command(["ninja", "-C", build, "-k", "0", *objects], timeout_s=600)
    faults = [line for line in compiled.stdout.splitlines() if ": error: " in line]
    assert compiled.exit_code == 0, "\n".join(faults) or compiled.stdout
