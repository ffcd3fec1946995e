"""The etprof command: one module per subcommand, and the only place that ends the process."""

from __future__ import annotations

import argparse
import atexit
import errno
import gc
import importlib.util
import io
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Final, NoReturn, Protocol, cast

import etprof
from etprof.base.errors import (
    BuildError,
    EtprofError,
    InputFileError,
    OutputError,
    TargetError,
    UsageError,
)
from etprof.base.files import provide_home
from etprof.base.interruption import Interrupted, interruptible
from etprof.base.text import ASCII_ERRORS, clean_lines, suggest
from etprof.cli.crash_report import end_unexpectedly, is_debugging
from etprof.cli.parser import CommandParser
from etprof.cli.surroundings import check_folder, check_surroundings

COMMANDS: tuple[str, ...] = (
    "profile",
    "run",
    "bench",
    "export",
    "export-llm",
    "optimize",
    "analyze",
    "compare",
    "numerics",
    "count-kernels",
    "report",
    "validate",
    "calibrate",
    "import",
    "history",
    "dashboard",
    "config",
    "models",
    "device",
    "emulator",
    "doctor",
    "docs",
    "completion",
)

_READS = frozenset({"analyze", "compare", "report", "validate", "history", "dashboard"})
"""Commands that compute with NumPy alone, on vectors."""
_OBJECTS_UNTIL_COLLECTION: Final = 20_000
"""Of the youngest generation; Python's own 700 make a third of a short command's time collections
that find nothing, for modules and their classes live as long as the process."""

_REFUSALS: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EAGAIN}
"""Of a stream that is written to, which has no name."""

EPILOG = """\
first steps:
  etprof profile toy_cnn      export, measure and analyse the smallest model
  etprof doctor               what this machine can do, and how to get the rest
  etprof COMMAND --help       examples, defaults and units of each command

exit codes:
  0         done
  1         `validate`: something is missing; `history check`: a regression
  2         a flag, name or config cannot be used
  3         a part of etprof is missing here
  4         a file is missing or damaged
  5         the machine or device that measures failed
  6         the model cannot be exported, or its outputs are wrong
  7         a result cannot be written
  8         the history's store cannot be used
  9         `history check`: a first run
  70        a bug in etprof; a crash report is written
  129, 143  ended by SIGHUP or SIGTERM
  130       interrupted (Ctrl-C)
  141       the reader of a pipe went away
"""


class Command(Protocol):
    """A subcommand module. Its docstring is its help; its name is the command's."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares the command's own flags."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Does the work and returns the exit code."""


def load_command(name: str) -> Command:
    """Returns the module of subcommand `name`."""
    return cast("Command", importlib.import_module(f"{__name__}.{name.replace('-', '_')}"))


def build_parser(command: str | None = None) -> CommandParser:
    """Returns the parser with every subcommand; flags of one alone where it is named.

    Flags say what their command knows, which is more than `etprof --help` should load.
    """
    parser = CommandParser(
        prog="etprof",
        description=etprof.__doc__,
        epilog=EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"etprof {etprof.__version__}")
    subparsers = parser.add_subparsers(
        title="commands", dest="command", metavar="COMMAND", required=True
    )
    for name in COMMANDS:
        module = load_command(name)
        text = module.__doc__ or ""
        subparser = subparsers.add_parser(
            name,
            help=text.splitlines()[0].rstrip("."),
            description=text,
        )
        if command in {None, name}:
            module.add_arguments(subparser)
        subparser.set_defaults(run=module.run)
    return parser


def _flag_of_export(command: str, flag: str) -> str:
    """Says that the export takes what a command does not; else goes on to the command's help."""
    if command == "export" or flag not in build_parser("export").all_flags():
        return ";"
    return f"; `etprof export` takes {flag}, and `etprof {command}` the program that it writes;"


def run_command_line(argv: Sequence[str]) -> int:
    """Runs one command line; raises EtprofError for every failure the user can act on."""
    # Without a subcommand no flags of any are asked for.
    command = next((argument for argument in argv if argument in COMMANDS), "")
    if not argv:
        build_parser(command).print_help()
        return 0
    try:
        parser = build_parser(command)
        arguments, unknown = parser.parse_known_args(argv)
        if unknown:
            action = getattr(arguments, "action", None) or ""
            command = f"etprof {arguments.command} {action}".rstrip()
            flag = unknown[0].partition("=")[0]
            hint = suggest(flag, parser.all_flags()) or _flag_of_export(arguments.command, flag)
            raise UsageError(
                f"`{command}` cannot use {' '.join(unknown)}{hint} see `{command} --help`"
            )
    except UsageError as error:
        dash_paths = [
            argument for argument in argv if argument.startswith("-") and os.path.lexists(argument)
        ]
        if not dash_paths:
            raise
        raise UsageError(f"{error}; a path that begins with a dash is ./{dash_paths[0]}") from None
    check_surroundings(arguments.command)
    return cast("int", arguments.run(arguments))


