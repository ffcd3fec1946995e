"""Analyse a run directory or one ETDump: where an inference's time goes.

Needs neither PyTorch nor ExecuTorch. Writes analysis_summary.json and CSV tables beside the
measurements of a run directory; of a single ETDump only with --out. Shares are of
Method::execute and add up to 100 %.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from etprof.cli.flags import FULL, add_flags, whole_number
from etprof.cli.output import show, show_answer, show_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from etprof.analysis.assessment import Assessment

USUAL_TOP = 12
EXAMPLES = """\
examples:
  etprof analyze out_toy_cnn/runs/linux
  etprof analyze out_toy_cnn/runs/linux --full
  etprof analyze out_toy_cnn/runs/linux --top 50
  etprof analyze some.etdump --json --out tables
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    parser.epilog = EXAMPLES
    add_flags(
        parser,
        ("source", Path, "RUN_DIR|FILE.etdump", "what to analyse", {"nargs": "?"}),
        ("--run-dir", Path, "RUN_DIR", "the same as a flag, for scripts"),
        ("--out", Path, "DIR", "folder for the JSON and CSV files"),
        ("--json", bool, "", "print analysis_summary.json instead"),
        ("--quiet", bool, "", "write the files, print nothing"),
        FULL,
        (
            "--top",
            whole_number(1),
            "N",
            f"with everything: operators to list (default {USUAL_TOP})",
        ),
    )


def run(arguments: argparse.Namespace) -> int:
    """Analyses the source, writes the files and prints the report."""
    from etprof.analysis.assessment import assess_run
    from etprof.analysis.run_analysis import analyze_run
    from etprof.report_files import write_report_files
    from etprof.run.load import Run
    from etprof.targets.peaks import with_peaks

    source = _source(arguments)
    assessment = assess_run(analyze_run(with_peaks(Run.load(source, with_reference=True))))
    folder = arguments.out or (source if source.is_dir() else None)
    if folder is not None:
        write_report_files(assessment, folder)
    if not arguments.quiet:
        ends = [] if folder is None else [f"Report: {folder / 'report.html'}"]
        is_full = arguments.full or arguments.top is not None
        ends.append(all_of_it(source, assessment))
        show_assessment(
            assessment, as_json=arguments.json, full=is_full, top=arguments.top, ends=ends
        )
    return 0


def all_of_it(source: Path, assessment: Assessment) -> str:
    """Says which command prints what the brief answer leaves out."""
    from etprof.base.units import count_of
    from etprof.tables.brief import further_findings

    left = further_findings(assessment)
    told = f", with {count_of(left, 'more finding')}" if left else ""
    return f"All of it{told}: {shlex.join(['etprof', 'analyze', str(source), '--full'])}"


def show_assessment(
    assessment: Assessment, *, as_json: bool, full: bool, top: int | None, ends: Iterable[str]
) -> None:
    """Prints what was found as JSON, as an answer that fits a screen, or as tables."""
    if as_json:
        from etprof.views.documents import assessment_document

        show_json(assessment_document(assessment))
    elif full:
        from etprof.views.terminal import render_report

        show(render_report(assessment, top=USUAL_TOP if top is None else top))
    else:
        from etprof.tables.brief import brief_of

        show_answer(brief_of(assessment, ends=ends), full=False)


def _source(arguments: argparse.Namespace) -> Path:
    """Returns the one source that was given, by position or by flag."""
    from etprof.base.errors import UsageError

    given = [path for path in (arguments.source, arguments.run_dir) if path is not None]
    if len(given) != 1:
        raise UsageError(
            "give one run directory or ETDump, as in `etprof analyze out_toy_cnn/runs/linux`"
        )
    return Path(given[0])
