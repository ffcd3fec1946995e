"""This machine as a target, Linux or macOS."""

from __future__ import annotations

import os
import platform
import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etprof.base.errors import BuildError, TargetError, UsageError
from etprof.base.json_input import parse_json
from etprof.base.process import run_command
from etprof.run.runner_result import read_result
from etprof.targets.device_lock import this_host
from etprof.targets.request import runner_arguments, taskset_words
from etprof.targets.runner import (
    ask_host_runner,
    check_completed,
    find_host_runner,
    library_environment,
)
from etprof.targets.state import read_local_state

if TYPE_CHECKING:
    from etprof.run.runner_result import RunnerResult
    from etprof.targets.device_lock import MeasuredDevice
    from etprof.targets.request import RunnerRequest
    from etprof.targets.state import TargetState

_CPUFREQ = Path("/sys/devices/system/cpu/cpu0/cpufreq")
_NO_TURBO = Path("/sys/devices/system/cpu/intel_pstate/no_turbo")


class LocalTarget:
    """Runs the host's own runner."""

    platform = "mac" if sys.platform == "darwin" else "linux"

    def __init__(self, trace_runner: Path | None = None) -> None:
        """Keeps the runner that counts microkernels; None: the installed one."""
        self._trace_runner = trace_runner

    @cached_property
    def runner(self) -> Path:
        """The installed runner."""
        return find_host_runner()

    def describe(self) -> dict[str, object]:
        """Operating system, cores, load and what is known of frequency scaling."""
        return {
            "system": platform.system(),
            "release": platform.release(),
            "machine": platform.machine(),
            "logical_cores": os.cpu_count(),
            "load_average": list(os.getloadavg()),
            "frequency_governor": _read_line(_CPUFREQ / "scaling_governor"),
            "turbo_disabled": _read_line(_NO_TURBO),
        }

    def device(self) -> MeasuredDevice:
        """This host's CPU."""
        return this_host()

    def describe_cpu(self) -> dict[str, Any]:
        """What the runner says of the CPU; empty when it does not answer."""
        completed = ask_host_runner(["--cpu-info"], timeout_s=60)
        if not completed.stdout:
            return {}
        try:
            found = parse_json(completed.stdout)
        except ValueError as error:
            raise TargetError(
                f"etprof-runner --cpu-info says no JSON: {error}; install etprof again"
            ) from None
        return found if isinstance(found, dict) else {}

    def sme_modes(self) -> tuple[str, ...]:
        """What this CPU can give; where there is nothing to choose, the runner's own choice."""
        if sys.platform != "linux":
            return ("auto",)
        features = self.describe_cpu().get("features")
        if not isinstance(features, dict) or not features.get("sme"):
            return ("auto",)
        return ("sme2", "sme1", "off") if features.get("sme2") else ("sme1", "off")

    def can_count(self) -> bool:
        """Whether the runner that counts is there: named, or installed."""
        try:
            return self._counting_runner().is_file()
        except BuildError:
            return False

    def _counting_runner(self) -> Path:
        return self._trace_runner or find_host_runner(tracing=True)

    def default_threads(self) -> int:
        """All cores this process may use."""
        if sys.platform == "linux":
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1

    def read_state(self) -> TargetState:
        """This machine's frequencies, temperatures and load."""
        return read_local_state()

    def runner_file(self, request: RunnerRequest) -> Path:
        """The request's own runner, or the installed one that can do what is asked."""
        traced = request.kernel_trace is not None
        return request.runner or (self._counting_runner() if traced else self.runner)

    def run(self, request: RunnerRequest) -> RunnerResult:
        """Runs the model here and reads what was measured."""
        if request.cpus and sys.platform != "linux":
            raise UsageError(
                "cpu_affinity: this system cannot keep a process on chosen CPUs; leave it out"
            )
        before = [*taskset_words(request.cpus), *request.launcher]
        runner = self.runner_file(request)
        command: list[str | Path] = [*before, runner, *runner_arguments(request)]
        completed = run_command(
            command,
            timeout_s=request.timeout_s,
            environment=library_environment(runner),
            keeps_device=True,
        )
        check_completed(completed)
        return read_result(request.result)


def _read_line(path: Path) -> str | None:
    """Returns the file's first line, or None where this system does not have it."""
    try:
        return path.read_text().strip()
    except OSError:
        return None
