"""Turns one planned launch into a request, waits for its conditions, runs it, says how it went."""

from __future__ import annotations

import dataclasses
import random
import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from etprof.base.errors import EtprofError, InputFileError, OutputError, TargetError
from etprof.measuring.plan import repetitions
from etprof.run.directory import ExperimentFiles, experiment_files, launch_suffix
from etprof.run.generation import token_shapes
from etprof.run.manifest import LaunchRecord, identify
from etprof.run.program import describe_program
from etprof.run.runner_result import read_result
from etprof.targets.launch_layout import LayoutShift
from etprof.targets.registry import proves_times
from etprof.targets.request import REQUESTED, RunnerRequest, raw_inputs, runner_arguments

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from etprof.measuring.plan import Experiment, Launch, Settings
    from etprof.run.generation import Generation
    from etprof.run.manifest import FileIdentity
    from etprof.run.program import Program
    from etprof.run.runner_result import GenerationResult, RunnerResult
    from etprof.targets import Target
    from etprof.targets.state import TargetState

_POLL_S: Final = 2.0


@dataclass(frozen=True)
class LaunchOutcome:
    """How a launch went: a result or an error, and the record of it."""

    record: LaunchRecord
    result: RunnerResult | None
    error: EtprofError | None
    runner: FileIdentity | None = None
    """The runner that was started."""
    files: tuple[Path, ...] = ()
    """What the launch has left; of one that failed, what was said of it at most."""


class Launcher:
    """Runs launches of one run on its target."""

    def __init__(self, program: Program, target: Target, run: Path, settings: Settings) -> None:
        self._program, self._target, self._run, self._settings = program, target, run, settings
        self._launched = 0
        self._runners: dict[tuple[Path, int, int], FileIdentity] = {}

    @property
    def generation(self) -> Generation | None:
        """What each iteration generates."""
        return self._settings.generation

    def files(self, experiment: Experiment) -> ExperimentFiles:
        """Names the experiment's files."""
        label = self._program_of(experiment).label
        return experiment_files(self._run, label, experiment.folder, experiment.threads)

    def _program_of(self, experiment: Experiment) -> Program:
        return self._program.every[experiment.program]

    def request(self, launch: Launch) -> RunnerRequest:
        """Returns what the runner is asked for; one instrument at most, but for the split's clock."""
        experiment, files = launch.experiment, self.files(launch.experiment)
        is_timed = proves_times(self._target.platform)
        iterations, warmup = repetitions(launch, self._settings, is_timed=is_timed)
        suffix = launch_suffix(launch.purpose, launch.block)
        result = files.file(f"{suffix}_result.json")
        settings = {
            **vars(self._program_of(experiment)),
            **dict(self._settings),
            **dict(experiment),
        }
        requested = {name: value for name, value in settings.items() if name in REQUESTED}
        settings = {**requested, "iterations": iterations, "warmup": warmup, "result": result}
        request = RunnerRequest(**settings)
        if is_timed and launch.purpose in {"timing", "operators"}:
            # Never by the seed of the run: the same draws in every run would be a bias again.
            request = replace(request, layout=LayoutShift.draw(random.SystemRandom()))
        if launch.purpose == "timing":
            return request
        request = replace(request, min_seconds=None)
        if launch.purpose in {"kernels", "prefill"}:
            # Unless it was named for this, an experiment's runner is one that is timed.
            is_own = experiment.mode == "kernels" or self._target.counts_any_runner()
            runner = experiment.runner if is_own else None
            kernels = files.file(
                "_prefill_kernels.json" if launch.purpose == "prefill" else "_kernels.json"
            )
            request = replace(request, runner=runner, kernel_trace=kernels)
            return self._of_tokens(request, experiment, is_prefill=launch.purpose == "prefill")
        if launch.purpose == "instructions":
            return replace(request, instruction_counts=files.file("_instructions.json"))
        outputs = files.file("_outputs")
        if launch.purpose == "outputs":
            return self._of_steps(replace(request, generation=None, outputs=outputs), experiment)
        # One of the launches that split writes what it computed; generations leave tokens.
        output_folder = None if launch.block or request.generation else outputs
        if output_folder and is_timed and self._program_of(experiment).steps > 1:
            # A launch of its own keeps the outputs of all inferences.
            output_folder = None
        elif output_folder:
            request = self._of_steps(request, experiment)
        clock = files.file(f"{suffix}_clock.json") if self._has_clock(experiment) else None
        etdump = files.file(f"{suffix}.etdump")
        return replace(request, etdump=etdump, kernel_trace=clock, outputs=output_folder)

    def _of_steps(self, request: RunnerRequest, experiment: Experiment) -> RunnerRequest:
        """Returns a launch of all inferences in a row that the export has outputs of."""
        program = self._program_of(experiment)
        if program.steps == 1:
            return request
        return replace(
            request,
            iterations=max(request.iterations or 1, program.steps - 1),
            inputs=program.inputs_of_steps or request.inputs,
            step_inputs=bool(program.inputs_of_steps),
            output_steps=program.steps,
        )

    def _of_tokens(
        self, request: RunnerRequest, experiment: Experiment, *, is_prefill: bool
    ) -> RunnerRequest:
        """Returns one execution of a language model in place of generations: a step, or a prompt.

        Without sizes the runner takes the largest, and those have other microkernels than a step.
        """
        generation = self.generation
        if generation is None:
            return request
        request, count = replace(request, generation=None), 1
        generated = self._read_generated(experiment)
        prompt = len(generation.prompt_tokens) if generated is None else generated.prefilled_tokens
        if is_prefill and prompt:
            count = prompt
            method = (
                generated.prefill_method
                if generated
                else generation.prefill_method or request.method
            )
            if method != request.method:
                program = describe_program(request.model, data=request.data, method=method)
                # A method of its own, with its own example.
                return replace(request, method=method, inputs=program.inputs, shapes=program.shapes)
        shapes = token_shapes(request.shapes, count)
        if request.inputs and request.shapes == shapes:
            return request
        return replace(request, inputs=(), shapes=shapes)

    def _read_generated(self, experiment: Experiment) -> GenerationResult | None:
        """Returns what an earlier launch, also of a run that is resumed, said of its generations."""
        files = self.files(experiment)
        for path in (files.file("_result.json"), files.file("_b00_result.json")):
            if path.is_file():
                with suppress(InputFileError):
                    return read_result(path).generation
        return None

    def _has_clock(self, experiment: Experiment) -> bool:
        """Whether operators are timed by the clock: its runner is a pair with the target's own."""
        is_pair = experiment.runner is None and self._settings.generation is None
        return is_pair and proves_times(self._target.platform) and self._target.has_clock()

    def launch(self, launch: Launch) -> LaunchOutcome:
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
            clear(request.written)
            runner = self._identify_runner(request)
            with raw_inputs(request) as raw_request:
                result = self._target.run(raw_request)
            check_build(launch, result, has_clock=request.kernel_trace is not None)
            check_mode(launch, result)
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
            layout_shift_bytes=dataclasses.astuple(request.layout) if request.layout else None,
        )
        if problem is not None:
            # Half of what was asked for is no evidence; what the target says of it is kept.
            clear(path for path in request.written if path not in {request.log, request.words})
        return LaunchOutcome(record, result, problem, runner, tuple(files_of(request)))

    def _identify_runner(self, request: RunnerRequest) -> FileIdentity | None:
        """Says which file is started; None where it is not on this machine, or there is none."""
        path = self._target.runner_file(request)
        if path is None or not path.is_file():
            return None
        status = path.stat()
        # A rebuild in the meantime changes the time.
        key = (path, status.st_ino, status.st_mtime_ns)
        if key not in self._runners:
            self._runners[key] = identify(path)
        return self._runners[key]


