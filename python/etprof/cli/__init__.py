"""The etprof command: one module per subcommand, and the only place that ends the process."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import TYPE_CHECKING, Protocol, cast

import etprof
from etprof.errors import EtprofError, InputFileError

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS: tuple[str, ...] = (
    "profile",
    "run",
    "bench",
    "export",
    "analyze",
    "compare",
    "report",
    "validate",
    "calibrate",
    "history",
    "dashboard",
    "config",
    "models",
    "device",
    "emulator",
    "doctor",
)

EPILOG = """\
first steps:
  etprof profile toy_cnn      export, measure and analyse the smallest model
  etprof doctor               what this machine can do, and how to get the rest
"""


class Command(Protocol):
    """A subcommand module. Its docstring is its help; its name is the command's."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declares the command's own flags."""

    def run(self, arguments: argparse.Namespace) -> int:
        """Does the work and returns the exit code."""


def load_command(name: str) -> Command:
    """Returns the module of subcommand `name`."""
    return cast("Command", importlib.import_module(f"{__name__}.{name}"))


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser with every subcommand."""
    parser = argparse.ArgumentParser(
        prog="etprof",
        description=etprof.__doc__,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"etprof {etprof.__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        command = load_command(name)
        text = command.__doc__ or ""
        subparser = subparsers.add_parser(
            name,
            help=text.splitlines()[0].rstrip("."),
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    return parser


def run_command_line(words: Sequence[str]) -> int:
    """Runs one command line; raises EtprofError for every failure the user can act on."""
    arguments = build_parser().parse_args(words)
    return cast("int", arguments.run(arguments))


def main(words: Sequence[str] | None = None) -> int:
    """Runs etprof and returns its exit code; a user's mistake is one line, never a traceback."""
    try:
        code = run_command_line(sys.argv[1:] if words is None else words)
        sys.stdout.flush()
    except EtprofError as error:
        print(f"etprof: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("etprof: interrupted; finished work is kept", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output has gone; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:  # of a path that was given: its name is too long, its folder closed
        if error.filename is None:
            raise
        problem = f"{error.filename}: {error.strerror}; check the path and its permissions"
        print(f"etprof: {problem}", file=sys.stderr)
        return InputFileError.exit_code
    return code
