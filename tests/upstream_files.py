"""What ExecuTorch's own programs leave, in the words and shapes of their sources."""

from __future__ import annotations

import json
from collections.abc import Sequence

_PLACE = "I 00:00:00.{:06d} executorch:executor_runner.cpp:{}] "


def runner_log(
    iterations_ms: Sequence[float],
    *,
    load_ms: float = 13.629218,
    threads: int | None = None,
    traced: bool = True,
    by_iteration: bool = True,
    finished: bool = True,
) -> str:
    """The lines of examples/portable/executor_runner, as one of ExecuTorch 1.5 printed them."""
    count = len(iterations_ms)
    lines = [
        *([f"Resetting threadpool with num threads = {threads}"] if threads else []),
        "Model file /data/local/tmp/toy_cnn.pte is loaded.",
        "Using method forward",
        "Setting up CPU planned buffer 0, size 28736.",
        f"Model loaded in {load_ms:f} ms.",
    ]
    if by_iteration:
        lines += [f"Iteration {i} of {count}: {ms:f} ms" for i, ms in enumerate(iterations_ms, 1)]
    if finished:
        total = sum(iterations_ms)
        lines.append(f"Model executed successfully {count} time(s) in {total:f} ms.")
        lines.append("1 outputs: ")
        lines += ["ETDump written to file 'model.etdump'."] if traced else []
    return "".join(_PLACE.format(i, 400 + i) + line + "\n" for i, line in enumerate(lines))


def minibench_json(*, load_status: float = 0.0, **values: float) -> str:
    """benchmark_results.json of extension/benchmark/android: records with their device."""
    device = {
        "device": "samsung",
        "arch": "SM-S921B",
        "os": "Android 14",
        "totalMem": 0,
        "availMem": 0,
    }
    model = {"name": "mv2", "backend": "xnnpack", "quantization": "q8"}
    metrics = {
        "avg_inference_latency(ms)": 4.25,
        "trimmean_inference_latency(ms)": 4.2,
        "model_load_time(ms)": 31.5,
        "load_status": load_status,
        "ram_pss_usage(mb)": 12.0,
    } | values
    return json.dumps([
        {"benchmarkModel": model, "metric": name, "actualValue": value, "targetValue": 0.0,
         "deviceInfo": device}
        for name, value in metrics.items()
    ])  # fmt: skip


def xctest_log(seconds: Sequence[float], *, model: str = "mv2_xnnpack_q8") -> str:
    """Lines of xcodebuild for extension/benchmark/apple, with all that XCTest adds to them."""
    test = f"{model}_pte_iOS_17_2_1_iPhone15_4"

    def line(name: str, metric: str, values: Sequence[float], what: str) -> str:
        told = ", ".join(f"{value:.6f}" for value in values)
        mean = sum(values) / len(values)
        return (
            f"<unknown>:0: Test Case '-[GenericTests {name}]' measured [{metric}] average: "
            f"{mean:.3f}, relative standard deviation: 5.263%, values: [{told}], "
            f'performanceMetricID:com.apple.dt.XCTMetric_{what}, baselineName: "", '
            "baselineAverage: , polarity: prefers smaller, maxPercentRegression: 10.000%, "
            "maxPercentRelativeStandardDeviation: 10.000%, maxRegression: 0.000\n"
        )

    clock, peak = "Clock Monotonic Time, s", "Memory Peak Physical, kB"
    return "".join((
        f"Test Case '-[GenericTests test_forward_{test}]' started.\n",
        line(f"test_forward_{test}", clock, seconds, "Clock.time.monotonic"),
        line(f"test_forward_{test}", peak, [20480.0, 24576.0], "Memory.physical_peak"),
        line(f"test_load_{test}", clock, [0.05, 0.03, 0.04], "Clock.time.monotonic"),
    ))  # fmt: skip
