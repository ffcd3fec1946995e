"""What a Dask worker does with a task: unpack the program, measure, pack the run directory."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from etprof.base.atomic import scratch_folder
from etprof.base.text import clean_lines
from etprof.bench.archives import pack_run, unpack_program
from etprof.bench.execution import run_unit
from etprof.measuring.configured import Listener
from etprof.targets.device_lock import patience

if TYPE_CHECKING:
    from etprof.bench.combinations import Unit
    from etprof.bench.execution import UnitOutcome


def run_remotely(
    unit: Unit, archive: bytes, program: str, *, keep_going: bool = False
) -> tuple[UnitOutcome, bytes]:
    """Measures `unit` in a folder of its own; returns its outcome and its run directory."""
    with scratch_folder("bench") as folder:
        unpack_program(archive, folder / "programs")
        run = folder / "run"
        listener, path = Listener(_log, _ignore, patience(_log)), folder / "programs" / program
        outcome = run_unit(unit, path, run, listener, resume=False, keep_going=keep_going)
        return outcome, pack_run(run)


def _ignore(*_: object) -> None:
    """Nobody watches the steps of a worker."""


def _log(text: str) -> None:
    """Prints to the worker's output."""
    print(clean_lines(text), file=sys.stderr)
