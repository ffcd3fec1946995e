"""Check a run directory: complete, unchanged since it was measured, plausible.

Exit code 0 when it is, 1 when something is missing (and what is lost), 4 when something is damaged.

  etprof validate out_toy_cnn/runs/linux
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etprof.cli.flags import FULL, JSON, add_flags
from etprof.cli.output import answer

if TYPE_CHECKING:
    import argparse

_VERDICTS = {
    "ok": "complete, unchanged and plausible",
    "note": "complete, unchanged and plausible, with notes",
    "incomplete": "something is missing",
    "damaged": "something is damaged",
}
_EXIT_CODES = {"ok": 0, "note": 0, "incomplete": 1, "damaged": 4}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    add_flags(
        parser,
        ("run_dir", Path, "RUN_DIR", "", {"nargs": "?"}),
        ("--results", Path, "RUN_DIR", "the same as a flag"),
        FULL,
        JSON,
    )


def run(arguments: argparse.Namespace) -> int:
    """Checks and prints what was found."""
    from etprof.base.errors import UsageError
    from etprof.run.validation import validate_run, worst_level
    from etprof.tables.brief import AnswerLine, Brief
    from etprof.tables.machine import CHECKS

    folder = arguments.run_dir or arguments.results
    if folder is None:
        raise UsageError("give a run directory, as in `etprof validate out_toy_cnn/runs/linux`")
    findings = validate_run(folder)
    level = worst_level(findings)
    table = CHECKS.of(findings)
    worst = [
        finding for name in reversed(_VERDICTS) for finding in findings if finding.level == name
    ]
    headline = AnswerLine(f"{folder}: {_VERDICTS[level]}", CHECKS.columns[0].styles.get(level, ""))
    document = {"verdict": level, "findings": table.records()}
    answer(arguments, document, Brief((headline,), table=CHECKS.of(worst)))
    return _EXIT_CODES[level]
