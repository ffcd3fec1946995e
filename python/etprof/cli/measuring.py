"""What every command that measures has in common: a config, a device of its own, a report."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from etprof.base.errors import TargetError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from etprof.config import Config
    from etprof.measuring.pipeline import Measured
    from etprof.run.delegation import DelegationReport
    from etprof.targets import Target
    from etprof.targets.device_lock import MeasuredDevice


def add_no_wait_argument(parser: argparse.ArgumentParser) -> None:
    """Declares whether to wait for a device."""
    parser.add_argument(
        "--no-wait",
        action="store_true",
        help="fail at once (exit code 5) if another etprof has the device, instead of waiting",
    )


@contextmanager
def hold_device(device: MeasuredDevice | None, arguments: argparse.Namespace) -> Iterator[None]:
    """Keeps the device from all other commands that measure; says so when it must be waited for.

    None, which is an emulator, is held by nobody.
    """
    from etprof.cli.progress import say
    from etprof.targets.device_lock import device_lock, patience

    if device is None:
        yield
        return
    with device_lock(device, patience(say, wait=not arguments.no_wait)):
        yield


def measure_config(  # noqa: PLR0913 - what, where, how
    config: Config,
    target: Target,
    arguments: argparse.Namespace,
    identity: dict[str, object] | None = None,
    *,
    only: Sequence[str] = (),
    resume: bool = False,
    keep_going: bool = False,
    delegation: DelegationReport | None = None,
) -> Measured:
    """Measures once the device is free, from the start or from where a run was cut off."""
    from etprof.cli.progress import say, show_progress
    from etprof.measuring.journal import Earlier
    from etprof.measuring.pipeline import measure
    from etprof.measuring.plan import (
        configured_experiments,
        configured_program,
        configured_settings,
        plan,
    )
    from etprof.measuring.resume import load_earlier
    from etprof.run.directory import set_aside

    program, run = configured_program(config), config.output_root
    experiments, settings = configured_experiments(config, only), configured_settings(config)
    # What cannot be is told before an earlier run is set aside.
    plan(experiments, settings, target)
    earlier = Earlier()
    # Whoever has the device may be writing this very run.
    with hold_device(target.device(), arguments):
        if resume:
            earlier = load_earlier(run, program, target, experiments, settings)
            say(f"{earlier.kept} launches were finished and are kept")
        elif (kept := set_aside(run)) is not None:
            say(f"The earlier run is kept in {kept}")
        with show_progress() as progress:
            return measure(
                program=program,
                target=target,
                run=run,
                experiments=experiments,
                settings=settings,
                progress=progress,
                config=identity or describe_config(config),
                earlier=earlier,
                keep_going=keep_going,
                delegation=delegation,
            )


def describe_config(config: Config) -> dict[str, object]:
    """Returns what a manifest says of a config that no file holds: enough to repeat the run."""
    return {"path": None, "content": config.model_dump(mode="json", exclude_unset=True)}


def report_run(run_directory: Path, *, as_json: bool, measured: Measured | None = None) -> int:
    """Analyses a run, writes and shows the report, and says what failed."""
    from etprof.analysis.assessment import assess_run
    from etprof.analysis.run_analysis import analyze_run
    from etprof.cli.analyze import show_assessment
    from etprof.report_files import write_report_files
    from etprof.run.directory import find_etdumps
    from etprof.run.load import Run

    if find_etdumps(run_directory):
        assessment = assess_run(analyze_run(Run.load(run_directory, with_reference=True)))
        write_report_files(assessment, run_directory)
        show_assessment(assessment, as_json=as_json, top=12)
    return conclude(run_directory, measured)


def conclude(run_directory: Path, measured: Measured | None) -> int:
    """Says what failed, what was not planned, and where the report and all else is."""
    from etprof.cli.progress import say

    problems = measured.errors if measured else []
    for line in (*problems, *(measured.notes if measured else ())):
        say(line)
    page = run_directory / "report.html"
    report = f"The report is {page}; everything" if page.is_file() else "Everything"
    say(f"{report} is in {run_directory}")
    return TargetError.exit_code if problems else 0
