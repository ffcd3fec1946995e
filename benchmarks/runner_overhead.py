"""What etprof-runner adds to a model's latency, against a bare Method::execute loop.

usage: python benchmarks/runner_overhead.py [--pairs N] [--build-dir DIR]

Builds both programs, exports toy_cnn and MobileNetV2 (random weights), and launches the two sides
in pairs of random order until the 95 % interval of their ratio is within ±1 %, or N pairs at most.
Printed per model: the ratio of median latencies, runner to bare loop, as etprof itself estimates
an effect (Hodges-Lehmann over pairs, exact signed-rank interval), and the same for the runner with
its event tracer to without. Budget: 1.01 for the first. Exit code 1 when it is not kept.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from etprof.base.errors import EtprofError
from etprof.base.json_input import read_json
from etprof.base.process import run_command
from etprof.export.exporter import export_model
from etprof.export.request import ExportRequest
from etprof.run.program import Program, describe_program
from etprof.statistics.effect import effect_of_log_ratios

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Command = Sequence[str | Path]
    Launch = Callable[[], float]

ROOT = Path(__file__).resolve().parent.parent
BUDGET = 1.01
HALF_WIDTH = 0.01
WARMUP = 10
MOST_PAIRS = 400
STEP_PAIRS = 40
LAUNCH_ITERATIONS = {"toy_cnn": 2000, "mobilenet_v2": 40}
"""Short launches: neighbours in time share the machine's mood, so more pairs tell more."""


@dataclass(frozen=True)
class Ratio:
    """How much longer the first side takes than the second, from pairs of launches."""

    subject: str
    what: str
    ratio: float
    low: float
    high: float
    pairs: int

    def __str__(self) -> str:
        """One line of the table."""
        interval = f"[{self.low:.4f}, {self.high:.4f}]"
        return f"{self.subject:14} {self.what:24} {self.ratio:.4f}  {interval}  {self.pairs} pairs"


def build(build_dir: Path) -> tuple[Path, Path]:
    """Builds the runner and the bare loop; returns their paths."""
    configure: Command = [
        "cmake",
        "--preset",
        "host",
        "-B",
        build_dir,
        "-DETPROF_BUILD_BENCHMARKS=ON",
    ]
    compile_: Command = ["cmake", "--build", build_dir, "--target", "etprof-runner", "bare_execute"]
    for command in (configure, compile_):
        done = run_command(command, folder=ROOT)
        if done.exit_code != 0:
            sys.exit(f"{done.shell_text} failed:\n{done.stdout}{done.stderr}")
    return build_dir / "cpp/runner/etprof-runner", build_dir / "benchmarks/cpp/bare_execute"


def export_subjects(folder: Path) -> list[Program]:
    """Exports the models with their example inputs."""
    requests = [ExportRequest(name, "fp32", outdir=folder / name) for name in LAUNCH_ITERATIONS]
    return [describe_program(export_model(request).pte) for request in requests]


def launch(command: Command) -> str:
    """Runs `command` and returns what it printed; ends the benchmark if it fails.

    Where the stack begins moves a small model's latency by a percent, and it depends on the length
    of paths and variables (Mytkowicz and others, ASPLOS 2009); so it differs at every launch.
    """
    padding = "x" * random.randrange(4096)  # noqa: S311
    done = run_command(command, environment={"PADDING": padding})
    if done.exit_code != 0:
        sys.exit(f"{done.shell_text} failed: {done.stderr}")
    return done.stdout


def time_bare_loop(bare: Path, subject: Program) -> float:
    """Median latency in ns of one launch of the bare loop."""
    shape = subject.shapes[0].split("x")
    counts = ["--", str(WARMUP), str(LAUNCH_ITERATIONS[subject.name])]
    text = launch([bare, subject.model, subject.inputs[0], *shape, *counts])
    return statistics.median(int(line) for line in text.split())


def time_runner(runner: Path, subject: Program, folder: Path, *flags: str | Path) -> float:
    """Median latency in ns of one launch of the runner; its first inference warms up too."""
    result = folder / "result.json"
    counts = f"--warmup={WARMUP - 1} --iterations={LAUNCH_ITERATIONS[subject.name]}".split()
    files: Command = ["--model", subject.model, "--input", subject.inputs[0], "--result", result]
    launch([runner, *files, *counts, *flags])
    latencies: list[int] = read_json(result, way_out="measure again")["latency_ns"]
    return statistics.median(latencies)


def launch_pairs(sides: tuple[Launch, Launch], pairs: int, order: random.Random) -> list[float]:
    """Launches both sides `pairs` times, in random order; returns log(first / second)."""
    logs = []
    for _ in range(pairs):
        turn = order.sample((0, 1), k=2)
        latency_ns = {side: sides[side]() for side in turn}
        logs.append(math.log(latency_ns[0] / latency_ns[1]))
    return logs


def compare(subject: str, what: str, sides: tuple[Launch, Launch], most_pairs: int) -> Ratio:
    """Launches pairs until the interval is narrow enough to judge by; returns first / second.

    Ending by the width of the interval, not by where it lies, favours no side.
    """
    order = random.Random(0)  # noqa: S311
    logs: list[float] = []
    while True:
        logs += launch_pairs(sides, min(STEP_PAIRS, most_pairs - len(logs)), order)
        effect = effect_of_log_ratios(np.array(logs))
        if effect.interval is None:
            sys.exit("--pairs must be at least 6: fewer give no 95 % interval")
        low, high = effect.interval.low, effect.interval.high
        if (high - low) / 2 <= HALF_WIDTH or len(logs) >= most_pairs:
            return Ratio(subject, what, effect.speed_up, low, high, len(logs))


def measure_subject(
    subject: Program, programs: tuple[Path, Path], folder: Path, pairs: int
) -> list[Ratio]:
    """Returns both ratios of one model, the runner's overhead first."""
    runner, bare = programs
    etdump = ("--etdump", folder / "x.etdump")
    run = partial(time_runner, runner, subject, folder)
    loop = partial(time_bare_loop, bare, subject)
    run_traced = partial(time_runner, runner, subject, folder, *etdump)
    return [
        compare(subject.name, "runner / bare loop", (run, loop), pairs),
        compare(subject.name, "event tracer on / off", (run_traced, run), pairs),
    ]


def measure(pairs: int = MOST_PAIRS, build_dir: Path = ROOT / "build/host") -> list[Ratio]:
    """Prints the ratios of every model, as they come, and returns the runner's overheads."""
    programs = build(build_dir)
    overheads = []
    with tempfile.TemporaryDirectory() as name:
        for subject in export_subjects(Path(name)):
            ratios = measure_subject(subject, programs, Path(name), pairs)
            print("\n".join(map(str, ratios)), flush=True)
            overheads.append(ratios[0])
    return overheads


def main() -> int:
    """Returns 1 when an overhead is over budget."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=MOST_PAIRS, help="at most (default: 400)")
    parser.add_argument("--build-dir", type=Path, default=ROOT / "build/host")
    arguments = parser.parse_args()
    try:
        overheads = measure(arguments.pairs, arguments.build_dir)
    except EtprofError as error:
        sys.exit(str(error))
    return 0 if all(overhead.ratio <= BUDGET for overhead in overheads) else 1


if __name__ == "__main__":
    sys.exit(main())
