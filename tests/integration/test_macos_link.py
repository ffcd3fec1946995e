"""The macOS runner, linked here by a cross compiler: what its load commands say. No Mac runs it."""

from __future__ import annotations

import importlib.util
import os
import shutil
import struct
import tomllib
from pathlib import Path

import pytest

from etprof.base.process import run_command

ROOT = Path(__file__).resolve().parents[2]
REQUIRED = os.environ.get("ETPROF_MACOS_REQUIRED") == "1"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not REQUIRED and importlib.util.find_spec("ziglang") is None,
        reason="no cross compiler for macOS; pip install ziglang",
    ),
]

_LOAD_DYLIB, _RPATH, _BUILD_VERSION = 0xC, 0x8000001C, 0x32
_MACOS = 1


def load_commands(program: bytes) -> list[tuple[int, str]]:
    """Kind and text of each load command of a 64-bit Mach-O file that names a path or a system."""
    magic, *_, count, _, _, _ = struct.unpack_from("<8I", program)
    assert magic == 0xFEEDFACF
    found, offset = [], 32
    for _ in range(count):
        kind, size, text = struct.unpack_from("<3I", program, offset)
        if kind in (_LOAD_DYLIB, _RPATH):
            words = program[offset + text : offset + size].split(b"\0")[0]
            found.append((kind, words.decode()))
        elif kind == _BUILD_VERSION:
            platform, oldest = struct.unpack_from("<2I", program, offset + 8)
            assert platform == _MACOS
            found.append((kind, f"{oldest >> 16}.{oldest >> 8 & 0xFF}"))
        offset += size
    return found


def test_the_runner_loads_xnnpack_late_and_starts_where_the_wheel_does() -> None:
    """A linked library's initialisers would read the CPU's features before main changes them."""
    # Below the clone, whose path ccache leaves out.
    build = ROOT / "build" / "macos-link"
    shutil.rmtree(build, ignore_errors=True)
    steps: tuple[list[str | Path], ...] = (
        ["cmake", "--preset", "macos-arm64", "-B", build],
        ["cmake", "--build", build, "--target", "etprof-runner"],
    )
    for words in steps:
        completed = run_command(words, folder=ROOT, timeout_s=900)
        assert completed.exit_code == 0, completed.stdout + completed.stderr
    program = (build / "cpp/runner/etprof-runner").read_bytes()
    commands = load_commands(program)
    linked = [path for kind, path in commands if kind == _LOAD_DYLIB]
    assert "@rpath/libexecutorch_threadpool.dylib" in linked, "it holds the table"
    assert not [path for path in linked if "xnnpack" in path]
    assert b"@rpath/libexecutorch_backend_xnnpack.dylib" in program, "what main loads"
    assert [path for kind, path in commands if kind == _RPATH] == [
        "@loader_path/../../executorch/lib"
    ]
    # The oldest macOS that it says it starts on is that of etprof's wheel; ExecuTorch's needs none newer.
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cibuildwheel"]
    target = settings["macos"]["environment"]["MACOSX_DEPLOYMENT_TARGET"]
    assert [text for kind, text in commands if kind == _BUILD_VERSION] == [target]
    libraries = [*build.glob("executorch-sdk-*/executorch/lib/*.dylib")]
    assert libraries
    for library in libraries:
        needs = [t for k, t in load_commands(library.read_bytes()) if k == _BUILD_VERSION]
        assert [float(each) <= float(target) for each in needs] == [True], library.name
