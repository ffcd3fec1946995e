"""Measures a program on a target: timing blocks, then the ETDump pass, into a run directory."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from etprof.blocks import Experiment, Launch, plan_launches
from etprof.errors import EtprofError
from etprof.run_directory import (
    BlockMetrics,
    ExperimentFiles,
    ExperimentMetrics,
    Metrics,
    experiment_files,
    save_metrics,
)
from etprof.targets.request import RunnerRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from etprof.program_files import Program
    from etprof.runner_result import RunnerResult
    from etprof.targets import Target


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to measure; the same for every experiment of a run."""

    blocks: int = 10
    iterations: int = 20
    min_seconds: float = 0.2
    warmup: int = 10
    etdump_iterations: int = 100
    threads: int = 1
    seed: int = 0
    timeout_s: float = 3600.0


@dataclass(frozen=True)
class LaunchRecord:
    """One process launch as it went, for the manifest."""

    experiment: str
    measured: str
    """What it was for: "timing" or "etdump"."""
    block: int | None
    started_at: str
    duration_s: float
    error: str | None = None


@dataclass
class Measured:
    """Everything that one run brought back."""

    results: dict[str, dict[int, RunnerResult]]
    """Finished timing blocks by experiment."""
    split_results: dict[str, RunnerResult]
    """Finished ETDump passes by experiment."""
    records: list[LaunchRecord]

    @property
    def errors(self) -> list[str]:
        """What failed, in order."""
        return [record.error for record in self.records if record.error is not None]


def measure(  # noqa: PLR0913 - keyword-only: what, where, how
    *,
    program: Program,
    target: Target,
    run: Path,
    experiments: Sequence[Experiment],
    settings: Settings,
    progress: Callable[[str, int, int], None],
) -> Measured:
    """Runs all blocks and ETDump passes; a failed launch never loses a finished one.

    `progress` is told before each launch what starts, how many are done, and of how many.
    Writes results, ETDumps and metrics.json into `run`. Raises the first launch's error, and
    leaves no empty folders, when no timing block of any experiment finished.
    """
    launches = plan_launches(experiments, settings.blocks, settings.seed)
    measured = Measured({e.name: {} for e in experiments}, {}, [])
    session = _Session(program, target, run, settings, measured)
    total = len(launches) + len(experiments)
    for done, launch in enumerate(launches):
        progress(f"{launch.experiment.name}: block {launch.block + 1}", done, total)
        session.time_block(launch)
        if len(measured.errors) == len(experiments) == done + 1:
            break
    finished = [e for e in experiments if measured.results[e.name]]
    for index, experiment in enumerate(finished):
        progress(f"{experiment.name}: operator split", len(launches) + index, total)
        session.split_operators(experiment)
    if session.first_failure is not None and not finished:
        _remove_empty_folders(run)
        raise session.first_failure
    save_metrics(run, session.metrics())
    return measured


def _remove_empty_folders(run: Path) -> None:
    """Removes `run` and the empty folders in and around it that were made for it."""
    for folder in (*(path for path in run.iterdir() if path.is_dir()), run, *run.parents):
        if folder == Path() or any(folder.iterdir()):
            return
        folder.rmdir()


@dataclass
class _Session:
    """One run in progress."""

    program: Program
    target: Target
    run: Path
    settings: Settings
    measured: Measured
    first_failure: EtprofError | None = None

    def files(self, experiment: Experiment) -> ExperimentFiles:
        """Names the experiment's files."""
        threads = self.threads(experiment)
        return experiment_files(self.run, self.program.label, experiment.name, threads)

    def threads(self, experiment: Experiment) -> int:
        """The experiment's own thread count, or the run's."""
        return experiment.threads or self.settings.threads

    def request(self, experiment: Experiment, result: Path) -> RunnerRequest:
        """What every launch of an experiment has in common."""
        return RunnerRequest(
            model=self.program.model,
            data=self.program.data,
            inputs=self.program.inputs,
            method=self.program.method,
            warmup=self.settings.warmup,
            threads=self.threads(experiment),
            seed=self.settings.seed,
            sme=experiment.sme,
            timeout_s=self.settings.timeout_s,
            result=result,
        )

    def time_block(self, launch: Launch) -> None:
        """Times one block; no tracer, no outputs."""
        files = self.files(launch.experiment)
        request = dataclasses.replace(
            self.request(launch.experiment, files.file(f"_b{launch.block:02d}_result.json")),
            iterations=self.settings.iterations,
            min_seconds=self.settings.min_seconds,
        )
        result = self.launch(launch.experiment, "timing", launch.block, request)
        if result is not None:
            self.measured.results[launch.experiment.name][launch.block] = result

    def split_operators(self, experiment: Experiment) -> None:
        """Runs once with the event tracer and keeps the ETDump and the outputs."""
        files = self.files(experiment)
        request = dataclasses.replace(
            self.request(experiment, files.file("_result.json")),
            iterations=self.settings.etdump_iterations,
            etdump=files.etdump,
            outputs=files.file("_outputs"),
        )
        result = self.launch(experiment, "etdump", None, request)
        if result is not None:
            self.measured.split_results[experiment.name] = result

    def launch(
        self, experiment: Experiment, measured: str, block: int | None, request: RunnerRequest
    ) -> RunnerResult | None:
        """Runs the target once and records how it went; None when it failed."""
        request.result.parent.mkdir(parents=True, exist_ok=True)
        started_at = datetime.now(UTC).isoformat(timespec="seconds")
        clock = time.monotonic()
        result, problem = None, None
        try:
            result = self.target.run(request)
        except EtprofError as error:
            problem = str(error)
            self.first_failure = self.first_failure or error
        self.measured.records.append(
            LaunchRecord(
                experiment.name, measured, block, started_at, time.monotonic() - clock, problem
            )
        )
        return result

    def metrics(self) -> Metrics:
        """Gathers all finished blocks."""
        return Metrics(
            times_are_meaningful=self.target.times_are_meaningful,
            experiments={
                name: _experiment_metrics(results)
                for name, results in self.measured.results.items()
                if results
            },
        )


def _experiment_metrics(results: dict[int, RunnerResult]) -> ExperimentMetrics:
    """Turns the runner's results of one experiment into its part of metrics.json."""
    first = next(iter(results.values()))
    sme = (first.sme or {}).get("in_force", "off")
    return ExperimentMetrics(
        sme=str(sme),
        threads=first.threads.in_force,
        blocks=[
            BlockMetrics(block=block, **result.model_dump(include=set(BlockMetrics.model_fields)))
            for block, result in sorted(results.items())
        ],
    )
