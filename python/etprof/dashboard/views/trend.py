"""One metric of one configuration over time and commits, a line for each SME mode."""

from __future__ import annotations

import itertools
from statistics import median
from typing import TYPE_CHECKING, Final

from etprof.base.records import sme_label
from etprof.base.units import MISSING, format_change, format_share, format_value
from etprof.dashboard.addresses import Page
from etprof.dashboard.chart import Line, trend_chart
from etprof.dashboard.judging import Judge, compare_address
from etprof.dashboard.parts import (
    View,
    choose_metric,
    config_label,
    filter_form,
    sme_key,
)
from etprof.dashboard.queries import load_runs, load_trend, load_values
from etprof.dashboard.visit import NoSuchPageError
from etprof.history.metric_names import METRICS
from etprof.history.tables import format_moment
from etprof.statistics.change_points import find_change_points

if TYPE_CHECKING:
    from etprof.dashboard.judging import Reference
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
    all_series = [s for s in visit.catalogue.series() if s.config == visit.address["config"]]
    if not all_series:
        msg = "no configuration with this address in this history"
        raise NoSuchPageError(msg)
    all_series.sort(key=lambda series: sme_key(series.run.sme_mode))
    runs = [s.run for s in all_series if visit.address["sme"] in ("", s.run.sme_mode)]
    lines = {run.sme_mode: _line(visit, run, metric) for run in runs if run.representative}
    unit = METRICS[metric].unit if metric in METRICS else ""
    run = all_series[0].run
    return {
        "title": f"{run.model}: trend",
        "run": run,
        "words": config_label(run),
        "metric": metric,
        "form": filter_form(
            visit,
            (),
            metric=visit.catalogue.metrics,
            sme=["", *(series.run.sme_mode for series in all_series)],
            branch=["", *visit.catalogue.branches],
            axis=list(AXES),
        ),
        "chart": trend_chart(list(lines.values()), unit, visit.address["axis"]),
        "most": MOST_RUNS if any(len(e.points) == MOST_RUNS for e in lines.values()) else None,
        **_judged(visit, lines, metric),
    }


def _line(visit: Visit, run: Run, metric: str) -> Line:
    """A series with its change points."""
    points = load_trend(
        visit.session, run.series, metric, branch=visit.address["branch"], limit=MOST_RUNS
    )
    changes = find_change_points([point.value for point in points if point.value is not None])
    return Line(sme_label(run.sme_mode), run.sme_mode, points, changes)


def _judged(visit: Visit, lines: dict[str, Line], metric: str) -> View:
    """The newest runs against the runs before them, and where levels changed."""
    rows = [(sme, point) for sme, line in lines.items() for point in line.points[-_TABLE_ROWS:]]
    rows.sort(key=lambda row: row[1].measured_at, reverse=True)
    runs = load_runs(visit.session, (point.run_id for _, point in rows))
    values = load_values(visit.session, runs.values(), metric)
    references = Judge(visit.catalogue, metric).references(runs.values())
    return {
        "rows": [
            _newest(sme, point, values.get(point.run_id), references.get(point.run_id))
            for sme, point in rows
        ],
        "changes": [row for sme, line in lines.items() for row in _changes(sme, line, metric)],
    }


def _newest(sme: str, point: TrendPoint, value: Metric | None, reference: Reference | None) -> View:
    return {
        "point": point,
        "sme": sme,
        "value": value,
        "change": reference.change if reference else None,
        "compare": reference.compare_address if reference else None,
    }


def _changes(sme: str, line: Line, metric: str) -> list[View]:
    """The newest change points: from which to which, between which commits, how probable."""
    measured = line.measured
    edges = [0, *(change.start for change in line.changes), len(measured)]
    unit, rises = ("", False) if metric not in METRICS else (
        METRICS[metric].unit, METRICS[metric].higher_is_better
    )  # fmt: skip
    rows = []
    for position, change in enumerate(line.changes):
        before, after = (
            median(point.value or 0.0 for point in measured[begin:end])
            for begin, end in itertools.pairwise(
                (edges[position], change.start, edges[position + 2])
            )
        )
        is_worse = (after < before) == rises
        ends = measured[change.earliest - 1], measured[change.latest]
        first = [format_moment(measured[n].measured_at) for n in (change.earliest, change.latest)]
        rows.append({
            "point": measured[change.start],
            "sme": sme,
            "after": after,
            "levels": f"{format_value(unit, before)} → {format_value(unit, after)}",
            "text": format_change(after / before - 1),
            "word": "regression" if is_worse else "improvement",
            "colour": "worse" if is_worse else "better",
            "since": " … ".join(dict.fromkeys(first)),
            "probability": format_share(change.probability),
            "commits": " … ".join((point.commit or MISSING)[:10] for point in ends),
            "compare": compare_address(*(point.run_id for point in ends)),
        })  # fmt: skip
    return rows[-_MOST_CHANGES:]


PAGE = Page(show=show, subject=("config", "metric"), filters=("sme", "branch", "axis"))
