"""The newest run of every configuration, with and without SME."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from etprof.base.records import sme_label
from etprof.dashboard.addresses import Page
from etprof.dashboard.chart import sparkline
from etprof.dashboard.judging import WORSE, Judge, compare_address
from etprof.dashboard.parts import (
    View,
    choose_metric,
    facts_of,
    filter_form,
    paginate,
    passes,
    sme_key,
)  # fmt: skip
from etprof.dashboard.queries import (
    differ_in_sme_only,
    load_latest,
    load_newest_values,
    load_runs,
)  # fmt: skip
from etprof.history.exact.judging import EXACT_LABELS
from etprof.history.schema import FAILED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from etprof.dashboard.judging import Reference
    from etprof.dashboard.queries import Series
    from etprof.dashboard.visit import Visit
    from etprof.history.schema import Metric, Run

_SIDES: Final = ("off", "sme2")
_MOST_WORSE: Final = 10
_SPARK_RUNS: Final = 20
Group = dict[str, "Series"]
"""The series of one configuration by SME mode."""


@dataclass(frozen=True)
class OverviewData:
    """What the shown rows need of the store."""

    runs: Mapping[int, Run]
    values: Mapping[int, Metric]
    references: Mapping[int, Reference]
    judge: Judge
    lines: Mapping[str, Sequence[float]]
    """The newest values of each series, the oldest first."""


@dataclass(frozen=True)
class Regression:
    """A series whose newest run is a regression."""

    group: Group
    series: Series
    reference: Reference


@dataclass(frozen=True)
class ExactRegression:
    """A series whose newest run a check called worse in exact figures."""

    group: Group
    series: Series
    labels: tuple[str, ...]
    """Of the metrics, in the order in which a check judges them."""


def show(visit: Visit) -> View:
    """Returns what the template shows."""
    metric = choose_metric(visit)
    groups: dict[str, Group] = {}
    for series in visit.catalogue.series(visit.address["branch"]):
        groups.setdefault(series.config, {})[series.run.sme_mode] = series
    selected = [g for g in groups.values() if passes(facts_of(_newest(g)), visit.address.filters)]
    judge = Judge(visit.catalogue, metric)
    references = _references(visit, groups.values(), judge, metric)
    worse = _worse(selected, references)
    exact = _exactly_worse(visit, selected)
    regressed = [*(row.group for row in exact), *(row.group for row in worse)]
    ranks = {id(group): number for number, group in reversed(list(enumerate(regressed)))}
    selected.sort(key=lambda group: (ranks.get(id(group), len(groups)), not _has_failed(group)))
    visible, pager = paginate(visit, selected, "configuration")
    modes = sorted({mode for group in groups.values() for mode in group}, key=sme_key)
    every = [series for group in visible for series in group.values()]
    runs, values = load_latest(visit.session, every, metric)
    branch = visit.address["branch"]
    lines = load_newest_values(visit.session, every, metric, branch=branch, limit=_SPARK_RUNS)
    loaded = OverviewData(runs, values, references, judge, lines)
    facts = (facts_of(_newest(group)) for group in groups.values())
    branches = ["", *visit.catalogue.branches]
    return {
        "title": "Overview",
        "form": filter_form(visit, facts, metric=visit.catalogue.metrics, branch=branches),
        "metric": metric,
        "modes": modes,
        "exact": exact[:_MOST_WORSE],
        "worse": worse[:_MOST_WORSE],
        "more_worse": sum(max(len(rows) - _MOST_WORSE, 0) for rows in (exact, worse)),
        "rows": [_row(group, modes, loaded) for group in visible],
        "pager": pager,
    }


def _references(
    visit: Visit, groups: Iterable[Group], judge: Judge, metric: str
) -> Mapping[int, Reference]:
    """How the newest run of every series compares, by run: known before any row can be first."""
    all_series = [series for group in groups for series in group.values()]

    def read() -> Mapping[int, Reference]:
        runs = load_runs(visit.session, (e.latest_id for e in all_series if e.latest_id))
        return judge.references(runs.values())

    return visit.catalogue.cached(read, "references", metric, visit.address["branch"])


def _worse(groups: Iterable[Group], references: Mapping[int, Reference]) -> list[Regression]:
    """Every regression, the largest first."""
    regressions = [
        Regression(group, series, reference)
        for group in groups
        for series in group.values()
        if (reference := references.get(series.latest_id or 0)) is not None
        and reference.change["colour"] == WORSE
    ]
    return sorted(regressions, key=lambda regression: -abs(regression.reference.change["size"]))


def _exactly_worse(visit: Visit, groups: Sequence[Group]) -> list[ExactRegression]:
    """Every series whose newest run lost what never varies, such as work on SME2."""
    gate = visit.catalogue.gate()
    rows = (
        ExactRegression(
            group,
            series,
            tuple(
                label
                for metric, label in EXACT_LABELS.items()
                if gate.is_called_worse(series.run, metric)
            ),
        )
        for group in groups
        for series in group.values()
    )
    return [row for row in rows if row.labels]


def _has_failed(group: Group) -> bool:
    return any(series.run.status == FAILED for series in group.values())


def _newest(group: Group) -> Run:
    return max((series.run for series in group.values()), key=lambda run: run.measured_at)


def _row(group: Group, modes: Sequence[str], loaded: OverviewData) -> View:
    runs = [loaded.runs[e.latest_id] for e in group.values() if e.latest_id]
    return {
        "run": _newest(group),
        "config": next(iter(group.values())).config,
        "latest": max(runs, key=lambda run: run.measured_at, default=None),
        "cells": [_cell(group.get(mode), loaded) for mode in modes],
        "speed_up": _speed_up(group, loaded),
    }


def _cell(series: Series | None, loaded: OverviewData) -> View | None:
    """One SME mode's latest value and its change; None where it was never measured."""
    if series is None:
        return None
    reference = loaded.references.get(series.latest_id or 0)
    return {
        "series": series,
        "value": loaded.values.get(series.latest_id or 0),
        "change": reference.change if reference else None,
        "compare": reference.compare_address if reference else None,
        "spark": sparkline(loaded.lines.get(series.run.series, ())),
    }


def _speed_up(group: Group, loaded: OverviewData) -> View:
    """SME2 against off, where they differ in nothing else; else why there is no figure."""
    off, on = (
        loaded.runs.get(group[mode].latest_id or 0) if mode in group else None for mode in _SIDES
    )
    missing = _why_not_compared(off, on, loaded)
    if missing or off is None or on is None:
        return {"missing": missing, "change": None, "compare": None}
    return {
        "missing": "",
        "change": loaded.judge.pair(off, on, "SME off"),
        "compare": compare_address(off.id, on.id),
    }


def _why_not_compared(off: Run | None, on: Run | None, loaded: OverviewData) -> str:
    """Returns what stands against a comparison; empty when nothing does."""
    if off is None or on is None:
        absent = [sme_label(m) for m, run in zip(_SIDES, (off, on), strict=True) if run is None]
        return f"no run with {' or '.join(absent)}"
    if not (off.representative and on.representative):
        return "not representative: times mean nothing"
    if off.id not in loaded.values or on.id not in loaded.values:
        return "not measured on both sides"
    return "" if differ_in_sme_only(off, on) else "the newest runs differ in more than SME"


PAGE = Page(
    show=show,
    menu=(1, "Overview"),
    subject=("metric", "branch"),
    filters=("find", "model", "device", "precision", "backend", "threads"),
)
