"""The last line of an answer counts every finding that the answer does not name."""

from __future__ import annotations

import re
from io import StringIO
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from etprof.analysis.assessment import assess_run
from etprof.tables.brief import AnswerPoint, Brief, FullOutputLine, brief_of
from etprof.tables.findings import shown_findings
from etprof.views.brief import MOST_LINES, render_brief
from tests.known_runs import Op, analyze
from tests.unit.test_findings import LAYER_NORM, convolutions, one

if TYPE_CHECKING:
    from pathlib import Path

OPS = [
    *convolutions(100), *(Op(f"Transpose (ND, X32) #{i}", 20) for i in range(1, 13)),
    Op(LAYER_NORM, 100, 1), Op("native_call_topk.out", 100, 2), Op("Softmax (NC, F32) #99", 90, 3),
]  # fmt: skip


def printed(brief: Brief, width: int) -> str:
    stream = StringIO()
    Console(file=stream, width=width).print(render_brief(brief))
    return stream.getvalue()


def count_of_last_line(text: str) -> int:
    told = re.search(r"All of it, with (\d+) more finding", text)
    return int(told[1]) if told else 0


@pytest.mark.parametrize("width", [40, 60, 80, 120, 300])
def test_what_is_named_and_what_is_counted_are_all(tmp_path: Path, width: int) -> None:
    """A finding that no line was left for was in no count."""
    told = assess_run(analyze(tmp_path / "a", one(OPS)))
    text = printed(brief_of(told, ends=[FullOutputLine("etprof analyze r --full")]), width)
    rules = [finding.rule for finding in shown_findings(told)]
    heads = " ".join(re.findall(r"^((?:F\d+[a-d]?,? )+)", text, re.MULTILINE))
    named = [rule for rule in rules if rule in re.findall(r"F\d+[a-d]?", heads)]
    assert len(rules) > 4
    assert len(named) + count_of_last_line(text) == len(rules)
    assert len(text.splitlines()) <= MOST_LINES


def test_a_count_that_takes_a_line_counts_what_it_pushes_out() -> None:
    """With the count the last line is two lines, so that the last point has no room."""
    points = tuple(AnswerPoint(f"F{number} is one") for number in range(14))
    end = FullOutputLine("etprof analyze some/where/run --full")
    brief = Brief(points=points, ends=(end,), further_findings=2)
    text = printed(brief, 50)
    shown = len(re.findall(r"^F\d+ is one", text, re.MULTILINE))
    assert len(text.splitlines()) <= MOST_LINES
    assert count_of_last_line(text.replace("\n", " ")) == 14 - shown + 2
