"""What a command found, on standard output: a brief answer, all of it, or JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from etprof.base.text import clean_lines

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence

    from rich.console import RenderableType

    from etprof.analysis.assessment import Assessment
    from etprof.analysis.compare.comparison import Comparison
    from etprof.run.accuracy import Verdict
    from etprof.tables.brief import Brief
    from etprof.tables.table import Table


def answer(
    arguments: argparse.Namespace, document: Mapping[str, object], brief: Brief
) -> None:  # fmt: skip
    """Prints the document with `--json`, everything with `--full`, else what fits a screen."""
    if arguments.json:
        show_json(document)
    else:
        show_answer(brief, full=arguments.full)


def exit_code_of(assessments: Iterable[Assessment]) -> int:
    """Says on standard error which outputs are wrong, and returns the exit code for that."""
    codes = [
        _refuse_outputs(str(each.run.source), each.wrong_outputs, each.run.wrong)
        for each in assessments
    ]
    return max(codes, default=0)


def exit_code_of_comparisons(comparisons: Iterable[Comparison]) -> int:
    """Does the same for the sides of comparisons."""
    codes = [_refuse_outputs(each.name, each.wrong_outputs, each.wrong) for each in comparisons]
    return max(codes, default=0)


def _refuse_outputs(subject: str, wrong_outputs: Sequence[str], failed: Sequence[Verdict]) -> int:
    """Says what is wrong with outputs and the way out; returns 0 where nothing is."""
    from etprof.base.errors import ExportError
    from etprof.cli.progress import say
    from etprof.run.accuracy import WAY_TO_FAITHFUL, way_to_right

    if not wrong_outputs:
        return 0
    # Modes of one program that part: it is a kernel's doing, as where lowering is not faithful.
    way_out = way_to_right(failed) if failed else WAY_TO_FAITHFUL
    say(f"etprof: {subject}: the outputs are wrong: {'; '.join(wrong_outputs)}; {way_out}")
    return ExportError.exit_code


def show_answer(brief: Brief, *, full: bool) -> None:
    """Prints what fits a screen, or everything."""
    from etprof.views.brief import render_brief, render_full

    if full:
        show(*render_full(brief))
    else:
        show(render_brief(brief))


def show_json(document: Mapping[str, object]) -> None:
    """Prints a document for programs."""
    print(json.dumps({"schema_version": 1, **document}, indent=2))


def show_schema(document: object) -> None:
    """Prints a JSON Schema, as it is."""
    print(json.dumps(document, indent=2))


def show(*renderables: Table | RenderableType | Path) -> None:
    """Prints tables, lines and what rich draws; of a table without rows nothing, paths whole."""
    from etprof.cli.progress import make_console
    from etprof.tables.table import Table
    from etprof.views.terminal import folded_text, terminal_table

    console = make_console()
    for renderable in renderables:
        if isinstance(renderable, Path):
            print(clean_lines(str(renderable)))
        elif isinstance(renderable, str):
            console.print(folded_text(clean_lines(renderable)), crop=False)
        elif not isinstance(renderable, Table):
            console.print(renderable, crop=False)
        elif renderable.rows:
            console.print(terminal_table(renderable), crop=False)
