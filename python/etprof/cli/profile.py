"""Measure a model here, split its time by operator, and say what that means.

MODEL is a name from `etprof models`, or a program that is already exported (FILE.pte). The model
is exported if needed, timed in several process launches without event tracer, run once more with
it for the operator split, and analysed. Everything is kept in out_<model>/runs/<platform>.
"""

from __future__ import annotations

import argparse
import math
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import etprof
from etprof.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.pipeline import Measured
    from etprof.plan import Settings
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
    from etprof.cli.progress import say
    from etprof.run_directory import runs_folder, set_aside
    from etprof.targets.local import LocalTarget

    target = LocalTarget()
    program = _find_program(arguments)
    run_directory = arguments.out or runs_folder(program.name, target.platform)
    earlier = set_aside(run_directory)
    if earlier is not None:
        say(f"The earlier run is kept in {earlier}")
    measured = _measure(arguments, program, target, run_directory)
    return report_run(run_directory, as_json=arguments.json, problems=measured.errors)


def report_run(run_directory: Path, *, as_json: bool, problems: Sequence[str]) -> int:
    """Analyses a run, writes and shows the report, and says what failed."""
    from etprof.analysis.run_analysis import analyze_source
    from etprof.cli.analyze import show_analysis
    from etprof.cli.progress import say
    from etprof.report.files import write_report_files
    from etprof.run_directory import find_etdumps

    if find_etdumps(run_directory):
        analysis = analyze_source(run_directory)
        write_report_files(analysis, run_directory)
        show_analysis(analysis, as_json=as_json, top=12)
    for problem in problems:
        say(problem)
    say(f"Everything is in {run_directory}")
    return TargetError.exit_code if problems else 0


def _measure(
    arguments: argparse.Namespace, program: Program, target: Target, run_directory: Path
) -> Measured:
    """Measures every SME mode that the target can give, with progress."""
    from etprof.cli.progress import show_progress
    from etprof.pipeline import measure
    from etprof.plan import Experiment

    experiments = [
        Experiment(
            name=f"{target.platform}_{mode}",
            sme=mode,
            threads=arguments.threads or target.default_threads(),
            iterations=arguments.iterations,
            warmup=arguments.warmup,
        )
        for mode in target.sme_modes()
    ]
    with show_progress() as progress:
        return measure(
            program=program,
            target=target,
            run=run_directory,
            experiments=experiments,
            settings=_settings(arguments),
            progress=progress,
        )


def _settings(arguments: argparse.Namespace) -> Settings:
    """Turns the flags into settings."""
    from etprof.plan import Settings

    return Settings(
        blocks=arguments.blocks,
        min_seconds=arguments.min_seconds,
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
    from etprof.cli.progress import say
    from etprof.export.exporter import export_model
    from etprof.export.request import ExportRequest

    request = ExportRequest(
        model=arguments.model, precision=arguments.dtype, backend=arguments.backend
    )
    files = request.files()
    if not arguments.export and _is_up_to_date(arguments.model, files.pte):
        say(f"Using {files.pte}, exported earlier; --export makes it anew")
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
