"""manifest.json as a journal: who measures what, where, with what, and how each launch went.

It is rewritten, at once and whole, before the first launch and after every one, so that a run
that is cut off at any moment can be explained and resumed.
"""

from __future__ import annotations

import dataclasses
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import etprof
from etprof.base.atomic import write_bytes, write_json, write_text
from etprof.base.files import hash_file, read_input
from etprof.base.json_input import MOST_JSON_BYTES
from etprof.measuring.git_state import read_git_state
from etprof.run.directory import MANIFEST, LaunchRecord, experiment_files, is_measured
from etprof.run.program import find_descriptions, load_export_manifest
from etprof.targets.registry import proves_times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.measuring.plan import Experiment, Settings
    from etprof.run.program import Program
    from etprof.run.runner_result import RunnerResult
    from etprof.targets import Target

SCHEMA_VERSION = 1
_PINS = ("executorch", "torch")


class Journal:
    """The growing manifest of one run."""

    def __init__(  # noqa: PLR0913 - keyword-only: all parts of a run
        self,
        *,
        run: Path,
        program: Program,
        target: Target,
        experiments: Sequence[Experiment],
        settings: Settings,
        config: dict[str, object] | None = None,
    ) -> None:
        self._run, self._program, self._experiments = run, program, experiments
        self.records: list[LaunchRecord] = []
        self._document: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "status": "running",
            "created_at": _now(),
            "etprof_version": etprof.__version__,
            "command": sys.argv,
            "git": _describe_git(),
            "platform": target.platform,
            "times_are_meaningful": proves_times(target.platform),
            "model": _describe_model(program),
            "inputs": [_identify(path) for path in program.inputs],
            "pins": {name: _installed_version(name) for name in _PINS},
            "runner": None,
            "cpu": None,
            "target": target.describe(),
            "config": config,
            "settings": dataclasses.asdict(settings),
            "experiments": [_jsonable(dataclasses.asdict(e)) for e in experiments],
            "files": {},
        }

    def start(self) -> None:
        """Writes the manifest before the first launch."""
        self._write()

    def add(self, record: LaunchRecord, result: RunnerResult | None) -> None:
        """Records how a launch went."""
        self.records.append(record)
        if result is not None:
            self.describe(result)
        self._write()

    def describe(self, result: RunnerResult) -> None:
        """Takes runner and CPU from the first result, be it of this run or of an interrupted one."""
        if self._document["runner"] is None:
            self._document["runner"] = result.runner.model_dump()
            self._document["cpu"] = result.cpu.model_dump()
            self._keep_descriptions()

    def finish(self, status: str, notes: Sequence[str] = ()) -> None:
        """Writes logs, hashes every file and closes the manifest; call it last."""
        for experiment in self._experiments:
            self._write_log(experiment)
        self._document |= {"status": status, "notes": list(notes), "files": _hash_files(self._run)}
        self._write()

    def _keep_descriptions(self) -> None:
        """Copies what the export says of the program, so that the run can be read elsewhere."""
        for name, path in find_descriptions(self._program.model).items():
            content = read_input(path, most_bytes=MOST_JSON_BYTES, way_out="export the model again")
            write_bytes(self._run / name, content)

    def _write(self) -> None:
        self._document["updated_at"] = _now()
        self._document["launches"] = [record.model_dump() for record in self.records]
        write_json(self._run / MANIFEST, self._document)

    def _write_log(self, experiment: Experiment) -> None:
        """Writes what happened, launch by launch, for people."""
        files = experiment_files(
            self._run, self._program.label, experiment.folder, experiment.threads
        )
        lines = [
            f"{record.started_at} {record.purpose}"
            f"{'' if record.block is None else f' block {record.block}'}: "
            f"{record.error or 'finished'} ({record.duration_s:.2f} s)\n"
            for record in self.records
            if record.experiment == experiment.name
        ]
        if lines:
            write_text(files.file(".log"), "".join(lines))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _jsonable(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Turns paths into text, at any depth."""
    if isinstance(value, dict):
        return {key: _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _describe_git() -> dict[str, object] | None:
    """The working folder's commit, branch and whether it has changes, while measuring."""
    state = read_git_state(Path.cwd())
    return None if state is None else dataclasses.asdict(state)


def _describe_model(program: Program) -> dict[str, object]:
    """Identifies the program; the export manifest beside it comes along."""
    exported = load_export_manifest(program.model)
    return {
        "name": program.name,
        "label": program.label,
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


def _hash_files(run: Path) -> dict[str, str]:
    """Hashes every measured file; reports and the manifest itself can be made again."""
    files = {path.relative_to(run).as_posix(): path for path in run.rglob("*") if path.is_file()}
    return {name: hash_file(files[name]) for name in sorted(files) if is_measured(name)}
