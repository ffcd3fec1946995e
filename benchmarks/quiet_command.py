"""An etprof command in this process whose output nobody needs: part of several benchmarks."""

from __future__ import annotations

import io
import shlex
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout

from etprof.cli import main as run_etprof

_INTERRUPTED = {130, 143}


def run_quietly(argv: Sequence[str]) -> str | None:
    """Returns why the command failed, with its last line; None where it succeeded.

    Ends the benchmark where the command was interrupted.
    """
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(output):
        code = run_etprof(list(argv))
    if code in _INTERRUPTED:
        sys.exit(code)
    if not code:
        return None
    last_line = (output.getvalue().strip().splitlines() or [""])[-1]
    return f"etprof {shlex.join(argv)}: exit code {code}: {last_line}"


def require(argv: Sequence[str]) -> None:
    """Runs the command; ends the benchmark where it fails."""
    if (problem := run_quietly(argv)) is not None:
        sys.exit(problem)
