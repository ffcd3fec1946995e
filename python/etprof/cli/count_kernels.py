"""Count in a debugger which microkernels any program calls.

  etprof count-kernels -- .venv/bin/python infer.py          a process of your own
  etprof count-kernels --debugger lldb -- ./app model.pte    on a Mac, with Xcode's debugger
  etprof count-kernels --kernels '^xnn_f16_gemm' -- ./app    other functions than KleidiAI's
  etprof count-kernels --connect localhost:5039 -- ./app     that a gdbserver has stopped elsewhere

Needs gdb or lldb, and functions that have names: ExecuTorch's libraries have, a stripped program
has not. All threads count, other processes that the program starts do not. A call takes a quarter
of a millisecond in gdb and a whole one in lldb, so no time of the program means anything. Its
standard input is empty; what it prints goes to standard error. `etprof profile --debugger` gives
the calls to operators.

Exit code 0 when SME2 or SME microkernels were called (with --kernels: any function of that name), 1
when none was, 2 when that is not known: no such function is there, the program did not end well or
started other processes, or a name cannot be read.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etprof.backends.kernel_names import PREFIX
from etprof.base.errors import UsageError
from etprof.base.files import open_regular
from etprof.base.units import count_of
from etprof.cli.flags import FULL, JSON, NO_WAIT, add_flags, seconds
from etprof.cli.output import answer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.targets.debugger.counting import WatchedCalls

_RAN, _DID_NOT, _UNDETERMINED = 0, 1, 2
_KLEIDIAI: Final = f"^{PREFIX}"
_OF_A_SCRIPT: Final = b"#!"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    add_flags(
        parser,
        ("--debugger", str, "NAME", "gdb or lldb, by name or path (default: one that is installed)"),
        ("--kernels", str, "REGEX", f"functions to count (default {_KLEIDIAI})", {"default": _KLEIDIAI}),
        ("--connect", str, "HOST:PORT", "a gdbserver, or a socket's path, where PROGRAM waits"),
        ("--sysroot", Path, "DIR", "with --connect: where the libraries of that system are"),
        ("--timeout", seconds, "S", "end a program that takes longer"),
        NO_WAIT,
        FULL,
        JSON,
        ("program", str, "PROGRAM", "what to run, after --, with its arguments", {"nargs": "+"}),
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Runs the program, and says what it called."""
    from etprof.cli.measuring import patience_of
    from etprof.targets.debugger.counting import (
        WatchedProgram,
        find_debugger,
        literal_of,
        watch,
    )
    from etprof.targets.device_lock import device_lock, this_host

    program = WatchedProgram(
        argv=(_find_program(arguments), *arguments.program[1:]),
        address=arguments.connect,
        settings={"sysroot": str(arguments.sysroot)} if arguments.sysroot else {},
    )
    debugger = find_debugger(arguments.debugger)
    if debugger.is_lldb and not literal_of(arguments.kernels):
        raise UsageError("lldb takes a --kernels that begins with letters, and without |; use gdb")
    with device_lock(this_host(), patience_of(arguments)):
        completed, calls = watch(
            debugger,
            program,
            kernels=arguments.kernels,
            keeps_arguments=False,
            timeout_s=arguments.timeout,
        )
    print(completed.stdout, completed.stderr, sep="", end="", file=sys.stderr)
    return _tell(arguments, calls)


def _find_program(arguments: argparse.Namespace) -> str:
    """Returns the program's path; raises UsageError for what cannot be counted."""
    try:
        re.compile(arguments.kernels)
    except re.error as error:
        raise UsageError(f"--kernels is no regular expression: {error}") from None
    if arguments.sysroot and not arguments.connect:
        raise UsageError("--sysroot is for a program on another system: give --connect too")
    name: str = arguments.program[0]
    path = shutil.which(name)
    if path is None:
        raise UsageError(f"there is no program {name!r}; give its path, or a name on the PATH")
    with open_regular(Path(path)) as stream:
        if stream.read(len(_OF_A_SCRIPT)) == _OF_A_SCRIPT:
            raise UsageError(
                f"{name} is a script: give the program that runs it, such as `python {name}`"
            )
    return path


def _tell(arguments: argparse.Namespace, calls: WatchedCalls) -> int:
    """Prints the calls, and returns the exit code."""
    from etprof.tables.brief import AnswerLine, Brief
    from etprof.tables.machine import FUNCTION_CALLS, FunctionCalls

    functions = [FunctionCalls(name, count) for name, count in calls.total_calls().items()]
    functions.sort(key=lambda function: (-function.calls, function.name))
    called = [function for function in functions if function.calls]
    is_usual = arguments.kernels == _KLEIDIAI
    proving = [function for function in called if function.is_sme or not is_usual]
    kind = "SME2 or SME microkernel" if is_usual else "function"
    unread = [function.name for function in called if is_usual and function.level is None]
    unknown = _why_unknown(calls, unread)
    if proving:
        total = sum(function.calls for function in proving)
        line = f"{count_of(total, 'call')} of {count_of(len(proving), kind)}"
        code, headline = _RAN, AnswerLine(line, "green")
    elif unknown:
        code, headline = _UNDETERMINED, AnswerLine(f"Not known: {unknown}", "bold red")
    else:
        code, headline = _DID_NOT, AnswerLine(f"No {kind} was called", "yellow")
    watched = f"{calls.debugger}: {count_of(len(functions), 'function')} watched"
    notes = [AnswerLine(unknown, "yellow")] if unknown and proving else []
    brief = Brief((headline, AnswerLine(watched), *notes), table=FUNCTION_CALLS.of(called))
    document = {
        "verdict": ("called", "not called", "not known")[code],
        "problem": unknown,
        "debugger": calls.debugger,
        "kernels": FUNCTION_CALLS.of(functions).records(),
    }
    answer(arguments, document, brief)
    return code


def _why_unknown(calls: WatchedCalls, unread: Sequence[str]) -> str | None:
    """Says why SME may have run unseen; None where everything is known.

    Args:
        calls: What was counted.
        unread: Microkernels that were called, and whose names say no instruction set.
    """
    if calls.problems:
        return calls.problems[0]
    if not calls.functions:
        return (
            "no such function has a name in the program or its libraries; a stripped file has none"
        )
    if calls.signal is not None:
        return f"the program was ended by {calls.signal}"
    if calls.exit_code is None:
        return "the debugger does not say how the program ended"
    if calls.exit_code:
        return f"the program ended with exit code {calls.exit_code}"
    return f"etprof cannot read the name {unread[0]}" if unread else None
