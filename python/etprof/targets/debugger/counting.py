"""Has a debugger count the calls of microkernels, and gives them the operators' names.

A runner that counts is linked with wrappers of the microkernels (cpp/kernel_trace). Where none can
be linked, as on a Mac, whose calls are bound within the library, each microkernel gets a breakpoint
that counts and goes on (`watcher.py`, inside gdb or lldb). The delegate's own entries and its
readings of the clock are watched too, so that calls belong to operators as they do with the runner.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, NamedTuple

from pydantic import Field

from etprof.backends.kernel_names import PREFIX, size_arguments
from etprof.backends.registry import BACKENDS
from etprof.base.atomic import scratch_folder, write_json
from etprof.base.errors import BuildError, InputFileError, TargetError
from etprof.base.files import read_input
from etprof.base.process import ProgramTimeoutError, run_command
from etprof.base.records import Count, Name, Record, read_record
from etprof.base.text import clean
from etprof.etdump.plausibility import Role, find_roles, ticks_from
from etprof.etdump.reader import EXECUTE, load_etdump

if TYPE_CHECKING:
    from etprof.base.process import Completed
    from etprof.etdump.reader import ETDump
    from etprof.run.runner_result import RunnerResult

WATCHER: Final = Path(__file__).with_name("watcher.py")
_VARIABLE: Final = "ETPROF_WATCH"
_SCRIPT_VARIABLE: Final = "ETPROF_WATCHER"
_WATCHED: Final = next(backend for backend in BACKENDS if backend.library)
"""The delegate whose operators the calls are given to."""
_TOLD_APART: Final = (Role.DELEGATE_CALL, Role.DELEGATED, Role.KERNEL)
"""Events that marks stand for."""
_GDBS: Final = ("gdb-multiarch", "gdb")
"""Debian's gdb knows this machine's instructions alone."""
_COUNT_AGAIN: Final = "count again"
KLEIDIAI: Final = f"^{PREFIX}"
"""What fits every microkernel of KleidiAI's."""
_MOST_PRINTED: Final = 2**26
"""Bytes of what a program prints."""
_Register = Annotated[int, Field(ge=0, lt=2**64)]


class _WatchedSpan(Record):
    """What happened in an inference, or between two of them."""

    is_execution: bool
    marks: Annotated[str, Field(pattern="^(?:D[BPp]*d)*(?:D[BPp]*)?$")]
    times_ns: tuple[Count, ...]
    """Of each mark; the delegate's own reading of the clock for a border (B), else 0."""
    calls: tuple[Annotated[tuple[_Register, ...], Field(min_length=3, max_length=7)], ...]
    """Marks before the calls, number of the function, its argument registers, number of calls."""


class WatchedCalls(Record):
    """What the watcher leaves."""

    schema_version: Literal[1]
    debugger: Name
    exit_code: int | None
    """The program's; None when a signal ended it, or nobody knows."""
    signal: Name | None
    problems: tuple[Name, ...]
    functions: tuple[Name, ...]
    """All that have a breakpoint, called or not."""
    spans: tuple[_WatchedSpan, ...]

    def total_calls(self) -> dict[str, int]:
        """Returns the calls of every function that was watched."""
        totals = dict.fromkeys(self.functions, 0)
        for span in self.spans:
            for _, function, *_registers, calls in span.calls:
                totals[self.functions[function]] += calls
        return totals


