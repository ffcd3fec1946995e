"""Holds the operator clock against ExecuTorch's event tracer and against a plain timing run.

Fails when a promise of docs/kernel_evidence.md is broken: every operator's median within 1 µs +
2 % of what XNNPACK reports for it and an ETDump keeps, none reads 0, and under 3 % overhead. The
ETDump of a launch of its own is compared as well; on a machine with other work its differences
are the machine's, so they are printed and not judged.

    python benchmarks/operator_clock.py MODEL.pte [--iterations 1000]

Takes the two installed runners, unless --runner and --trace-runner name others.
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
from etprof.analysis.kernel_trace import KernelTrace, TracedOperator, read_kernel_trace
from etprof.analysis.operators import OperatorRow, split_operators
from etprof.etdump import load_etdump
from etprof.process import run_command
from etprof.targets.runner import find_host_runner

LAUNCHES = 30
TOLERANCE_NS = 1000
TOLERANCE_SHARE = 0.02
MOST_OVERHEAD = 0.03
QUIET_QUANTILE = 0.02
"""Latencies are compared where other work on the machine disturbs least."""


def run_runner(runner: Path, model: Path, folder: Path, *flags: str) -> dict[str, Any]:
    """Runs the model once and returns the result."""
    result = folder / "result.json"
    command: list[str | Path] = [runner, f"--model={model}", f"--result={result}", "--threads=1"]
    completed = run_command([*command, *flags])
    assert completed.exit_code == 0, completed.stderr
    document: dict[str, Any] = json.loads(result.read_text())
    return document


def measure_latencies(arguments: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Returns the latency plain, with the clock and with the event tracer; launches in turns."""
    runs = {
        "plain": (arguments.runner, ()),
        "operator clock": (arguments.trace_runner, (f"--kernel-trace={folder / 'k.json'}",)),
        "event tracer": (arguments.runner, (f"--etdump={folder / 'm.etdump'}",)),
    }
    samples: dict[str, list[int]] = {name: [] for name in runs}
    for _ in range(LAUNCHES):
        for name, (runner, flags) in runs.items():
            counts = ("--iterations=100", "--warmup=5")
            document = run_runner(runner, arguments.model, folder, *counts, *flags)
            samples[name] += document["latency_ns"]
    return {name: float(np.quantile(values, QUIET_QUANTILE)) for name, values in samples.items()}


def is_within(value_ns: float, reference_ns: float) -> bool:
    """Whether two durations agree within 1 µs + 2 %; the reference is in whole µs."""
    return abs(value_ns - reference_ns) <= TOLERANCE_NS + TOLERANCE_SHARE * reference_ns


def median_of(
    operator: TracedOperator, values: tuple[int | None, ...], trace: KernelTrace
) -> float:
    """Returns the median over the steady executions."""
    steady = (i for i, e in enumerate(trace.executions) if e.phase == "Execute" and e.aligned)
    found = [value for i in steady if (value := values[i]) is not None]
    assert found, operator.name
    return statistics.median(found)


def compare_operators(rows: tuple[OperatorRow, ...], trace: KernelTrace) -> int:
    """Prints how well the operators agree; returns how many break a promise."""
    assert [row.label for row in rows] == [operator.name for operator in trace.operators]
    broken = zero = other_launch = 0
    for row, operator in zip(rows, trace.operators, strict=True):
        clock_ns = median_of(operator, operator.duration_ns, trace)
        other_launch += not is_within(clock_ns, row.median_ns)
        if operator.delegate is None:
            continue
        reported_ns = median_of(operator, operator.reported_ns, trace)
        zero += reported_ns == 0
        if clock_ns == 0 or not is_within(clock_ns, reported_ns):
            print(f"  {operator.name}: clock {clock_ns:.0f} ns, reported {reported_ns:.0f} ns")
            broken += 1
    print(f"operators: {len(rows)}; beyond 1 µs + 2 % of what XNNPACK reports: {broken}")
    print(f"beyond 1 µs + 2 % of the ETDump of another launch: {other_launch}")
    print(f"operators whose median reads 0: {zero} as reported, 0 on the clock")
    return broken


def main() -> int:
    """Measures and judges."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--runner", type=Path, default=find_host_runner())
    parser.add_argument("--trace-runner", type=Path, default=find_host_runner(tracing=True))
    parser.add_argument("--iterations", type=int, default=1000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        flags = (f"--iterations={arguments.iterations}", "--warmup=50")
        etdump, kernels = folder / "m.etdump", folder / "k.json"
        run_runner(arguments.runner, arguments.model, folder, *flags, f"--etdump={etdump}")
        traced = f"--kernel-trace={kernels}"
        run_runner(arguments.trace_runner, arguments.model, folder, *flags, traced)
        dump = load_etdump(etdump)
        trace = read_kernel_trace(kernels)
        broken = compare_operators(split_operators(split_executions(dump), dump.names).rows, trace)
        latency = measure_latencies(arguments, folder)
    for label, latency_ns in latency.items():
        print(f"{label}: {latency_ns / 1e6:.3f} ms, {latency_ns / latency['plain']:.4f} of plain")
    print(f"the clock's own estimate of its share: {trace.clock.cost_share:.2%}")
    overhead = latency["operator clock"] / latency["plain"] - 1
    return 1 if broken or overhead >= MOST_OVERHEAD else 0


if __name__ == "__main__":
    sys.exit(main())
