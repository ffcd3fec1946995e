"""One model: its precisions or its backends side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.dashboard.addresses import Page
from etprof.dashboard.judging import Judge, compare_address
from etprof.dashboard.parts import (
    View,
    choose_metric,
    facts_of,
    filter_form,
    paginate,
    passes,
    sme_key,
)  # fmt: skip
from etprof.dashboard.queries import load_latest
from etprof.dashboard.visit import NoSuchPageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from etprof.dashboard.queries import Series
    from etprof.dashboard.visit import Visit
    from etprof.history.schema import Metric, Run

CHOICES: Final = ("precision", "backend")
_REFERENCES: Final = {"precision": "fp32", "backend": "portable"}
Columns = dict[str, "Series"]


def show(visit: Visit) -> View:
    """Returns what the template shows."""
    model, by, metric = visit.address["model"], visit.address["by"], choose_metric(visit)
    all_series = [series for series in visit.catalogue.series() if series.run.model == model]
    if not all_series or by not in CHOICES:
        msg = f"no run of a model {model} that could be laid out by {by}"
        raise NoSuchPageError(msg)
    selected = [
        series for series in all_series if passes(facts_of(series.run), visit.address.filters)
    ]
    columns = _columns(selected, by)
    rows, pager = paginate(visit, _rows(selected, by), "configuration")
    loaded = load_latest(visit.session, (series for row in rows for series in row.values()), metric)
    judge = Judge(visit.catalogue, metric)
    choices = {"metric": visit.catalogue.metrics, "by": list(CHOICES)}
    return {
        "title": f"{model}: {by}s side by side",
        "model": model,
        "by": by,
        "form": filter_form(visit, (facts_of(series.run) for series in all_series), **choices),
        "metric": metric,
        "columns": columns,
        "reference": columns[0] if columns else "",
        "rows": [
            {
                "run": next(iter(row.values())).run,
                "cells": [_cell(row, name, columns[0], loaded, judge) for name in columns],
            }
            for row in rows
        ],
        "pager": pager,
    }


def _columns(all_series: Sequence[Series], by: str) -> list[str]:
    """The values side by side; the one that others are compared with comes first."""
    names = {facts_of(series.run)[by] for series in all_series}
    return sorted(names, key=lambda value: (value != _REFERENCES[by], value))


def _rows(all_series: Sequence[Series], by: str) -> list[Columns]:
    """Series that differ in what is laid side by side alone."""
    rows: dict[tuple[str, ...], Columns] = {}
    shared = [name for name in ("device", "precision", "backend", "threads") if name != by]
    for series in all_series:
        run, facts = series.run, facts_of(series.run)
        key = (run.method or "", run.variant or "", *(facts[name] for name in shared), run.sme_mode)
        rows.setdefault(key, {})[facts[by]] = series
    return [rows[key] for key in sorted(rows, key=lambda k: (k[:-1], sme_key(k[-1])))]


def _cell(
    row: Columns,
    name: str,
    first: str,
    loaded: tuple[Mapping[int, Run], Mapping[int, Metric]],
    judge: Judge,
) -> View | None:
    """One column's latest value, and its change against the first where that may be judged."""
    series, reference = row.get(name), row.get(first)
    if series is None or series.latest_id is None:
        return None
    runs, values = loaded
    value = values.get(series.latest_id)
    cell = {"series": series, "value": value, "change": None, "compare": None, "note": ""}
    if reference is None or reference.latest_id is None or series is reference:
        return cell
    if runs[reference.latest_id].git_commit != runs[series.latest_id].git_commit:
        return {**cell, "note": f"measured at another commit than {first}"}
    return {
        **cell,
        "change": judge.pair(runs[reference.latest_id], runs[series.latest_id], first),
        "compare": compare_address(reference.latest_id, series.latest_id),
    }


PAGE = Page(
    show=show,
    subject=("model", "by", "metric"),
    filters=("find", "device", "precision", "backend", "sme", "threads"),
)
