"""What etprof-runner adds to a model's latency, against a bare Method::execute loop.

usage: python benchmarks/runner_overhead.py [--pairs N] [--subjects LIST] [--build-dir DIR]

Builds both programs and exports toy_cnn, MobileNetV2 (random weights), an addition to each of
1x3x224x224 values (add_224), a net with such an input that does next to nothing (slice_224) and ten
additions of four numbers, of 1 µs (ten_adds), and launches the two sides in pairs of random order
until the 95 % interval of their ratio is within ±1 %, or N pairs at most. Printed per model: the
ratio of median latencies and the median of their differences

- of the runner to the bare loop, which has nothing but Method::execute between two clock readings
  (both have several executions there where the runner finds one too short for its clock);
- of the traced runner to the `Method::execute` events of the very same launch, which end before the
  tracer has done its own work, so that part of the difference is the tracer's;
- of the runner with its event tracer to without.

Ratios are estimated as etprof itself estimates an effect (Hodges-Lehmann over pairs, exact
signed-rank interval). Limits: within 1 % for the first, or within 30 ns where that is more; within
1 % for the second where the net is longer than a hundred times the tracer's own work (MobileNetV2
and add_224). Each line ends with its limit and "kept", "not kept", or "not shown" where the interval
is wider than the limit. Exit code 1 unless all are kept.
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
from typing import TYPE_CHECKING, Any

import numpy as np

from etprof.base.errors import EtprofError
from etprof.base.json_input import read_json
from etprof.base.process import run_command
from etprof.etdump.reader import load_etdump
from etprof.export.exporter import export_model
from etprof.export.request import ExportRequest
from etprof.run.program import Program, describe_program
from etprof.statistics.effect import effect_of_log_ratios
from etprof.targets.emulator.build import find_installed_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Command = Sequence[str | Path]
    Launch = Callable[[], float]
    Pair = tuple[float, float]

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/host"
LIMIT = 0.01
LIMIT_NS = 30
"""A percent of a microsecond is less than a reading of the clock takes."""
BARE, EVENT, TRACER = "runner / bare loop", "traced runner / its event", "event tracer on / off"
LONG = {"mobilenet_v2", "add_224"}
"""Nets that take a hundred times as long as the tracer works after it ended the event."""
WARMUP = 10
MOST_PAIRS = 400
STEP_PAIRS = 40
LAUNCH_ITERATIONS = {
    "toy_cnn": 2000,
    "mobilenet_v2": 40,
    "add_224": 1000,
    "slice_224": 5000,
    "ten_adds": 10000,
}
"""Short launches: neighbours in time share the machine's mood, so more pairs tell more."""

SMALL_NETS = {
    "add_224": ((1, 3, 224, 224), lambda _, x: x + 1),
    "slice_224": ((1, 3, 224, 224), lambda _, x: x[:, :, :1, :1] + 1),
    "ten_adds": ((4,), lambda _, x: sum((x,) * 10)),
}
"""Shape of the input and what is computed: a big input for little work, and little of both."""


@dataclass(frozen=True)
class Ratio:
    """How much longer the first side takes than the second, from pairs of launches."""

    subject: str
    what: str
    ratio: float
    low: float
    high: float
    difference_ns: float
    """The median difference of the pairs."""
    latency_ns: float
    """The median of the second side."""
    pairs: int

    @property
    def limit(self) -> float | None:
        """How far the ratio may be from 1; None where nothing is asked."""
        if self.what == BARE:
            return max(LIMIT, LIMIT_NS / self.latency_ns)
        return LIMIT if self.what == EVENT and self.subject in LONG else None

    @property
    def verdict(self) -> str:
        """Whether the first side is within the limit of the second, as far as that is known."""
        if self.limit is None:
            return "no limit"
        if abs(self.ratio - 1) > self.limit:
            return "not kept"
        return "kept" if (self.high - self.low) / 2 <= self.limit else "not shown"

    def __str__(self) -> str:
        """One line of the table."""
        interval = f"[{self.low:.4f}, {self.high:.4f}]"
        times = f"{self.difference_ns:+.0f} ns of {self.latency_ns:.0f} ns"
        what = f"{self.subject:14} {self.what:25}"
        limit = "" if self.limit is None else f"limit {self.limit:.2%}: "
        pairs = f"{self.pairs} pairs"
        return f"{what} {self.ratio:.4f}  {interval}  {times}  {pairs}  {limit}{self.verdict}"


