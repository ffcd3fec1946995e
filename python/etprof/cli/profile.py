"""Measure a model, split its time by operator, and say what that means.

MODEL is a name from `etprof models`, or a program that is already exported (FILE.pte). The model
is exported if needed, timed in several process launches without event tracer, run once more with
it for the operator split, and analysed. On a CPU with SME2 that is done with SME2 on and off, in
turns. Everything is kept in out_<model>/runs/<platform>.

--target emulator runs real SME2 microkernels on any machine (`etprof emulator setup` once): which
run, how often, and what they compute. Emulated times mean nothing and are not shown.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import etprof
from etprof.base.errors import TargetError, UsageError
from etprof.cli.device_flags import add_no_wait_argument, hold_device
from etprof.cli.generation_flags import add_generation_arguments, find_generation, show_generated
from etprof.cli.measurement_flags import add_measurement_arguments
from etprof.targets.registry import KINDS, LOCAL, TARGETS, kind_of, proves_times

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from etprof.measuring.pipeline import Measured
    from etprof.measuring.plan import Settings
    from etprof.run.delegation import DelegationReport
    from etprof.run.program import ExportManifest, Program
    from etprof.targets import Target

ETDUMP_ITERATIONS = 100
ITERATIONS, WARMUP = 20, 10

EXAMPLES = """\
examples:
  etprof profile toy_cnn
  etprof profile toy_cnn --dtype fp32 --threads 1
  etprof profile toy_cnn --dtype fp16 --target emulator
  etprof profile my_model.pte --inputs image.bin --blocks 20
  etprof profile decoder --dtype fp32 --generate 64 --prompt-tokens 1,2,3
  etprof profile llm.pte --generate 64 --tokenizer tokenizer.json --prompt "Once upon a time"
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    parser.epilog = EXAMPLES
    parser.add_argument("model", metavar="MODEL|FILE.pte", help="what to measure")
    parser.add_argument(
        "--target",
        choices=KINDS,
        default=LOCAL,
        help="where to run: this machine (default), emulator, android, …",
    )
    parser.add_argument("--serial", help="Android: the device, if several are attached")
    parser.add_argument("--runner", type=Path, help="Android: the runner built for it")
    _add_export_arguments(parser)
    parser.add_argument(
        "--inputs",
        type=_paths,
        default=(),
        metavar="A.bin,B.bin",
        help="input tensors, .npy or raw little-endian (default: the export's example inputs)",
    )
    parser.add_argument("--data", type=Path, metavar="FILE.ptd", help="external constants")
    parser.add_argument(
        "--etrecord",
        type=Path,
        metavar="FILE",
        help="names the modules of another exporter's program (default: that of etprof's own export)",
    )
    parser.add_argument("--method", help="method to run (default: forward, or the program's first)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="run directory instead of out_<model>/runs/…"
    )
    add_measurement_arguments(parser)
    add_generation_arguments(parser)
    add_no_wait_argument(parser)
    parser.add_argument("--json", action="store_true", help="print the same data as JSON")


