"""Run directories without ETDumps, written in a millisecond: what a history reads of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from etprof.base.atomic import write_json
from etprof.history.schema import full_hash
from etprof.run.directory import METRICS, BlockMetrics, ExperimentMetrics, Metrics
from etprof.run.manifest import Manifest, save_manifest
from etprof.run.runner_result import Load, Memory
from etprof.targets.registry import proves_times

START = datetime(2026, 11, 21, 5, 0, tzinfo=UTC)
TARGETS: Mapping[str, Mapping[str, object]] = {
    "linux": {"system": "Linux", "machine": "x86_64", "logical_cores": 2},
    "android": {
        "system": "Android",
        "serial": "R5CT1234",
        "manufacturer": "Acme",
        "model": "Phone 5",
        "soc_manufacturer": "Acme",
        "soc_model": "X1",
    },
    "emulator": {"system": "Linux", "emulator": "qemu-aarch64 10.1", "emulated_cpu": "max"},
}
STEADY = (100.0, 100.2, 99.8, 100.1, 99.9, 100.3, 99.7, 100.0, 100.1, 99.9)
"""Block medians in µs of a quiet machine."""


@dataclass(frozen=True)
class MeasuredRun:
    """What was measured; every experiment has the same blocks."""

    model: str = "toy_cnn"
    precision: str = "fp32"
    sme: str = "off"
    experiments: Sequence[str] = ("off",)
    failing: Mapping[str, str] = field(default_factory=dict)
    """Experiments that failed, and why."""
    blocks_us: Sequence[float] = STEADY
    minute: int = 0
    """Minutes after START."""
    platform: str = "linux"
    git: Mapping[str, object] | None = field(
        default_factory=lambda: {"commit": "c" * 40, "branch": "main", "dirty": False}
    )
    program: str = "b" * 64
    status: str = "finished"
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of the manifest."""
    planned: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of each planned experiment."""


def write_measured(folder: Path, run: MeasuredRun) -> Path:
    """Writes manifest.json and, unless all experiments failed, metrics.json."""
    folder.mkdir(parents=True)
    save_manifest(folder, Manifest.model_validate(_manifest(run)))
    measured = [name for name in run.experiments if name not in run.failing]
    if measured and run.status != "running":
        experiments = {name: _experiment(run) for name in measured}
        is_timed = proves_times(run.platform)
        metrics = Metrics(times_are_meaningful=is_timed, experiments=experiments)
        write_json(folder / METRICS, metrics.model_dump(mode="json"))
    return folder


def scaled(factor: float, values: Sequence[float] = STEADY) -> tuple[float, ...]:
    """Block medians times `factor`."""
    return tuple(value * factor for value in values)


def _experiment(run: MeasuredRun) -> ExperimentMetrics:
    blocks = [
        BlockMetrics(
            block=number,
            load=Load(program_ns=1000, method_ns=90_000 + number),
            first_inference_ns=round(latency * 3000),
            warmup_latency_ns=[round(latency * 1500)],
            latency_ns=[round(latency * 1000 * factor) for factor in (0.99, 1.0, 1.01)],
            memory=Memory(peak_rss_bytes=2**21 + 4096 * (number % 2)),
        )
        for number, latency in enumerate(run.blocks_us)
    ]
    return ExperimentMetrics(sme=run.sme, threads=1, blocks=blocks)


def _manifest(run: MeasuredRun) -> dict[str, Any]:
    launches = [
        {
            "experiment": name, "purpose": "timing", "block": 0, "duration_s": 0.1,
            "started_at": START.isoformat(), "error": error,
        }
        for name, error in run.failing.items()
    ]  # fmt: skip
    return {
        "run_id": full_hash(repr(run))[:32],
        "status": run.status,
        "created_at": (START + timedelta(minutes=run.minute)).isoformat(),
        "git": run.git,
        "platform": run.platform,
        "times_are_meaningful": proves_times(run.platform),
        "model": {
            "name": run.model, "precision": run.precision, "backend": "xnnpack",
            "method": "forward", "sha256": run.program, "size_bytes": 1000,
        },
        "inputs": [{"path": "x.bin", "sha256": "a" * 64, "size_bytes": 4}],
        "pins": {"executorch": "1.5.1"},
        "runner": {"version": "0.1.0", "build": {"build_type": "Release"}},
        "cpu": {
            "architecture": "x86_64", "model_name": "Known CPU", "logical_cores": 2,
            "features": {"avx2": True},
        },
        "target": TARGETS[run.platform],
        "settings": {},
        "experiments": [
            {"name": name, "sme": "auto", "threads": 1, **run.planned} for name in run.experiments
        ],
        "launches": launches,
        **run.extra,
    }  # fmt: skip