def main(argv: Sequence[str] | None = None) -> int:
    """Runs etprof and returns its exit code; a user's mistake is one line, never a traceback.

    So is a defect of etprof, with exit code 70 and a report for its maintainers.
    """
    _prepare_streams()
    is_process = argv is None
    if argv is None:
        argv = sys.argv[1:]
        _prepare_process(argv)
    try:
        with interruptible(ends_process=is_process):
            code = run_command_line(argv)
            sys.stdout.flush()
    except EtprofError as error:
        if is_debugging(argv):
            print(clean_lines("".join(traceback.format_exception(error))), file=sys.stderr)
        from etprof.cli.follow_up import with_flags_of

        print(clean_lines(f"etprof: {with_flags_of(str(error), argv)}"), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        code = _report_interruption(interrupt)
        if is_process:
            _exit_immediately(code)
        return code
    except BrokenPipeError:
        _discard_output()
        return 141
    except OSError as error:
        # Without a number the system said nothing: it is a library's word for something else.
        return end_unexpectedly(error, argv) if error.errno is None else _report_os_error(error)
    # Everything else is our fault; a traceback's exit code of 1 would mean a regression.
    except Exception as error:  # noqa: BLE001
        missing = isinstance(error, ModuleNotFoundError)
        return (_report_missing_package if missing else end_unexpectedly)(error, argv)
    return code


def _prepare_process(argv: Sequence[str]) -> None:
    """Saves a process of etprof's own what only a long one has use for: a third of `analyze`.

    And gives it a home where its user has none.
    """
    provide_home()
    sys.unraisablehook = _tell_unraisable
    gc.set_threshold(_OBJECTS_UNTIL_COLLECTION, *gc.get_threshold()[1:])
    # At its end the interpreter looks through all objects once more, to free what the system does.
    atexit.register(gc.freeze)
    if not _READS.isdisjoint(argv[:2]):
        # Threads of NumPy's BLAS spin when they start; no child of these commands inherits it.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _tell_unraisable(unraisable: sys.UnraisableHookArgs) -> None:
    """Says nothing of an interruption inside a finaliser: the signal is raised again until it ends.

    Python prints a traceback of what such code cannot pass on.
    """
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)


def _report_os_error(error: OSError) -> int:
    """Reports what the system refused; returns the exit code."""
    is_of_output = error.filename is None and error.errno in _REFUSALS
    _discard_output()
    if is_of_output:
        print(f"etprof: cannot use standard output: {error.strerror or error}", file=sys.stderr)
        return OutputError.exit_code
    if error.filename is None:
        return _report_exhaustion(error)
    # Of a path that was given: its name is too long, its folder closed.
    problem = f"{error.filename}: {error.strerror}; check the path and its permissions"
    print(clean_lines(f"etprof: {problem}"), file=sys.stderr)
    return InputFileError.exit_code


def _report_exhaustion(error: OSError) -> int:
    """Reports a missing resource or folder; returns the exit code."""
    problem = f"the system refused a call: {error.strerror or error}; check limits and free memory"
    try:
        check_folder()
    except InputFileError as gone:
        print(f"etprof: {gone}", file=sys.stderr)
        return gone.exit_code
    print(clean_lines(f"etprof: {problem}"), file=sys.stderr)
    return TargetError.exit_code


def _report_missing_package(error: Exception, argv: Sequence[str]) -> int:
    """Reports the package that is not installed; returns the exit code."""
    package = (getattr(error, "name", None) or "").partition(".")[0]
    if package in {"", "etprof"} or importlib.util.find_spec(package) is not None:
        return end_unexpectedly(error, argv)
    problem = f"this needs {package}, which is not installed; `etprof doctor` says how to get it"
    print(clean_lines(f"etprof: {problem}"), file=sys.stderr)
    return BuildError.exit_code


def _report_interruption(interrupt: KeyboardInterrupt) -> int:
    """Reports the interruption; returns the exit code."""
    caught = interrupt if isinstance(interrupt, Interrupted) else Interrupted(signal.SIGINT)
    # After SIGHUP there may be no terminal to tell it to.
    with suppress(OSError):
        print(f"etprof: {caught.text}; finished work is kept", file=sys.stderr, flush=True)
    return caught.exit_code


def _exit_immediately(code: int) -> NoReturn:
    """Ends the process at once: taking PyTorch's modules apart takes Python seconds."""
    # Its reader may be gone, and a caller may have closed it.
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(code)


def _prepare_streams() -> None:
    """Makes printing possible where a stream is closed or knows ASCII only.

    File names that are no UTF-8 are printed as they are.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, _open_nowhere())
        elif isinstance(stream, io.TextIOWrapper):
            is_utf8 = stream.encoding.lower().replace("-", "") == "utf8"
            stream.reconfigure(errors="surrogateescape" if is_utf8 else ASCII_ERRORS)


def _discard_output() -> None:
    """Sends what is still to be written nowhere: its reader or its disk will not take it."""
    # A caller of `main` may collect what it prints: no descriptor, and nothing left to write.
    with suppress(io.UnsupportedOperation):
        descriptor = sys.stdout.fileno()
        nowhere = _open_nowhere()
        if isinstance(nowhere, io.StringIO):
            sys.stdout = nowhere
        else:
            os.dup2(nowhere.fileno(), descriptor)
            nowhere.close()


def _open_nowhere() -> io.TextIOBase:
    """Opens /dev/null; where there is none, a stream that this process keeps to itself."""
    try:
        # Not by open(), which would make a file of that name.
        return os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
    except OSError:
        return io.StringIO()
