"""Turns one planned launch into a request, runs it, and says how it went."""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from etprof.base.errors import EtprofError, TargetError
from etprof.measuring.conditions import wait_for_start
from etprof.run.directory import ExperimentFiles, experiment_files
from etprof.run.manifest import LaunchRecord, identify
from etprof.targets.request import RunnerRequest, runner_arguments

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.measuring.plan import Experiment, Launch, Settings
    from etprof.run.generation import Generation
    from etprof.run.manifest import FileIdentity
    from etprof.run.program import Program
    from etprof.run.runner_result import RunnerResult
    from etprof.targets import Target


@dataclass(frozen=True)
class Outcome:
    """How a launch went: a result or an error, and the record of it."""

    record: LaunchRecord
    result: RunnerResult | None
    error: EtprofError | None
    runner: FileIdentity | None = None
    """The runner that was started."""


class Launcher:
    """Runs launches of one run on its target."""

    def __init__(self, program: Program, target: Target, run: Path, settings: Settings) -> None:
        self._program, self._target, self._run, self._settings = program, target, run, settings
        self._launched = 0
        self._runners: dict[Path, FileIdentity] = {}

    @property
    def generation(self) -> Generation | None:
        """What each iteration generates."""
        return self._settings.generation

    def files(self, experiment: Experiment) -> ExperimentFiles:
        """Names the experiment's files."""
        return experiment_files(
            self._run, self._program.label, experiment.folder, experiment.threads
        )

    def request(self, launch: Launch) -> RunnerRequest:
        """Returns what the runner is asked for; one instrument at most."""
        experiment, files = launch.experiment, self.files(launch.experiment)
        request = RunnerRequest(
            model=self._program.model,
            data=self._program.data,
            inputs=self._program.inputs,
            shapes=self._program.shapes,
            method=self._program.method,
            warmup=experiment.warmup,
            iterations=experiment.iterations,
            threads=experiment.threads,
            seed=self._settings.seed,
            sme=experiment.sme,
            timeout_s=self._settings.timeout_s,
            runner=experiment.runner,
            launcher=experiment.launcher,
            cpus=experiment.cpus,
            extra_arguments=experiment.extra_arguments,
            result=result_file(files, launch),
        )
        if launch.purpose == "kernel_trace":
            return replace(request, kernel_trace=files.file("_kernels.json"))
        generation = self._settings.generation
        if launch.purpose == "timing":
            seconds = self._settings.min_seconds
            return replace(request, min_seconds=seconds, generation=generation)
        executions = generation.new_tokens if generation else 1
        return replace(
            request,
            iterations=math.ceil(self._settings.etdump_iterations / executions),
            generation=generation,
            etdump=files.etdump,
            outputs=files.file("_outputs"),
        )

    def launch(self, launch: Launch) -> Outcome:
        """Runs one launch; never raises for what the target or the runner did."""
        request = self.request(launch)
        request.result.parent.mkdir(parents=True, exist_ok=True)
        waited_s = wait_for_start(self._target, self._settings, is_first=self._launched == 0)
        self._launched += 1
        before = self._target.read_state()
        started_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        clock = time.monotonic()
        result, problem, runner = None, None, None
        try:
            runner = self._identify_runner(request)
            result = self._target.run(request)
            check_build(launch, result)
        except EtprofError as error:
            result, problem = None, error
        record = LaunchRecord(
            experiment=launch.experiment.name,
            purpose=launch.purpose,
            block=launch.block,
            started_at=started_at,
            duration_s=time.monotonic() - clock,
            error=str(problem) if problem else None,
            asked=tuple(runner_arguments(request)),
            runner_sha256=runner.sha256 if runner else None,
            state_before=dataclasses.asdict(before),
            state_after=dataclasses.asdict(self._target.read_state()),
            waited_s=waited_s,
        )
        return Outcome(record, result, problem, runner)

    def _identify_runner(self, request: RunnerRequest) -> FileIdentity | None:
        """Says which file is started; None where it is not on this machine, or there is none."""
        path = self._target.runner_file(request)
        if path is None or not path.is_file():
            return None
        if path not in self._runners:
            self._runners[path] = identify(path)
        return self._runners[path]


def result_file(files: ExperimentFiles, launch: Launch) -> Path:
    """Names the runner's result of one launch."""
    if launch.purpose == "timing":
        return files.file(f"_b{launch.block:02d}_result.json")
    return files.file("_result.json" if launch.purpose == "etdump" else "_kernels_result.json")


def check_build(launch: Launch, result: RunnerResult) -> None:
    """Refuses times from a trace runner: its instruments are part of what it measures."""
    if launch.purpose == "timing" and result.runner.build.get("trace") is True:
        msg = (
            f"experiment {launch.experiment.name!r} is timed with a trace runner, whose counters "
            'cost time; use a runner without trace, or set its mode to "kernel_trace"'
        )
        raise TargetError(msg)
