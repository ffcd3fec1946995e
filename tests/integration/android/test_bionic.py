"""Android's own linker and libc, where ETPROF_BIONIC_ROOT has them: what glibc cannot show.

The presets need an NDK (ANDROID_NDK) and take the environment of docs/building.md. Neither NDK nor
libc comes with etprof: without the variable the modules beside this one run the emulator's runners.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from etprof.backends.kernel_names import is_product
from etprof.export.request import ExportRequest
from etprof.run.kernel_trace import KernelTrace, OperatorKernel, read_kernel_trace
from etprof.run.program import describe_program
from etprof.targets.emulator.target import EmulatorTarget
from etprof.targets.request import RunnerRequest
from tests.integration.android.conftest import BIONIC_VARIABLE, bionic_root, make_target

if TYPE_CHECKING:
    from tests.android_device.device import LoopbackDevice
    from tests.integration.android.conftest import Emulated
    from tests.integration.conftest import Exports

ROOT = Path(__file__).parents[3]
PROGRAMS = (
    ("toy_cnn", "fp16", "forward"),
    ("mobilenet_v2", "fp16", "forward"),
    ("mobilenet_v2", "int8", "forward"),
    ("decoder", "8da4w_channel", "prefill"),
    ("decoder", "8da4w_channel", "decode"),
)
CRASHES = "crash_|_crash|refused_instruction|illegal_instruction"
"""Tests of programs that end by a signal: Android's libc makes a thread then that reports it, with
flags of clone(2) that qemu refuses (`failed to spawn debuggerd dispatch thread`), and exits."""
pytestmark = [
    pytest.mark.android,
    pytest.mark.skipif(bionic_root() is None, reason=f"{BIONIC_VARIABLE} names no Android libc"),
]


def test_the_runners_are_androids(
    device: LoopbackDevice, emulated: Emulated, request_: RunnerRequest
) -> None:
    result = make_target(device, emulated).run(request_)
    assert result.runner.build["system"] == "Android"


@pytest.mark.parametrize("mode", ["sme2", "sme1", "off"])
@pytest.mark.parametrize("program", PROGRAMS, ids="-".join)
def test_microkernels_are_those_of_the_wheels_runner(  # noqa: PLR0917 - fixtures
    device: LoopbackDevice, emulated: Emulated, exports: Exports, tmp_path: Path,
    program: tuple[str, str, str], mode: str,
) -> None:  # fmt: skip
    """By operator and sizes. A source build counts XNNPACK's own as well, which are left out."""
    model, precision, method = program
    exported = describe_program(exports.get(ExportRequest(model, precision)).pte, method=method)
    request = RunnerRequest(
        model=exported.model, inputs=exported.inputs, method=method, iterations=1, threads=1, sme=mode,
        kernel_trace=tmp_path / "wheel.json", result=tmp_path / "wheel_result.json",
    )  # fmt: skip
    EmulatorTarget().run(request)
    counted = replace(
        request, runner=emulated.trace_runner, kernel_trace=tmp_path / "android.json",
        result=tmp_path / "android_result.json",
    )  # fmt: skip
    make_target(device, emulated).run(counted)
    wheel, android = (read_kernel_trace(tmp_path / f"{name}.json") for name in ("wheel", "android"))
    assert (android.sme.in_force, android.sme.svl_bits) == (mode, wheel.sme.svl_bits)
    assert calls_of(android) == calls_of(wheel)


def calls_of(trace: KernelTrace) -> list[tuple[str, dict[str, int]]]:
    """KleidiAI's microkernels of each operator in the last inference: of a product, its work.

    Which tiles make it is XNNPACK's choice, and another one in another version: of mobilenet_v2 in
    int8, 1.5.1's wheel cuts two operators along their columns, and the sources of 1.5.0 along rows.
    """
    return [
        (
            operator.name,
            {
                kernel.name: work_of(kernel)
                for kernel in operator.kernels
                if kernel.name.startswith("kai_")
            },
        )
        for operator in trace.operators
    ]


def work_of(kernel: OperatorKernel) -> int:
    """Multiply-adds of a product; of packing the rows that it packs."""
    dimensions = 3 if is_product(kernel.name) else 1
    return sum(prod(s.sizes[:dimensions]) * s.execution_calls[-1] for s in kernel.by_sizes)


@pytest.mark.parametrize(
    "preset", ["android-sme2", "android-sme2-off", "android-sme2-trace", "android-sme2-bare"]
)
def test_the_tests_of_a_preset_pass_on_the_device(
    preset: str, device: LoopbackDevice, emulated: Emulated
) -> None:
    """`ctest --preset` through adb; qemu stands before each program there."""
    if not (ROOT / "build" / preset / "CTestTestfile.cmake").is_file():
        pytest.skip(f"{preset} is not built")
    launcher = " ".join(emulated.launcher)
    if any(" " in word for word in emulated.launcher):
        pytest.skip("ETPROF_DEVICE_LAUNCHER has blanks between its words, and qemu's path has one")
    environment = {
        **os.environ,
        "ANDROID_SERIAL": device.serial,
        "ETPROF_DEVICE_LAUNCHER": launcher,
    }
    done = subprocess.run(
        ["ctest", "--preset", preset, "-E", CRASHES],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=1800,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
