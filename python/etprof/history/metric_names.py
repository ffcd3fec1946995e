"""The metrics of the history: names, units, and which way is better."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class MetricKind:
    """What a metric's numbers are."""

    unit: str
    """ns, bytes or 1/s."""
    higher_is_better: bool
    label: str
    hud_name: str
    """Name in PyTorch's dashboard, after ExecuTorch's benchmark apps."""
    hud_scale: float
    """Factor from `unit` to the unit in `hud_name`."""


_MS: Final = 1e-6
_MB: Final = 1e-6


def _time(label: str, hud_name: str) -> MetricKind:
    return MetricKind("ns", False, label, hud_name, _MS)


METRICS: Final[dict[str, MetricKind]] = {
    "latency_ns": _time("Inference, median", "median_inference_latency(ms)"),
    "latency_mean_ns": _time("Inference, mean", "avg_inference_latency(ms)"),
    "latency_trimmed_mean_ns": _time(
        "Inference, mean of the middle 80 %", "trimmean_inference_latency(ms)"
    ),
    "load_ns": _time("Load", "model_load_time(ms)"),
    "first_inference_ns": _time("First inference", "first_inference_latency(ms)"),
    "peak_rss_bytes": MetricKind(
        "bytes", False, "Peak memory", "peak_inference_mem_usage(mb)", _MB
    ),
    "time_to_first_token_ns": _time("Time to first token", "time_to_first_token(ms)"),
    "prefill_tokens_per_second": MetricKind("1/s", True, "Prefill", "prefill_token_per_sec", 1.0),
    "decode_tokens_per_second": MetricKind("1/s", True, "Decode", "token_per_sec", 1.0),
    "token_latency_ns": _time("Latency of a token, median", "token_latency(ms)"),
}
HIGHER_IS_BETTER: Final = frozenset(name for name, kind in METRICS.items() if kind.higher_is_better)
HEADLINE: Final = "latency_ns"


def worse_side(metric: str) -> int:
    """Returns the sign of a change for the worse."""
    return -1 if metric in HIGHER_IS_BETTER else 1


def metric_label(name: str) -> str:
    """Names a metric in words; one of a newer etprof keeps its own name."""
    return METRICS[name].label if name in METRICS else name
