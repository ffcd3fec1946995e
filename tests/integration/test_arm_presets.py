"""The Arm Linux presets: on and off differ in the SME default alone."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from etprof.base.errors import EtprofError
from etprof.base.process import run_command
from etprof.targets.emulator.installation import locate

ROOT = Path(__file__).parents[2]
DEFAULT = re.compile(r'-DETPROF_SME_DEFAULT=\\"(\w+)\\"')

try:
    SDK = locate().sdk
except EtprofError as error:
    pytestmark = pytest.mark.skip(reason=str(error))


def compile_commands(folder: Path, preset: str) -> dict[str, str]:
    """Configures `preset` and returns the command that compiles each source file."""
    build = folder / "build"
    shutil.rmtree(build, ignore_errors=True)
    flags = [f"-DETPROF_EXECUTORCH_SDK={SDK}", f"-DPython3_EXECUTABLE={sys.executable}"]
    done = run_command(["cmake", "--preset", preset, "-B", build, *flags], folder=ROOT)
    assert done.exit_code == 0, done.stderr
    entries = json.loads((build / "compile_commands.json").read_text())
    return {f"{entry['file']} {entry['output']}": entry["command"] for entry in entries}


@pytest.mark.parametrize("suffix", ["", "-trace"])
def test_on_and_off_differ_in_the_sme_default_alone(tmp_path: Path, suffix: str) -> None:
    on = compile_commands(tmp_path, f"linux-aarch64-sme2{suffix}")
    off = compile_commands(tmp_path, f"linux-aarch64-sme2-off{suffix}")
    assert on.keys() == off.keys()
    different = {name for name in on if on[name] != off[name]}
    assert different
    for name in different:
        assert {DEFAULT.findall(on[name])[0], DEFAULT.findall(off[name])[0]} == {"auto", "off"}
        assert DEFAULT.sub("", on[name]) == DEFAULT.sub("", off[name])


def test_a_trace_build_differs_in_the_trace_alone(tmp_path: Path) -> None:
    plain = compile_commands(tmp_path, "linux-aarch64-sme2")
    trace = compile_commands(tmp_path, "linux-aarch64-sme2-trace")
    shared = plain.keys() & trace.keys()
    assert [name for name in shared if plain[name] != trace[name]] == []
    assert all("kernel_trace" in name for name in plain.keys() ^ trace.keys())


def test_an_emulator_that_is_gone_is_looked_for_again(tmp_path: Path) -> None:
    """A second run of CI's lane had every native test red: the first one's cache was removed."""
    names = ("ETPROF_QEMU", "ETPROF_AARCH64_SYSROOT")
    gone = [f"-D{name}={tmp_path / 'gone' / name}" for name in names]
    words: list[str | Path] = ["-B", tmp_path / "build", f"-DETPROF_EXECUTORCH_SDK={SDK}", *gone]
    done = run_command(["cmake", "--preset", "linux-aarch64-sme2", *words], folder=ROOT)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.count("which is gone: looking for another") == 2
    cache = (tmp_path / "build" / "CMakeCache.txt").read_text()
    paths = dict(re.findall(rf"^({'|'.join(names)}):\w+=(.*)$", cache, re.MULTILINE))
    assert all(Path(paths[name]).exists() for name in names)


@pytest.mark.parametrize("mode", ["on", "true", "SME2"])
def test_an_unknown_default_does_not_configure(tmp_path: Path, mode: str) -> None:
    flags = [f"-DETPROF_SME_DEFAULT={mode}", f"-DETPROF_EXECUTORCH_SDK={SDK}"]
    preset = "linux-aarch64-sme2"
    done = run_command(["cmake", "--preset", preset, "-B", tmp_path, *flags], folder=ROOT)
    assert done.exit_code != 0
    assert f'ETPROF_SME_DEFAULT is "{mode}"; use auto, sme2, sme1 or off.' in done.stderr
