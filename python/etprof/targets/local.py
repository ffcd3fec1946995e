"""This machine as a target, Linux or macOS."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from etprof.backends.executorch_version import require_executorch
from etprof.base.errors import BuildError, TargetError
from etprof.targets.runner import (
    RunsHere,
    ask_host_runner,
    find_host_runner,
    library_environment,
    modes_of,
    packages_beside,
    read_cpu,
)
from etprof.targets.state import read_local_state

if TYPE_CHECKING:
    from etprof.run.runner_result import Cpu
    from etprof.targets.request import RunnerRequest
    from etprof.targets.state import TargetState

_CPUFREQ = Path("/sys/devices/system/cpu/cpu0/cpufreq")
_NO_TURBO = Path("/sys/devices/system/cpu/intel_pstate/no_turbo")
_RANDOMIZE_VA_SPACE = Path("/proc/sys/kernel/randomize_va_space")
_PERSONALITY = Path("/proc/self/personality")
_ADDR_NO_RANDOMIZE = 0x0040000
"""Of a process, inherited by what it starts: personality(2)."""


class LocalTarget(RunsHere):
    """Runs the host's own runner."""

    platform = "mac" if sys.platform == "darwin" else "linux"

    def own_runner(self, *, tracing: bool) -> Path:
        """The installed runner, which loads the libraries of the ExecuTorch beside it."""
        runner = find_host_runner(tracing=tracing)
        require_executorch("the installed runner", packages_beside(runner))
        return runner

    def runner_command(self, runner: Path, _request: RunnerRequest) -> list[str | Path]:
        """It is started by itself."""
        return [runner]

    def environment(self, runner: Path) -> dict[str, str]:
        """Where ExecuTorch's libraries are."""
        return library_environment(runner)

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
            "address_randomization": _read_address_randomization(),
            **self.describe_debugger(),
        }

    def describe_cpu(self) -> Cpu | None:
        """What the runner says of the CPU; None when it does not answer."""
        completed = ask_host_runner(["--cpu-info"], timeout_s=60)
        if not completed.stdout:
            return None
        try:
            return read_cpu(completed.stdout)
        except ValueError as error:
            raise TargetError(
                f"etprof-runner --cpu-info does not describe a CPU: {error}; install etprof again"
            ) from None

    def sme_modes(self) -> tuple[str, ...]:
        """What this CPU can give; where there is nothing to choose, the runner's own choice."""
        cpu = self.describe_cpu()
        modes = modes_of(cpu) if cpu else ()
        return modes if len(modes) > 1 else ("auto",)

    def can_count(self) -> bool:
        """Whether a runner that counts is there, named or installed, or a debugger is named."""
        return self._debugger is not None or self.has_clock()

    def has_clock(self) -> bool:
        """Whether the runner that counts, which has a clock of operators, is there."""
        try:
            return (self._trace_runner or self.own_runner(tracing=True)).is_file()
        except BuildError:
            return False

    def default_threads(self) -> int:
        """All cores this process may use."""
        if sys.platform == "linux":
            return len(os.sched_getaffinity(0))
        return os.cpu_count() or 1

    def read_state(self) -> TargetState:
        """This machine's frequencies, temperatures and load."""
        return read_local_state()


def _read_address_randomization() -> str | None:
    """Says whether Linux lays stack, libraries and heap of new processes at random addresses.

    Returns:
        "off"; "without heap" for 1 of proc_sys_kernel(5); "on"; None on other systems.
    """
    state = {"0": "off", "1": "without heap", "2": "on"}.get(_read_line(_RANDOMIZE_VA_SPACE) or "")
    personality = _read_line(_PERSONALITY)
    if state and personality and int(personality, 16) & _ADDR_NO_RANDOMIZE:
        return "off"
    return state


def _read_line(path: Path) -> str | None:
    """Returns the file's first line, or None where this system does not have it."""
    try:
        return path.read_text().strip()
    except OSError:
        return None
