"""Handles an unexpected error: one line, a report for the maintainer, exit code 70.

The code is sysexits' EX_SOFTWARE: nothing else that etprof ends in means the same, so that CI never
takes a defect of etprof for a regression.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from etprof._version import __version__
from etprof.base.errors import OutputError
from etprof.base.text import clean, clean_lines

EXIT_CODE: Final = 70
DEBUG_FLAG: Final = "--debug"
DEBUG_VARIABLE: Final = "ETPROF_DEBUG"
LEFT_OUT: Final = "[left out]"

_PACKAGES: Final = ("executorch", "torch", "torchao", "numpy", "pandas", "pydantic", "sqlalchemy")
_MOST_LETTERS: Final = 200_000
"""Of a traceback: an exception may quote a whole file."""
_LONGEST_REASON: Final = 200
_SECRET_FLAGS: Final = ("--store", "--prompt", "--prompt-tokens", "--connect", "--serial")
_HARMLESS: Final = re.compile(r"[\w./,:+=-]*")
_CREDENTIALS: Final = re.compile(r"://[^\s/@]*@|\b(?:pass\w*|sslpassword|token|secret)=[^\s&'\"]+")


def is_debugging(argv: Sequence[str]) -> bool:
    """Whether tracebacks are asked for."""
    return DEBUG_FLAG in argv or bool(os.environ.get(DEBUG_VARIABLE))


def end_unexpectedly(error: Exception, argv: Sequence[str]) -> int:
    """Reports a defect of etprof on one line, with the path of its report; returns the exit code.

    With `--debug` or ETPROF_DEBUG the traceback is shown before it.
    """
    traceback_text = _format(error)
    if is_debugging(argv):
        print(clean_lines(traceback_text), file=sys.stderr)
    if isinstance(error, MemoryError):
        problem = "there is not enough memory for this; close other programs, or give it less"
    else:
        problem = f"a defect of etprof itself: {_reason(error)}"
    try:
        path = write_report(traceback_text, argv)
    except (OutputError, OSError, ImportError, MemoryError) as refusal:
        report_note = f"no report could be written ({refusal}); {DEBUG_FLAG} shows the traceback"
    else:
        report_note = f"please send the report in {path} to its maintainers"
    print(clean_lines(f"etprof: {problem}; {report_note}"), file=sys.stderr)
    return EXIT_CODE


def write_report(traceback_text: str, argv: Sequence[str]) -> Path:
    """Writes what happened into a file that only this user can read; returns its path.

    Raises OutputError or OSError when there is no place for it.
    """
    # A tenth of the time that `etprof --help` takes, for what hardly ever happens.
    import platform
    import tempfile
    from datetime import UTC, datetime

    from etprof.base.atomic import replacing

    now = datetime.now(UTC)
    secrets = [
        argument
        for argument, redacted in zip(argv, _redacted(argv), strict=True)
        if redacted != argument
    ]
    text = "\n".join(
        [
            f"etprof {__version__}, {now.isoformat(timespec='seconds')}",
            f"Python {platform.python_version()}, {platform.platform()}",
            *(f"{name} {_version(name)}" for name in _PACKAGES),
            f"command: {shlex.join(['etprof', *_redacted(argv)])}",
            "",
            _without(traceback_text, [*secrets, os.environ.get("ETPROF_HISTORY", "")]),
        ]
    )
    folder = Path(tempfile.gettempdir())
    # Random as well: in a folder that all share, nobody can put a file there first.
    name = f"etprof-report-{now:%Y%m%dT%H%M%SZ}-{os.urandom(4).hex()}.txt"
    with replacing(folder / name, mode=0o600) as stream:
        stream.write(text.encode("utf-8", "backslashreplace"))
    return folder / name


def _format(error: Exception) -> str:
    """Returns the traceback; where memory or the exception itself forbid it, its type."""
    try:
        text = "".join(traceback.format_exception(error))
    # What is printed of an exception is made by the exception's own code.
    except Exception:  # noqa: BLE001
        return f"{type(error).__name__}, which cannot be shown"
    if len(text) <= _MOST_LETTERS:
        return text
    half = _MOST_LETTERS // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} letters left out]\n{text[-half:]}"


def _reason(error: Exception) -> str:
    """Returns the type and what the error says, on one line."""
    try:
        message = " ".join(str(error).split())
    # As above.
    except Exception:  # noqa: BLE001
        message = ""
    reason = clean(message, _LONGEST_REASON)
    name = type(error).__name__
    return f"{name}: {_without(reason, [])}" if reason else name


def _redacted(argv: Sequence[str]) -> Iterator[str]:
    """Yields the command line; what may be a password, a text or a device's name is left out."""
    previous = ""
    for argument in argv:
        flag, is_joined, value = (
            argument.partition("=") if argument.startswith("--") else ("", "", argument)
        )
        is_plain = _HARMLESS.fullmatch(value) and "://" not in value
        if (flag or previous) in _SECRET_FLAGS and (is_joined or not flag):
            is_plain = None
        yield argument if is_plain else f"{flag}{is_joined}{LEFT_OUT}"
        previous = argument


def _without(text: str, secrets: Sequence[str]) -> str:
    """Returns the text without secrets: those of the command line, and what looks like one."""
    for secret in secrets:
        value = secret.partition("=")[2] if secret.startswith("--") else secret
        text = text.replace(value, LEFT_OUT) if value else text
    return _CREDENTIALS.sub(LEFT_OUT, text)


def _version(name: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "is not installed"