@dataclass(frozen=True, kw_only=True)
class WatchedProgram:
    """What a debugger starts, or connects to."""

    argv: tuple[str | Path, ...]
    """The program with its arguments; of one that a server runs, the file with its symbols."""
    server: tuple[str | Path, ...] = ()
    """A command that starts the program and waits for a debugger at `address`."""
    address: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of gdb, such as `sysroot`."""
    before: tuple[str, ...] = ()
    """Words before the debugger's, such as `taskset -c 0`."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """What is added to this process's own."""


class DebuggerProgram(NamedTuple):
    """A program that debugs."""

    path: Path
    is_lldb: bool


def find_debugger(name: str | None = None, *, is_foreign: bool = False) -> DebuggerProgram:
    """Returns the debugger that was named, or one that is installed.

    Args:
        name: A program's name or path; what has `lldb` in its name is taken for lldb.
        is_foreign: Whether the program is for another CPU than this machine's.

    Raises:
        BuildError: there is none.
    """
    here = ("lldb", "gdb") if sys.platform == "darwin" else ("gdb", "gdb-multiarch", "lldb")
    names = (name,) if name else (_GDBS if is_foreign else here)
    for candidate in names:
        if path := shutil.which(candidate):
            debugger = DebuggerProgram(Path(path), "lldb" in Path(candidate).name)
            if debugger.is_lldb and is_foreign:
                # Tried: lldb 19 gives qemu 11 up while it connects, without a word.
                raise BuildError("lldb does not work with qemu; name gdb-multiarch instead")
            return debugger
    package = "gdb-multiarch" if is_foreign else "gdb or lldb"
    raise BuildError(
        f"there is no debugger {name!r} here; name gdb or lldb by its path"
        if name
        else f"no debugger is installed; install {package}, or name one with --debugger"
    )


def watch(
    debugger: DebuggerProgram,
    program: WatchedProgram,
    *,
    kernels: str = KLEIDIAI,
    keeps_arguments: bool = True,
    timeout_s: float | None = None,
) -> tuple[Completed, WatchedCalls]:
    """Runs a program in a debugger to its end, and returns what was called.

    Args:
        debugger: What `find_debugger` returns.
        program: What to start.
        kernels: A regular expression that a counted function's name fits.
        keeps_arguments: Whether calls are told apart by their first arguments.
        timeout_s: How long it may take.

    Returns:
        What the debugger and the program printed, and the calls; of a debugger that failed, with
        the problem.
    """
    with scratch_folder("watched") as folder:
        answer, stdout, stderr = (folder / name for name in ("answer.json", "stdout", "stderr"))
        request = {
            **describe_watch(program, kernels),
            "keeps_arguments": keeps_arguments,
            "answer": str(answer), "stdout": str(stdout), "stderr": str(stderr),
        }  # fmt: skip
        write_json(folder / "request.json", request)
        try:
            completed = run_command(
                [*program.before, *_command(debugger, program)],
                timeout_s=timeout_s,
                # gdb has a shell take its quoted arguments apart, and not every SHELL is one.
                environment={
                    **program.environment,
                    "SHELL": "/bin/sh",
                    _VARIABLE: str(folder / "request.json"),
                    _SCRIPT_VARIABLE: str(WATCHER),
                },
                keeps_device=True,
            )
        except ProgramTimeoutError as error:
            raise ProgramTimeoutError(
                f"{clean(shlex.join(map(str, program.argv)))} did not end within {timeout_s:g} s in "
                f"{debugger.path.name} and was stopped; its calls are lost"
            ) from error
        if answer.is_file():
            calls = read_record(WatchedCalls, answer, way_out=_COUNT_AGAIN)
            printed = [_read_printed(path) for path in (stdout, stderr)]
            return replace(completed, stdout=printed[0], stderr=printed[1]), calls
        lines = (completed.stderr or completed.stdout).strip().splitlines()
        problem = lines[-1] if lines else f"exit code {completed.exit_code}, and no word"
        calls = WatchedCalls(
            schema_version=1, debugger=debugger.path.name, exit_code=None, signal=None,
            problems=(problem,), functions=(), spans=(),
        )  # fmt: skip
        return completed, calls


def _read_printed(path: Path) -> str:
    """Returns what the program has printed; nothing where another system runs it."""
    if not path.is_file():
        return ""
    content = read_input(
        path, most_bytes=_MOST_PRINTED, way_out="let the program print less", error=TargetError
    )
    return content.decode("utf-8", "replace")


def exit_code_of(calls: WatchedCalls) -> int:
    """Returns the program's, as `Completed` has it; raises TargetError where nobody knows it."""
    if calls.problems:
        raise TargetError(
            f"{calls.debugger} did not count: {calls.problems[0]}; name another debugger, or leave it out"
        )
    if calls.exit_code is not None:
        return calls.exit_code
    if calls.signal is not None and calls.signal in signal.Signals.__members__:
        return -signal.Signals[calls.signal]
    raise TargetError(f"{calls.debugger} does not say how the program ended; count again")


