"""manifest.json as a journal: who measures what, where, with what, and how each launch went.

It is rewritten, at once and whole, before the first launch and after every one, so that a run
that is cut off at any moment can be explained and resumed.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etprof._version import __version__
from etprof.base.atomic import json_bytes, write_bytes
from etprof.base.files import read_input
from etprof.base.json_input import MOST_JSON_BYTES
from etprof.run.directory import (
    DELEGATION_REPORT,
    METRICS,
    experiment_files,
    kind_of,
    name_of_program,
)
from etprof.run.git_state import read_git_state
from etprof.run.manifest import (
    LaunchRecord,
    Manifest,
    MeasuredFile,
    MeasuredModel,
    MeasuredProgram,
    MeasuringSession,
    identify,
    new_run_id,
    save_manifest,
)
from etprof.run.program import find_descriptions, load_export_manifest
from etprof.targets.registry import proves_times

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from etprof.measuring.launching import LaunchOutcome
    from etprof.measuring.plan import Identity
    from etprof.run.delegation import DelegationReport
    from etprof.run.directory import Metrics
    from etprof.run.manifest import Experiment, Settings
    from etprof.run.program import Program
    from etprof.run.runner_result import RunnerResult
    from etprof.targets import Target

_PINS: Final = ("executorch", "torch")


@dataclass(frozen=True, kw_only=True)
class InterruptedRun:
    """What an interrupted run had finished, to be continued."""

    results: Mapping[Identity, RunnerResult] = field(default_factory=dict)
    records: Sequence[LaunchRecord] = ()
    """Launches that are not repeated: finished ones, and all of experiments left alone now."""
    manifest: Manifest | None = None
    files: Mapping[str, MeasuredFile] = field(default_factory=dict)
    """What those launches left, as it was then."""

    @property
    def finished_count(self) -> int:
        """How many launches had finished, as their files still show."""
        return len(self.results)


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
        earlier: InterruptedRun | None = None,
        delegations: Mapping[str, DelegationReport] | None = None,
    ) -> None:
        self._run, self._program, self._delegations = run, program, delegations or {}
        earlier = earlier or InterruptedRun()
        self.records = list(earlier.records)
        before, now = earlier.manifest, describe_session()
        self._runners = {runner.sha256: runner for runner in (before.runners if before else ())}
        first = before or Manifest(
            **dict(now),
            platform=target.platform,
            times_are_meaningful=proves_times(target.platform),
            model=describe_model(program),
            inputs=tuple(map(identify, program.inputs)),
            programs={
                name: MeasuredProgram(
                    model=describe_model(compared), inputs=tuple(map(identify, compared.inputs))
                )
                for name, compared in program.further.items()
            },
            target=target.describe(),
        )
        recorded = {
            experiment.name: experiment for experiment in (*first.experiments, *experiments)
        }
        self._manifest = first.model_copy(
            update={
                "run_id": first.run_id or new_run_id(),
                "status": "running",
                "resumptions": (*first.resumptions, now) if before else (),
                "config": config,
                "settings": settings,
                "experiments": tuple(recorded.values()),
                "files": dict(earlier.files),
                "notes": (),
            }
        )

    @property
    def experiments(self) -> tuple[Experiment, ...]:
        """All of the run's, those that are left alone now too."""
        return self._manifest.experiments

    def start(self) -> None:
        """Writes the manifest before the first launch."""
        self._write()

    def add(self, outcome: LaunchOutcome) -> None:
        """Records how a launch went, which runner was started, and every file that it left."""
        self.records.append(outcome.record)
        if outcome.runner is not None:
            self._runners.setdefault(outcome.runner.sha256, outcome.runner)
        if outcome.result is not None:
            self.describe(outcome.result)
        self._list(identify_files(self._run, outcome.files))
        self._write()

    def describe(self, result: RunnerResult) -> None:
        """Takes runner and CPU from the first result, be it of this run or of an interrupted one."""
        if self._manifest.runner is None:
            self._update(runner=result.runner, cpu=result.cpu)
            self._keep_descriptions()

    def finish(self, status: str, metrics: Metrics, notes: Sequence[str] = ()) -> None:
        """Writes logs and metrics and closes the manifest; call it last.

        It lists what this journal has written and what launches left that went well: nothing else
        that lies in the folder is evidence.
        """
        for experiment in self._manifest.experiments:
            self._write_log(experiment)
        identified = metrics.model_copy(update={"run_id": self._manifest.run_id})
        self._keep(METRICS, json_bytes(identified.model_dump(mode="json")))
        files = dict(sorted(self._manifest.files.items()))
        self._update(status=status, notes=tuple(notes), files=files)
        self._write()

    def _keep_descriptions(self) -> None:
        """Copies what the export says of each program, so that the run can be read elsewhere."""
        hint = "export the model again"
        for program, described in self._program.every.items():
            for name, path in find_descriptions(described.model, program).items():
                self._keep(name, read_input(path, most_bytes=MOST_JSON_BYTES, way_out=hint))
        for program, report in self._delegations.items():
            name = name_of_program(DELEGATION_REPORT, program)
            self._keep(name, json_bytes(report.model_dump(mode="json")))

    def _keep(self, name: str, content: bytes) -> None:
        """Writes a file of the run's own and lists it, as it was written."""
        write_bytes(self._run / name, content)
        digest = hashlib.sha256(content).hexdigest()
        file = MeasuredFile(kind=kind_of(name), sha256=digest, size_bytes=len(content))
        self._list({name: file})

    def _list(self, files: Mapping[str, MeasuredFile]) -> None:
        self._update(files={**self._manifest.files, **files})

    def _write(self) -> None:
        self._update(launches=tuple(self.records), runners=tuple(self._runners.values()))
        save_manifest(self._run, self._manifest)

    def _update(self, **fields: object) -> None:
        self._manifest = self._manifest.model_copy(update=fields)

    def _write_log(self, experiment: Experiment) -> None:
        """Writes what happened, launch by launch, for people."""
        label = self._program.every[experiment.program].label
        files = experiment_files(self._run, label, experiment.folder, experiment.threads)
        lines = [
            f"{record.started_at} {record.purpose}"
            f"{'' if record.block is None else f' block {record.block}'}: "
            f"{record.error or 'finished'} ({record.duration_s or 0.0:.2f} s)\n"
            for record in self.records
            if record.experiment == experiment.name
        ]
        if lines:
            name = files.file(".log").relative_to(self._run).as_posix()
            self._keep(name, "".join(lines).encode("utf-8", "surrogateescape"))


def describe_session() -> MeasuringSession:
    """Says who measures now."""
    return MeasuringSession(
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        etprof_version=__version__,
        command=tuple(sys.argv),
        git=read_git_state(Path.cwd()),
        pins={name: _installed_version(name) for name in _PINS},
    )


def describe_model(program: Program) -> MeasuredModel:
    """Identifies the program, by what the export says of it too."""
    exported = load_export_manifest(program.model)
    return MeasuredModel(
        name=program.name,
        label=program.label,
        method=program.method,
        backend=exported.backend if exported else None,
        precision=exported.precision if exported else None,
        data=identify(program.data) if program.data else None,
        **dict(identify(program.model)),
    )


def _installed_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def identify_files(run: Path, paths: Iterable[Path]) -> dict[str, MeasuredFile]:
    """Says which measured files these are; all others are left out."""
    names = {path.relative_to(run).as_posix(): path for path in paths}
    return {
        name: MeasuredFile(kind=kind, **identify(path).model_dump(exclude={"path"}))
        for name, path in names.items()
        if (kind := kind_of(name)) is not None
    }
