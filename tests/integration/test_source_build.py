"""Runners built with ExecuTorch from source: what on and off share, and what they execute.

Reads build trees of `linux-aarch64-source-*`, in build/ or in the folder that
ETPROF_SOURCE_BUILDS names; makes none itself.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from etprof.backends.kernel_names import parse_kernel_name
from etprof.base.process import run_command
from etprof.run.kernel_trace import KernelTrace, read_kernel_trace

ROOT = Path(__file__).parents[2]
BUILDS = Path(os.environ.get("ETPROF_SOURCE_BUILDS") or ROOT / "build")
PREFIX = "linux-aarch64-source-"
TRACING = "etprof-runner-trace"
SME_DEFINES = re.compile(r"-D(XNN_ENABLE_ARM_SME2?|ETPROF_SME_COMPILED_OUT|ETPROF_SME_DEFAULT)=\S+")
# What the compiler is told to build differently: XNNPACK's tables, and what holds them.
SME_LIBRARIES = {"libXNNPACK.a", "libxnnpack-microkernels-prod.a"}


def find_build(variant: str) -> Path:
    build = BUILDS / f"{PREFIX}{variant}"
    if not (build / "cpp" / "runner" / "etprof-runner").exists():
        pytest.skip(f"no {build}: cmake --workflow --preset {PREFIX}{variant}")
    return build.resolve()


def emulated(
    build: Path, *arguments: str | Path, runner: str = "etprof-runner"
) -> tuple[int, str, str]:
    """Runs a runner as CTest does; exit code, stdout, stderr."""
    cache = (build / "CMakeCache.txt").read_text()
    qemu, sysroot = (
        re.search(rf"^{name}:\w+=(.*)$", cache, re.MULTILINE)
        for name in ("ETPROF_QEMU", "ETPROF_AARCH64_SYSROOT")
    )
    if not qemu or not Path(qemu[1]).exists() or not sysroot:
        pytest.skip(f"{build} was configured without emulator: etprof emulator setup")
    command: list[str | Path] = [qemu[1], "-cpu", "max", "-L", sysroot[1]]
    done = run_command([*command, build / "cpp/runner" / runner, *arguments], timeout_s=300)
    return done.exit_code, done.stdout, done.stderr


def build_info(build: Path) -> dict[str, Any]:
    _, text, _ = emulated(build, "--build-info")
    info: dict[str, Any] = json.loads(text)["build"]
    return info


def compile_commands(build: Path) -> dict[str, str]:
    """Command by output file, with the build tree's own path taken out."""
    text = (build / "compile_commands.json").read_text()
    text = text.replace(f"{build}/", "").replace(str(build), "BUILD")
    return {entry["output"]: entry["command"] for entry in json.loads(text)}


@pytest.mark.parametrize("suffix", ["", "-trace"])
def test_on_and_off_are_compiled_alike(suffix: str) -> None:
    on = compile_commands(find_build(f"sme2{suffix}"))
    off = compile_commands(find_build(f"sme2-off{suffix}"))
    # THEN off leaves SME microkernels out, and nothing else
    assert off.keys() <= on.keys()
    assert {name for name in on.keys() - off.keys() if "neonsme" not in name} == set()
    # AND the commands differ in the switches alone
    strip = SME_DEFINES.sub
    different = {name for name in off if strip("", on[name]) != strip("", off[name])}
    assert different == set()
    assert {name for name in off if on[name] != off[name]} != set()


def test_off_has_no_sme_and_all_other_libraries_are_the_same() -> None:
    on, off = (build_info(find_build(variant)) for variant in ("sme2", "sme2-off"))
    checks = on["symbol_check"], off["symbol_check"]
    assert checks[0]["sme2_microkernels"] > 10
    assert checks[0]["sme_microkernels"] > 10
    assert (checks[1]["sme2_microkernels"], checks[1]["sme_microkernels"]) == (0, 0)
    hashes = [check["library_sha256"] for check in checks]
    assert {name for name in hashes[0] if hashes[0][name] != hashes[1][name]} <= SME_LIBRARIES
    # AND every other entry is the same, but for what says that SME is off
    assert {name for name in on if on[name] != off[name]} == {
        "sme",
        "sme_compiled_out",
        "symbol_check",
    }


def test_off_refuses_modes_that_it_does_not_have() -> None:
    build = find_build("sme2-off")
    code, _, error = emulated(build, "--sme=sme2", "--model=absent.pte", "--result=absent.json")
    assert code == 8
    assert error == (
        "etprof-runner: --sme sme2: SME is compiled out of this runner; use --sme off, or the "
        "runner of the preset without -off in its name\n"
    )


