"""Run directories built from a description: operators, times, noise, kernels; the truth is known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from etprof.analysis.run_analysis import RunAnalysis, analyze_run
from etprof.run.load import Run as LoadedRun
from tests.world.etdumps import execution_events, write_executions
from tests.world.spec import Operator

SME2_CPU = {
    "architecture": "aarch64",
    "model_name": "Cortex-X925",
    "logical_cores": 8,
    "features": {"sme": True, "sme2": True},
}


Op = Operator


@dataclass(frozen=True)
class Experiment:
    """One experiment of a described run; latencies are per block, in µs."""

    name: str
    ops: Sequence[Op]
    sme: str = "off"
    threads: int = 1
    latency_us: Sequence[float] | None = None
    """None: ten blocks that take what the operators and overheads add up to."""
    noise: Sequence[float] = (0.99, 1.0, 1.01)
    """Factors on the block's latency that make its samples."""
    executions: int = 8
    delegate_overhead_us: int = 0
    execute_overhead_us: int = 0
    kernels: dict[str, object] | None = None
    further_launches: Sequence[Sequence[Op]] = ()
    """Operators of operator launches after the first."""
    last_ops: Sequence[Op] | None = None
    """Operators of the last execution where they differ, as after an interruption."""


@dataclass(frozen=True)
class Run:
    """A whole described run directory."""

    experiments: Sequence[Experiment]
    platform: str = "android"
    meaningful: bool = True
    build_type: str = "Release"
    precision: str = "fp16"
    model: str = "known"
    cpu: dict[str, object] = field(default_factory=lambda: dict(SME2_CPU))
    inputs: Sequence[str] = ("a" * 64,)
    delegation: dict[str, Any] | None = None
    launches: Sequence[dict[str, object]] = ()
    created_at: str = "2026-11-21T05:00:00+00:00"


def write_run(folder: Path, run: Run) -> Path:
    """Writes the run directory and returns it."""
    folder.mkdir(parents=True)
    for experiment in run.experiments:
        place = folder / experiment.name
        place.mkdir()
        stem = f"{run.model}_{experiment.name}_t{experiment.threads}"
        (place / f"{stem}.etdump").write_bytes(build_etdump(experiment))
        for number, ops in enumerate(experiment.further_launches, start=1):
            content = build_etdump(replace(experiment, ops=ops))
            (place / f"{stem}_o{number:02}.etdump").write_bytes(content)
        if experiment.kernels is not None:
            (place / f"{stem}_kernels.json").write_text(json.dumps(experiment.kernels))
    (folder / "metrics.json").write_text(json.dumps(_metrics(run)))
    (folder / "manifest.json").write_text(json.dumps(_manifest(run)))
    if run.delegation is not None:
        (folder / "delegation.json").write_text(json.dumps(run.delegation))
    return folder


def analyze(folder: Path, run: Run) -> RunAnalysis:
    """Writes and analyses in one step."""
    return analyze_run(LoadedRun.load(write_run(folder, run)))


def build_etdump(experiment: Experiment) -> bytes:
    """Builds the ETDump: load, first inference three times slower, then equal executions."""
    last = experiment.last_ops or experiment.ops
    steady = [*[experiment.ops] * (experiment.executions - 1), last]
    overheads_us = experiment.execute_overhead_us, experiment.delegate_overhead_us
    executions = [(b"First", experiment.ops), *((b"Execute", ops) for ops in steady)]
    return write_executions(executions, overheads_us)


def launch(experiment: str, block: int, before: object, after: object) -> dict[str, object]:
    """A timing launch with the machine's state before and after it."""
    return {
        "experiment": experiment, "purpose": "timing", "block": block, "duration_s": 1.0,
        "started_at": "2026-11-21T05:00:00.000+00:00", "state_before": before, "state_after": after,
    }  # fmt: skip


def _metrics(run: Run) -> dict[str, object]:
    return {
        "schema_version": 1,
        "times_are_meaningful": run.meaningful,
        "experiments": {entry.name: _experiment_metrics(entry) for entry in run.experiments},
    }


def _experiment_metrics(experiment: Experiment) -> dict[str, object]:
    blocks = [
        {
            "block": number,
            "load": {"program_ns": 1000 + number, "method_ns": 90_000},
            "first_inference_ns": round(latency * 3000),
            "warmup_latency_ns": [round(latency * 1500)],
            "latency_ns": [round(latency * 1000 * factor) for factor in experiment.noise] * 3,
            "memory": {"rss_after_load_bytes": 2**20, "peak_rss_bytes": 2**21},
        }
        for number, latency in enumerate(_latencies_us(experiment))
    ]
    return {"sme": experiment.sme, "threads": experiment.threads, "blocks": blocks}


def _latencies_us(experiment: Experiment) -> Sequence[float]:
    if experiment.latency_us is not None:
        return experiment.latency_us
    overheads_us = experiment.execute_overhead_us, experiment.delegate_overhead_us
    _, end_us = execution_events(experiment.ops, 0, 1, overheads_us)
    return (float(end_us),) * 10


def _manifest(run: Run) -> dict[str, object]:
    return {
        "schema_version": 1,
        "created_at": run.created_at,
        "etprof_version": "0.1.0",
        "platform": run.platform,
        "times_are_meaningful": run.meaningful,
        "model": {
            "name": run.model,
            "precision": run.precision,
            "backend": "xnnpack",
            "method": "forward",
            "path": "missing.pte",
            "sha256": "b" * 64,
            "size_bytes": 1000,
        },
        "inputs": [{"path": "x.bin", "sha256": name, "size_bytes": 4} for name in run.inputs],
        "pins": {"executorch": "1.5.1"},
        "runner": {"version": "0.1.0", "build": {"build_type": run.build_type}},
        "cpu": run.cpu,
        "target": {"system": "Linux"},
        "settings": {"blocks": 10, "seed": 0},
        "experiments": [
            {"name": entry.name, "sme": entry.sme, "threads": entry.threads}
            for entry in run.experiments
        ],
        "launches": list(run.launches),
    }


CONV, GEMM = "Convolution (NHWC, {}) IGEMM #{}", "Fully Connected (NC, {}) GEMM #{}"

OFF_OPS = (
    Op("Transpose (ND, X16) #1", 10),
    Op(CONV.format("F16", 1), 400),
    Op("Convolution (NHWC, F16) DWConv #1", 50),
    Op(CONV.format("F16", 2), 300),
    Op("native_call_mean.out", 30, 1),
    Op(GEMM.format("F16", 1), 100, 2),
)
ON_OPS = (
    Op("Transpose (ND, X16) #1", 10),
    Op("Pack LH (X16) #1", 5),
    Op(CONV.format("PF16", 1), 100),
    Op("Convolution (NHWC, PF16) DWConv #1", 50),
    Op(CONV.format("PF16", 2), 60),
    Op("native_call_mean.out", 30, 1),
    Op(GEMM.format("PF16", 1), 25, 2),
)


def on_off_run() -> Run:
    """A model that SME2 makes about three times faster, with all kinds of rows."""
    experiments = (
        Experiment(
            "android_off",
            OFF_OPS,
            latency_us=[900 + i % 3 for i in range(10)],
            delegate_overhead_us=4,
            execute_overhead_us=2,
        ),
        Experiment(
            "android_sme2",
            ON_OPS,
            sme="sme2",
            latency_us=[300 + i % 4 for i in range(10)],
            delegate_overhead_us=4,
            execute_overhead_us=2,
        ),
    )
    return Run(experiments)
