"""Holds the runner's times of generated tokens against clocks outside its process.

Two clocks: this process notes when each token arrives on a pipe; and the wall-clock of whole
launches, where twice the repetitions must take as much longer as the runner says. Fails when a
promise of docs/llm.md is broken: every figure within 2 %.

    python benchmarks/generation_clock.py MODEL.pte [--prompt 64] [--generate 64]
    python benchmarks/generation_clock.py --sdpa --runner build/host-source/cpp/runner/etprof-runner

Without a model it exports the zoo's decoder; with --sdpa a LLaMA by `etprof export-llm`, random
weights, whose attention is `llama::sdpa_with_kv_cache`. Takes the installed runner, unless --runner
names another; that attention needs one of a source build.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etprof.base.json_input import read_json
from etprof.export.exporter import export_model
from etprof.export.request import ExportRequest
from etprof.export_llm.exporting import export_llm
from etprof.export_llm.planning import LlmRequest, plan_export
from etprof.targets.runner import find_host_runner

TOLERANCE = 0.02
_START = "repetition"
_NS_PER_S = 1e9
_LLAMA = {
    "dim": 512, "n_layers": 4, "n_heads": 8, "n_kv_heads": 4, "vocab_size": 4096,
    "hidden_dim": 1536, "norm_eps": 1e-5,
}  # fmt: skip
"""Small, and a token takes milliseconds: what a pipe takes is far below the tolerance."""
_SDPA = """\
base: {model_class: llama3, params: llama.json}
model: {use_kv_cache: true, use_sdpa_with_kv_cache: true}
export: {max_seq_length: 128, max_context_length: 256}
backend: {xnnpack: {enabled: true}}
"""


@dataclass(frozen=True)
class Launch:
    """One launch of the runner: what it says, and what was seen from outside."""

    result: dict[str, Any]
    arrivals_ns: list[list[int]]
    """Of each timed repetition: when it began, and when each token came."""
    wall_ns: int


def launch(
    arguments: argparse.Namespace, folder: Path, *, repetitions: int, stream: bool
) -> Launch:
    """Runs the model and reads along."""
    result = folder / "result.json"
    prompt = ",".join(str(1 + 7 * place % 250) for place in range(arguments.prompt))
    command = [
        arguments.runner, f"--model={arguments.model}", f"--result={result}", "--threads=1",
        f"--generate={arguments.generate}", f"--prompt-tokens={prompt}",
        f"--iterations={repetitions}", "--warmup=1",
    ]  # fmt: skip
    begin = time.perf_counter_ns()
    with subprocess.Popen(
        [*command, *(["--stream-tokens"] if stream else [])], stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdout is not None
        arrivals = read_arrivals(process.stdout.fileno())
        code = process.wait()
    wall_ns = time.perf_counter_ns() - begin
    assert code == 0, f"the runner ended with {code}"
    return Launch(read_json(result, way_out="measure again"), arrivals[2:], wall_ns)


def prefer_this_clock() -> None:
    """Lets this process wake at once, where allowed: its own waiting for a CPU is no latency."""
    try:
        policy = os.SCHED_FIFO | os.SCHED_RESET_ON_FORK
        os.sched_setscheduler(0, policy, os.sched_param(1))
    except (AttributeError, PermissionError):
        print("not allowed to run with priority; on a busy machine the outside clock may be late")


def read_arrivals(pipe: int) -> list[list[int]]:
    """Notes the time of every line; a line that says `repetition` begins a new list."""
    arrivals: list[list[int]] = []
    rest = b""
    while chunk := os.read(pipe, 65536):
        now = time.perf_counter_ns()
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line.decode().startswith(_START):
                arrivals.append([])
            arrivals[-1].append(now)
    return arrivals


Figures = dict[str, float]


def inside_figures(repetition: dict[str, Any]) -> Figures:
    """What the runner says of one repetition, in ns and tokens per second."""
    latencies = repetition["token_latency_ns"]
    return {
        "time to first token": repetition["time_to_first_token_ns"],
        "decode rate": len(latencies) * _NS_PER_S / sum(latencies),
        "generation": repetition["total_ns"],
    }


def outside_figures(times: list[int]) -> Figures:
    """The same of what was seen."""
    tokens = times[1:]
    return {
        "time to first token": tokens[0] - times[0],
        "decode rate": (len(tokens) - 1) * _NS_PER_S / (tokens[-1] - tokens[0]),
        "generation": tokens[-1] - times[0],
    }


def compare_stream(launched: Launch) -> dict[str, tuple[float, float]]:
    """Pairs both views of each repetition, and returns by figure the pair of middle ratio."""
    repetitions = launched.result["generation"]["repetitions"]
    pairs = [
        (inside_figures(said), outside_figures(seen))
        for said, seen in zip(repetitions, launched.arrivals_ns, strict=True)
    ]

    figures = {name: middle([(i[name], o[name]) for i, o in pairs]) for name in pairs[0][0]}
    tokens = [
        (float(latency), float(after - before))
        for said, seen in zip(repetitions, launched.arrivals_ns, strict=True)
        for latency, (before, after) in zip(
            said["token_latency_ns"], itertools.pairwise(seen[1:]), strict=True
        )
    ]
    return {**figures, "token latency": middle(tokens)}


def middle(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Returns the pair of the middle ratio."""
    return sorted(pairs, key=lambda pair: pair[1] / pair[0])[len(pairs) // 2]


def compare_walls(arguments: argparse.Namespace, folder: Path) -> tuple[float, float]:
    """What more repetitions cost, by the runner and by the wall-clock: the middle of five pairs."""
    found = []
    for _ in range(5):
        few, many = (
            launch(arguments, folder, repetitions=count * arguments.repetitions, stream=False)
            for count in (1, 3)
        )
        inside = _total_ns(many.result) - _total_ns(few.result)
        found.append((inside, many.wall_ns - few.wall_ns))
    return middle(found)


def _total_ns(result: dict[str, Any]) -> int:
    """All repetitions, those before the timed ones included."""
    samples = [result["first_inference_ns"], *result["warmup_latency_ns"], *result["latency_ns"]]
    return sum(samples)


def export_decoder(folder: Path) -> Path:
    """Exports the zoo's decoder in float32."""
    return export_model(ExportRequest("decoder", "fp32", outdir=folder)).pte


def export_sdpa(folder: Path) -> Path:
    """Exports a LLaMA as ExecuTorch does, with attention by its own operator."""
    (folder / "llama.json").write_text(json.dumps(_LLAMA))
    (folder / "llama.yaml").write_text(_SDPA)
    plan = plan_export(LlmRequest(folder / "llama.yaml", out=folder / "llama.pte"))
    return export_llm(plan).pte


def main() -> int:
    """Measures, prints the figures side by side, and says whether all agree."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("model", nargs="?", type=Path)
    parser.add_argument("--sdpa", action="store_true", help="a LLaMA of export-llm as the model")
    parser.add_argument("--runner", type=Path, default=None)
    parser.add_argument("--prompt", type=int, default=64, help="tokens of the prompt")
    parser.add_argument("--generate", type=int, default=64, help="new tokens")
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--tolerance", type=float, default=TOLERANCE)
    arguments = parser.parse_args()
    if arguments.sdpa and arguments.model is not None:
        parser.error("--sdpa exports the model itself; leave MODEL out")
    arguments.runner = arguments.runner or find_host_runner()
    prefer_this_clock()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.model is None:
            export = export_sdpa if arguments.sdpa else export_decoder
            arguments.model = export(folder)
        streamed = launch(arguments, folder, repetitions=arguments.repetitions, stream=True)
        figures = compare_stream(streamed)
        figures["more repetitions"] = compare_walls(arguments, folder)
    worst = 0.0
    for label, (inside, outside) in figures.items():
        off = outside / inside - 1
        worst = max(worst, abs(off))
        unit, scale = ("tokens/s", 1.0) if "rate" in label else ("ms", 1e-6)
        print(f"{label:20} inside {inside * scale:9.3f} {unit:8} outside {outside * scale:9.3f}"
              f"  {off * 100:+.2f} %")  # fmt: skip
    print(f"largest difference {worst * 100:.2f} %, allowed {arguments.tolerance * 100:.0f} %")
    return 0 if worst <= arguments.tolerance else 1


if __name__ == "__main__":
    sys.exit(main())
