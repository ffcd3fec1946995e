"""Measures a program on a target: timing blocks, then the passes with instruments."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from etprof.base.errors import TargetError
from etprof.measuring.journal import Journal
from etprof.measuring.launching import Launcher
from etprof.measuring.metrics import gather_metrics
from etprof.measuring.plan import Launch, plan_passes, plan_timing
from etprof.measuring.stopping import is_precise_enough
from etprof.run.directory import remove_empty_folders, reserved, save_metrics
from etprof.run.manifest import MANIFEST
from etprof.targets.registry import proves_times

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from etprof.base.errors import EtprofError
    from etprof.measuring.plan import Experiment, Settings
    from etprof.run.manifest import LaunchRecord, Manifest
    from etprof.run.program import Program
    from etprof.run.runner_result import RunnerResult
    from etprof.targets import Target

_FAILURES_IN_A_ROW: Final = 2
"""An experiment whose launches fail this often in a row is given up; the others go on."""

Identity = tuple[str, str, int | None]


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """What an interrupted run had finished, to be continued."""

    results: Mapping[Identity, RunnerResult] = field(default_factory=dict)
    records: Sequence[LaunchRecord] = ()
    manifest: Manifest | None = None


@dataclass
class Measured:
    """Everything that one run brought back."""

    results: dict[Identity, RunnerResult]
    """Finished launches: (experiment, purpose, block) → result."""
    records: list[LaunchRecord]
    notes: list[str]
    """What a reader of the numbers should know, such as why the run stopped early."""

    @property
    def errors(self) -> list[str]:
        """What failed and was not made good by a later try, in order."""
        return [
            f"{record.experiment}, {record.purpose}: {record.error}"
            for record in self.records
            if record.error is not None
            and (record.experiment, record.purpose, record.block) not in self.results
        ]

    def of(self, experiment: str, purpose: str) -> list[RunnerResult]:
        """Results of one experiment and purpose, in order of blocks."""
        found = [
            (block or 0, result)
            for (name, kind, block), result in self.results.items()
            if (name, kind) == (experiment, purpose)
        ]
        return [result for _, result in sorted(found, key=lambda item: item[0])]


def measure(  # noqa: PLR0913 - keyword-only: what, where, how
    *,
    program: Program,
    target: Target,
    run: Path,
    experiments: Sequence[Experiment],
    settings: Settings,
    progress: Callable[[str, int, int], None],
    config: dict[str, object] | None = None,
    earlier: Earlier | None = None,
    keep_going: bool = False,
) -> Measured:
    """Runs what is planned and not finished yet; a failed launch never loses a finished one.

    `progress` is told before each launch what starts, how many are done, and of how many.
    Writes results, ETDumps, metrics.json and manifest.json into `run`; the latter after every
    launch. Raises the first launch's error, and leaves no empty folders, when nothing at all
    could be measured. With `keep_going` no experiment is given up after failures.
    """
    journal = Journal(
        run=run,
        program=program,
        target=target,
        experiments=experiments,
        settings=settings,
        config=config,
        earlier=earlier.manifest if earlier else None,
    )
    launcher = Launcher(program, target, run, settings)
    with reserved(run):
        state = _Progress(journal, launcher, earlier or Earlier(), keep_going=keep_going)
        state.execute(plan_timing(experiments, settings), experiments, settings, progress)
        passes = state.without_impossible(plan_passes(experiments, settings))
        state.execute(passes, experiments, settings, progress)
        return state.conclude(run, target, experiments)


def _is_bare(result: RunnerResult) -> bool:
    """Whether the runner was built without event tracer."""
    return result.runner.build.get("event_tracer") is False


class _Progress:
    """A run in progress."""

    def __init__(
        self, journal: Journal, launcher: Launcher, earlier: Earlier, *, keep_going: bool
    ) -> None:
        self._journal, self._launcher, self._keep_going = journal, launcher, keep_going
        self._measured = Measured(dict(earlier.results), journal.records, [])
        self._failures: dict[str, int] = {}
        self._first_failure: EtprofError | None = None
        self._started = time.monotonic()
        journal.records += [record for record in earlier.records if record.error is None]
        for result in earlier.results.values():
            journal.describe(result)
        journal.start()

    def execute(
        self,
        launches: Sequence[Launch],
        experiments: Sequence[Experiment],
        settings: Settings,
        progress: Callable[[str, int, int], None],
    ) -> None:
        """Runs the launches that are not finished, unless precision or budget say enough."""
        for done, launch in enumerate(launches):
            starts_pair = launch.block is not None and done % len(experiments) == 0
            if starts_pair and self._is_enough(launch, experiments, settings):
                return
            if launch.identity in self._measured.results or self._is_given_up(launch):
                continue
            progress(launch.text, done, len(launches))
            self._run(launch)

    def without_impossible(self, passes: Iterable[Launch]) -> list[Launch]:
        """Leaves out the operator split of runners that were built without event tracer."""
        kept = []
        for launch in passes:
            blocks = self._measured.of(launch.experiment.name, "timing")
            if launch.purpose == "etdump" and any(map(_is_bare, blocks)):
                self._measured.notes.append(
                    f"{launch.experiment.name} has no operator split: its runner is built without "
                    "event tracer"
                )
            else:
                kept.append(launch)
        return kept

    def _is_enough(
        self, launch: Launch, experiments: Sequence[Experiment], settings: Settings
    ) -> bool:
        """Whether the stopping rule, fixed beforehand, is met before this block."""
        elapsed = time.monotonic() - self._started
        if settings.budget_s is not None and elapsed > settings.budget_s:
            self._measured.notes.append(
                f"stopped before block {(launch.block or 0) + 1}: the budget of "
                f"{settings.budget_s:g} s is spent"
            )
            return True
        blocks = [self._measured.of(experiment.name, "timing") for experiment in experiments]
        if settings.target_half_width is None or not is_precise_enough(
            blocks, settings.target_half_width
        ):
            return False
        self._measured.notes.append(
            f"stopped before block {(launch.block or 0) + 1}: every median is known within "
            f"±{settings.target_half_width * 100:g} %"
        )
        return True

    def _is_given_up(self, launch: Launch) -> bool:
        name = launch.experiment.name
        if self._keep_going:
            return False
        return self._failures.get(name, 0) >= _FAILURES_IN_A_ROW

    def _run(self, launch: Launch) -> None:
        """Runs one launch and writes down how it went."""
        outcome = self._launcher.launch(launch)
        name = launch.experiment.name
        if outcome.result is not None:
            self._measured.results[launch.identity] = outcome.result
            self._failures[name] = 0
        else:
            self._failures[name] = self._failures.get(name, 0) + 1
            self._first_failure = self._first_failure or outcome.error
        self._journal.add(outcome.record, outcome.result, outcome.runner)

    def conclude(self, run: Path, target: Target, experiments: Sequence[Experiment]) -> Measured:
        """Writes metrics.json and closes the manifest."""
        if not self._measured.results:
            (run / MANIFEST).unlink(missing_ok=True)
            remove_empty_folders(run)
            raise self._first_failure or TargetError("nothing was planned: no experiment is timed")
        metrics = gather_metrics(
            self._measured.results, experiments, self._launcher, proves_times(target.platform)
        )
        save_metrics(run, metrics.model_copy(update={"run_id": self._journal.run_id}))
        status = "finished with failures" if self._measured.errors else "finished"
        self._journal.finish(status, self._measured.notes)
        return self._measured
