"""Writes manifest.json: who measured what, where, with what, in which order, into which files."""

from __future__ import annotations

import dataclasses
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import etprof
from etprof.atomic import write_json, write_text
from etprof.program_files import load_export_manifest
from etprof.run_directory import MANIFEST, experiment_files, hash_file

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from etprof.blocks import Experiment
    from etprof.pipeline import LaunchRecord, Measured, Settings
    from etprof.program_files import Program
    from etprof.runner_result import RunnerResult
    from etprof.targets import Target

SCHEMA_VERSION = 1
_PINS = ("executorch", "torch")


def write_manifest(  # noqa: PLR0913 - keyword-only: all parts of a run
    *,
    run: Path,
    program: Program,
    target: Target,
    experiments: Sequence[Experiment],
    settings: Settings,
    measured: Measured,
) -> None:
    """Writes the manifest and one log per experiment; call it last, for it hashes all files."""
    for experiment in experiments:
        _write_log(run, program, experiment, settings, measured.records)
    result = _any_result(measured)
    document = {
        "schema_version": SCHEMA_VERSION,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "etprof_version": etprof.__version__,
        "command": sys.argv,
        "platform": target.platform,
        "times_are_meaningful": target.times_are_meaningful,
        "model": _describe_model(program),
        "inputs": [_identify(path) for path in program.inputs],
        "pins": {name: _installed_version(name) for name in _PINS},
        "runner": result.runner.model_dump() if result else None,
        "cpu": result.cpu.model_dump() if result else None,
        "target": target.describe(),
        "settings": dataclasses.asdict(settings),
        "experiments": [dataclasses.asdict(experiment) for experiment in experiments],
        "launches": [dataclasses.asdict(record) for record in measured.records],
        "files": _hash_files(run),
    }
    write_json(run / MANIFEST, document)


def _write_log(
    run: Path,
    program: Program,
    experiment: Experiment,
    settings: Settings,
    records: Sequence[LaunchRecord],
) -> None:
    """Writes what happened, launch by launch, for people."""
    threads = experiment.threads or settings.threads
    files = experiment_files(run, program.label, experiment.name, threads)
    lines = [
        f"{record.started_at} {record.measured}"
        f"{'' if record.block is None else f' block {record.block}'}: "
        f"{record.error or 'finished'} ({record.duration_s:.2f} s)"
        for record in records
        if record.experiment == experiment.name
    ]
    write_text(files.file(".log"), "".join(f"{line}\n" for line in lines))


def _describe_model(program: Program) -> dict[str, object]:
    """Identifies the program; the export manifest beside it comes along whole."""
    exported = load_export_manifest(program.model)
    return {
        "name": program.name,
        "method": program.method,
        "backend": exported.backend if exported else None,
        "precision": exported.precision if exported else None,
        "export": exported.model_dump() if exported else None,
        **_identify(program.model),
    }


def _identify(path: Path) -> dict[str, object]:
    return {"path": str(path), "sha256": hash_file(path), "size_bytes": path.stat().st_size}


def _installed_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _any_result(measured: Measured) -> RunnerResult | None:
    """Runner and CPU are the same in every launch; returns the first launch's."""
    for results in measured.results.values():
        for result in results.values():
            return result
    return None


def _hash_files(run: Path) -> dict[str, str]:
    """Hashes every file of the run but the manifest itself."""
    files = sorted(path for path in run.rglob("*") if path.is_file() and path.name != MANIFEST)
    return {path.relative_to(run).as_posix(): hash_file(path) for path in files}