def _add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares how a model that is named is exported."""
    parser.add_argument(
        "--dtype",
        metavar="PRECISION",
        help="of the export: fp16 (default), fp32, int8, … as `etprof export --help` lists them",
    )
    parser.add_argument("--backend", help="of the export: xnnpack (default) or portable")
    parser.add_argument(
        "--export", action="store_true", help="export again even if the program is up to date"
    )


def _paths(text: str) -> tuple[Path, ...]:
    return tuple(Path(part) for part in text.split(",") if part)


def _refuse_flags_without_effect(arguments: argparse.Namespace) -> None:
    """Raises UsageError for a flag that would change nothing: its user expects otherwise."""
    of_export = {"--dtype": arguments.dtype, "--backend": arguments.backend}
    of_export["--export"] = arguments.export or None
    given = [flag for flag, value in of_export.items() if value is not None]
    if given and arguments.model.endswith(".pte"):
        msg = f"{given[0]} is for a model's name; {arguments.model} is already exported"
        raise UsageError(msg)
    takes = kind_of(arguments.target).takes
    for name in ("serial", "runner"):
        if getattr(arguments, name) is not None and name not in takes:
            able = " or ".join(kind.name for kind in TARGETS if name in kind.takes)
            msg = f"--{name} is for --target {able}; leave it out"
            raise UsageError(msg)


def run(arguments: argparse.Namespace) -> int:
    """Exports, measures, analyses, reports."""
    _refuse_flags_without_effect(arguments)
    find_generation(arguments)
    target = _find_target(arguments)
    program = _find_program(arguments)
    recorded = _read_etrecord(arguments.etrecord, program.model)
    with hold_device(target.device(), arguments):
        return _measure_and_report(arguments, program, target, recorded)


def _measure_and_report(
    arguments: argparse.Namespace,
    program: Program,
    target: Target,
    recorded: DelegationReport | None,
) -> int:
    """Measures on a device that is ours, into a run directory that nobody else writes."""
    from etprof.base.atomic import write_json
    from etprof.cli.progress import say
    from etprof.run.directory import DELEGATION_REPORT, runs_folder, set_aside

    modes = target.sme_modes()
    run_directory = arguments.out or runs_folder(program.name, target.platform)
    earlier = set_aside(run_directory)
    if earlier is not None:
        say(f"The earlier run is kept in {earlier}")
    measured = _measure(arguments, program, target, modes, run_directory)
    if recorded is not None:
        write_json(run_directory / DELEGATION_REPORT, recorded.model_dump(mode="json"))
    if not proves_times(target.platform):
        return _report_evidence(arguments, program, target, run_directory)
    code = report_run(run_directory, as_json=arguments.json, problems=measured.errors)
    if len(modes) > 1 and not measured.errors and not arguments.json:
        _report_evidence(arguments, program, target, run_directory)
    return code


def _find_target(arguments: argparse.Namespace) -> Target:
    """Returns the target; what it needs is checked before anything is exported."""
    from etprof.config import TargetConfig
    from etprof.measuring.configured_run import make_target

    wanted = TargetConfig(kind=arguments.target, serial=arguments.serial)
    target = make_target(wanted, arguments.runner)
    target.describe()
    return target


def _report_evidence(
    arguments: argparse.Namespace, program: Program, target: Target, run_directory: Path
) -> int:
    """Gathers and shows which microkernels ran in each SME mode and what they computed."""
    from rich.console import Console

    from etprof.analysis.assessment import assess_run
    from etprof.analysis.run_analysis import analyze_source
    from etprof.analysis.split.kernels import evidence_document
    from etprof.cli.progress import show_progress
    from etprof.measuring.evidence_pipeline import collect_evidence
    from etprof.report_files import write_report_files
    from etprof.tables.kernels import evidence_sections
    from etprof.views.terminal import terminal_sections

    with show_progress() as progress:
        evidence = collect_evidence(
            program=program,
            target=target,
            run=run_directory,
            threads=arguments.threads or target.default_threads(),
            seed=arguments.seed,
            timeout_s=arguments.timeout,
            progress=progress,
        )
    assessment = assess_run(analyze_source(run_directory))
    write_report_files(assessment, run_directory)
    if arguments.json:
        print(json.dumps(evidence_document(evidence), indent=2))
    else:
        Console().print(*terminal_sections(evidence_sections(evidence), top=1000), sep="\n")
        show_generated(assessment)
    _say_where(run_directory)
    return 0


def report_run(run_directory: Path, *, as_json: bool, problems: Sequence[str]) -> int:
    """Analyses a run, writes and shows the report, and says what failed."""
    from etprof.analysis.assessment import assess_run
    from etprof.analysis.run_analysis import analyze_source
    from etprof.cli.analyze import show_assessment
    from etprof.cli.progress import say
    from etprof.report_files import write_report_files
    from etprof.run.directory import find_etdumps

    if find_etdumps(run_directory):
        assessment = assess_run(analyze_source(run_directory))
        write_report_files(assessment, run_directory)
        show_assessment(assessment, as_json=as_json, top=12)
    for problem in problems:
        say(problem)
    _say_where(run_directory)
    return TargetError.exit_code if problems else 0


def _say_where(run_directory: Path) -> None:
    """Says where the report is for people, and where all else is."""
    from etprof.cli.progress import say

    page = run_directory / "report.html"
    report = f"The report is {page}; everything" if page.is_file() else "Everything"
    say(f"{report} is in {run_directory}")


def _measure(
    arguments: argparse.Namespace,
    program: Program,
    target: Target,
    modes: Sequence[str],
    run_directory: Path,
) -> Measured:
    """Measures in every SME mode, with progress."""
    from etprof.cli.progress import show_progress
    from etprof.measuring.pipeline import measure
    from etprof.measuring.plan import Experiment
    from etprof.run.generation import REPETITIONS

    iterations = ITERATIONS if arguments.generate is None else REPETITIONS
    experiments = [
        Experiment(
            name=f"{target.platform}_{mode}",
            sme=mode,
            threads=arguments.threads or target.default_threads(),
            iterations=arguments.iterations or iterations,
            warmup=_warmup(arguments, target),
        )
        for mode in modes
    ]
    with show_progress() as progress:
        return measure(
            program=program,
            target=target,
            run=run_directory,
            experiments=experiments,
            settings=_settings(arguments, target),
            progress=progress,
        )


def _warmup(arguments: argparse.Namespace, target: Target) -> int:
    """Returns the number of warm-up inferences: none where nothing is timed."""
    from etprof.run.generation import WARMUP_REPETITIONS

    if not proves_times(target.platform):
        return 0
    by_default = WARMUP if arguments.generate is None else WARMUP_REPETITIONS
    return by_default if arguments.warmup is None else int(arguments.warmup)


def _settings(arguments: argparse.Namespace, target: Target) -> Settings:
    """Turns the flags into settings; what is emulated is run, never timed."""
    from etprof.measuring.plan import Settings

    emulated = not proves_times(target.platform)
    return Settings(
        blocks=0 if emulated else arguments.blocks,
        min_seconds=arguments.min_seconds,
        etdump_iterations=1 if emulated else ETDUMP_ITERATIONS,
        seed=arguments.seed,
        timeout_s=arguments.timeout,
        generation=find_generation(arguments),
    )


def _find_program(arguments: argparse.Namespace) -> Program:
    """Returns the given program, or the named model's, exported if it is not up to date."""
    from etprof.run.program import describe_program, find_decode_method

    model = arguments.model
    path = Path(model) if model.endswith(".pte") else _export(arguments)
    method = arguments.method
    if arguments.generate is not None:
        method = find_decode_method(path, arguments.decode_method)
    return describe_program(path, inputs=arguments.inputs, data=arguments.data, method=method)


