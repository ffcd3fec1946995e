"""Charts of latencies show medians beside outliers; no axis of times begins below zero (C3-4)."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from etprof.analysis.assessment import assess_run
from etprof.dashboard.chart import Line, trend_chart
from etprof.dashboard.queries import TrendPoint
from etprof.tables.report import report_sections
from etprof.views import charts
from etprof.views.formats.html import render_html
from tests.known_runs import OFF_OPS, Experiment, Run, analyze

if TYPE_CHECKING:
    from pathlib import Path

LEAST_HEIGHT = 5.0
"""Of 200: what is lower is a line on the axis."""
OUTLIERS = 36
"""Three in each of twelve launches."""


def noisy(name: str = "off", factor: float = 1.0) -> Experiment:
    """Launches of 126 to 131 µs, some of whose samples take 25.7 ms."""
    latencies = [factor * (126 + n % 6) for n in range(12)]
    noise = [1.0, 1.02, 1.05, 1.01, 1.03, 1.0, 1.04, 1.02, 1.06, 1.01] * 4 + [204.0]
    return Experiment(name, OFF_OPS, latency_us=latencies, noise=noise)


def test_medians_are_seen_beside_outliers_which_are_counted(tmp_path: Path) -> None:
    """126 µs to 25.7 ms on a linear axis: the medians were a line on it."""
    assessment = assess_run(analyze(tmp_path / "r", Run([noisy()])))
    chart = charts.latency_chart(assessment.run.experiments)
    assert chart is not None
    (panel,) = chart["panels"]
    assert all(200 - float(block["median"]) > LEAST_HEIGHT for block in panel["blocks"])
    assert chart["beyond"] == OUTLIERS
    page = render_html([assessment])
    said = re.search(
        r"The scale is logarithmic, from ([\d.]+) µs to ([\d.]+) µs; (\d+) above", page
    )
    assert said is not None
    assert int(said[3]) == OUTLIERS
    # AND a tick in the middle is the middle of the logarithms
    low, middle, high = (float(tick.split()[0]) for tick in chart["ticks"])
    assert middle == pytest.approx((low * high) ** 0.5, rel=0.01)


def test_a_fast_side_is_no_line_beside_a_slow_one(tmp_path: Path) -> None:
    run = Run([noisy("slow", 20.0), replace(noisy("fast"), sme="sme2")])
    chart = charts.latency_chart(analyze(tmp_path / "r", run).experiments)
    assert chart is not None
    heights = {panel["name"]: [200 - float(block["median"]) for block in panel["blocks"]]
               for panel in chart["panels"]}  # fmt: skip
    assert min(heights["fast"]) > 1
    # A factor of twenty is most of the height; six steps of 1 % can be told apart.
    assert min(heights["slow"]) - max(heights["fast"]) > 100
    assert len(set(heights["fast"])) == 6


def test_a_launch_far_off_hides_no_distribution(tmp_path: Path) -> None:
    calm = [100 + n % 7 for n in range(20)]
    run = Run([Experiment("off", OFF_OPS, latency_us=[*calm, 9000])])
    sections = report_sections(assess_run(analyze(tmp_path / "r", run)))
    drawn = [charts.steps_of(table) for section in sections for table in section.tables]
    (chart,) = filter(None, drawn)
    assert chart["beyond"] == 1
    (line,) = chart["lines"]
    assert line["count"] == 21
    ends = [float(x) for x in re.findall(r"H([\d.]+)", line["path"])]
    # The other launches take the whole width, and the line ends below 100 %.
    assert max(ends[:-1]) > 800
    assert min(float(y) for y in re.findall(r"V([\d.]+)", line["path"])) > 0


def test_two_levels_are_seen_whole() -> None:
    assert charts._upper_end([[100.0] * 55 + [200.0] * 45]) == 200.0
    assert charts._upper_end([[100.0, 110.0, 9000.0]]) == 110.0
    assert charts._upper_end([[0.0, 0.0]]) == 0.0


@pytest.mark.parametrize("low", [0.0, 5e4])
def test_no_trend_of_times_begins_below_zero(low: float) -> None:
    """A wide interval put a negative time at the lower end of the axis."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    points = [
        TrendPoint(n, begin + timedelta(days=n), None, "main", value, low, value * 1.2)
        for n, value in enumerate((1e5, 2e5, 2.5e7))
    ]
    chart = trend_chart([Line("off", "off", points, ())], "ns", "time")
    assert chart is not None
    assert "-" not in chart["bottom"]
    assert "−" not in chart["bottom"]