def test_configuring_and_building_again_does_nothing() -> None:
    build = find_build("sme2")
    cmake = shutil.which("cmake")
    if cmake is None:
        pytest.skip("no cmake")
    for words in (("--build", build), (build,), ("--build", build)):
        done = run_command([cmake, *words], timeout_s=600)
        assert done.exit_code == 0, done.stderr
    assert "no work to do" in done.stdout


@pytest.fixture(scope="module")
def toy_fp16(tmp_path_factory: pytest.TempPathFactory) -> Path:
    find_build("sme2")
    folder = tmp_path_factory.mktemp("toy")
    words = ("export", "toy_cnn", "--dtype", "fp16", "--quiet", "--outdir", folder)
    done = run_command([sys.executable, "-m", "etprof", *words], timeout_s=300)
    assert done.exit_code == 0, done.stderr
    return next(folder.glob("*.pte"))


def trace(
    build: Path, model: Path, folder: Path, *flags: str, runner: str = "etprof-runner"
) -> KernelTrace:
    kernels = folder / "kernels.json"
    arguments = (f"--model={model}", f"--result={folder / 'result.json'}")
    flags = (f"--kernel-trace={kernels}", "--iterations=2", "--warmup=0", *flags)
    code, _, error = emulated(build, *arguments, *flags, runner=runner)
    assert (code, error) == (0, "")
    return read_kernel_trace(kernels)


def calls_of(found: KernelTrace) -> dict[str, tuple[int, int]]:
    """Calls at load and in the last execution."""
    return {k.name: (k.load_calls, k.execution_calls[-1]) for k in found.kernels}


def levels_of(found: KernelTrace) -> set[str | None]:
    return {parse_kernel_name(name).level for name, (_, calls) in calls_of(found).items() if calls}


@pytest.mark.parametrize(
    ("mode", "in_force"),
    [("auto", "sme2"), ("sme2", "sme2"), ("sme1", "sme1"), ("off", "off")],
)
def test_every_mode_is_in_force_before_xnnpack_reads_its_table(
    mode: str, in_force: str, toy_fp16: Path, tmp_path: Path
) -> None:
    """C1 of issue 14's switch: a constructor of priority 101, in one static executable."""
    found = trace(find_build("sme2"), toy_fp16, tmp_path, f"--sme={mode}", runner=TRACING)
    assert (found.sme.requested, found.sme.in_force) == (mode, in_force)
    packed = [each.name for each in found.operators if "PF16" in each.name]
    assert bool(packed) is (in_force != "off")
    levels = levels_of(found)
    assert {"sme2", "sme"} & levels == {"sme2": {"sme2", "sme"}, "sme1": {"sme"}, "off": set()}[
        in_force
    ]
    assert "neon" in levels


def test_the_trace_runner_is_a_second_link_of_the_timed_objects(
    toy_fp16: Path, tmp_path: Path
) -> None:
    """C4: the evidence was of objects that were compiled once more, with another log level."""
    build = find_build("sme2")
    compiled = Counter(Path(name).name for name in compile_commands(build))
    # THEN what runs a program and XNNPACK's delegate are compiled once; each link has its main
    assert {compiled[f"{name}.cpp.o"] for name in ("session", "XNNPACKBackend")} == {1}
    assert compiled["main.cpp.o"] > 1
    # AND both compute the same, bit for bit
    outputs = []
    for runner in ("etprof-runner", TRACING):
        folder = tmp_path / runner
        words = (f"--model={toy_fp16}", f"--result={tmp_path / 'r.json'}", f"--outputs={folder}")
        code, _, error = emulated(build, *words, "--sme=sme2", "--seed=3", runner=runner)
        assert (code, error) == (0, "")
        outputs.append((folder / "output_0.bin").read_bytes())
    assert outputs[0] == outputs[1]


def test_every_call_of_kleidiai_has_a_caller_in_xnnpack(toy_fp16: Path, tmp_path: Path) -> None:
    build = find_build("sme2")
    calls = calls_of(trace(build, toy_fp16, tmp_path, "--sme=sme2", "--threads=1", runner=TRACING))
    ours = sum(n for name, (_, n) in calls.items() if name.startswith("kai_run_"))
    shims = [n for name, (_, n) in calls.items() if "neonsme" in name]
    assert ours == sum(shims) > 0


def test_counts_are_exact_with_threads(toy_fp16: Path, tmp_path: Path) -> None:
    build = find_build("sme2")
    first, second = (
        calls_of(trace(build, toy_fp16, tmp_path, "--sme=sme2", "--threads=4", runner=TRACING))
        for _ in range(2)
    )
    assert first == second
