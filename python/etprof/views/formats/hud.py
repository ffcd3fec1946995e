"""Metrics as PyTorch-HUD benchmark records, version 3, the format of PyTorch's own dashboard.

Fields after the table `benchmark.oss_ci_benchmark_v3` of pytorch/test-infra; metric names after
ExecuTorch's benchmark apps. Raw samples go along: `benchmark_values` is a list.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from etprof.statistics.summary import trimmed_mean
from etprof.views.formats import Format

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from etprof.analysis.run_analysis import ExperimentAnalysis, RunAnalysis
    from etprof.run.directory import ExperimentMetrics
    from etprof.run.manifest import Manifest

_NS_PER_MS: Final = 1e6
_BYTES_PER_MB: Final = 1e6


@dataclass(frozen=True)
class HudSubject:
    """What was measured, in the words of the dashboard's table; None is not known."""

    experiment: str
    model: str | None = None
    precision: str | None = None
    backend: str | None = None
    program_sha256: str | None = None
    sme: str | None = None
    threads: int | None = None
    device: str | None = None
    platform: str | None = None
    cpu: str | None = None
    cores: int | None = None
    pins: Mapping[str, str | None] = field(default_factory=dict)


def hud_records(analysis: RunAnalysis) -> list[dict[str, object]]:
    """Returns one record per metric and timed experiment."""
    return [
        hud_record(_subject(experiment, analysis.manifest), name, values)
        for experiment in analysis.experiments
        if experiment.metrics is not None and experiment.metrics.blocks
        for name, values in hud_metrics(experiment.metrics).items()
    ]


def hud_metrics(metrics: ExperimentMetrics) -> dict[str, list[float]]:
    """Raw values by metric name, one per block or per inference."""
    blocks = metrics.blocks
    samples = [latency / _NS_PER_MS for block in blocks for latency in block.latency_ns]
    peaks = [b.memory.peak_rss_bytes for b in blocks if b.memory.peak_rss_bytes is not None]
    loaded = [
        b.memory.rss_after_load_bytes for b in blocks if b.memory.rss_after_load_bytes is not None
    ]
    resident = [b.memory.pss_bytes for b in blocks if b.memory.pss_bytes is not None]
    runner_metrics = {
        "model_load_time(ms)": _known_ms(block.load.total_ns for block in blocks),
        "first_inference_latency(ms)": _known_ms(block.first_inference_ns for block in blocks),
        "avg_inference_latency(ms)": samples,
        "trimmean_inference_latency(ms)": [trimmed_mean(samples)],
        "load_status": [1.0],
        "peak_load_mem_usage(mb)": [value / _BYTES_PER_MB for value in loaded],
        "peak_inference_mem_usage(mb)": [value / _BYTES_PER_MB for value in peaks],
        "ram_pss_usage(mb)": [value / _BYTES_PER_MB for value in resident],
    }
    return {
        name: values
        for name, values in {**runner_metrics, **_llm_metrics(metrics)}.items()
        if values
    }


def _known_ms(times_ns: Iterable[int | None]) -> list[float]:
    return [times_n / _NS_PER_MS for times_n in times_ns if times_n is not None]


def _llm_metrics(metrics: ExperimentMetrics) -> dict[str, list[float]]:
    """The names of ExecuTorch's app for language models; empty when no tokens were generated."""
    generations = [
        (block, block.generation) for block in metrics.blocks if block.generation is not None
    ]
    return {
        "llm_model_load_time(ms)": _known_ms(block.load.total_ns for block, _ in generations),
        "generate_time(ms)": [
            value / _NS_PER_MS for block, _ in generations for value in block.latency_ns
        ],
        "token_per_sec": [
            rate for _, speed in generations for rate in speed.decode_tokens_per_second
        ],
        "time_to_first_token(ms)": [
            value / _NS_PER_MS for _, speed in generations for value in speed.time_to_first_token_ns
        ],
    }


def _subject(experiment: ExperimentAnalysis, manifest: Manifest | None) -> HudSubject:
    subject = HudSubject(experiment=experiment.name, sme=experiment.sme, threads=experiment.threads)
    if manifest is None:
        return subject
    model, cpu = experiment.program.model or manifest.model, manifest.cpu
    return replace(
        subject,
        model=model.name,
        precision=model.precision,
        backend=model.backend,
        program_sha256=model.sha256,
        device=str(manifest.target.get("model") or manifest.platform),
        platform=manifest.platform,
        cpu=cpu.model_name if cpu else None,
        cores=cpu.logical_cores if cpu else None,
        pins=manifest.pins,
    )


def hud_record(subject: HudSubject, metric: str, values: Sequence[float]) -> dict[str, object]:
    """Builds one record; `extra_info` takes texts only."""
    settings = {"sme": str(subject.sme), "threads": str(subject.threads)}
    return {
        "benchmark": {
            "name": "etprof",
            "mode": "inference",
            "dtype": subject.precision or "unknown",
            "extra_info": {"experiment": subject.experiment, **settings},
        },
        "model": {
            "name": subject.model or "unknown",
            "type": "OSS model",
            "backend": subject.backend or "unknown",
            "origins": ["pytorch"],
            "extra_info": {"sha256": subject.program_sha256 or "unknown"},
        },
        "metric": {
            "name": metric,
            "benchmark_values": list(values),
            "target_value": 0.0,
            "extra_info": {},
        },
        "runners": [
            {
                "name": subject.device or "unknown",
                "type": subject.platform or "unknown",
                "cpu_info": subject.cpu or "unknown",
                "cpu_count": subject.cores or 0,
                "extra_info": {},
            }
        ],
        "dependencies": {
            name: {"version": version or "unknown", "extra_info": {}}
            for name, version in subject.pins.items()
        },
    }


FORMAT = Format(of_run=lambda run: {"report_hud_v3.json": hud_records(run.run)})
