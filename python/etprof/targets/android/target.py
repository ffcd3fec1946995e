"""An Android device as a target, through adb."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import shlex
import time
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from etprof.base.atomic import write_text
from etprof.base.errors import BuildError, EtprofError, TargetError, UsageError
from etprof.base.process import Completed, ProgramTimeoutError
from etprof.run.runner_result import read_result
from etprof.targets.android.adb import (
    READY,
    DeviceLostError,
    choose_device,
    connect,
    lockable_device,
    reconnect,
)
from etprof.targets.android.identity import (
    describe_device,
    read_api_level,
    read_device_state,
)
from etprof.targets.android.libraries import check_api_level, check_machine, find_libraries
from etprof.targets.android.runner_ways import find_runner_way
from etprof.targets.android.session import DeviceSession, bring_results, read_log
from etprof.targets.android.store import DeviceStore
from etprof.targets.launch_layout import layout_environment, level_paths, restore_paths
from etprof.targets.request import runner_arguments
from etprof.targets.runner import check_completed, modes_of, read_cpu, save_output
from etprof.targets.state import TargetState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from etprof.run.runner_result import RunnerResult
    from etprof.targets.android.adb import Adb
    from etprof.targets.device_lock import MeasuredDevice
    from etprof.targets.request import RunnerRequest


REMOTE_ROOT: Final = "/data/local/tmp/etprof"
"""Where Android lets adb's shell write and start programs."""
_CANNOT_START: Final = (126, 127)
"""How a shell says that it could not start a program."""
_LONGEST_PAUSE_S: Final = 4.0


