"""Starts runners on this host: finds the installed one, says in words why a launch failed."""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from etprof.base.atomic import scratch_folder, write_text
from etprof.base.errors import (
    BuildError,
    EtprofError,
    InputFileError,
    OutputError,
    TargetError,
    UsageError,
)
from etprof.base.files import read_input
from etprof.base.json_input import parse_json
from etprof.base.process import ProgramTimeoutError, run_command
from etprof.base.records import first_problem
from etprof.base.text import clean
from etprof.base.units import format_size
from etprof.run.runner_result import Cpu, read_result
from etprof.targets.device_lock import this_host
from etprof.targets.launch_layout import (
    FILL_VARIABLE,
    layout_environment,
    level_paths,
    restore_paths,
)
from etprof.targets.request import runner_arguments, taskset_command

if TYPE_CHECKING:
    from etprof.base.process import Completed
    from etprof.run.runner_result import RunnerResult
    from etprof.targets.debugger.counting import DebuggerProgram, WatchedProgram
    from etprof.targets.device_lock import MeasuredDevice
    from etprof.targets.request import RunnerRequest

_ERRORS: dict[int, type[EtprofError]] = {
    2: UsageError,
    3: InputFileError,
    4: InputFileError,
    7: OutputError,
}
"""Runner exit codes that are not the target's fault; all others are TargetError."""

_OF_THE_LOADER = (
    "version `GLIBC", "error while loading shared libraries", "CANNOT LINK EXECUTABLE",
    "Library not loaded", "Exec format error",
)  # fmt: skip
"""What the loaders of glibc, Android and macOS say, and the kernel of another architecture."""
_FROM_OUTSIDE: Final = (signal.SIGHUP, signal.SIGINT, signal.SIGKILL, signal.SIGTERM)
"""What no program does to itself, however damaged."""
_SPEAKS_AS: Final = "etprof-runner: "
_MOST_WORDS: Final = 2**16
_LONGEST_LINE: Final = 2000
"""Characters of what a runner printed that are kept, in all and of a line."""
_LAST_LINES: Final = 3
"""Of a launch that gave no reason: enough for a message of QEMU's and the line it is about."""

_REFUSED: Final = re.compile(
    r"^etprof-runner: the CPU refuses an instruction of (?P<code>\S.*?)"
    r" \((?P<file>[^/\n]+)\+0x(?P<offset>[0-9a-f]{1,16})\)$",
    re.MULTILINE,
)
"""The last words of a runner at an illegal instruction, as cpp/runner/messages.cpp writes them."""
_UNNAMED: Final = "unnamed code"
MOST_RUNNER_BYTES: Final = 2**30
"""A runner with debug information has a tenth of that."""
_PAGE: Final = 2**12
"""Bytes; the least that any system maps, and what a segment's address is rounded down to."""


