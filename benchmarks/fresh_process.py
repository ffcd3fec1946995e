"""Runs Python code or an etprof command in an interpreter of its own, and says what it took."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from etprof.base.json_input import parse_json
from etprof.base.process import run_command

Row = dict[str, Any]

# VmHWM and not ru_maxrss, which a child inherits from whoever started it.
PEAK = """
def peak_mb():
    try:
        status = open("/proc/self/status").read()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except OSError:
        import resource
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
"""

# Elapsed time starts in the parent: interpreter start and imports are part of the command.
COMMAND = """
import contextlib, io, json, sys, time
from etprof.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    try:
        code = main()
    except SystemExit as end:
        code = end.code or 0
heavy = sorted({"torch", "executorch", "pandas"} & set(sys.modules))
print(json.dumps({"cpu_s": time.process_time(), "peak_mb": peak_mb(), "exit_code": code,
                  "heavy": heavy}))
"""


def run_code(code: str, *words: str | Path) -> Row:
    """Runs code in a fresh interpreter; returns the JSON it printed last, with its whole time.

    The code may call `peak_mb()`. Ends the benchmark when it fails.
    """
    begin = time.perf_counter()
    done = run_command([sys.executable, "-c", PEAK + code, *map(str, words)])
    whole_s = time.perf_counter() - begin
    if done.exit_code != 0:
        sys.exit(f"a measurement failed:\n{done.stdout}{done.stderr}")
    row: Row = parse_json(done.stdout.splitlines()[-1])
    return row | {"whole_s": whole_s}


def run_etprof(*words: str | Path) -> Row:
    """Runs one etprof command: `whole_s`, `cpu_s`, `peak_mb`, and the `heavy` modules it took.

    Ends the benchmark when the command fails.
    """
    row = run_code(COMMAND, *words)
    if row["exit_code"] != 0:
        sys.exit(f"etprof {' '.join(map(str, words))} ended with exit code {row['exit_code']}")
    return row


def run_etprof_quickest(*words: str | Path, repeats: int = 3) -> Row:
    """Runs one command several times; returns the quickest, for only the machine slows it down.

    That is the one with the least CPU time: elapsed time waits for others.
    """
    return min((run_etprof(*words) for _ in range(repeats)), key=lambda row: float(row["cpu_s"]))
