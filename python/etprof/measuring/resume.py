"""Finds out what an interrupted run had finished, and whether it may be continued."""

from __future__ import annotations

import dataclasses
import json
import re
from typing import TYPE_CHECKING

from etprof.errors import EtprofError, UsageError
from etprof.measuring.launching import result_file
from etprof.measuring.pipeline import Earlier
from etprof.measuring.plan import Launch, plan_passes, plan_timing
from etprof.run_directory import experiment_files, hash_file, load_manifest
from etprof.runner_result import read_result

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from etprof.measuring.plan import Experiment, Settings
    from etprof.program_files import Program
    from etprof.run_directory import LaunchRecord, Manifest
    from etprof.runner_result import RunnerResult

_TEMPORARY = re.compile(r"\..+\.[a-z0-9_]{6,}|.+\.tmp\d+")
"""Names that our writers give files until they are whole: Python's and the runner's."""
_FREE_TO_CHANGE = {"blocks", "budget_s", "target_half_width", "timeout_s", "max_wait_s"}
"""Settings that may differ in a continuation: they do not change what a launch measures."""


def load_earlier(
    run: Path, program: Program, experiments: Sequence[Experiment], settings: Settings
) -> Earlier:
    """Returns the finished launches of the run in `run`; nothing when there is none.

    Raises UsageError, naming what differs, when that run measured something else.
    """
    manifest = load_manifest(run)
    if manifest is None:
        return Earlier()
    differences = _differences(manifest, program, experiments, settings)
    if differences:
        lines = "\n".join(f"  {line}" for line in differences)
        msg = f"{run} cannot be resumed, it measured something else:\n{lines}\nStart a new run"
        raise UsageError(msg)
    remove_temporary_files(run)
    results: dict[tuple[str, str, int | None], RunnerResult] = {}
    records: list[LaunchRecord] = []
    done = {(r.experiment, r.purpose, r.block): r for r in manifest.launches if r.error is None}
    planned = [*plan_timing(experiments, settings), *plan_passes(experiments, settings)]
    for launch in planned:
        record = done.get(launch.identity)
        result = _finished_result(run, program, launch) if record else None
        if record is not None and result is not None:
            results[launch.identity] = result
            records.append(record)
    return Earlier(results=results, records=records)


def _finished_result(run: Path, program: Program, launch: Launch) -> RunnerResult | None:
    """Reads a finished launch's result; None when a file of it is missing or damaged."""
    experiment = launch.experiment
    files = experiment_files(run, program.label, experiment.folder, experiment.threads)
    if launch.purpose == "etdump" and not files.etdump.is_file():
        return None
    try:
        return read_result(result_file(files, launch))
    except EtprofError:
        # Not there or not whole: the launch is simply run again.
        return None


def _differences(
    manifest: Manifest, program: Program, experiments: Sequence[Experiment], settings: Settings
) -> list[str]:
    """Lists what a continuation would change."""
    found = []
    if manifest.model.sha256 != hash_file(program.model):
        found.append(f"model: {program.model} has changed since")
    # As the manifest has them: JSON knows no tuples.
    for name, now in json.loads(json.dumps(dataclasses.asdict(settings))).items():
        before = manifest.settings.get(name)
        if name not in _FREE_TO_CHANGE and before != now:
            found.append(f"{name}: was {before}, is {now}")
    known = {e.name: e for e in manifest.experiments}
    for experiment in experiments:
        earlier = known.get(experiment.name)
        if earlier is not None and (earlier.sme, earlier.threads) != (
            experiment.sme,
            experiment.threads,
        ):
            found.append(f"experiment {experiment.name}: SME mode or threads have changed")
    return found


def find_temporary_files(run: Path) -> list[Path]:
    """Lists files that a killed writer left unfinished."""
    return [p for p in run.rglob("*") if p.is_file() and _TEMPORARY.fullmatch(p.name)]


def remove_temporary_files(run: Path) -> None:
    """Removes them; their content was never complete."""
    for path in find_temporary_files(run):
        path.unlink(missing_ok=True)