class RunsHere(ABC):
    """Starts runners on this host, by themselves or in an emulator; both load its CPU."""

    def __init__(self, trace_runner: Path | None = None, debugger: str | None = None) -> None:
        """Keeps the runner that counts microkernels; None: the target's own.

        `debugger` is the name or path of one that counts in its place.
        """
        self._trace_runner = trace_runner
        self._debugger = debugger

    @abstractmethod
    def own_runner(self, *, tracing: bool) -> Path:
        """Returns the target's own runner, or its own that can trace kernels."""

    @abstractmethod
    def runner_command(self, runner: Path, request: RunnerRequest) -> list[str | Path]:
        """Returns the runner with the words before it that the target needs."""

    def device(self) -> MeasuredDevice:
        """This host's CPU: even what is not timed disturbs what is timed here."""
        return this_host()

    def counts_any_runner(self) -> bool:
        """Whether a debugger counts, whatever the runner."""
        return self._debugger is not None

    def _trace_of_debugger(self, request: RunnerRequest) -> Path | None:
        """Where a debugger's counts of this launch go; None where it has none, or a clock too."""
        is_counted = self._debugger is not None and request.etdump is None
        return request.kernel_trace if is_counted else None

    def runner_file(self, request: RunnerRequest) -> Path:
        """The request's own runner, or the target's that can do what is asked."""
        tracing = request.kernel_trace is not None and self._trace_of_debugger(request) is None
        named = request.runner or (self._trace_runner if tracing else None)
        return named or self.own_runner(tracing=tracing)

    def run(self, request: RunnerRequest) -> RunnerResult:
        """Runs the model here and reads what was measured."""
        if request.cpus and sys.platform != "linux":
            raise UsageError(
                "cpu_affinity: this system cannot keep a process on chosen CPUs; leave it out"
            )
        if kernel_trace := self._trace_of_debugger(request):
            return self._run_in_debugger(request, kernel_trace)
        runner = self.runner_file(request)
        before = [
            *taskset_command(request.cpus),
            *request.launcher,
            *self.runner_command(runner, request),
        ]
        flags = runner_arguments(request)
        level_flags, plain_paths = level_paths(flags)
        try:
            completed = run_command(
                [*before, *level_flags],
                timeout_s=request.timeout_s,
                environment={**self.environment(runner), **layout_environment(request.layout)},
                keeps_device=True,
                fill_variable=FILL_VARIABLE,
            )
        except ProgramTimeoutError as error:
            raise ProgramTimeoutError(restore_paths(str(error), plain_paths)) from error
        completed = replace(
            completed,
            command=(*map(str, before), *flags),
            stdout=restore_paths(completed.stdout, plain_paths),
            stderr=restore_paths(completed.stderr, plain_paths),
        )
        save_output(request, completed)
        check_completed(completed, request.runner, request.launcher, runner=runner)
        return self._read_result(request)

    def _read_result(self, request: RunnerRequest) -> RunnerResult:
        if request.runner and not request.result.exists():
            raise TargetError(f"the runner left no result; {no_runner(request.runner)}")
        return read_result(request.result)

    def _run_in_debugger(self, request: RunnerRequest, kernel_trace: Path) -> RunnerResult:
        """Runs the model with the runner that is timed, and has its microkernels counted."""
        from etprof.targets.debugger.counting import exit_code_of, watch, write_kernel_trace

        runner = self.runner_file(request)
        with scratch_folder("counted") as folder:
            events = folder / "events.etdump"
            watched = replace(request, kernel_trace=None, etdump=events)
            program = self.watched_program(runner, watched, folder)
            program = replace(
                program,
                before=(*taskset_command(request.cpus), *request.launcher),
                environment=self.environment(runner),
            )
            completed, calls = watch(self.debugger(), program, timeout_s=request.timeout_s)
            completed = replace(
                completed,
                exit_code=exit_code_of(calls),
                command=tuple(map(str, (*program.before, *(program.server or program.argv)))),
            )
            save_output(request, completed)
            check_completed(completed, request.runner, request.launcher, runner=runner)
            result = self._read_result(request)
            if result.runner.build.get("trace"):
                raise UsageError(
                    f"{runner} counts by itself, and a debugger would count its wrappers too: leave "
                    "--debugger out, or name a runner without trace"
                )
            write_kernel_trace(calls, events, result, kernel_trace)
        return result

    def debugger(self) -> DebuggerProgram:
        """Returns the debugger that counts; raises BuildError when it is not here."""
        from etprof.targets.debugger.counting import find_debugger

        return find_debugger(self._debugger)

    def describe_debugger(self) -> dict[str, object]:
        """Returns what the manifest says of it; nothing where none was named."""
        return {} if self._debugger is None else {"debugger": self.debugger().path.name}

    def watched_program(
        self, runner: Path, request: RunnerRequest, _folder: Path
    ) -> WatchedProgram:
        """Returns what the debugger starts."""
        from etprof.targets.debugger.counting import WatchedProgram

        argv = self.runner_command(runner, request)
        return WatchedProgram(argv=(*argv, *runner_arguments(request)))

    def environment(self, _runner: Path) -> dict[str, str]:
        """Returns what a runner needs in its environment to start."""
        return {}


def read_cpu(text: str) -> Cpu:
    """Returns what a runner says of its CPU to `--cpu-info`; raises ValueError in one line."""
    try:
        return Cpu.model_validate(parse_json(text))
    except ValidationError as error:
        raise ValueError(first_problem(error)) from None


def modes_of(cpu: Cpu) -> tuple[str, ...]:
    """Returns the SME modes of a CPU."""
    modes = {"sme2": "sme2", "sme": "sme1"}
    return (*(mode for name, mode in modes.items() if cpu.features.get(name)), "off")


