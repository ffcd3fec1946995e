"""What etprof-runner adds to a model's latency, against a bare Module::forward loop.

usage: python benchmarks/runner_overhead.py [--pairs N] [--build-dir DIR]

Builds both programs, exports toy_cnn and MobileNetV2 (random weights), and launches the two sides
in pairs of random order. Printed per model: the median over pairs of (median latency of the runner
/ median latency of the bare loop) with its 95 % bootstrap interval over pairs, and the same for
the runner with its event tracer on against off. Budget: 1.01 for the first.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from etprof.process import run_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch
    from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parent.parent
BUDGET = 1.01
WARMUP = 20


@dataclass(frozen=True)
class Subject:
    """A program, its one float32 input, and how often a launch runs it."""

    name: str
    program: Path
    input_path: Path
    shape: tuple[int, ...]
    iterations: int


@dataclass(frozen=True)
class Ratio:
    """A median ratio over pairs and its 95 % bootstrap interval."""

    median: float
    low: float
    high: float


def build(build_dir: Path) -> tuple[Path, Path]:
    """Builds the runner and the bare loop; returns their paths."""
    configure: list[str | Path] = [
        "cmake",
        "--preset",
        "host",
        "-B",
        build_dir,
        "-DETPROF_BUILD_BENCHMARKS=ON",
    ]
    compile_: list[str | Path] = [
        "cmake",
        "--build",
        build_dir,
        "--target",
        "etprof-runner",
        "bare_forward",
    ]
    for command in (configure, compile_):
        done = run_command(command, folder=ROOT)
        if done.exit_code != 0:
            sys.exit(f"{done.shell_text} failed:\n{done.stdout}{done.stderr}")
    return build_dir / "cpp/runner/etprof-runner", build_dir / "benchmarks/cpp/bare_forward"


def make_models() -> dict[str, tuple[torch.nn.Module, tuple[int, ...], int]]:
    """Module, input shape and iterations per launch of each model."""
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    from etprof.registry import load_model

    class Logits(MobileNetV2ForImageClassification):  # type: ignore[misc]
        def forward(self, image: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = super().forward(pixel_values=image).logits
            return logits

    toy = load_model("toy_cnn")
    shape = tuple(toy.get_example_inputs()[0].shape)
    config = MobileNetV2Config(image_size=224)
    return {
        "toy_cnn": (toy.get_eager_model(), shape, 2000),
        "mobilenet_v2": (Logits(config), (1, 3, 224, 224), 200),
    }


def export_subjects(folder: Path) -> list[Subject]:
    """Lowers the models to XNNPACK and writes them with an input each."""
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    subjects = []
    for name, (module, shape, iterations) in make_models().items():
        image = torch.rand(shape)
        exported = torch.export.export(module.eval(), (image,))
        lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()])
        subject = Subject(name, folder / f"{name}.pte", folder / f"{name}.bin", shape, iterations)
        subject.program.write_bytes(lowered.to_executorch().buffer)
        subject.input_path.write_bytes(image.numpy().tobytes())
        subjects.append(subject)
    return subjects


def launch(command: Sequence[str | Path]) -> str:
    """Runs `command` and returns what it printed; ends the benchmark if it fails."""
    done = run_command(command)
    if done.exit_code != 0:
        sys.exit(f"{done.shell_text} failed: {done.stderr}")
    return done.stdout


def median_of_bare_loop(program: Path, subject: Subject) -> float:
    """Median latency in ns of one launch of the bare loop."""
    shape = [str(size) for size in subject.shape]
    counts = ["--", str(WARMUP), str(subject.iterations)]
    text = launch([program, subject.program, subject.input_path, *shape, *counts])
    return float(np.median([int(line) for line in text.split()]))


def median_of_runner(program: Path, subject: Subject, folder: Path, *flags: str | Path) -> float:
    """Median latency in ns of one launch of the runner."""
    result = folder / "result.json"
    counts = ["--warmup", str(WARMUP - 1), "--iterations", str(subject.iterations)]
    files: list[str | Path] = [
        "--model",
        subject.program,
        "--input",
        subject.input_path,
        "--result",
        result,
    ]
    launch([program, *files, *counts, *flags])
    return float(np.median(json.loads(result.read_text())["latency_ns"]))


def compare(
    candidate: Callable[[], float], baseline: Callable[[], float], pairs: int
) -> NDArray[np.float64]:
    """Launches both sides `pairs` times, order at random; returns candidate / baseline."""
    order = random.Random(0)  # noqa: S311
    ratios = []
    for _ in range(pairs):
        first_is_candidate = order.random() < 0.5
        first = candidate() if first_is_candidate else baseline()
        second = baseline() if first_is_candidate else candidate()
        ratios.append(first / second if first_is_candidate else second / first)
    return np.array(ratios)


def estimate(ratios: NDArray[np.float64]) -> Ratio:
    """The median of `ratios`, with the percentile bootstrap's interval."""
    generator = np.random.default_rng(0)
    resampled = generator.choice(ratios, size=(10_000, ratios.size))
    low, high = np.percentile(np.median(resampled, axis=1), [2.5, 97.5])
    return Ratio(float(np.median(ratios)), float(low), float(high))


def measure(subject: Subject, runner: Path, bare: Path, folder: Path, pairs: int) -> Ratio:
    """Prints both ratios of one model and returns the runner's overhead."""

    def run() -> float:
        return median_of_runner(runner, subject, folder)

    def run_traced() -> float:
        return median_of_runner(runner, subject, folder, "--etdump", folder / "x.etdump")

    def loop() -> float:
        return median_of_bare_loop(bare, subject)

    overhead = estimate(compare(run, loop, pairs))
    report(subject.name, "runner / bare loop", overhead)
    report(subject.name, "event tracer on / off", estimate(compare(run_traced, run, pairs)))
    return overhead


def report(name: str, what: str, ratio: Ratio) -> None:
    """Prints one line of the table."""
    interval = f"[{ratio.low:.4f}, {ratio.high:.4f}]"
    print(f"{name:14} {what:24} {ratio.median:.4f}  {interval}", flush=True)


def main() -> int:
    """Returns 1 when an overhead is over budget."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--pairs", type=int, default=40, help="pairs of launches (default: 40)")
    parser.add_argument("--build-dir", type=Path, default=ROOT / "build/host")
    arguments = parser.parse_args()
    runner, bare = build(arguments.build_dir)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        subjects = export_subjects(folder)
        print(f"{arguments.pairs} pairs of launches; median ratio [95 % bootstrap interval]")
        overheads = [
            measure(subject, runner, bare, folder, arguments.pairs) for subject in subjects
        ]
    return 0 if all(overhead.median <= BUDGET for overhead in overheads) else 1


if __name__ == "__main__":
    sys.exit(main())
