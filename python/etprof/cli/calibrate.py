"""Measure a program against itself: which differences this machine detects, and how often it is wrong.

Runs the same experiment under two names, in the order that every comparison uses, and reports the
noise, the false alarms, and the smallest speedup that a default run would find, each with its bounds.
With --runs N it does so N times, which shows how much separate runs differ. A history (--store)
keeps the result for this device; `compare` and `profile` use it.

With --peaks it measures the device's peak performance instead: large products in each precision,
SME mode and number of threads, and streams that read one tensor or two. Reports of runs on this
device then compare every operator with those peaks. It needs no program.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from etprof.base.limits import MOST_LAUNCHES, USUAL_BLOCKS, USUAL_INFERENCES, USUAL_SECONDS
from etprof.cli.flags import (
    FULL,
    JSON,
    NO_WAIT,
    SERIAL,
    STORE,
    THREADS,
    add_flags,
    choice_list,
    seconds,
    whole_number,
)
from etprof.cli.measuring import listening
from etprof.cli.output import answer
from etprof.targets.registry import LOCAL, TARGETS

if TYPE_CHECKING:
    import argparse

    from etprof.run.directory import ExperimentMetrics
    from etprof.statistics.calibration import Calibration, Estimate

SIDES = ("first", "second")
_PRECISIONS = ("fp32", "fp16", "int8")
_TIMED = (LOCAL, *(target.name for target in TARGETS if target.policy.proves_times))
_MOST_RUNS = 100
EXAMPLES = """\
examples:
  etprof calibrate out_toy_cnn/artifacts/<program>.pte
  etprof calibrate my_model.pte --threads 1 --runs 6 --blocks 12
  etprof calibrate --peaks
  etprof calibrate --peaks --threads 1 --precisions fp16
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    parser.epilog = EXAMPLES
    add_flags(
        parser,
        ("model", Path, "FILE.pte", "program to measure", {"nargs": "?"}),
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("common"),
        THREADS,
        ("--runs", whole_number(1, _MOST_RUNS), "N",
         "separate runs (default %(default)s)", {"default": 1}),
        ("--blocks", whole_number(2, MOST_LAUNCHES), "N",
         "launches of each side in a run (default %(default)s)", {"default": 30}),
        ("--peaks", bool, "", "measure the device's peaks instead: matrix products and memory streams"),
        FULL,
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("measuring"),
        ("--pairs", whole_number(2, MOST_LAUNCHES), "N",
         "blocks of each comparison that is judged (default %(default)s)", {"default": USUAL_BLOCKS}),
        ("--min-seconds", seconds, "S", "shortest measurement of a launch (default %(default)s s)",
         {"default": USUAL_SECONDS}),
        NO_WAIT,
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("peaks"),
        ("--precisions", choice_list(*_PRECISIONS), "LIST",
         "with --peaks: precisions of the products (default fp32,fp16,int8)"),
        ("--launches", whole_number(2, MOST_LAUNCHES), "N",
         "with --peaks: launches of each product (default 6)"),
        ("--target", _TIMED, "", "with --peaks: where to run (default: this machine)"),
        SERIAL,
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("output"),
        ("--out", Path, "DIR", "run directory (default out_<model>/runs/calibrate)"),
        STORE,
        JSON,
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Measures A against A and reports."""
    from etprof.base.atomic import write_json
    from etprof.base.errors import UsageError
    from etprof.run.directory import runs_folder
    from etprof.run.program import describe_program
    from etprof.statistics.calibration import calibrate
    from etprof.tables.brief import listed

    _refuse_flags_without_effect(arguments)
    if arguments.peaks:
        return _run_peaks(arguments)
    if arguments.blocks < arguments.pairs:
        raise UsageError(f"--blocks {arguments.blocks} is fewer than --pairs {arguments.pairs}")
    program = describe_program(arguments.model)
    folder = arguments.out or runs_folder(program.name, "calibrate")
    run_numbers = range(1, arguments.runs + 1) if arguments.runs > 1 else ()
    folders = [folder / f"run{number}" for number in run_numbers] or [folder]
    measured = [
        [_block_medians(side) for side in _measure(arguments, run_folder)] for run_folder in folders
    ]
    result = calibrate([(first, second) for first, second in measured], pairs=arguments.pairs)
    document = {"schema_version": 2, **dataclasses.asdict(result)}
    write_json(folder / "calibration.json", document)
    store_note = _keep(arguments.store, folders[0], result)
    lines = (*_describe(result), *([store_note] if store_note else ()))
    answer(arguments, document, listed(None, lines=lines))
    return 0


_OF_PEAKS = ("precisions", "launches", "target", "serial")


def _refuse_flags_without_effect(arguments: argparse.Namespace) -> None:
    """Raises UsageError for a flag that would change nothing, and without anything to measure."""
    from etprof.base.errors import UsageError

    flags = [f"--{name}" for name in _OF_PEAKS if getattr(arguments, name) is not None]
    if flags and not arguments.peaks:
        raise UsageError(f"{flags[0]} is for --peaks; leave it out")
    if arguments.peaks and arguments.model is not None:
        raise UsageError(f"--peaks has programs of its own; leave out {arguments.model}")
    if arguments.peaks and arguments.store is not None:
        raise UsageError("--store is for a program measured against itself; leave it out")
    if arguments.model is None and not arguments.peaks:
        raise UsageError("give a program, as in `etprof calibrate FILE.pte`, or --peaks")


def _run_peaks(arguments: argparse.Namespace) -> int:
    """Exports the programs, measures them and keeps what the device reached."""
    from etprof.base.atomic import write_json
    from etprof.base.errors import TargetError
    from etprof.cli.export import StageProgress
    from etprof.config import TargetConfig
    from etprof.export.exporter import export_model, find_export
    from etprof.export.request import ExportRequest
    from etprof.measuring import peaks
    from etprof.measuring.configured import measure_config
    from etprof.measuring.plan import make_target
    from etprof.model_registry.registry import find_model_folders
    from etprof.run.directory import runs_folder
    from etprof.run.peaks import PEAKS as PEAKS_FILE
    from etprof.tables.brief import listed
    from etprof.tables.machine import PEAKS
    from etprof.targets.peaks import keep_peaks

    settings = TargetConfig(kind=arguments.target or LOCAL, serial=arguments.serial)
    target = make_target(settings, None, "--target")
    folder = arguments.out or runs_folder("peaks", target.platform)
    source = find_model_folders()[0] / "peak_programs.py"
    precisions = arguments.precisions or _PRECISIONS
    exports = [(name, precision) for name in peaks.PRODUCTS for precision in precisions]
    exports += [(name, "fp32") for name in peaks.STREAMS]
    requests = {
        f"{name}_{precision}": ExportRequest(
            f"{source}:{name}", precision, outdir=folder / "artifacts"
        )
        for name, precision in exports
    }
    for request in requests.values():
        if find_export(request) is None:
            export_model(request, StageProgress())
    threads = (arguments.threads,) if arguments.threads else (1, target.default_threads())
    config = peaks.peak_config(
        {name: request.files().pte for name, request in requests.items()},
        settings, modes=target.sme_modes(), threads=sorted({*threads}),
        launches=arguments.launches or 6, folder=folder / "run",
    )  # fmt: skip
    with listening(arguments) as listener:
        measured = measure_config(config, target, listener)
    if measured.errors:
        raise TargetError(f"not every peak was measured: {'; '.join(measured.errors)}")
    device_peaks = peaks.read_peaks(config.folder)
    document = device_peaks.model_dump(mode="json")
    write_json(folder / PEAKS_FILE, document)
    closing_note = f"Kept for {device_peaks.device}: reports of its runs show them from now on"
    answer(arguments, document, listed(PEAKS.of_each(device_peaks.peaks), lines=(closing_note,)))
    keep_peaks(device_peaks)
    return 0


def _keep(store: str | None, folder: Path, result: Calibration) -> str | None:
    """Adds the answer to the history of the device, where there is one."""
    from etprof.history.run_spread import keep_calibration
    from etprof.history.store import find_store

    history = find_store(store, create=store is not None)
    if history is None:
        return None
    with history:
        device = keep_calibration(history, folder, result)
        return f"Kept for {device} in {history.name}"


def _measure(arguments: argparse.Namespace, folder: Path) -> list[ExperimentMetrics]:
    """Runs both sides once this host is free; fails when either lacks blocks."""
    from etprof.base.errors import TargetError
    from etprof.config import Config, ExperimentConfig, MeasurementConfig
    from etprof.measuring.configured import measure_config
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
            operator_launches=1,
            kernels=False,
        ),
    )
    target = configured_target(config)
    threads = (arguments.threads or target.default_threads(),)
    sides = tuple(
        experiment.model_copy(update={"threads": threads}) for experiment in config.experiments
    )
    config = config.model_copy(update={"experiments": sides})
    with listening(arguments) as listener:
        measured = measure_config(config, target, listener)
    metrics = load_metrics(folder)
    if metrics is None or measured.errors:
        raise TargetError(
            f"the calibration is not complete: {'; '.join(measured.errors)}; run it again"
        )
    return [metrics.experiments[side] for side in SIDES]


def _block_medians(metrics: ExperimentMetrics) -> list[float]:
    from statistics import median

    return [median(block.latency_ns) for block in metrics.blocks]


def _describe(result: Calibration) -> list[str]:
    from etprof.base.units import format_share
    from etprof.tables.verdicts import describe_effect

    smallest = result.smallest_effect
    smallest_text = "nothing up to 2×" if smallest is None else _with_bounds(smallest)
    lines = [
        (
            f"Measured against itself in {result.measured_pairs} blocks: "
            f"{describe_effect(result.overall)}"
        ),
        f"Noise of one block: {_with_bounds(result.noise)}",
        (
            f"False alarms with {result.pairs} blocks: {result.false_alarms} of "
            f"{result.comparisons}, so at most {format_share(result.most_false_alarms)}"
        ),
        f"In one run, {result.pairs} blocks find 8 times in 10: {smallest_text}",
    ]
    between = result.between_runs
    if between is None:
        lines.append("Between runs: not known; --runs 6 measures it")
    else:
        lines += [
            f"Runs differ by: {_with_bounds(between.spread)}, from {between.runs} runs",
            f"Of two separate runs, 8 times in 10: {_with_bounds(between.smallest_effect)}",
        ]
    return lines


def _with_bounds(estimate: Estimate) -> str:
    from etprof.base.units import format_share

    return f"{format_share(estimate.value)} ({format_share(estimate.low)} … {format_share(estimate.high)})"