def find_host_runner(*, tracing: bool = False) -> Path:
    """Returns the runner that was installed with the package, or the one that can trace kernels.

    It stands beside the native reader, which in an editable installation is not beside the
    Python sources. Raises BuildError when it was not built.
    """
    reader = find_spec("etprof._etdump")
    if reader is None or reader.origin is None:
        raise BuildError(
            "etprof's native part is not built; install etprof again with `pip install .`"
        )
    name = "etprof-runner-trace" if tracing else "etprof-runner"
    runner = Path(reader.origin).parent / "bin" / name
    if not runner.is_file():
        raise BuildError(f"no {name} at {runner}; install etprof again with `pip install .`")
    if find_spec("executorch") is None and not (packages_beside(runner) / "executorch").is_dir():
        raise BuildError(
            f"{name} needs ExecuTorch's libraries; `etprof doctor` says how to get them"
        )
    return runner


def packages_beside(runner: Path) -> Path:
    """Returns the folder of packages that an installed runner, `etprof/bin/etprof-runner`, is in."""
    return runner.parents[2]


def ask_host_runner(
    arguments: Sequence[str | Path], *, timeout_s: float | None = None
) -> Completed:
    """Runs the host's runner to its end; raises as `find_host_runner` and `run_command` do."""
    runner = find_host_runner()
    environment = library_environment(runner)
    return run_command([runner, *arguments], timeout_s=timeout_s, environment=environment)


def runner_of_preset(preset: str) -> Path:
    """Returns where a CMake preset puts the runner, below etprof's checkout."""
    return Path("build", preset, "cpp", "runner", "etprof-runner")


def library_environment(runner: Path) -> dict[str, str]:
    """Returns what an installed runner needs to find ExecuTorch's libraries; mostly nothing.

    It looks for them beside its own package. In a virtual environment that sees the system's
    packages, ExecuTorch may be in another folder than etprof.
    """
    packages = packages_beside(runner)
    spec = find_spec("executorch")
    if (packages / "executorch").is_dir() or spec is None:
        return {}
    variable = "DYLD_LIBRARY_PATH" if sys.platform == "darwin" else "LD_LIBRARY_PATH"
    folders = [str(Path(location) / "lib") for location in spec.submodule_search_locations or ()]
    return {variable: os.pathsep.join([*folders, *filter(None, [os.environ.get(variable)])])}


def save_output(request: RunnerRequest, completed: Completed) -> None:
    """Keeps the end of what the runner printed, in lines without control characters, if anything.

    ExecuTorch and XNNPACK log there, on the host and in the emulator. A refusal of what was asked
    says all in its error, and leaves nothing of a run that has not begun.
    """
    if completed.exit_code in _ERRORS:
        return
    lines = [*completed.stdout.splitlines(), *completed.stderr.splitlines()]
    output = "\n".join(clean(line, _LONGEST_LINE) for line in lines)
    if output.strip():
        write_text(request.words, f"{output[-_MOST_WORDS:]}\n")


def check_completed(
    completed: Completed,
    named: Path | None = None,
    launcher: Sequence[str] = (),
    *,
    runner: Path | None = None,
) -> None:
    """Raises the error that the runner's exit code stands for; returns when it succeeded.

    `named` is the runner that the user has named, which may be none of etprof's; `launcher` are
    the words before it, which may speak after it or fail in its place; `runner` is the file that
    ran, whose symbols name the code of an illegal instruction.
    """
    if completed.exit_code == 0:
        return
    if completed.exit_code < 0:
        raise TargetError(
            f"etprof-runner was killed by {_signal_name(-completed.exit_code)} "
            f"{_describe_kill(completed, runner)}. Repeat with: {completed.shell_text}"
        )
    lines = completed.stderr.strip().splitlines()
    if not lines:
        raise TargetError(
            f"etprof-runner ended with exit code {completed.exit_code} ({_last_output(completed)}). "
            f"Repeat with: {completed.shell_text}"
        )
    if any(phrase in line for line in lines for phrase in _OF_THE_LOADER):
        if sys.platform == "linux" and not Path("/proc/self").exists():
            raise TargetError(
                "etprof-runner does not start here: /proc is missing, by which it finds "
                "ExecuTorch's libraries; mount it (mount -t proc proc /proc)"
            )
        raise TargetError(
            f"etprof-runner does not start here: {clean(lines[-1])}. It was built for another "
            "system: build it for this one (`etprof docs building`), or name the folder of the missing "
            "library in LD_LIBRARY_PATH"
        )
    runner_lines = [line.removeprefix(_SPEAKS_AS) for line in lines if line.startswith(_SPEAKS_AS)]
    if not runner_lines and launcher:
        raise TargetError(
            f"{clean(lines[-1])}; the runner said nothing, and {clean(shlex.join(launcher))} was to "
            f"start it (exit code {completed.exit_code}): try that alone, or leave `launcher` out"
        )
    if not runner_lines and named is not None:
        raise TargetError(f"{lines[-1]}; {no_runner(named)}")
    raise _ERRORS.get(completed.exit_code, TargetError)((runner_lines or lines)[-1])