def build(build_dir: Path) -> tuple[Path, Path]:
    """Builds the runner and the bare loop; returns their paths."""
    tools = find_installed_tools()
    if tools is None:
        sys.exit(
            "the runner is built with CMake 3.28 or newer and ninja, and neither this Python's "
            f"environment nor PATH has both; get them with: {sys.executable} -m pip install cmake "
            "ninja"
        )
    configure: Command = [
        tools.cmake,
        "--preset",
        "host",
        "-B",
        build_dir,
        "-DETPROF_BUILD_BENCHMARKS=ON",
    ]
    target = ("--target", "etprof-runner", "bare_execute")
    compile_: Command = [tools.cmake, "--build", build_dir, *target]
    # As if the environment were active: CMake takes ExecuTorch from it.
    environment = {**tools.environment, "VIRTUAL_ENV": sys.prefix}
    for command in (configure, compile_):
        done = run_command(command, folder=ROOT, environment=environment)
        if done.exit_code != 0:
            sys.exit(f"{done.shell_text} failed:\n{done.stdout}{done.stderr}")
    return build_dir / "cpp/runner/etprof-runner", build_dir / "benchmarks/cpp/bare_execute"


def export_subject(name: str, folder: Path) -> Program:
    """Exports a model with its example inputs."""
    if name in SMALL_NETS:
        return export_small_net(name, folder)
    return describe_program(export_model(ExportRequest(name, "fp32", outdir=folder / name)).pte)


def export_small_net(name: str, folder: Path) -> Program:
    """Exports a net without delegate, of portable kernels."""
    import torch
    from executorch.exir import to_edge

    class Net(torch.nn.Module):
        forward = SMALL_NETS[name][1]

    shape = SMALL_NETS[name][0]
    example = torch.zeros(shape)
    program = to_edge(torch.export.export(Net().eval(), (example,))).to_executorch()
    model, given = folder / f"{name}.pte", folder / f"{name}.bin"
    model.write_bytes(program.buffer)
    given.write_bytes(example.numpy().tobytes())
    shapes = ("x".join(map(str, shape)),)
    return Program(name=name, label=name, model=model, inputs=(given,), shapes=shapes)


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


