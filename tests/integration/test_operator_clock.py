"""The operator clock on this host, on models whose layers are known."""

from __future__ import annotations

import statistics
import sys
from typing import TYPE_CHECKING

import pytest

from etprof.analysis.kernel_trace import KernelTrace, read_kernel_trace
from etprof.evidence_pipeline import collect_evidence
from etprof.process import run_command
from etprof.targets.local import LocalTarget
from etprof.targets.runner import find_host_runner
from tests.integration.emulated import Laboratory

if TYPE_CHECKING:
    from pathlib import Path

TOLERANCE_NS = 1000
TOLERANCE_SHARE = 0.02

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel trace is for Linux")


@pytest.fixture(scope="module")
def trace_runner() -> Path:
    return find_host_runner(tracing=True)


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


def test_the_local_target_traces_with_the_installed_runner(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    target = LocalTarget()
    found = collect_evidence(
        program=laboratory.program("toy_fp32"), target=target, run=tmp_path, progress=print
    )
    assert tuple(found.modes) == target.sme_modes()
    assert [p for p in found.parities if not p.is_within] == []
    (first, *_) = found.modes.values()
    assert [o.base for o in first.operators if o.could_use_sme2]
