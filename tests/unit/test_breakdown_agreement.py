"""A breakdown that is more of the tracer than of the model: what is withheld, and what is said."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from etprof.analysis.assessment import assess_run
from etprof.analysis.split.agreement import BreakdownAgreement
from etprof.tables.brief import brief_of
from etprof.views.formats.html import render_html
from etprof.views.markdown import render_markdown
from etprof.views.terminal import render_report
from tests.known_etdumps import US
from tests.known_runs import Experiment, Op, Run, analyze
from tests.unit.test_findings import convolutions, fired, insight, one

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.analysis.assessment import Assessment

SMALL = [*convolutions(2), *(Op("native_call_sigmoid.out", 1, number) for number in range(1, 100))]
"""A hundred small operators, as of a GRU: 101 µs as recorded, and 99 µs of calls."""
WAY_OUT = (
    "Measuring again does not change that. Judge changes by the latency, which is timed without "
    "recording (`optimize`, `profile --against`), or profile a larger batch, for which "
    "recording is a smaller part."
)
RECORDED = (
    "recording adds about 1.00 µs to each of 100 events: a recorded inference takes at least 200 µs, "
    "an unrecorded one 100 µs"
)
WARNING = "Warning: these times and shares are of recorded inferences, on average 2.00× the timed latency of e."


def recurrent(latency_us: float) -> Run:
    return one(SMALL, latency_us=[latency_us] * 10)


def assessment(folder: Path, run: Run) -> Assessment:
    return assess_run(analyze(folder, run))


def printed(told: Assessment) -> str:
    stream = StringIO()
    Console(file=stream, width=1000).print(render_report(told, top=10))
    return stream.getvalue()


def test_overhead_of_the_tracer_is_no_finding(tmp_path: Path) -> None:
    """A GRU of 107 µs was told of 251 µs of overhead in each inference."""
    assert fired(insight(tmp_path / "a", recurrent(200)))["F12"].time_ns == pytest.approx(99 * US)
    told = assessment(tmp_path / "b", recurrent(100))
    assert "F12" not in {finding.rule for finding in told.primary_findings.findings}


def test_overhead_is_bounded_by_the_timed_latency(tmp_path: Path) -> None:
    """What a recorded inference takes longer may all be overhead that the timed one has not."""
    ops = convolutions(100)
    found = fired(insight(tmp_path / "a", one(ops, delegate_overhead_us=40, latency_us=[120] * 10)))
    assert found["F12"].time_ns == pytest.approx(19 * US * 120 / 140)
    assert "(at least 19.0 µs, without what recording events may add)" in found["F12"].summary
    few = one(ops, delegate_overhead_us=20, latency_us=[105] * 10)
    assert "F12" not in fired(insight(tmp_path / "b", few)), "5 µs of 105 µs"


@pytest.mark.parametrize(
    ("recorded_us", "quietest_us", "operators", "is_in_doubt", "is_recording"),
    [
        (40, 38, 8, False, False),  # toy_cnn
        (191, 161, 252, True, True),  # a GRU: 25 % and 1 µs for each operator took it for sound
        (155, 110, 17, True, False),  # a keyword spotter beside another process
        (60, 50, 252, False, False),
        (20, 20, 8, True, False),
        (999, 999, 252, True, False),  # more than recording costs
    ],
)  # fmt: skip
def test_the_limit_of_a_breakdown_and_the_cause(
    recorded_us: float, quietest_us: float, operators: int, *, is_in_doubt: bool, is_recording: bool
) -> None:
    latency_us = 90 if operators == 17 else 52 if operators == 252 else 32
    agreement = BreakdownAgreement(
        recorded_us * US, quietest_us * US, latency_us * US, operators=operators
    )
    assert (agreement.is_in_doubt, agreement.is_recording) == (is_in_doubt, is_recording)


def test_the_answer_names_the_tracer_and_a_true_way_out(tmp_path: Path) -> None:
    """A quiet machine, which it named, does not help against the cost of recording."""
    told = brief_of(assessment(tmp_path / "a", recurrent(100)))
    text = "\n".join(line.text for line in told.headlines)
    assert f"Gains are withheld: {RECORDED}. {WAY_OUT}" in text
    assert "quiet machine" not in text
    assert not told.bar, "its shares are the tracer's"
    assert not [line for line in told.lines if "agree" in str(line)], "the headline has said so"


def test_a_rule_that_recording_decides_is_named(tmp_path: Path) -> None:
    ops = [*SMALL, Op("Softmax (NC, F32) #2", 60, 100)]
    told = brief_of(assessment(tmp_path / "a", one(ops, latency_us=[120.0] * 10)))
    assert "F6 (a large part is of category Other) is withheld" in "".join(
        line.text for line in told.headlines
    )


@pytest.mark.parametrize("form", ["terminal", "md", "html"])
def test_findings_and_breakdown_carry_the_warning(tmp_path: Path, form: str) -> None:
    """The answer had the line, and what `--full` prints did not."""
    told = assessment(tmp_path / "a", recurrent(100))
    text = {
        "terminal": lambda: printed(told),
        "md": lambda: render_markdown([told]),
        "html": lambda: render_html([told]),
    }[form]()
    plain = text.replace("<code>", "`").replace("</code>", "`").replace("\\", "")
    assert f"withheld: {RECORDED}. {WAY_OUT}" in plain
    assert plain.count(WARNING) >= 2
    assert "No findings" not in plain


def test_a_breakdown_that_agrees_has_no_warning(tmp_path: Path) -> None:
    told = assessment(tmp_path / "a", recurrent(190))
    assert "Warning" not in render_html([told])
    assert brief_of(told).bar


def test_a_comparison_warns_of_both_sides(tmp_path: Path) -> None:
    experiments = [
        Experiment(name, SMALL, sme=sme, latency_us=[us] * 10)
        for name, sme, us in (("off", "off", 80.0), ("on", "sme2", 100.0))
    ]
    told = assessment(tmp_path / "a", Run(experiments))
    assert (
        "these times and shares are of recorded inferences, on average 2.50× the timed latency of off and "
        "2.00× the timed latency of on."
    ) in render_html([told])
