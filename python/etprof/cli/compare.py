"""Compare two experiments: verdict, operators, and where the difference comes from.

BASELINE and CANDIDATE are run directories, one of their experiments (RUN_DIR:EXPERIMENT), or
ETDumps. Speed-up is always baseline ÷ candidate. What was not measured alike is refused, and the
message names the difference; --allow FIELD compares all the same.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etprof.cli.flags import JSON, MANY, add_flags, fraction, whole_number
from etprof.cli.output import show, show_json

if TYPE_CHECKING:
    import argparse

    from etprof.analysis.compare.comparison import Comparison
    from etprof.analysis.run_analysis import RunAnalysis

EXAMPLES = """\
examples:
  etprof compare out_m/runs/android:android_off out_m/runs/android:android_sme2
  etprof compare out_m/runs/linux_20261121T090000Z out_m/runs/linux
  etprof compare fp32.etdump fp16.etdump --allow inputs
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    from etprof.analysis.compare.comparability import FIELDS
    from etprof.statistics.effect import DEFAULT_MARGIN

    parser.epilog = EXAMPLES
    add_flags(
        parser,
        ("baseline", str, "BASELINE", "what to compare with"),
        ("candidate", str, "CANDIDATE", "what is compared"),
        ("--allow", tuple(FIELDS), "FIELD",
         f"compare although this differs: {', '.join(FIELDS)}", MANY),
        ("--margin", fraction, "FRACTION",
         "what counts as no difference (default %(default)s, a fraction of one)", {"default": DEFAULT_MARGIN}),
        JSON,
        ("--top", whole_number(1), "N", "steps to list (default %(default)s)", {"default": 12}),
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Compares and prints."""
    comparisons = _compare(arguments)
    if arguments.json:
        from etprof.views.documents import comparison_document

        documents = [comparison_document(entry) for entry in comparisons]
        show_json(documents if len(documents) > 1 else documents[0])
        return 0
    from etprof.views.terminal import render_comparison

    for comparison in comparisons:
        show(render_comparison(comparison, top=arguments.top))
    return 0


def _compare(arguments: argparse.Namespace) -> list[Comparison]:
    """Loads both sides, refuses unlike ones and compares the rest."""
    from etprof.analysis.compare.comparability import refuse_unlike
    from etprof.analysis.compare.comparison import compare_sides
    from etprof.analysis.compare.pairs import match_runs

    baseline, first = _load(arguments.baseline)
    candidate, second = _load(arguments.candidate)
    pairs = match_runs(baseline, candidate, (first, second))
    for one, other in pairs:
        refuse_unlike(one, other, arguments.allow)
    return [compare_sides(one, other, margin=arguments.margin) for one, other in pairs]


def _load(text: str) -> tuple[RunAnalysis, str | None]:
    """Reads RUN_DIR, RUN_DIR:EXPERIMENT or FILE.etdump; a path that exists is taken whole."""
    from etprof.analysis.run_analysis import analyze_run
    from etprof.run.load import Run

    path, name = Path(text), None
    if not path.exists() and ":" in text:
        before, _, name = text.rpartition(":")
        path = Path(before)
    return analyze_run(Run.load(path)), name