def clear(paths: Iterable[Path]) -> None:
    """Removes the files and folders, so that those found after a launch are of that launch."""
    for path in paths:
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            msg = f"cannot remove {path}: {error.strerror}; remove it, or choose another folder"
            raise OutputError(msg) from error


def files_of(request: RunnerRequest) -> Iterator[Path]:
    """Yields the files that a launch has left."""
    for path in request.written:
        if path.is_dir():
            yield from (file for file in sorted(path.rglob("*")) if file.is_file())
        elif path.is_file():
            yield path


def check_build(launch: Launch, result: RunnerResult, *, has_clock: bool) -> None:
    """Refuses times from a trace runner: its instruments are part of what it measures.

    Operators that its own clock timed are its to time, on both sides alike.
    """
    is_timed = launch.purpose == "timing" or (launch.purpose == "operators" and not has_clock)
    if is_timed and result.runner.build.get("trace") is True:
        msg = (
            f"experiment {launch.experiment.name!r} is timed with a trace runner, whose counters "
            'cost time; use a runner without trace, or set its mode to "kernels"'
        )
        raise TargetError(msg)


def check_mode(launch: Launch, result: RunnerResult) -> None:
    """Refuses an answer in another SME mode than was asked for, as from a launcher's own flags."""
    requested, sme = launch.experiment.sme, result.sme
    for mode in (sme.requested, sme.in_force) if sme is not None and requested != "auto" else ():
        if mode not in {None, requested}:
            msg = (
                f"experiment {launch.experiment.name!r} asked for SME mode {requested}, and the runner "
                f"ran in {mode}: its launcher or runner changes the flags; name another"
            )
            raise TargetError(msg)


def wait_for_start(target: Target, settings: Settings, *, is_first: bool) -> float:
    """Waits out cool-down and start temperature; returns the seconds waited.

    A target without temperature sensors never waits for one. Gives up waiting for a temperature
    after `max_wait_s`; the recorded state then shows how warm it was.
    """
    start = time.monotonic()
    if not is_first and settings.cool_down_s:
        time.sleep(settings.cool_down_s)
    limit = settings.max_start_temperature_c
    while limit is not None and time.monotonic() - start < settings.max_wait_s:
        hottest = hottest_sensor(target.read_state())
        if hottest is None or hottest <= limit:
            break
        time.sleep(_POLL_S)
    return time.monotonic() - start


def hottest_sensor(state: TargetState) -> float | None:
    """Returns the highest temperature in °C, or None without sensors."""
    return max(state.temperatures_c.values(), default=None)