def _command(debugger: DebuggerProgram, program: WatchedProgram) -> list[str | Path]:
    """Nothing of the user's own settings, and no script of a library's, is run."""
    if debugger.is_lldb:
        # lldb splits a path at blanks, and quotes it wrongly for its own Python.
        script = f"script import os; exec(open(os.environ[{_SCRIPT_VARIABLE!r}]).read(), {{}})"
        return [debugger.path, "--batch", "--no-lldbinit", "--one-line", script]
    quiet = (
        "-nx",
        "-nh",
        "-batch",
        "-iex",
        "set auto-load off",
        "-iex",
        "set debuginfod enabled off",
    )
    # Debug information moves functions out of the list of names with addresses.
    return [debugger.path, *quiet, "--readnever", "-x", WATCHER, "--", program.argv[0]]


def literal_of(pattern: str) -> str:
    """Returns what every name has that a regular expression fits: what debuggers list names by.

    Empty where that cannot be told.
    """
    match = re.match(r"\^?(\w*)(.?)", pattern)
    if match is None or "|" in pattern:
        return ""
    literal, following = match.groups()
    return literal[:-1] if following in {"?", "*", "{"} else literal


def describe_watch(program: WatchedProgram, kernels: str) -> dict[str, object]:
    """Returns what the watcher is asked to watch; literals are what gdb lists functions by."""
    entry, clock = _WATCHED.run_symbol, _WATCHED.border
    literal = literal_of(kernels)
    return {
        "program": [str(argument) for argument in program.argv],
        "server": [str(argument) for argument in program.server],
        "address": program.address,
        "settings": dict(program.settings),
        # Of the program alone: the debugger's own are not to reach it.
        "environment": {
            _VARIABLE: None,
            _SCRIPT_VARIABLE: None,
            "SHELL": os.environ.get("SHELL"),
            **program.environment,
        },
        "kernels": kernels,
        "execute": r"6Method7executeEv$|::Method::execute\(\)$",
        "delegate": f"^{entry}$",
        "parallel": f"^{_WATCHED.parallel_prefix}",
        "clock": f"^{clock}(_nsec_np)?$",
        "literals": [literal, entry, _WATCHED.parallel_prefix, "Method::execute", clock],
        "literals_in_files": [literal, entry, _WATCHED.parallel_prefix, "6Method7executeEv"],
    }


@dataclass
class _Marks:
    """The marks of an execution, as a runner's kernel trace has them."""

    letters: str = ""
    times_ns: list[int] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)

    def add(self, letter: str, time_ns: int | None = None, label: int | None = None) -> None:
        """Adds a mark; without a time, at that of the mark before it."""
        self.times_ns.append(self._last_ns() if time_ns is None else time_ns)
        self.letters += letter
        if label is not None:
            self.labels.append(label)

    def _last_ns(self) -> int:
        times = zip(reversed(self.letters), reversed(self.times_ns), strict=True)
        return next((time_ns for letter, time_ns in times if letter != "N"), 0)


class _NamedEvent(NamedTuple):
    """An event of one execution: a delegate's call, an operator in it, or a kernel outside."""

    role: Role
    name: str
    ticks: int


def write_kernel_trace(calls: WatchedCalls, etdump: Path, result: RunnerResult, path: Path) -> None:
    """Writes what a debugger counted as a runner's own kernel trace; raises TargetError.

    Args:
        calls: What was counted.
        etdump: The ETDump of the same launch: it names what the marks tell apart.
        result: What the runner said of the launch.
        path: Where the kernel trace goes.
    """
    executions = [span for span in calls.spans if span.is_execution]
    try:
        blocks = _read_blocks(load_etdump(etdump))
    except InputFileError as error:
        raise TargetError(
            f"{error}; a debugger's counts are given to operators by the ETDump of the same launch: "
            "name a runner with the event tracer"
        ) from None
    if not executions or len(blocks) != len(executions):
        raise TargetError(
            f"{calls.debugger} saw {len(executions)} inferences of {len(blocks)}; the runner needs "
            "its symbols: name one that is not stripped"
        )
    if result.sme is None:
        raise TargetError("the runner does not say which SME mode is in force; build it again")
    naming = _MarkNaming(calls.functions)
    described = [
        naming.describe(span, phase, events)
        for span, (phase, events) in zip(executions, blocks, strict=True)
    ]
    load = [span for span in calls.spans[:1] if not span.is_execution]
    document = {
        "schema_version": 2,
        "counted_by": "debugger",
        "method": result.method,
        "threads": result.threads.model_dump(mode="json"),
        "sme": result.sme.model_dump(mode="json"),
        "kernels": naming.names,
        "labels": list(naming.labels),
        "load": {"calls": naming.calls(load[0], [0]) if load else []},
        "executions": described,
    }
    write_json(path, document)


