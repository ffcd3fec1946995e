"""What stands in for a machine that measures, and for what would cost each case milliseconds."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, ClassVar, Final

import etprof.bench.archives
import etprof.cli
import etprof.etdump.reader
import etprof.history.store
import etprof.measuring.journal
import etprof.targets.local
from etprof.run.runner_result import read_result
from tests.world.results import GeneratingTarget

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from etprof.run.runner_result import RunnerResult
    from etprof.targets.request import RunnerRequest


class SpoiledTarget(GeneratingTarget):
    """A machine whose runner leaves files that `spoil` has changed."""

    spoil: ClassVar[Callable[[RunnerRequest], None] | None] = None

    def run(self, request: RunnerRequest) -> RunnerResult:
        result = super().run(request)
        if SpoiledTarget.spoil is None:
            return result
        SpoiledTarget.spoil(request)
        return read_result(request.result)


_READING: Final = (etprof.etdump.reader._SHORT_BYTES, etprof.etdump.reader._PIECE_EVENTS)


def read_in_pieces(events: int | None) -> None:
    """Has ETDumps of any length read in pieces of so many events; None: as they are read else."""
    short, rows = _READING if events is None else (0, events)
    vars(etprof.etdump.reader).update(_SHORT_BYTES=short, _PIECE_EVENTS=rows)


class Escaped:
    """The last exception that left a command, before `main` made a line of it."""

    error: ClassVar[BaseException | None] = None


def install() -> None:
    """Replaces the host's target, git's state and the parser's construction in this process."""
    vars(etprof.targets.local)["LocalTarget"] = SpoiledTarget
    for module in (etprof.measuring.journal, etprof.bench.archives):
        vars(module)["read_git_state"] = _no_git
    etprof.cli.build_parser = functools.cache(etprof.cli.build_parser)
    # A store that is locked is one that the case itself has damaged.
    vars(etprof.history.store)["_PATIENCE_S"] = 0.0
    run = etprof.cli.run_command_line

    def remember(*words: object, **flags: object) -> int:
        Escaped.error = None
        try:
            return run(*words, **flags)  # type: ignore[arg-type]
        except BaseException as error:
            Escaped.error = error
            raise

    etprof.cli.run_command_line = remember


def _no_git(_folder: Path) -> None:
    return None
