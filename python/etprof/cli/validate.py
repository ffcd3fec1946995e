"""Check a run directory: complete, unchanged since it was measured, plausible.

Exit code 0 if it passes, 1 if something is missing (the output says what is lost), 4 if something is
damaged, 6 if everything is intact but the outputs are wrong.

  etprof validate out_toy_cnn/runs/linux
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etprof.cli.flags import FULL, JSON, add_flags
from etprof.cli.output import answer

if TYPE_CHECKING:
    import argparse

    from etprof.run.validation import ValidationFinding

_VERDICTS = {
    "ok": "complete, unchanged and plausible",
    "note": "complete, unchanged and plausible, with notes",
    "wrong": "complete and unchanged, but the outputs are wrong",
    "incomplete": "something is missing",
    "damaged": "something is damaged",
}
_EXIT_CODES = {"ok": 0, "note": 0, "wrong": 6, "incomplete": 1, "damaged": 4}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    add_flags(
        parser,
        ("run_dir", Path, "RUN_DIR", "", {"nargs": "?"}),
        ("--results", Path, "RUN_DIR", "RUN_DIR as a flag"),
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
    findings = [*validate_run(folder), *_judge_outputs(folder)]
    level = worst_level(findings)
    table = CHECKS.of(findings)
    worst = [
        finding for name in reversed(_VERDICTS) for finding in findings if finding.level == name
    ]
    headline = AnswerLine(f"{folder}: {_VERDICTS[level]}", CHECKS.columns[0].styles.get(level, ""))
    document = {"verdict": level, "findings": table.records()}
    answer(arguments, document, Brief((headline,), table=CHECKS.of(worst)))
    return _EXIT_CODES[level]


def _judge_outputs(folder: Path) -> list[ValidationFinding]:
    """Returns what is wrong with the outputs; nothing of a run that cannot be read, which is told."""
    from etprof.analysis.assessment import assess_run
    from etprof.analysis.run_analysis import analyze_run
    from etprof.base.errors import EtprofError
    from etprof.base.text import clean
    from etprof.run.load import Run
    from etprof.run.validation import ValidationFinding

    try:
        run = Run.load(folder, strict=False)
        if run.problem is not None or not run.is_reportable:
            return []
        wrong = assess_run(analyze_run(run)).wrong_outputs
    except EtprofError:
        return []
    return [ValidationFinding("wrong", clean(text)) for text in wrong]