def _read_blocks(dump: ETDump) -> list[tuple[str, list[_NamedEvent]]]:
    """Returns each execution's phase and events, in the order in which they ended."""
    profile, names = dump.profile, dump.names
    blocks: dict[int, list[_NamedEvent]] = {}
    executed = set[int]()
    for row, number in enumerate(find_roles(dump, ()).tolist()):
        role, block = Role(number), int(profile.block_index[row])
        if role is Role.EXECUTE:
            executed.add(block)
        elif role in _TOLD_APART:
            name_ids = (
                profile.delegate_debug_id_str_id if role is Role.DELEGATED else profile.name_id
            )
            # Of another delegate than XNNPACK, which gives numbers for names.
            name = names[name_ids[row]] if name_ids[row] >= 0 else ""
            ticks = ticks_from(int(profile.start_time[row]), int(profile.end_time[row]))
            blocks.setdefault(block, []).append(_NamedEvent(role, name, ticks))
    return [
        (names[dump.blocks.name_id[block]], blocks.get(block, [])) for block in sorted(executed)
    ]


class _MarkNaming:
    """Joins marks and calls with the names of an ETDump."""

    def __init__(self, functions: Sequence[str]) -> None:
        """Gives the functions the order of their names, as a runner's own trace has them."""
        self.names = sorted(functions)
        self.labels: dict[str, int] = {}
        self._numbers = [self.names.index(name) for name in functions]

    def _label(self, text: str) -> int:
        return self.labels.setdefault(text, len(self.labels))

    def describe(
        self, span: _WatchedSpan, phase: str, events: Sequence[_NamedEvent]
    ) -> dict[str, object]:
        """Returns one execution; raises TargetError where marks and events do not fit."""
        delegates = list(re.finditer("D[BPp]*d", span.marks))
        named = sum(event.role is Role.DELEGATE_CALL for event in events)
        if len(delegates) != named:
            raise TargetError(
                f"the debugger saw {len(delegates)} calls of {_WATCHED.title}, the ETDump has {named}; "
                "name a runner that is not stripped"
            )
        times = zip(span.marks, span.times_ns, strict=True)
        start_ns = next((time_ns for letter, time_ns in times if letter == "B"), 0)
        marks, positions, operators = _Marks(), [0], list[_NamedEvent]()
        marks.add("E", 0, self._label(EXECUTE))
        remaining = iter(delegates)
        for event in events:
            if event.role is Role.DELEGATED:
                operators.append(event)
            elif event.role is Role.KERNEL:
                marks.add("E", None, self._label(event.name))
                marks.add("e")
            else:
                group = next(remaining)
                for index in range(*group.span()):
                    letter, time_ns = span.marks[index], span.times_ns[index]
                    marks.add(letter, time_ns - start_ns if letter == "B" else None)
                    positions.append(len(marks.letters))
                if operators and span.marks[slice(*group.span())].count("B") <= len(operators):
                    raise TargetError(
                        f"the debugger saw too few readings of the clock for {len(operators)} operators "
                        f"of {_WATCHED.title}; count with a runner of etprof's"
                    )
                for operator in operators:
                    marks.add("N", operator.ticks, self._label(operator.name))
                operators = []
        marks.add("e")
        return {
            "phase": phase,
            "start_ns": start_ns,
            "marks": marks.letters,
            "times_ns": marks.times_ns,
            "labels": marks.labels,
            "calls": self.calls(span, positions),
        }

    def calls(self, span: _WatchedSpan, positions: Sequence[int]) -> list[list[int]]:
        """Returns rows of calls: marks before them, microkernel, number of calls, sizes.

        Args:
            span: The calls by the debugger's own marks.
            positions: Of each number of those marks, the trace's marks up to there.
        """
        rows: dict[tuple[int, ...], int] = {}
        for mark, function, *registers, calls in span.calls:
            kernel = self._numbers[function]
            sizes = registers[: len(size_arguments(self.names[kernel]))]
            key = (positions[min(mark, len(positions) - 1)], kernel, *sizes)
            rows[key] = rows.get(key, 0) + calls
        return [
            [mark, kernel, calls, *sizes] for (mark, kernel, *sizes), calls in sorted(rows.items())
        ]
