"""Compare two experiments: verdict, operators, and where the difference comes from.

BASELINE and CANDIDATE are run directories, one of their experiments (RUN_DIR:EXPERIMENT), or
ETDumps. Speedup is always baseline ÷ candidate. Sides that were measured under different conditions
are refused, and the message names the difference; --allow FIELD compares them anyway. A pair that
the run's own config declares needs no --allow.

Experiments of one run were interleaved, so the verdict compares their launches. Two separate runs
differ by more than their launches do: repeat them and give all runs of the baseline, then all runs
of the candidate after --against; or give a history (--store) in which this device has measured the
same series repeatedly. With neither, the verdict is "inconclusive: one run per side".
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from etprof.base.errors import UsageError
from etprof.cli.flags import FULL, JSON, MANY, STORE, add_flags, fraction, whole_number
from etprof.cli.output import exit_code_of_comparisons, show, show_answer, show_json

if TYPE_CHECKING:
    import argparse

    from etprof.analysis.compare.comparability import Side
    from etprof.analysis.compare.comparison import Comparison
    from etprof.analysis.run_analysis import RunAnalysis
    from etprof.statistics.two_samples import Spread

USUAL_TOP = 12
_MORE = "--full: classes, operators, every step, and what limits the result"
EXAMPLES = """\
examples:
  etprof compare out_m/runs/android:android_off out_m/runs/android:android_sme2
  etprof compare out_m/runs/linux_20261121T090000Z out_m/runs/linux
  etprof compare old1 old2 old3 --against new1 new2 new3
  etprof compare fp32.etdump fp16.etdump --allow inputs
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declares the command's flags."""
    from etprof.analysis.compare.comparability import FIELDS
    from etprof.statistics.effect import DEFAULT_MARGIN

    parser.epilog = EXAMPLES
    add_flags(
        parser,
        ("runs", str, "RUN", "BASELINE CANDIDATE; or, with --against, each run of the baseline",
         {"nargs": "+"}),
        ("--against", str, "RUN", "each run of the candidate", {"nargs": "+"}),
        STORE,
        ("--allow", tuple(FIELDS), "FIELD",
         f"compare although this differs: {', '.join(FIELDS)}", MANY),
        ("--margin", fraction, "FRACTION",
         "largest relative difference that counts as no difference (default %(default)s)", {"default": DEFAULT_MARGIN}),
        FULL, JSON,
        ("--top", whole_number(1), "N", f"print everything, with N steps (default {USUAL_TOP})"),
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Compares and prints."""
    comparisons = _compare(arguments)
    if arguments.json:
        from etprof.views.documents import comparison_document

        documents = [comparison_document(comparison) for comparison in comparisons]
        show_json({"comparisons": documents} if len(documents) > 1 else documents[0])
        return exit_code_of_comparisons(comparisons)
    from etprof.tables.brief import brief_comparison, brief_comparisons
    from etprof.views.terminal import render_comparison

    if arguments.full or arguments.top is not None:
        for comparison in comparisons:
            show(render_comparison(comparison, top=arguments.top or USUAL_TOP))
    elif len(comparisons) > 1:
        show_answer(brief_comparisons(comparisons, ends=[_MORE]), full=False)
    else:
        show_answer(brief_comparison(comparisons[0], ends=[_MORE]), full=False)
    return exit_code_of_comparisons(comparisons)


def _compare(arguments: argparse.Namespace) -> list[Comparison]:
    """Loads both sides, refuses unlike ones and compares the rest."""
    from etprof.analysis.compare.comparability import refuse_unlike
    from etprof.analysis.compare.comparison import compare_sides
    from etprof.analysis.compare.pairs import is_declared, match_groups

    baseline, candidate = _groups(arguments)
    pairs = match_groups([_load(path) for path in baseline], [_load(path) for path in candidate])
    for baseline_side, candidate_side in pairs:
        if not is_declared(baseline_side, candidate_side):
            refuse_unlike(baseline_side, candidate_side, arguments.allow)
    return [
        compare_sides(
            baseline_side,
            candidate_side,
            margin=arguments.margin,
            run_spreads=_known_spreads(arguments.store, baseline_side, candidate_side),
        )
        for baseline_side, candidate_side in pairs
    ]


def _groups(arguments: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Returns the runs of the baseline and those of the candidate."""
    if arguments.against:
        return arguments.runs, arguments.against
    if len(arguments.runs) != 2:
        raise UsageError(
            f"compare takes two runs, not {len(arguments.runs)}; of several runs a side, those of "
            "the candidate follow --against"
        )
    return arguments.runs[:1], arguments.runs[1:]


def _known_spreads(store: str | None, baseline: Side, candidate: Side) -> dict[str, Spread]:
    """What runs of these series are known to differ by on their device, by metric."""
    are_runs = baseline.run.manifest is not None and candidate.run.manifest is not None
    if baseline.run.source == candidate.run.source or not are_runs:
        return {}
    from etprof.analysis.split.cold_start import HISTORY_NAMES
    from etprof.history.run_spread import known_spreads
    from etprof.history.store import find_store

    history = find_store(store)
    if history is None:
        return {}
    run_experiments = [
        (Path(str(side.run.source)), side.experiment.name) for side in (baseline, candidate)
    ]
    with history, history.session() as session:
        return known_spreads(session, run_experiments, HISTORY_NAMES.values())


def _load(text: str) -> tuple[RunAnalysis, str | None]:
    """Reads RUN_DIR, RUN_DIR:EXPERIMENT or FILE.etdump; a path that exists is taken whole."""
    from etprof.analysis.run_analysis import analyze_run
    from etprof.importing.bare_etdump import load_source

    path, name = Path(text), None
    if not path.exists() and ":" in text:
        before, _, name = text.rpartition(":")
        path = Path(before)
    return analyze_run(load_source(path)), name
