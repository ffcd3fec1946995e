"""Holds the operator clock against ExecuTorch's own event tracer and against a plain timing run.

Prints ratios, and fails when a promise of docs/kernel_evidence.md is broken: medians of every
operator within 1 µs + 2 % of the ETDump's, no operator that ran reads 0, and under 3 % overhead.

    python benchmarks/operator_clock.py RUNNER TRACE_RUNNER MODEL.pte [--iterations 1000]

RUNNER is a timing runner (preset host), TRACE_RUNNER one with the kernel trace (host-trace).
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from etprof.analysis.executions import split_executions
from etprof.analysis.kernel_trace import KernelTrace, read_kernel_trace
from etprof.analysis.operators import OperatorRow, split_operators
from etprof.etdump import load_etdump
from etprof.process import run_command

BLOCKS = 7
TOLERANCE_NS = 1000
TOLERANCE_SHARE = 0.02
MOST_OVERHEAD = 0.03


def run_runner(runner: Path, model: Path, folder: Path, *flags: str) -> dict[str, Any]:
    """Runs the model once and returns the result."""
    result = folder / "result.json"
    command: list[str | Path] = [
        runner,
        f"--model={model}",
        f"--result={result}",
        "--threads=1",
        *flags,
    ]
    completed = run_command(command)
    assert completed.exit_code == 0, completed.stderr
    document: dict[str, Any] = json.loads(result.read_text())
    return document


def measure_overhead(arguments: argparse.Namespace, folder: Path) -> float:
    """Returns the traced latency over the plain one, minus 1: launches in turns, best of each."""
    flags = ("--iterations=300", "--warmup=30")
    plain, traced = [], []
    for _ in range(BLOCKS):
        latency = run_runner(arguments.runner, arguments.model, folder, *flags)["latency_ns"]
        plain.append(statistics.median(latency))
        trace = f"--kernel-trace={folder / 'k.json'}"
        document = run_runner(arguments.trace_runner, arguments.model, folder, *flags, trace)
        traced.append(statistics.median(document["latency_ns"]))
    return float(np.median(np.array(traced) / np.array(plain))) - 1


def compare_medians(rows: tuple[OperatorRow, ...], trace: KernelTrace) -> list[float]:
    """Prints the operators that differ most; returns each one's excess over the tolerance, ns."""
    assert [row.label for row in rows] == [operator.name for operator in trace.operators]
    steady = [i for i, e in enumerate(trace.executions) if e.phase == "Execute" and e.aligned]
    excesses = []
    for row, operator in zip(rows, trace.operators, strict=True):
        durations = [value for i in steady if (value := operator.duration_ns[i]) is not None]
        clock_ns = statistics.median(durations)
        # The ETDump rounds down to whole microseconds.
        difference = abs(clock_ns - row.median_ns)
        excess = difference - TOLERANCE_NS - TOLERANCE_SHARE * row.median_ns
        excesses.append(excess)
        if excess > -TOLERANCE_NS / 4 or clock_ns == 0:
            print(f"  {operator.name}: clock {clock_ns:.0f} ns, ETDump {row.median_ns:.0f} ns")
        assert clock_ns > 0, operator.name
    return excesses


def main() -> int:
    """Measures and judges."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runner", type=Path)
    parser.add_argument("trace_runner", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--iterations", type=int, default=1000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        flags = (f"--iterations={arguments.iterations}", "--warmup=50")
        etdump, kernels = folder / "m.etdump", folder / "kernels.json"
        run_runner(arguments.runner, arguments.model, folder, *flags, f"--etdump={etdump}")
        run_runner(
            arguments.trace_runner, arguments.model, folder, *flags, f"--kernel-trace={kernels}"
        )
        dump = load_etdump(etdump)
        rows = split_operators(split_executions(dump), dump.names).rows
        trace = read_kernel_trace(kernels)
        excesses = compare_medians(rows, trace)
        zero = sum(row.median_ns == 0 for row in rows)
        overhead = measure_overhead(arguments, folder)
    beyond = sum(excess > 0 for excess in excesses)
    print(f"operators: {len(excesses)}, beyond 1 µs + 2 %: {beyond}")
    print(f"operators whose median reads 0: ETDump {zero}, clock 0")
    print(f"clock's own estimate of its cost: {trace.clock.cost_share:.2%}")
    print(f"latency with the clock over plain: {1 + overhead:.4f} (overhead {overhead:+.2%})")
    return 1 if beyond or overhead >= MOST_OVERHEAD else 0


if __name__ == "__main__":
    sys.exit(main())
