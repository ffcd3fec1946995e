"""One matrix from beginning to end: export, measure, add to the history, summarise."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from etprof.analysis.assessment import assess_run
from etprof.analysis.run_analysis import analyze_run
from etprof.bench.execution import UnitOutcome, describe_error, keep_failure, unfinished_reason
from etprof.bench.pool import Task, run_here
from etprof.bench.prompt_work import count_prompt_work
from etprof.export.exporter import export_model, find_export
from etprof.report_files import write_report_files
from etprof.run.directory import has_summary
from etprof.run.load import Run as LoadedRun
from etprof.run.manifest import load_manifest
from etprof.targets.device_lock import device_lock, patience, this_host

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from pathlib import Path

    from etprof.bench.combinations import ProgramKey, Unit
    from etprof.bench.pool import Reporter
    from etprof.bench.prompt_work import PromptWork
    from etprof.history.schema import Run
    from etprof.history.store import Store
    from etprof.run.accuracy import TextQuality


@dataclass(frozen=True)
class ExportedUnit:
    """A program, or why there is none."""

    path: Path | None
    error: str | None = None


def export_programs(
    keys: Iterable[ProgramKey], folder: Path, tell: Callable[[str], None], *, anew: bool = False
) -> dict[ProgramKey, ExportedUnit]:
    """Exports into `folder` what is not there yet or out of date; a failure stops no other.

    With `anew`, everything is exported.
    """
    return {key: _export(key, folder, tell, anew=anew) for key in dict.fromkeys(keys)}


def _export(
    key: ProgramKey, folder: Path, tell: Callable[[str], None], *, anew: bool
) -> ExportedUnit:
    if key.given is not None:
        return ExportedUnit(key.given)
    request = key.request(folder)
    try:
        if anew or find_export(request) is None:
            tell(f"exporting {key.label}")
            export_model(request)
    # The model's code and the compilers below may raise anything; the other programs go on.
    except Exception as error:  # noqa: BLE001
        return ExportedUnit(None, describe_error(error))
    return ExportedUnit(request.files().pte)


@dataclass(frozen=True)
class Request:
    """The options of a matrix run."""

    folder: Path
    resume: bool = False
    export: bool = False
    """Export programs again that are up to date."""
    keep_going: bool = False
    """Never give an experiment up after failures."""
    scheduler: str | None = None
    """Address of a Dask scheduler; None: this host alone."""
    wait: bool = True
    """Wait for devices that other commands have; workers of a scheduler always do."""


@dataclass(frozen=True)
class StoredUnit:
    """How a unit went, and its experiments as the history has them."""

    outcome: UnitOutcome
    runs: tuple[Run, ...]
    quality: TextQuality | None = None
    """Of the program on its text; None where it was not evaluated."""
    prompt_work: PromptWork | None = None
    """Of reading the prompt with SME2; None where it was not counted."""


@dataclass
class MatrixSession:
    """A matrix on its way."""

    units: Sequence[Unit]
    request: Request
    store: Store
    reporter: Reporter
    stored_units: list[StoredUnit] = field(default_factory=list)
    _reported_notes: set[str] = field(default_factory=set)
    """Notes are mostly the same for all runs of a device."""

    def run(self) -> list[StoredUnit]:
        """Measures what is not finished yet; returns how each unit went, in their order."""
        if self.request.scheduler is not None:
            from etprof.bench.cluster import check_scheduler

            check_scheduler(self.request.scheduler)
        tasks = [task for task in self._export() if not self._is_finished(task)]
        with closing(self._start(tasks)) as outcomes:
            for outcome in outcomes:
                self._keep(outcome)
        order = {unit: number for number, unit in enumerate(self.units)}
        return sorted(self.stored_units, key=lambda stored: order[stored.outcome.unit])

    def _export(self) -> list[Task]:
        """Exports every program, and keeps the failure of each unit that gets none."""
        folder = self.request.folder / "programs"
        waiting = patience(self.reporter.say, wait=self.request.wait)
        with device_lock(this_host(), waiting):
            programs = export_programs(
                (unit.program for unit in self.units),
                folder,
                self.reporter.say,
                anew=self.request.export,
            )
        tasks = []
        for unit in self.units:
            exported, run = programs[unit.program], unit.run_directory(self.request.folder)
            if exported.path is not None:
                tasks.append(Task(unit, exported.path, run))
            else:
                self._keep(
                    UnitOutcome(unit, keep_failure(unit, run, f"not exported: {exported.error}"))
                )
        return tasks

    def _is_finished(self, task: Task) -> bool:
        """Recognises a run that needs no repetition; it goes into the store if it is not there."""
        if not self.request.resume:
            return False
        reason = unfinished_reason(task.unit, task.program, task.run)
        if reason is not None:
            self.reporter.say(f"{task.unit.text}: {reason}")
            return False
        self._keep(UnitOutcome(task.unit))
        return True

    def _start(self, tasks: Sequence[Task]) -> Generator[UnitOutcome]:
        request = self.request
        if request.scheduler is None:
            return run_here(
                tasks,
                self.reporter,
                resume=request.resume,
                wait=request.wait,
                keep_going=request.keep_going,
            )
        from etprof.bench.cluster import run_on_cluster

        return run_on_cluster(
            tasks, request.scheduler, self.reporter, keep_going=request.keep_going
        )

    def _keep(self, outcome: UnitOutcome) -> None:
        """Adds a run to the history and writes its report, while nothing is timed here."""
        unit, errors = outcome.unit, list(outcome.errors)
        run = unit.run_directory(self.request.folder)
        runs: tuple[Run, ...] = ()
        quality: TextQuality | None = None
        work: PromptWork | None = None
        with device_lock(this_host(), patience(self.reporter.say)):
            try:
                added = self.store.add_run_directory(run, device=unit.device.history_name)
                runs = tuple(addition.run for addition in added)
                if unit.model.generation is not None:
                    generated = LoadedRun.load(run, strict=False)
                    quality = generated.programs[0].quality
                    work = count_prompt_work(analyze_run(generated))
                is_reported = not outcome.worker and has_summary(run, load_manifest(run))
                loaded = None if is_reported else LoadedRun.load(run, strict=False)
                if loaded is not None and loaded.is_reportable:
                    write_report_files(assess_run(analyze_run(loaded)), run)
            # Even a defect of ours: the run itself is kept, `--resume` adds it, the others go on.
            except Exception as error:  # noqa: BLE001
                errors.append(describe_error(error))
        for note in outcome.notes:
            if note not in self._reported_notes:
                self._reported_notes.add(note)
                self.reporter.say(f"{unit.device.name}: {note}")
        stored_unit = StoredUnit(replace(outcome, errors=tuple(errors)), runs, quality, work)
        self.stored_units.append(stored_unit)
        self.reporter.finished(stored_unit.outcome)