def _describe_kill(completed: Completed, runner: Path | None) -> str:
    """Says what is known of a launch that a signal has ended, and what that signal stands for."""
    code = name_refused_code(completed.stderr, runner)
    if completed.exit_code == -signal.SIGILL and code is not None:
        other_modes = ". Other SME modes may not need it" if "sme" in code else ""
        return (
            f"at an instruction of {code}, which the CPU, or the system, virtual machine or emulator "
            "around it, does not execute: build the runner for this CPU, or try a newer version of "
            f"what is around it{other_modes}"
        )
    reason = "the program may be damaged or need more memory"
    if -completed.exit_code in _FROM_OUTSIDE:
        reason = (
            "that comes from outside: from this user, from root, or from the system when memory "
            "runs out, never from another etprof while this one lives"
        )
    return f"({_last_output(completed)}); {reason}"


def name_refused_code(stderr: str, runner: Path | None = None) -> str | None:
    """Returns whose instruction the CPU refused, with its file and place; None where nothing says.

    `runner` is the file that ran, here; its own symbols name what a loader cannot.
    """
    match = _REFUSED.search(stderr)
    if match is None:
        return None
    code, file, offset = match["code"], match["file"], match["offset"]
    if code == _UNNAMED and runner is not None and runner.name == file:
        code = find_function(runner, int(offset, 16)) or code
    return f"{clean(code)} ({clean(file)}+0x{offset})"


def find_function(file: Path, offset: int) -> str | None:
    """Returns the function of an ELF file that has a place in memory.

    Args:
        file: An executable or a library.
        offset: Bytes from where its first segment is loaded.

    Returns:
        None for a place outside all functions, a file without symbols, and what is no ELF file.
    """
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        content = read_input(file, most_bytes=MOST_RUNNER_BYTES, way_out="name another")
        elf = ELFFile(io.BytesIO(content))
        first = min(segment["p_vaddr"] for segment in elf.iter_segments("PT_LOAD"))
        address = first // _PAGE * _PAGE + offset
        tables = (elf.get_section_by_name(name) for name in (".symtab", ".dynsym"))
        for symbol in (entry for table in tables if table for entry in table.iter_symbols()):
            is_function = symbol["st_info"]["type"] == "STT_FUNC"
            start, size = symbol["st_value"], symbol["st_size"]
            if is_function and start <= address < start + size:
                return str(symbol.name)
    except (EtprofError, ELFError, ArithmeticError, ValueError, KeyError, AttributeError):
        # The kernel starts programs whose tables of sections and symbols are damaged.
        return None
    return None


def no_runner(named: Path) -> str:
    """Says that a program seems to be no runner of etprof's, such as ExecuTorch's executor_runner."""
    return (
        f"{named} does not answer as etprof-runner does: name one that a preset of etprof's builds, "
        "such as `linux-aarch64-sme2`, or leave `runner_path` out"
    )


def _last_output(completed: Completed) -> str:
    """What is known of a launch that gave no reason: its last lines, its memory, the machine's."""
    lines = [line for line in completed.stderr.splitlines() if line.strip()]
    lines = lines or [line for line in completed.stdout.splitlines() if line.strip()]
    facts = [clean(" / ".join(lines[-_LAST_LINES:]), _LONGEST_LINE) or "it printed nothing"]
    if completed.peak_rss_bytes is not None:
        facts.append(f"it had used up to {format_size(completed.peak_rss_bytes)} of memory")
        if (available := _available_memory_bytes()) is not None:
            facts.append(f"{format_size(available)} are available on this machine now")
    return "; ".join(facts)


def _available_memory_bytes() -> int | None:
    """MemAvailable of Linux (proc_meminfo(5)), in bytes; None where the system has no such file."""
    try:
        text = Path("/proc/meminfo").read_text(encoding="ascii")
    except OSError:
        return None
    match = re.search(r"^MemAvailable:\s+(\d+) kB$", text, re.MULTILINE)
    return int(match[1]) * 1024 if match else None


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
