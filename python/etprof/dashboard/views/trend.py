"""One metric of one configuration over time and commits, a line for each SME mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.dashboard.addresses import Page
from etprof.dashboard.chart import Line, trend_chart
from etprof.dashboard.judging import Judge, compare_address
from etprof.dashboard.parts import (
    View,
    choose_metric,
    config_words,
    filter_form,
    sme_key,
    sme_label,
)
from etprof.dashboard.queries import load_runs, load_trend, load_values
from etprof.dashboard.visit import NoSuchPageError
from etprof.history.metric_names import METRICS
from etprof.statistics.change_points import find_change_points

if TYPE_CHECKING:
    from etprof.dashboard.queries import TrendPoint
    from etprof.dashboard.visit import Visit
    from etprof.history.schema import Metric, Run

MOST_RUNS: Final = 1_000
"""Runs of a line that are looked at; older ones are in the store."""
_TABLE_ROWS: Final = 30
_MOST_CHANGES: Final = 10
AXES: Final = ("time", "commits")


def show(visit: Visit) -> View:
    """Returns what the template shows."""
    metric = choose_metric(visit)
    series = [s for s in visit.catalogue.series() if s.config == visit.address["config"]]
    if not series:
        msg = "no configuration with this address in this history"
        raise NoSuchPageError(msg)
    series.sort(key=lambda entry: sme_key(entry.run.sme_mode))
    chosen = [s.run for s in series if visit.address["sme"] in ("", s.run.sme_mode)]
    lines = {run.sme_mode: _line(visit, run, metric) for run in chosen if run.representative}
    unit = METRICS[metric].unit if metric in METRICS else ""
    run = series[0].run
    return {
        "title": f"{run.model}: trend",
        "run": run,
        "words": config_words(run),
        "metric": metric,
        "form": filter_form(
            visit,
            (),
            metric=visit.catalogue.metrics,
            sme=["", *(entry.run.sme_mode for entry in series)],
            branch=["", *visit.catalogue.branches],
            axis=list(AXES),
        ),
        "chart": trend_chart(list(lines.values()), unit, visit.address["axis"]),
        "most": MOST_RUNS if any(len(e.points) == MOST_RUNS for e in lines.values()) else None,
        **_judged(visit, lines, metric),
    }


def _line(visit: Visit, run: Run, metric: str) -> Line:
    """A series with its changes of level."""
    points = load_trend(
        visit.session, run.series, metric, branch=visit.address["branch"], limit=MOST_RUNS
    )
    measured = [point for point in points if point.value is not None]
    starts = find_change_points([point.value or 0.0 for point in measured])
    changes = [measured[start].run_id for start in starts]
    return Line(sme_label(run.sme_mode), run.sme_mode, points, changes)


Row = tuple[str, "TrendPoint", "TrendPoint | None"]
"""SME mode, a run, and what it is held against."""


def _judged(visit: Visit, lines: dict[str, Line], metric: str) -> View:
    """The newest runs against the one before, and changes of level against the level before."""
    rows = [row for sme, line in lines.items() for row in _newest(sme, line)]
    changes = [row for sme, line in lines.items() for row in _changes(sme, line)]
    rows.sort(key=lambda row: row[1].measured_at, reverse=True)
    points = [point for _, *pair in (*rows, *changes) for point in pair if point]
    runs = load_runs(visit.session, (point.run_id for point in points))
    values = load_values(visit.session, runs.values(), metric)
    newest = [runs[line.points[-1].run_id] for line in lines.values() if line.points]
    judge = Judge(visit.catalogue, metric, newest)
    return {
        "rows": [_describe(row, values, judge) for row in rows],
        "changes": [_describe(row, values, judge) for row in changes],
    }


def _describe(row: Row, values: dict[int, Metric], judge: Judge) -> View:
    sme, point, before = row
    value = values.get(point.run_id)
    baseline = values.get(before.run_id) if before else None
    return {
        "point": point,
        "sme": sme,
        "value": value,
        "change": judge.change(baseline, value, "the run before"),
        "compare": compare_address(before.run_id, point.run_id) if before else None,
    }


def _newest(sme: str, line: Line) -> list[Row]:
    """The newest runs of a line, each with the one before it on its branch."""
    last: dict[str | None, TrendPoint] = {}
    rows: list[Row] = []
    for point in line.points:
        rows.append((sme, point, last.get(point.branch) if point.value is not None else None))
        if point.value is not None:
            last[point.branch] = point
    return rows[-_TABLE_ROWS:]


def _changes(sme: str, line: Line) -> list[Row]:
    """The newest changes of level, each with the last run of the level before."""
    measured = line.measured
    rows: list[Row] = [
        (sme, point, measured[i - 1])
        for i, point in enumerate(measured)
        if i and point.run_id in line.changes
    ]
    return rows[-_MOST_CHANGES:]


PAGE = Page(show=show, subject=("config", "metric"), filters=("sme", "branch", "axis"))
