"""Metrics as PyTorch-HUD benchmark records, version 3, the format of PyTorch's own dashboard.

Fields after the table `benchmark.oss_ci_benchmark_v3` of pytorch/test-infra; metric names after
ExecuTorch's benchmark apps. Raw samples go along: `benchmark_values` is a list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.analysis.provenance import Provenance, load_provenance
from etprof.analysis.statistics import trimmed_mean

if TYPE_CHECKING:
    from etprof.analysis.run_analysis import ExperimentAnalysis, RunAnalysis
    from etprof.run_directory import ExperimentMetrics

_NS_PER_MS: Final = 1e6
_BYTES_PER_MB: Final = 1e6
_TRIM: Final = 0.1
"""Cut from each end: what is left is the middle 80 %, as in ExecuTorch's apps."""


def hud_records(analysis: RunAnalysis) -> list[dict[str, object]]:
    """Returns one record per metric and experiment; none for emulated runs."""
    if not analysis.times_are_meaningful or not analysis.source.is_dir():
        return []
    provenance = load_provenance(analysis.source) or Provenance()
    return [
        _record(experiment, provenance, name, values)
        for experiment in analysis.experiments
        if experiment.metrics is not None
        for name, values in _metrics(experiment.metrics).items()
    ]


def _metrics(metrics: ExperimentMetrics) -> dict[str, list[float]]:
    """Raw values by metric name, one per block or per inference."""
    blocks = metrics.blocks
    samples = [latency / _NS_PER_MS for block in blocks for latency in block.latency_ns]
    peaks = [b.memory.peak_rss_bytes for b in blocks if b.memory.peak_rss_bytes is not None]
    loaded = [
        b.memory.rss_after_load_bytes for b in blocks if b.memory.rss_after_load_bytes is not None
    ]
    shared = [b.memory.pss_bytes for b in blocks if b.memory.pss_bytes is not None]
    found = {
        "model_load_time(ms)": [
            (block.load.program_ns + block.load.method_ns) / _NS_PER_MS for block in blocks
        ],
        "first_inference_latency(ms)": [b.first_inference_ns / _NS_PER_MS for b in blocks],
        "avg_inference_latency(ms)": samples,
        "trimmean_inference_latency(ms)": [trimmed_mean(samples, _TRIM)],
        "load_status": [1.0],
        "peak_load_mem_usage(mb)": [value / _BYTES_PER_MB for value in loaded],
        "peak_inference_mem_usage(mb)": [value / _BYTES_PER_MB for value in peaks],
        "ram_pss_usage(mb)": [value / _BYTES_PER_MB for value in shared],
    }
    return {name: values for name, values in found.items() if values}


def _record(
    experiment: ExperimentAnalysis, provenance: Provenance, metric: str, values: list[float]
) -> dict[str, object]:
    """Builds one record; `extra_info` takes texts only."""
    model, cpu = provenance.model, provenance.cpu
    settings = {"sme": str(experiment.sme), "threads": str(experiment.threads)}
    return {
        "benchmark": {
            "name": "etprof",
            "mode": "inference",
            "dtype": (model.precision if model else None) or "unknown",
            "extra_info": {"experiment": experiment.name, **settings},
        },
        "model": {
            "name": model.name if model else "unknown",
            "type": "OSS model",
            "backend": (model.backend if model else None) or "unknown",
            "origins": ["pytorch"],
            "extra_info": {"sha256": (model.sha256 if model else None) or "unknown"},
        },
        "metric": {
            "name": metric,
            "benchmark_values": values,
            "target_value": 0.0,
            "extra_info": {},
        },
        "runners": [
            {
                "name": str(provenance.target.get("model") or provenance.platform or "unknown"),
                "type": provenance.platform or "unknown",
                "cpu_info": (cpu.model_name if cpu else None) or "unknown",
                "cpu_count": cpu.logical_cores if cpu else 0,
                "extra_info": {},
            }
        ],
        "dependencies": {
            name: {"version": version or "unknown", "extra_info": {}}
            for name, version in provenance.pins.items()
        },
    }
