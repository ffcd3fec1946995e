"""Every error that etprof raises on purpose, each with the exit code it ends in; others in one line."""

from __future__ import annotations

from typing import ClassVar


class EtprofError(Exception):
    """A failure the user can act on; its message names the cause and the way out."""

    exit_code: ClassVar[int] = 1


class UsageError(EtprofError):
    """A flag, name or configuration that cannot be used."""

    exit_code = 2


class BuildError(EtprofError):
    """A part of etprof that was not built, or cannot be built here."""

    exit_code = 3


class InputFileError(EtprofError):
    """A file that is missing, damaged, or not what its name says."""

    exit_code = 4


class TargetError(EtprofError):
    """The machine or device where the model runs failed or refused."""

    exit_code = 5


class ExportError(EtprofError):
    """A model that could not be turned into a program."""

    exit_code = 6


class OutputError(EtprofError):
    """A result that could not be written."""

    exit_code = 7


def first_line(error: BaseException) -> str:
    """Returns the type and the first line of an exception's message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
