"""The macOS runner, linked here by a cross compiler: what its load commands say. No Mac runs it."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import struct
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from etprof.backends.kernel_names import SME_LEVELS, parse_kernel_name
from etprof.base.process import run_command
from etprof.targets.debugger.counting import WatchedProgram, describe_watch

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
_SYMBOLS, _ENTRY_BYTES = 0x2, 16
_DEBUGGING, _EXTERNAL, _KIND, _UNDEFINED = 0xE0, 0x01, 0x0E, 0
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


def symbols(library: bytes) -> tuple[set[str], set[str]]:
    """Names that a 64-bit Mach-O file defines for others, and names that it looks up, as C writes them."""
    *_, count, _, _, _ = struct.unpack_from("<8I", library)
    defined, looked_up, offset = set[str](), set[str](), 32
    for _ in range(count):
        kind, size, table, entries, strings, _ = struct.unpack_from("<6I", library, offset)
        for number in range(entries if kind == _SYMBOLS else 0):
            name, flags = struct.unpack_from("<IB", library, table + number * _ENTRY_BYTES)
            if flags & _DEBUGGING or not flags & _EXTERNAL:
                continue
            text = library[strings + name : library.index(b"\0", strings + name)].decode()
            target = looked_up if flags & _KIND == _UNDEFINED else defined
            target.add(text.removeprefix("_"))
        offset += size
    return defined, looked_up


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
    check_names({library.stem: library.read_bytes() for library in libraries})
    for library in libraries:
        needs = [t for k, t in load_commands(library.read_bytes()) if k == _BUILD_VERSION]
        assert [float(each) <= float(target) for each in needs] == [True], library.name


def check_names(libraries: dict[str, bytes]) -> None:
    """Everything that a debugger is asked to watch has a name, or calls would be counted as none."""
    watched = describe_watch(WatchedProgram(argv=("etprof-runner",)), "^kai_run_")
    xnnpack, looked_up = symbols(libraries["libexecutorch_backend_xnnpack"])
    kernels = [name for name in xnnpack if re.search(str(watched["kernels"]), name)]
    levels = Counter(parse_kernel_name(name).level in SME_LEVELS for name in kernels)
    assert levels == {True: 33, False: 20}
    assert [name for name in xnnpack if re.search(str(watched["delegate"]), name)]
    assert [name for name in looked_up if re.search(str(watched["clock"]), name)]
    executorch, _ = symbols(libraries["libexecutorch"])
    assert [name for name in executorch if re.search(str(watched["execute"]), name)]