@dataclass
class AndroidTarget:
    """Runs etprof-runner on one device, which is looked for when it is first needed."""

    platform: ClassVar = "android"

    serial: str | None = None
    """None: the only device."""
    _: KW_ONLY
    address: str | None = None
    """HOST:PORT of one on the network."""
    runner: Path | None = None
    trace_runner: Path | None = None
    launcher: Sequence[str] = ()
    """Words before the runner on the device."""
    root: str = REMOTE_ROOT
    reconnect_s: float = 60.0
    """How long a device that goes away is awaited."""
    reconnections: int = field(default=0, init=False)
    """How often the device went away and came back."""
    _identity: dict[str, object] = field(default_factory=dict, init=False)
    _libraries: dict[Path, tuple[Path, ...]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Raises UsageError for a `root` that cannot be used."""
        if not re.fullmatch(r"/[^:\n]*[^/:\n]", self.root):
            raise UsageError(f"remote folder {self.root!r} must be an absolute path without colon")

    @cached_property
    def adb(self) -> Adb:
        """The device, checked; raises UsageError or TargetError with the way out."""
        return choose_device(connect(self.address) if self.address else self.serial)

    @cached_property
    def _api_level(self) -> int | None:
        """Of the device's Android; None where it does not say."""
        return read_api_level(self.adb)

    @cached_property
    def _store(self) -> DeviceStore:
        return DeviceStore(self.adb, self.root)

    @cached_property
    def _session(self) -> DeviceSession:
        session = DeviceSession(self.adb, self.root)
        session.remove_leftovers()
        return session

    def describe(self) -> dict[str, object]:
        """Identity and state of the device, at least as it was when last seen."""
        try:
            self._identity = describe_device(self.adb)
        except (DeviceLostError, ProgramTimeoutError):
            if not self._identity:
                raise
        return {
            "system": "Android",
            **self._identity,
            "remote_folder": self.root,
            "reconnections": self.reconnections,
        }

    def device(self) -> MeasuredDevice:
        """The device by its serial; raises UsageError or TargetError when it is not there."""
        return lockable_device(self.adb)

    def read_state(self) -> TargetState:
        """Frequencies, temperatures and load now; empty while the device is away."""
        try:
            return read_device_state(self.adb)
        except (DeviceLostError, ProgramTimeoutError):
            return TargetState()

    def sme_modes(self) -> tuple[str, ...]:
        """What the device's CPU can give, by the runner's account; without a runner, auto."""
        if self.runner is None:
            return ("auto",)
        remote_paths = self._upload(self.runner, [])
        done = self.adb.shell(
            shlex.join([*self._command_prefix(self.runner, remote_paths), "--cpu-info"])
        )
        try:
            return modes_of(read_cpu(done.stdout))
        except ValueError as error:
            reason = done.reason("no answer")
            raise TargetError(
                f"the runner cannot describe the CPU of device {self.adb.serial}: {reason}"
            ) from error

    def can_count(self) -> bool:
        """Whether a runner that counts was named: none comes with etprof."""
        return self.trace_runner is not None

    def counts_any_runner(self) -> bool:
        """Never: the runner that counts is of one build."""
        return False

    def has_clock(self) -> bool:
        """Whether it was named: the runner that counts has the clock of operators too."""
        return self.trace_runner is not None

    def default_threads(self) -> int:
        """One: a phone's cores differ, and more threads take the slow ones along."""
        return 1

    def run(self, request: RunnerRequest) -> RunnerResult:
        """Runs the model once; once more when the device went away meanwhile and came back."""
        try:
            return self._run_once(request)
        except DeviceLostError as error:
            self._await_return(error)
        return self._run_once(request)

    def _run_once(self, request: RunnerRequest) -> RunnerResult:
        """Copies what changed, launches, brings the results, leaves nothing of the launch there."""
        runner = self.runner_file(request)
        files = [request.model, *([request.data] if request.data else []), *request.inputs]
        remote_paths = self._upload(runner, files, launcher=request.launcher)
        translated, results = translate(request, remote_paths, self._session.outputs)
        layout = [f"{name}={value}" for name, value in layout_environment(request.layout).items()]
        prefix = self._command_prefix(
            runner,
            remote_paths,
            launcher=request.launcher,
            cpus=request.cpus,
            environment=layout,
        )
        flags = runner_arguments(translated)
        level_flags, plain_paths = level_paths(flags)
        argv = [*prefix, *level_flags]
        try:
            finished = self._session.launch(argv, request.timeout_s)
            log = read_log(self.adb, finished.process_id, finished.started_at)
            if log:
                write_text(request.log, "".join(f"{line}\n" for line in log))
            command = ("adb", "-s", self.adb.serial, "shell", shlex.join([*prefix, *flags]))
            stderr = restore_paths(finished.stderr.strip() or "\n".join(log[-1:]), plain_paths)
            # People know files by their paths here.
            outputs = ((f"{self._session.outputs}/{name}", path) for name, path in results)
            for remote, local in (
                *((remote_path, path) for path, remote_path in remote_paths.items()),
                *outputs,
            ):
                stderr = stderr.replace(remote, str(local))
            completed = Completed(command, finished.exit_code, finished.stdout, stderr)
            save_output(request, completed)
            self._check(completed, request, runner)
            bring_results(self.adb, self._session.outputs, finished.files, results)
        finally:
            self._session.stop()
        return read_result(request.result)

    def runner_file(self, request: RunnerRequest) -> Path:
        """Returns the request's runner, or the target's own; raises BuildError without any."""
        default_runner = self.trace_runner if request.kernel_trace else self.runner
        runner = request.runner or default_runner
        if runner is None:
            detail, way_out = find_runner_way()
            raise BuildError(f"there is no runner for Android: {detail}; {way_out}")
        return runner

    def _upload(
        self, runner: Path, files: Sequence[Path], *, launcher: Sequence[str] = ()
    ) -> dict[Path, str]:
        """Puts the runner, its libraries and `files` on the device; returns where."""
        if runner not in self._libraries:
            if not (launcher or self.launcher):
                check_machine(runner)
            check_api_level(runner, self._api_level)
            self._libraries[runner] = find_libraries(runner)
        return self._store.upload([runner, *self._libraries[runner], *files])

    def _command_prefix(
        self,
        runner: Path,
        remote_paths: Mapping[Path, str],
        *,
        launcher: Sequence[str] = (),
        cpus: Sequence[int] = (),
        environment: Sequence[str] = (),
    ) -> list[str]:
        """Returns everything before the runner's flags."""
        folders = [remote_paths[library].rpartition("/")[0] for library in self._libraries[runner]]
        # Android's taskset knows masks only.
        affinity = ["taskset", f"{sum(1 << cpu for cpu in cpus):x}"] if cpus else []
        search = [f"LD_LIBRARY_PATH={':'.join(folders)}"] if folders else []
        variables = ["env", *search, *environment] if search or environment else []
        return [*affinity, *variables, *(launcher or self.launcher), remote_paths[runner]]

    def _check(self, completed: Completed, request: RunnerRequest, runner: Path) -> None:
        """Raises the error that the launch ended in, with the device's name."""
        serial = self.adb.serial
        if completed.exit_code in _CANNOT_START:
            reason = (completed.stderr.splitlines() or [f"exit code {completed.exit_code}"])[-1]
            raise TargetError(
                f"device {serial} cannot start the runner: {reason}; it takes one built for "
                f"Android on arm64 (`cmake --workflow --preset android-sme2`)"
            )
        try:
            launcher = request.launcher or self.launcher
            check_completed(completed, request.runner, launcher, runner=runner)
        except EtprofError as error:
            raise type(error)(f"device {serial}: {error}") from error

    def _await_return(self, error: DeviceLostError) -> None:
        """Waits until the device is back, longer between attempts; raises TargetError."""
        deadline = time.monotonic() + self.reconnect_s
        pause_s = 0.25
        while not self._is_back():
            if time.monotonic() + pause_s > deadline:
                raise TargetError(
                    f"{error}, and did not return within {self.reconnect_s:g} s; what was "
                    f"finished is kept: attach it again, then `etprof run --from-manifest RUN --resume` continues"
                ) from error
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        self.reconnections += 1
        self._store.forget()
        self._session.stop()

    def _is_back(self) -> bool:
        """Whether the device answers; a new connection is asked for first."""
        serial = self.adb.serial
        with contextlib.suppress(DeviceLostError, ProgramTimeoutError):
            if self.adb.state() != READY:
                reconnect(serial)
            return self.adb.state() == READY and self.adb.shell("true", timeout_s=10).exit_code == 0
        return False


def translate(
    request: RunnerRequest, remote_paths: Mapping[Path, str], folder: str
) -> tuple[RunnerRequest, list[tuple[str, Path]]]:
    """Returns `request` with all paths on the device, and what it leaves there.

    `remote_paths` are those of the files sent to the device, `folder` takes outputs. What it leaves
    is listed as a name in that folder and a path here; the result is last.
    """
    named = (
        ("run.etdump", request.etdump),
        ("kernels.json", request.kernel_trace),
        ("outputs", request.outputs),
        ("result.json", request.result),
    )
    results = [(name, path) for name, path in named if path is not None]
    device_paths = {path: Path(remote_path) for path, remote_path in remote_paths.items()}
    device_paths |= {path: Path(folder) / name for name, path in results}
    values = {field.name: getattr(request, field.name) for field in dataclasses.fields(request)}
    paths: dict[str, Any] = {
        n: device_paths[v] for n, v in values.items() if isinstance(v, Path) and v in device_paths
    }
    inputs = tuple(device_paths[path] for path in request.inputs)
    return dataclasses.replace(request, inputs=inputs, **paths), results
