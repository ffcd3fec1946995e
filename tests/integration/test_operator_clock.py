"""The operator clock on this host, on models whose layers are known."""

from __future__ import annotations

import itertools
import statistics
import sys
from typing import TYPE_CHECKING

import pytest

from etprof.analysis.split.executions import examine_executions, keep_near_median
from etprof.analysis.split.operators import split_operators
from etprof.base.process import run_command
from etprof.etdump.reader import load_etdump
from etprof.run.kernel_trace import KernelTrace, TracedOperator, read_kernel_trace
from etprof.targets.local import LocalTarget
from etprof.targets.runner import find_host_runner
from tests.integration.emulated import Laboratory, assess_kernels
from tests.known_etdumps import timed

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.analysis.split.executions import Executions
    from tests.integration.conftest import Exports

TOLERANCE_NS = 1000
TOLERANCE_SHARE = 0.02

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the kernel trace is for Linux")


@pytest.fixture(scope="module")
def trace_runner() -> Path:
    return find_host_runner(tracing=True)


@pytest.fixture(scope="module")
def laboratory(exports: Exports, tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    return Laboratory(tmp_path_factory.mktemp("clock"), exports)


def trace(
    runner: Path, model: Path, folder: Path, iterations: int, threads: int, *more: str
) -> KernelTrace:
    flags = [f"--model={model}", f"--result={folder / 'r.json'}", f"--threads={threads}"]
    flags += [f"--iterations={iterations}", f"--kernel-trace={folder / 'k.json'}"]
    done = run_command([runner, *flags, *more], timeout_s=900)
    assert done.exit_code == 0, done.stderr
    return read_kernel_trace(folder / "k.json")


def median(values: tuple[int | None, ...]) -> float:
    return statistics.median(value for value in values if value is not None)


def split_durations(operator: TracedOperator, split: Executions) -> tuple[int | None, ...]:
    """Durations on the clock in the executions that the analysis of the ETDump splits.

    These alone: on a machine that other work disturbs, the median of all executions is another.
    """
    return tuple(itertools.compress(operator.duration_ns, split.selected))


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


def test_the_clock_agrees_with_the_etdump_of_the_same_inferences(
    trace_runner: Path, laboratory: Laboratory, tmp_path: Path
) -> None:
    # GIVEN 300 inferences of MobileNetV2, observed by the clock and the event tracer together
    model, etdump = laboratory.program("mobilenet_v2").model, tmp_path / "m.etdump"
    found = trace(trace_runner, model, tmp_path, 300, 1, f"--etdump={etdump}")
    (split,) = keep_near_median([examine_executions(load_etdump(etdump))])
    rows = split_operators([split]).rows
    assert [row.label for row in rows] == [operator.name for operator in found.operators]
    assert len(rows) > 60
    assert split.count > 100
    assert split.selected.size == len(found.executions)
    for row, operator in zip(rows, found.operators, strict=True):
        clock_ns = median(split_durations(operator, split))
        assert clock_ns > 0, row.label
        allowed_ns = TOLERANCE_NS + TOLERANCE_SHARE * timed(row).median_ns
        assert abs(clock_ns - timed(row).median_ns) <= allowed_ns, row.label


def test_short_operators_no_longer_read_zero(
    trace_runner: Path, laboratory: Laboratory, tmp_path: Path
) -> None:
    # GIVEN toy_cnn's classifier, a product of 32 by 10: less than a microsecond
    model, etdump = laboratory.program("toy_fp32").model, tmp_path / "m.etdump"
    found = trace(trace_runner, model, tmp_path, 200, 1, f"--etdump={etdump}")
    (classifier,) = [o for o in found.operators if o.delegate == 1 and "GEMM" in o.name]
    dump = load_etdump(etdump)
    rows = split_operators(keep_near_median([examine_executions(dump)])).rows
    assert timed(rows[found.operators.index(classifier)]).median_ns == 0
    assert 0 < median(classifier.duration_ns) < 1000


def test_the_local_target_traces_with_the_installed_runner(
    laboratory: Laboratory, tmp_path: Path
) -> None:
    target = LocalTarget()
    found = assess_kernels(laboratory.program("toy_fp32"), target, tmp_path)
    assert len(found.run.counted) == len(target.sme_modes())
    assert [check for check in found.outputs if not check.is_within] == []
    (first, *_) = found.run.counted.values()
    assert [o.parsed_name.base for o in first.operators if o.could_use_sme2]
