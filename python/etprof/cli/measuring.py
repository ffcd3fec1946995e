"""What every command that measures has in common: a config, a device of its own, a report."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from etprof.base.errors import InputFileError, TargetError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from pathlib import Path

    from etprof.measuring.configured import Listener
    from etprof.measuring.pipeline import MeasuredRun
    from etprof.targets.device_lock import Waiting


def patience_of(arguments: argparse.Namespace) -> Waiting:
    """Returns how long to wait for a device that another command has, as the flags say."""
    from etprof.cli.progress import say
    from etprof.targets.device_lock import patience

    return patience(say, wait=not arguments.no_wait)


@contextmanager
def listening(arguments: argparse.Namespace) -> Iterator[Listener]:
    """Yields who shows people how a measurement goes, while it goes."""
    from etprof.cli.progress import say, show_progress
    from etprof.measuring.configured import Listener

    with show_progress() as progress:
        yield Listener(say, progress, patience_of(arguments))


def _describe_detectable_change(run_directory: Path) -> str | None:
    """Returns the difference that this machine can detect, from the history where there is one."""
    from etprof.history.store import find_store

    history = find_store()
    if history is None:
        return None
    from etprof.history.run_spread import describe_device

    with history:
        return describe_device(history, run_directory)


def report_run(
    run_directory: Path, arguments: argparse.Namespace, measured: MeasuredRun | None = None
) -> int:
    """Analyses a run, writes and shows the report, and says what failed."""
    from etprof.analysis.assessment import assess_run
    from etprof.analysis.findings.commands import command_in
    from etprof.analysis.run_analysis import analyze_run
    from etprof.cli.analyze import full_output_hint, show_assessment
    from etprof.cli.output import exit_code_of
    from etprof.cli.progress import say
    from etprof.report_files import write_report_files
    from etprof.run.load import Run
    from etprof.tables.brief import UnbrokenLine, next_step_line
    from etprof.tables.findings import best_suggestion
    from etprof.targets.peaks import with_peaks

    run = with_peaks(Run.load(run_directory, strict=False, with_reference=True))
    if run.problem is not None:
        raise InputFileError(run.problem)
    page, next_step, code = run_directory / "report.html", None, 0
    is_brief = run.is_reportable and not (arguments.json or arguments.full)
    if run.is_reportable:
        assessment = assess_run(analyze_run(run))
        write_report_files(assessment, run_directory)
        next_step = best_suggestion(assessment)
        ends = [UnbrokenLine(f"Report: {page}"), full_output_hint(run_directory)]
        command = None if next_step is None else command_in(next_step)
        ends += [] if command is None else [next_step_line(command)]
        show_assessment(
            assessment, as_json=arguments.json, full=arguments.full, top=None, ends=ends
        )
        code = exit_code_of([assessment])
    problems = measured.errors if measured else []
    for line in (*problems, *(measured.notes if measured else ())):
        say(line)
    if problems and not run.is_reportable:
        failure = f"{len(problems)} launches failed" if len(problems) > 1 else "a launch failed"
        msg = f"{failure}, as told above, and nothing is left to report; see {run_directory}"
        raise TargetError(msg)
    detectable_change = (
        _describe_detectable_change(run_directory) if run.is_reportable and run.is_timed else None
    )
    if detectable_change is not None and not arguments.json:
        say(detectable_change)
    code = TargetError.exit_code if problems else code
    if is_brief:
        return code
    report = f"The report is {page}; everything" if page.is_file() else "Everything"
    say(f"{report} is in {run_directory}")
    if next_step is not None:
        say(next_step_line(next_step))
    return code
