"""An emulated Arm CPU with SME2 as a target: which kernels run and what they compute, no times."""

from __future__ import annotations

import platform
from functools import cached_property
from typing import TYPE_CHECKING

from etprof.base.process import run_command
from etprof.run.runner_result import read_result
from etprof.targets.device_lock import this_host
from etprof.targets.emulator.installation import locate
from etprof.targets.emulator.qemu import read_version
from etprof.targets.request import runner_arguments
from etprof.targets.runner import check_completed
from etprof.targets.state import TargetState

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.run.runner_result import RunnerResult
    from etprof.targets.device_lock import MeasuredDevice
    from etprof.targets.emulator.installation import Emulator
    from etprof.targets.request import RunnerRequest


class EmulatorTarget:
    """Runs the Arm runners through qemu-aarch64."""

    platform = "emulator"

    def __init__(self, cpu: str = "max", trace_runner: Path | None = None) -> None:
        """Keeps qemu's -cpu value: `max` has SME2, `max,sme=off` has no SME.

        `trace_runner` None: the emulator's own runner counts microkernels.
        """
        self.cpu = cpu
        self._trace_runner = trace_runner

    @cached_property
    def emulator(self) -> Emulator:
        """The emulator's parts, checked; raises BuildError when one is missing."""
        return locate()

    def describe(self) -> dict[str, object]:
        """What is emulated by what, and where it runs."""
        version = read_version(self.emulator.qemu)
        return {
            "system": platform.system(),
            "release": platform.release(),
            "machine": "aarch64",
            "emulated_cpu": self.cpu,
            "emulator": f"qemu-aarch64 {'.'.join(map(str, version or ('?',)))}",
            "host_machine": platform.machine(),
        }

    def device(self) -> MeasuredDevice:
        """This host's CPU: what is emulated is not timed, but disturbs what is timed here."""
        return this_host()

    def sme_modes(self) -> tuple[str, ...]:
        """All three; without SME in the CPU, only off."""
        return ("off",) if "sme=off" in self.cpu else ("sme2", "sme1", "off")

    def can_count(self) -> bool:
        """Always: a runner that counts is one of the emulator's parts."""
        return True

    def default_threads(self) -> int:
        """One: more only make an emulated run slower."""
        return 1

    def read_state(self) -> TargetState:
        """Nothing: the emulated CPU has no frequency, and its times mean nothing."""
        return TargetState()

    def runner_file(self, request: RunnerRequest) -> Path:
        """The request's own runner, or the emulator's that can do what is asked."""
        traced = request.kernel_trace is not None
        own = (self._trace_runner or self.emulator.trace_runner) if traced else self.emulator.runner
        return request.runner or own

    def run(self, request: RunnerRequest) -> RunnerResult:
        """Runs the model once; with a kernel trace, in the runner that can."""
        runner = self.runner_file(request)
        command = [*self.emulator.command(runner, cpu=self.cpu), *runner_arguments(request)]
        completed = run_command(command, timeout_s=request.timeout_s, keeps_device=True)
        check_completed(completed)
        return read_result(request.result)
