"""Measure a model here, split its time by operator, and say what that means.

MODEL is a name from `etprof models`, or a program that is already exported (FILE.pte). The model
is exported if needed, timed in several process launches without event tracer, run once more with
it for the operator split, and analysed. Everything is kept in out_<model>/runs/<platform>.
"""

from __future__ import annotations

import argparse
import math
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import etprof
from etprof.errors import TargetError

if TYPE_CHECKING:
    from etprof.pipeline import Measured, Settings
    from etprof.program_files import Program
    from etprof.targets import Target

EXAMPLES = """\
examples:
  etprof profile toy_cnn
  etprof profile toy_cnn --dtype fp32 --threads 1
  etprof profile my_model.pte --inputs image.bin --blocks 20
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    parser.epilog = EXAMPLES
    parser.add_argument("model", metavar="MODEL|FILE.pte", help="what to measure")
    parser.add_argument(
        "--dtype", default="fp16", help="precision of the export: fp16 (default), fp32"
    )
    parser.add_argument("--backend", default="xnnpack", help="xnnpack (default) or portable")
    parser.add_argument(
        "--export", action="store_true", help="export again even if the program is up to date"
    )
    parser.add_argument(
        "--inputs", type=_paths, default=(), metavar="A.bin,B.bin", help="raw input tensors"
    )
    parser.add_argument("--data", type=Path, metavar="FILE.ptd", help="external constants")
    parser.add_argument("--method", help="method to run (default: forward, or the program's first)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="run directory instead of out_<model>/runs/…"
    )
    _add_measurement_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print the same data as JSON")


def _add_measurement_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares how to measure."""
    group = parser.add_argument_group("measurement")
    group.add_argument("--threads", type=_positive, help="threads (default: all cores)")
    group.add_argument("--blocks", type=_positive, default=10, help="process launches (default 10)")
    group.add_argument(
        "--iterations", type=_positive, default=20, help="least inferences a block (default 20)"
    )
    group.add_argument(
        "--min-seconds",
        type=_seconds,
        default=0.2,
        metavar="S",
        help="least time a block (default 0.2)",
    )
    group.add_argument("--warmup", type=int, default=10, help="warm-up inferences (default 10)")
    group.add_argument("--seed", type=int, default=0, help="of inputs and block order (default 0)")
    group.add_argument(
        "--timeout",
        type=_seconds,
        default=3600,
        metavar="S",
        help="longest a launch may take (default 3600 s)",
    )


def _paths(text: str) -> tuple[Path, ...]:
    return tuple(Path(part) for part in text.split(",") if part)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        msg = f"must be at least 1, not {value}"
        raise argparse.ArgumentTypeError(msg)
    return value


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        msg = f"must be above 0 s, not {text}"
        raise argparse.ArgumentTypeError(msg)
    return value


def run(arguments: argparse.Namespace) -> int:
    """Exports, measures, analyses, reports."""
    from etprof.analysis.run_analysis import analyze_source
    from etprof.cli.analyze import show_analysis
    from etprof.report.files import write_report_files
    from etprof.run_directory import runs_folder, set_aside
    from etprof.targets.local import LocalTarget

    target = LocalTarget()
    program = _find_program(arguments)
    run_directory = arguments.out or runs_folder(program.name, target.platform)
    earlier = set_aside(run_directory)
    if earlier is not None:
        _say(f"The earlier run is kept in {earlier}")
    measured = _measure(arguments, program, target, run_directory)
    if measured.split_results:
        analysis = analyze_source(run_directory)
        write_report_files(analysis, run_directory)
        show_analysis(analysis, as_json=arguments.json, top=12)
    for problem in measured.errors:
        _say(problem)
    _say(f"Everything is in {run_directory}")
    return TargetError.exit_code if measured.errors else 0


def _measure(
    arguments: argparse.Namespace, program: Program, target: Target, run_directory: Path
) -> Measured:
    """Measures with progress and writes the manifest."""
    from etprof.blocks import Experiment
    from etprof.cli.progress import show_progress
    from etprof.manifest import write_manifest
    from etprof.pipeline import measure

    settings = _settings(arguments, target)
    experiments = [Experiment(f"{target.platform}_{mode}", mode) for mode in target.sme_modes()]
    with show_progress() as progress:
        measured = measure(
            program=program,
            target=target,
            run=run_directory,
            experiments=experiments,
            settings=settings,
            progress=progress,
        )
    write_manifest(
        run=run_directory,
        program=program,
        target=target,
        experiments=experiments,
        settings=settings,
        measured=measured,
    )
    return measured


def _say(text: str) -> None:
    """Tells people something that is not part of the report."""
    print(text, file=sys.stderr)


def _settings(arguments: argparse.Namespace, target: Target) -> Settings:
    """Turns the flags into settings."""
    from etprof.pipeline import Settings

    return Settings(
        blocks=arguments.blocks,
        iterations=arguments.iterations,
        min_seconds=arguments.min_seconds,
        warmup=arguments.warmup,
        threads=arguments.threads or target.default_threads(),
        seed=arguments.seed,
        timeout_s=arguments.timeout,
    )


def _find_program(arguments: argparse.Namespace) -> Program:
    """Returns the given program, or the named model's, exported if it is not up to date."""
    from etprof.program_files import describe_program

    model = arguments.model
    path = Path(model) if model.endswith(".pte") else _export(arguments)
    return describe_program(
        path, inputs=arguments.inputs, data=arguments.data, method=arguments.method
    )


def _export(arguments: argparse.Namespace) -> Path:
    """Exports the named model unless a program newer than its source is there."""
    from etprof.cli.export import StageProgress
    from etprof.export.exporter import export_model
    from etprof.export.request import ExportRequest

    request = ExportRequest(
        model=arguments.model, precision=arguments.dtype, backend=arguments.backend
    )
    files = request.files()
    if not arguments.export and _is_up_to_date(arguments.model, files.pte):
        _say(f"Using {files.pte}, exported earlier; --export makes it anew")
        return files.pte
    return export_model(request, StageProgress()).pte


def _is_up_to_date(model: str, program: Path) -> bool:
    """Whether the program is newer than the model's source and made by the pinned ExecuTorch."""
    from etprof.program_files import load_export_manifest
    from etprof.registry import find_model

    source = find_model(model).file
    if not program.is_file() or source is None:
        return False
    manifest = load_export_manifest(program)
    return (
        manifest is not None
        and manifest.versions.get("executorch") == version("executorch")
        and manifest.versions.get("etprof") == etprof.__version__
        and program.stat().st_mtime > source.stat().st_mtime
    )
