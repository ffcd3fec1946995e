"""The operator clock on this host, on models whose layers are known."""

from __future__ import annotations

import shutil
import statistics
import sys
from pathlib import Path

import pytest

from etprof.analysis.kernel_trace import KernelTrace, read_kernel_trace
from etprof.process import run_command
from tests.integration.emulated import Laboratory

ROOT = Path(__file__).parents[2]
TOLERANCE_NS = 1000
TOLERANCE_SHARE = 0.02

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("ninja"), reason="needs Linux, CMake and ninja"
)


@pytest.fixture(scope="module")
def trace_runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runner of preset host-trace, built from this checkout."""
    build = tmp_path_factory.mktemp("host-trace")
    flags = ["-DETPROF_BUILD_TESTS=OFF", "-DETPROF_BUILD_PYTHON=OFF"]
    flags.append(f"-DPython3_EXECUTABLE={sys.executable}")
    configured = run_command(
        ["cmake", "--preset", "host-trace", "-B", build, *flags], folder=ROOT, timeout_s=600
    )
    assert configured.exit_code == 0, configured.stderr
    built = run_command(["cmake", "--build", build, "--target", "etprof-runner"], timeout_s=1200)
    assert built.exit_code == 0, built.stdout
    return build / "cpp" / "runner" / "etprof-runner"


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    return Laboratory(tmp_path_factory.mktemp("clock"))


def trace(runner: Path, model: Path, folder: Path, iterations: int, threads: int) -> KernelTrace:
    flags = [f"--model={model}", f"--result={folder / 'r.json'}", f"--threads={threads}"]
    flags += [f"--iterations={iterations}", f"--kernel-trace={folder / 'k.json'}"]
    done = run_command([runner, *flags], timeout_s=900)
    assert done.exit_code == 0, done.stderr
    return read_kernel_trace(folder / "k.json")


def median(values: tuple[int | None, ...]) -> float:
    return statistics.median(value for value in values if value is not None)


@pytest.mark.parametrize("threads", [1, 2])
def test_operators_follow_each_other_inside_the_execution(
    trace_runner: Path, laboratory: Laboratory, tmp_path: Path, threads: int
) -> None:
    found = trace(trace_runner, laboratory.program("toy_fp32").model, tmp_path, 5, threads)
    assert found.all_operators_named
    assert all(execution.aligned for execution in found.executions)
    for i, execution in enumerate(found.executions):
        end_ns = 0
        for operator in found.operators:
            start_ns, duration_ns = operator.start_ns[i], operator.duration_ns[i]
            assert start_ns is not None
            assert duration_ns is not None
            assert start_ns >= end_ns, operator.name
            assert duration_ns > 0, operator.name
            end_ns = start_ns + duration_ns
        assert end_ns <= execution.duration_ns


def test_the_clock_agrees_with_what_an_etdump_keeps(
    trace_runner: Path, laboratory: Laboratory, tmp_path: Path
) -> None:
    # GIVEN 1000 inferences of MobileNetV2, and for each operator what XNNPACK reports of it
    found = trace(trace_runner, laboratory.program("mobilenet_v2").model, tmp_path, 1000, 1)
    delegated = [operator for operator in found.operators if operator.delegate is not None]
    assert len(delegated) > 60
    for operator in delegated:
        clock_ns, reported_ns = median(operator.duration_ns), median(operator.reported_ns)
        assert clock_ns > 0, operator.name
        allowed_ns = TOLERANCE_NS + TOLERANCE_SHARE * reported_ns
        assert abs(clock_ns - reported_ns) <= allowed_ns, operator.name
    assert found.clock.cost_share < 0.03


def test_short_operators_no_longer_read_zero(
    trace_runner: Path, laboratory: Laboratory, tmp_path: Path
) -> None:
    # GIVEN toy_cnn's classifier, a product of 32 by 10: less than a microsecond
    found = trace(trace_runner, laboratory.program("toy_fp32").model, tmp_path, 200, 1)
    (classifier,) = [o for o in found.operators if o.delegate == 1 and "GEMM" in o.name]
    assert median(classifier.reported_ns) == 0
    assert 0 < median(classifier.duration_ns) < 1000
