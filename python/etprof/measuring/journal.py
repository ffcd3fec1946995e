"""manifest.json as a journal: who measures what, where, with what, and how each launch went.

It is rewritten, at once and whole, before the first launch and after every one, so that a run
that is cut off at any moment can be explained and resumed.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, distribution, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

import etprof
from etprof.base.atomic import write_bytes, write_json, write_text
from etprof.base.files import hash_file, read_bounded, read_input
from etprof.base.json_input import MOST_JSON_BYTES
from etprof.measuring.git_state import read_git_state
from etprof.run.directory import DELEGATION_REPORT, experiment_files, find_measured_files, kind_of
from etprof.run.manifest import (
    LaunchRecord,
    Manifest,
    MeasuredFile,
    MeasuredModel,
    identify,
    new_run_id,
    save_manifest,
)
from etprof.run.program import find_descriptions, load_export_manifest
from etprof.targets.registry import proves_times

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from etprof.measuring.launching import Outcome
    from etprof.measuring.plan import Identity
    from etprof.run.delegation import DelegationReport
    from etprof.run.manifest import Experiment, Settings
    from etprof.run.program import Program
    from etprof.run.runner_result import RunnerResult
    from etprof.targets import Target

_PINS: Final = ("executorch", "torch")
_REVISION: Final = re.compile(r"git_version.*?= *['\"]([0-9a-f]{7,40})['\"]")
_MOST_BYTES: Final = 2**16
"""Of ExecuTorch's version.py: it has four lines."""


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """What an interrupted run had finished, to be continued."""

    results: Mapping[Identity, RunnerResult] = field(default_factory=dict)
    records: Sequence[LaunchRecord] = ()
    manifest: Manifest | None = None
    files: Mapping[str, MeasuredFile] = field(default_factory=dict)
    """What those launches left, as it was then."""


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
        earlier: Earlier | None = None,
        delegation: DelegationReport | None = None,
    ) -> None:
        self._run, self._program, self._delegation = run, program, delegation
        self.records: list[LaunchRecord] = []
        before = earlier.manifest if earlier else None
        self._runners = {known.sha256: known for known in (before.runners if before else ())}
        self._manifest = Manifest(
            run_id=(before.run_id if before else None) or new_run_id(),
            status="running",
            created_at=_now(),
            etprof_version=etprof.__version__,
            command=tuple(sys.argv),
            git=read_git_state(Path.cwd()),
            platform=target.platform,
            times_are_meaningful=proves_times(target.platform),
            model=describe_model(program),
            inputs=tuple(map(identify, program.inputs)),
            pins={name: _installed_version(name) for name in _PINS},
            executorch_revision=_executorch_revision(),
            target=target.describe(),
            config=config,
            settings=settings,
            experiments=tuple(experiments),
            files=dict(earlier.files) if earlier else {},
        )

    @property
    def run_id(self) -> str | None:
        """The identity of the run, for its other files."""
        return self._manifest.run_id

    def start(self) -> None:
        """Writes the manifest before the first launch."""
        self._write()

    def add(self, outcome: Outcome) -> None:
        """Records how a launch went, which runner was started, and every file that it left."""
        self.records.append(outcome.record)
        if outcome.runner is not None:
            self._runners.setdefault(outcome.runner.sha256, outcome.runner)
        if outcome.result is not None:
            self.describe(outcome.result)
        names = [path.relative_to(self._run).as_posix() for path in outcome.files]
        self._update(files={**self._manifest.files, **identify_files(self._run, names)})
        self._write()

    def describe(self, result: RunnerResult) -> None:
        """Takes runner and CPU from the first result, be it of this run or of an interrupted one."""
        if self._manifest.runner is None:
            self._update(runner=result.runner, cpu=result.cpu)
            self._keep_descriptions()

    def finish(self, status: str, notes: Sequence[str] = ()) -> None:
        """Writes logs, hashes what no launch has left and closes the manifest; call it last."""
        for experiment in self._manifest.experiments:
            self._write_log(experiment)
        known = self._manifest.files
        others = [name for name in find_measured_files(self._run) if name not in known]
        files = {**known, **identify_files(self._run, others)}
        self._update(status=status, notes=tuple(notes), files=dict(sorted(files.items())))
        self._write()

    def _keep_descriptions(self) -> None:
        """Copies what the export says of the program, so that the run can be read elsewhere."""
        for name, path in find_descriptions(self._program.model).items():
            content = read_input(path, most_bytes=MOST_JSON_BYTES, way_out="export the model again")
            write_bytes(self._run / name, content)
        if self._delegation is not None:
            document = self._delegation.model_dump(mode="json")
            write_json(self._run / DELEGATION_REPORT, document)

    def _write(self) -> None:
        self._update(
            updated_at=_now(),
            launches=tuple(self.records),
            runners=tuple(self._runners.values()),
        )
        save_manifest(self._run, self._manifest)

    def _update(self, **fields: object) -> None:
        self._manifest = self._manifest.model_copy(update=fields)

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


def describe_model(program: Program) -> MeasuredModel:
    """Identifies the program, by what the export says of it too."""
    exported = load_export_manifest(program.model)
    return MeasuredModel(
        name=program.name,
        label=program.label,
        method=program.method,
        backend=exported.backend if exported else None,
        precision=exported.precision if exported else None,
        **dict(identify(program.model)),
    )


def _installed_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _executorch_revision() -> str | None:
    """Returns the commit that the installed ExecuTorch was built from, without importing it."""
    try:
        path = Path(str(distribution("executorch").locate_file("executorch/version.py")))
        found = _REVISION.search(read_bounded(path, _MOST_BYTES).decode("utf-8", "replace"))
    except (PackageNotFoundError, OSError):
        return None
    return found[1] if found else None


def identify_files(run: Path, names: Iterable[str]) -> dict[str, MeasuredFile]:
    """Says which measured files these are; other names are left out."""
    return {
        name: MeasuredFile(
            kind=kind, sha256=hash_file(run / name), size_bytes=(run / name).stat().st_size
        )
        for name in names
        if (kind := kind_of(name)) is not None
    }
