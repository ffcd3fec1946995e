"""Analyse a run directory or one ETDump: where an inference's time goes.

Needs neither PyTorch nor ExecuTorch. Writes analysis_summary.json and CSV tables beside the
measurements of a run directory; for a single ETDump only with --out. Shares are fractions of
Method::execute and add up to 100 %.

An ETDump alone does not say what its clock counts. If neither its run directory nor the delegate's
times show that, --time-scale is required. --etrecord gives the modules and source lines of its
operators, which needs torch and ExecuTorch; for operators inside delegates the program is needed
too, and is looked for next to the ETRecord. For logs, other files and comparisons, `etprof import`
turns it into a run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etprof.base.text import command_line
from etprof.cli.flags import CLOCK, FULL, add_flags, whole_number
from etprof.cli.output import exit_code_of, show, show_answer, show_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

    from etprof.analysis.assessment import Assessment
    from etprof.run.delegation import DelegationReport
    from etprof.run.load import Run

USUAL_TOP = 12
EXAMPLES = """\
examples:
  etprof analyze out_toy_cnn/runs/linux
  etprof analyze out_toy_cnn/runs/linux --full
  etprof analyze out_toy_cnn/runs/linux --top 50
  etprof analyze some.etdump --json --out tables
  etprof analyze some.etdump --etrecord some.etrecord --program some.pte
  etprof analyze some.etdump --clock-hz 800e6
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    parser.epilog = EXAMPLES
    add_flags(
        parser,
        ("source", Path, "RUN_DIR|FILE.etdump", "what to analyse", {"nargs": "?"}),
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("common"),
        FULL,
        ("--top",
         whole_number(1),
         "N",
         f"with --full: operators to list (default {USUAL_TOP})"),
        ("--etrecord", Path, "FILE", "of an ETDump: names its operators' modules and source lines"),
        ("--out", Path, "DIR", "folder for the JSON and CSV files"),
        ("--json", bool, "", "print the same data as JSON (analysis_summary.json)"),
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("an ETDump by itself"),
        ("--program", Path, "FILE.pte", "the program of the ETRecord (default: the one beside it)"),
        ("--method", str, "NAME", "the method that ran, where the ETRecord has several"),
        *CLOCK,
    )  # fmt: skip
    add_flags(
        parser.add_argument_group("for scripts"),
        ("--run-dir", Path, "RUN_DIR", "RUN_DIR as a flag"),
        ("--quiet", bool, "", "write the files and print nothing"),
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Analyses the source, writes the files and prints the report."""
    from etprof.analysis.assessment import assess_run
    from etprof.analysis.run_analysis import analyze_run
    from etprof.report_files import write_report_files
    from etprof.tables.brief import UnbrokenLine
    from etprof.targets.peaks import with_peaks

    source = _source(arguments)
    run = _load(source, arguments)
    assessment = assess_run(analyze_run(with_peaks(run)))
    folder = arguments.out or (source if source.is_dir() else None)
    if folder is not None:
        write_report_files(assessment, folder)
    if not arguments.quiet:
        ends: list[str] = (
            [] if folder is None else [UnbrokenLine(f"Report: {folder / 'report.html'}")]
        )
        is_full = arguments.full or arguments.top is not None
        ends.append(full_output_hint(source, _etdump_flags(arguments)))
        show_assessment(
            assessment, as_json=arguments.json, full=is_full, top=arguments.top, ends=ends
        )
    return exit_code_of([assessment])


def _load(source: Path, arguments: argparse.Namespace) -> Run:
    """Reads a run directory, or an ETDump with what the flags say of it."""
    from etprof.analysis.run_analysis import analyze_run
    from etprof.base.errors import UsageError
    from etprof.importing.bare_etdump import ClockOptions, load_bare_etdump
    from etprof.run.load import Run

    record, program, method = arguments.etrecord, arguments.program, arguments.method
    hz, scale = arguments.clock_hz, arguments.time_scale
    if source.is_dir() or not source.exists():
        if {record, program, method, hz, scale} != {None}:
            raise UsageError(
                "--etrecord, --program, --method, --time-scale and --clock-hz are of an ETDump alone; a run "
                f"directory has them from `etprof profile` or `etprof import`: {source}"
            )
        return Run.load(source, with_reference=True)
    for flag, value in (("--program", program), ("--method", method)):
        if value is not None and record is None:
            raise UsageError(f"{flag} is of an ETRecord: give --etrecord FILE too")

    def describe(calls: Mapping[int, str]) -> DelegationReport:
        from etprof.etrecord import program as reading

        program_path = program or reading.find_program(record)
        if program_path is None:
            return reading.describe_etrecord(record, calls)
        return reading.describe_program(program_path, record)

    try:
        return load_bare_etdump(
            source,
            ClockOptions(
                time_scale=scale, clock_hz=hz, etrecord=record, describe=describe, method=method
            ),
        )
    except UsageError:
        # What is wrong with the ETDump itself comes first: no flag would help.
        analyze_run(Run.load(source))
        raise


def _etdump_flags(arguments: argparse.Namespace) -> list[str | Path]:
    """Returns the flags that say what an ETDump is of, as they were given."""
    names = ("etrecord", "program", "method", "time_scale", "clock_hz")
    values = {name: getattr(arguments, name) for name in names}
    return [
        argument
        for name, value in values.items()
        if value is not None
        for argument in (f"--{name.replace('_', '-')}", value)
    ]


def full_output_hint(source: Path, flags: Iterable[object] = ()) -> str:
    """Says which command prints what the brief answer leaves out."""
    from etprof.tables.brief import FullOutputLine

    return FullOutputLine(command_line("analyze", source, *flags, "--full"))


def show_assessment(
    assessment: Assessment, *, as_json: bool, full: bool, top: int | None, ends: Iterable[str]
) -> None:
    """Prints what was found as JSON, as an answer that fits a screen, or as tables."""
    if as_json:
        from etprof.views.documents import assessment_document

        show_json(assessment_document(assessment))
    elif full:
        from etprof.views.terminal import render_report

        usual = USUAL_TOP if top is None else top
        show(render_report(assessment, top=usual, cuts_all=top is not None))
    else:
        from etprof.tables.brief import brief_of

        show_answer(brief_of(assessment, ends=ends), full=False)


def _source(arguments: argparse.Namespace) -> Path:
    """Returns the one source that was given, by position or by flag."""
    from etprof.base.errors import UsageError

    sources = [path for path in (arguments.source, arguments.run_dir) if path is not None]
    if len(sources) != 1:
        raise UsageError(
            "give one run directory or ETDump, as in `etprof analyze out_toy_cnn/runs/linux`"
        )
    return Path(sources[0])
