"""An emulated Arm CPU with SME2 as a target: which kernels run and what they compute, no times."""

from __future__ import annotations

import copy
import platform
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from etprof.base.atomic import scratch_folder
from etprof.base.errors import TargetError, UsageError
from etprof.base.files import read_input
from etprof.base.process import run_command
from etprof.base.records import SmeInForce
from etprof.run.kernel_trace import read_kernel_trace, write_instructions
from etprof.targets.debugger.counting import WatchedProgram, find_debugger
from etprof.targets.emulator import instructions
from etprof.targets.emulator.installation import locate
from etprof.targets.emulator.qemu import read_version
from etprof.targets.emulator.sysroot import is_native
from etprof.targets.request import runner_arguments
from etprof.targets.runner import RunsHere
from etprof.targets.state import TargetState

if TYPE_CHECKING:
    from etprof.run.runner_result import RunnerResult
    from etprof.targets.debugger.counting import DebuggerProgram
    from etprof.targets.emulator.installation import Emulator
    from etprof.targets.request import RunnerRequest


_MOST_CALLS: Final = 2**24
"""Bytes; starting the runner takes some hundred system calls."""
USUAL_VECTOR_BITS: Final = 512
"""Apple's M4 has it and, as far as known, Arm's phone parts; qemu's own choice is 256."""


class EmulatorTarget(RunsHere):
    """Runs the Arm runners through qemu-aarch64."""

    platform = "emulator"

    def __init__(
        self, cpu: str = "max", trace_runner: Path | None = None, debugger: str | None = None
    ) -> None:
        """Keeps qemu's -cpu value: `max` has SME2, `max,sme=off` has no SME.

        `trace_runner` None: the emulator's own runner counts microkernels, where no `debugger` is
        to count them.
        """
        super().__init__(trace_runner, debugger)
        self.cpu = cpu
        self._flags: tuple[str | Path, ...] = ()

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
            **self.describe_debugger(),
        }

    def sme_modes(self) -> tuple[str, ...]:
        """All three; without SME in the CPU, only off."""
        return ("off",) if "sme=off" in self.cpu else get_args(SmeInForce)

    def can_count(self) -> bool:
        """Always: a runner that counts is one of the emulator's parts."""
        return True

    def has_clock(self) -> bool:
        """Always, though its times mean nothing."""
        return True

    def debugger(self) -> DebuggerProgram:
        """Returns one for Arm programs."""
        return find_debugger(self._debugger, is_foreign=True)

    def watched_program(self, runner: Path, request: RunnerRequest, folder: Path) -> WatchedProgram:
        """Returns qemu as the server of a debugger, at a socket that nobody else reaches.

        Raises UsageError for several threads: qemu's gdbstub (gdbstub/user.c, gdb_continue_partial)
        lets all of them run while one steps over a breakpoint, past breakpoints of their own.
        """
        if request.threads != 1:
            raise UsageError(
                "a debugger counts one thread in the emulator: give --threads 1, or leave --debugger "
                "out, for the emulator's own runner counts all"
            )
        socket = folder / "gdb"
        qemu, *arguments = self.runner_command(runner, request)
        settings = {"solib-search-path": str(self.emulator.sdk / "lib")}
        if not is_native():
            settings["sysroot"] = str(self.emulator.sysroot)
        return WatchedProgram(
            argv=(runner,),
            server=(qemu, "-g", socket, *arguments, *runner_arguments(request)),
            address=str(socket),
            settings=settings,
        )

    def default_threads(self) -> int:
        """One: more only make an emulated run slower."""
        return 1

    def read_state(self) -> TargetState:
        """Nothing: the emulated CPU has no frequency, and its times mean nothing."""
        return TargetState()

    def own_runner(self, *, tracing: bool) -> Path:
        """The emulator's runner."""
        return self.emulator.trace_runner if tracing else self.emulator.runner

    def runner_command(self, runner: Path, request: RunnerRequest) -> list[str | Path]:
        """The emulator comes before it, with a CPU of the vector length that was asked for."""
        cpu = self.cpu
        if "sme=off" not in cpu:
            # qemu takes bytes.
            length = (request.sme_vector_bits or USUAL_VECTOR_BITS) // 8
            cpu = f"{cpu},sme-default-vector-length={length}"
        qemu, *arguments = self.emulator.command(runner, cpu=cpu)
        return [qemu, *self._flags, *arguments]

    def run(self, request: RunnerRequest) -> RunnerResult:
        """Runs the model here; counts its instructions, with one thread, where they are asked for."""
        if request.instruction_counts is None:
            return super().run(request)
        library = self.emulator.sdk / "lib" / instructions.LIBRARY
        functions = instructions.read_functions(library)
        runner = self.own_runner(tracing=True)
        with scratch_folder("counted") as folder:
            trace, calls = Path(folder, "kernels.json"), Path(folder, "calls")
            counted = replace(
                request, runner=runner, kernel_trace=trace, instruction_counts=None, threads=1
            )
            # A runner that does nothing is loaded to the same addresses.
            argv = self._with("-d", "strace", "-D", calls).runner_command(runner, counted)
            run_command([*argv, "--version"], timeout_s=request.timeout_s, keeps_device=True)
            strace = read_input(
                calls, most_bytes=_MOST_CALLS, way_out="run `etprof doctor`", error=TargetError
            ).decode("utf-8", "replace")
            log = instructions.Log(functions, instructions.find_base(strace))
            with instructions.log_pipe(log.feed) as pipe:
                result = self._with(*log.flags, "-D", pipe).run(counted)
            counts = instructions.name_operators(log, read_kernel_trace(trace), library)
        write_instructions(counts, request.instruction_counts)
        return result

    def _with(self, *flags: str | Path) -> EmulatorTarget:
        """Returns the same with flags for qemu, at addresses that are the same in every launch."""
        target = copy.copy(self)
        target._debugger = None
        target._flags = (*instructions.SAME_ADDRESSES, *flags)
        return target
