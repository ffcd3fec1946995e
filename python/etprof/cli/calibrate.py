"""Measure one thing against itself: what can this machine tell apart, and how often is it wrong?

Runs the same experiment under two names, in the order that every comparison uses, and reports the
noise, the rate of false alarms, and the smallest speed-up that ten pairs of blocks would find.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

from etprof.base.limits import MOST_LAUNCHES, MOST_THREADS, USUAL_INFERENCES, USUAL_SECONDS
from etprof.cli.flags import JSON, NO_WAIT, add_flags, seconds, whole_number
from etprof.cli.measuring import measure_and_show

if TYPE_CHECKING:
    import argparse

    from etprof.run.directory import ExperimentMetrics
    from etprof.statistics.calibration import Calibration

SIDES = ("first", "second")
EXAMPLES = """\
examples:
  etprof calibrate out_toy_cnn/artifacts/<program>.pte
  etprof calibrate my_model.pte --threads 1 --blocks 60
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    parser.epilog = EXAMPLES
    add_flags(
        parser,
        ("model", Path, "FILE.pte", "program to measure"),
        ("--threads", whole_number(1, MOST_THREADS), "N", "threads (default: all cores)"),
        ("--blocks", whole_number(2, MOST_LAUNCHES), "N",
         "pairs of process launches (default %(default)s)", {"default": 30}),
        ("--pairs", whole_number(2, MOST_LAUNCHES), "N",
         "pairs of the comparisons to judge (default %(default)s)", {"default": 10}),
        ("--min-seconds", seconds, "S", "least time a block (default %(default)s s)",
         {"default": USUAL_SECONDS}),
        ("--out", Path, "DIR", "run directory (default out_<model>/runs/calibrate)"),
        NO_WAIT,
        JSON,
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Measures A against A and reports."""
    from etprof.base.atomic import write_json
    from etprof.base.errors import UsageError
    from etprof.run.directory import runs_folder
    from etprof.run.program import describe_program
    from etprof.statistics.calibration import calibrate

    if arguments.blocks < arguments.pairs:
        raise UsageError(f"--blocks {arguments.blocks} is fewer than --pairs {arguments.pairs}")
    program = describe_program(arguments.model)
    folder = arguments.out or runs_folder(program.name, "calibrate")
    sides = [_block_medians(side) for side in _measure(arguments, folder)]
    result = calibrate(*sides, pairs=arguments.pairs)
    document = {"schema_version": 1, **dataclasses.asdict(result)}
    write_json(folder / "calibration.json", document)
    print(json.dumps(document, indent=2) if arguments.json else _describe(result))
    return 0


def _measure(arguments: argparse.Namespace, folder: Path) -> list[ExperimentMetrics]:
    """Runs both sides once this host is free; fails when either lacks blocks."""
    from etprof.base.errors import TargetError
    from etprof.config import Config, ExperimentConfig, MeasurementConfig
    from etprof.measuring.plan import configured_target
    from etprof.run.directory import load_metrics

    config = Config(
        model=arguments.model,
        output_root=folder,
        experiments=tuple(
            ExperimentConfig(name=side, iterations=USUAL_INFERENCES) for side in SIDES
        ),
        measurement=MeasurementConfig(
            blocks=arguments.blocks,
            min_seconds=arguments.min_seconds,
            operator_iterations=5,
            kernels=False,
        ),
    )
    target = configured_target(config)
    threads = (arguments.threads or target.default_threads(),)
    sides = tuple(each.model_copy(update={"threads": threads}) for each in config.experiments)
    measured = measure_and_show(config.model_copy(update={"experiments": sides}), target, arguments)
    metrics = load_metrics(folder)
    if metrics is None or measured.errors:
        raise TargetError(
            f"the calibration is not complete: {'; '.join(measured.errors)}; run it again"
        )
    return [metrics.experiments[side] for side in SIDES]


def _block_medians(metrics: ExperimentMetrics) -> list[float]:
    from statistics import median

    return [median(block.latency_ns) for block in metrics.blocks]


def _describe(result: Calibration) -> str:
    from etprof.base.units import format_ratio, format_share

    smallest = None if result.smallest_effect is None else 1 + result.smallest_effect
    found = format_ratio(smallest) if smallest else "none up to 2×"
    return "\n".join(
        (
            (
                f"Measured against itself in {result.measured_pairs} pairs of blocks: "
                f"{result.overall.verdict}, speed-up {format_ratio(result.overall.speed_up)}"
            ),
            f"Noise of one pair: {format_share(result.noise)}",
            f"False alarms with {result.pairs} pairs: {format_share(result.false_alarm_rate)}",
            f"Smallest speed-up that {result.pairs} pairs find 8 times in 10: {found}",
        )
    )