def _read_etrecord(given: Path | None, program: Path) -> DelegationReport | None:
    """Returns the delegation report of a program that came without one but with an ETRecord.

    One that merely lies beside the program may be anyone's, and is not opened. It is read before
    anything is measured: files that do not belong together are told at once.
    """
    from etprof.cli.progress import say
    from etprof.etrecord.program import describe_program, find_etrecord, is_own
    from etprof.run.directory import DELEGATION_REPORT
    from etprof.run.program import find_descriptions

    if given is not None:
        say(f"Reading {given}")
        return describe_program(program, given)
    found = find_etrecord(program)
    if found is None or DELEGATION_REPORT in find_descriptions(program):
        return None
    if not is_own(program, found):
        say(f"{found} was not opened; --etrecord {found} reads the modules' names from it")
        return None
    say(f"Reading {found}")
    return describe_program(program, found)


def _export(arguments: argparse.Namespace) -> Path:
    """Exports the named model unless a program made of the same code is there."""
    from etprof.cli.export import StageProgress
    from etprof.cli.progress import say
    from etprof.export.exporter import export_model
    from etprof.export.request import ExportRequest
    from etprof.run.program import load_export_manifest

    request = ExportRequest(
        model=arguments.model,
        precision="fp16" if arguments.dtype is None else arguments.dtype,
        backend=arguments.backend or "xnnpack",
    )
    program = request.files().pte
    may_be_used = program.is_file() and not arguments.export
    manifest = load_export_manifest(program) if may_be_used else None
    if manifest is None or not _is_up_to_date(arguments.model, manifest):
        return export_model(request, StageProgress()).pte
    say(f"Using {program}, exported earlier{_tell_options(manifest)}; --export makes it anew")
    return program


def _is_up_to_date(model: str, manifest: ExportManifest) -> bool:
    """Whether a program was made of the model's code as it is now, by the same versions."""
    from etprof.registry import find_model

    code = find_model(model).hash_files()
    return (
        code is not None
        and manifest.source.sha256 == code
        and manifest.versions.get("executorch", "").partition("+")[0] == version("executorch")
        and manifest.versions.get("etprof") == etprof.__version__
    )


def _tell_options(manifest: ExportManifest) -> str:
    """Returns what the program differs in from one that is exported now, such as its weights."""
    from etprof.export.request import ExportOptions

    usual = asdict(ExportOptions())
    given = [
        name.replace("_", "-")
        for name, value in manifest.options.items()
        if name not in {"trace", "graph", "bundle"} and (value or None) != (usual.get(name) or None)
    ]
    return f" with {', '.join(given)}" if given else ""