def time_bare_loop(bare: Path, subject: Program, at_once: int) -> float:
    """Median latency in ns of one launch of the bare loop, executions timed so many at once."""
    shape = subject.shapes[0].split("x")
    counts = ["--", str(WARMUP), str(LAUNCH_ITERATIONS[subject.name] // at_once), str(at_once)]
    text = launch([bare, subject.model, subject.inputs[0], *shape, *counts])
    return statistics.median(int(line) for line in text.split())


def run_runner(
    runner: Path, subject: Program, folder: Path, *flags: str | Path, at_once: int = 1
) -> dict[str, Any]:
    """Launches the runner and returns its result; its first inference warms up too."""
    result = folder / "result.json"
    iterations = LAUNCH_ITERATIONS[subject.name] // at_once
    counts = [f"--warmup={WARMUP - 1}", f"--iterations={iterations}"]
    files: Command = ["--model", subject.model, "--input", subject.inputs[0], "--result", result]
    launch([runner, *files, *counts, *flags])
    document: dict[str, Any] = read_json(result, way_out="measure again")
    return document


def time_runner(*arguments: Any, **options: Any) -> float:  # noqa: ANN401 - as run_runner
    """Median latency in ns of one launch of the runner."""
    latencies: list[int] = run_runner(*arguments, **options)["latency_ns"]
    return statistics.median(latencies)


def time_with_events(runner: Path, subject: Program, folder: Path) -> Pair:
    """Median latencies of one traced launch: the runner's own, and by ExecuTorch's events."""
    etdump = folder / "x.etdump"
    latency_ns = time_runner(runner, subject, folder, "--etdump", etdump)
    dump = load_etdump(etdump)
    events, names = dump.profile, dump.names
    phase = dump.blocks.name_id[events.block_index]
    is_own = (events.name_id == names.index("Method::execute")) & (phase == names.index("Execute"))
    event_ns = (events.end_time - events.start_time)[is_own]
    return latency_ns, float(np.median(event_ns))


def in_turns(first: Launch, second: Launch) -> Callable[[], Pair]:
    """Launches both, in random order."""
    order = random.Random(0)  # noqa: S311

    def launch_both() -> Pair:
        latency_ns = {side: side() for side in order.sample((first, second), k=2)}
        return latency_ns[first], latency_ns[second]

    return launch_both


def compare(subject: str, what: str, pair: Callable[[], Pair], most_pairs: int) -> Ratio:
    """Takes pairs until the interval is narrow enough to judge by; returns first / second.

    Ending by the width of the interval, not by where it lies, favours no side.
    """
    found: list[Pair] = []
    while True:
        found += [pair() for _ in range(min(STEP_PAIRS, most_pairs - len(found)))]
        effect = effect_of_log_ratios(
            np.array([math.log(first / second) for first, second in found])
        )
        if effect.interval is None:
            sys.exit("--pairs must be at least 6: fewer give no 95 % interval")
        low, high = effect.interval.low, effect.interval.high
        if (high - low) / 2 <= LIMIT or len(found) >= most_pairs:
            difference_ns = statistics.median(first - second for first, second in found)
            latency_ns = statistics.median(second for _, second in found)
            times = (difference_ns, latency_ns)
            return Ratio(subject, what, effect.speed_up, low, high, *times, len(found))


def measure_subject(
    subject: Program, programs: tuple[Path, Path], folder: Path, pairs: int
) -> list[Ratio]:
    """Returns the ratios of one model."""
    runner, bare = programs
    etdump = ("--etdump", folder / "x.etdump")
    at_once: int = run_runner(runner, subject, folder)["inferences_per_sample"]
    if at_once > 1:
        print(f"{subject.name}: {at_once} inferences at once, but for those with the tracer")
    run = partial(time_runner, runner, subject, folder, at_once=at_once)
    loop = partial(time_bare_loop, bare, subject, at_once)
    run_traced = partial(time_runner, runner, subject, folder, *etdump)
    return [
        compare(subject.name, BARE, in_turns(run, loop), pairs),
        compare(subject.name, EVENT, partial(time_with_events, runner, subject, folder), pairs),
        compare(subject.name, TRACER, in_turns(run_traced, run), pairs),
    ]


def measure(
    pairs: int = MOST_PAIRS,
    build_dir: Path = BUILD,
    subjects: Sequence[str] = tuple(LAUNCH_ITERATIONS),
) -> list[Ratio]:
    """Prints the ratios of every model, as they come, and returns them."""
    programs = build(build_dir)
    found: list[Ratio] = []
    with tempfile.TemporaryDirectory() as name:
        for subject in subjects:
            program = export_subject(subject, Path(name))
            ratios = measure_subject(program, programs, Path(name), pairs)
            print("\n".join(map(str, ratios)), flush=True)
            found += ratios
    return found


def main() -> int:
    """Returns 1 when a limit is not kept, or not shown to be."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=MOST_PAIRS, help="at most (default: 400)")
    parser.add_argument("--subjects", type=lambda text: text.split(","),
                        default=tuple(LAUNCH_ITERATIONS))  # fmt: skip
    parser.add_argument("--build-dir", type=Path, default=BUILD)
    arguments = parser.parse_args()
    try:
        found = measure(arguments.pairs, arguments.build_dir, arguments.subjects)
    except EtprofError as error:
        sys.exit(str(error))
    return 0 if all(ratio.verdict in {"kept", "no limit"} for ratio in found) else 1


if __name__ == "__main__":
    sys.exit(main())
