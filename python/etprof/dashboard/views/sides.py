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
    passes,
    sme_key,
    take_part,
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
    series = [entry for entry in visit.catalogue.series() if entry.run.model == model]
    if not series or by not in CHOICES:
        msg = f"no run of a model {model} that could be laid out by {by}"
        raise NoSuchPageError(msg)
    kept = [entry for entry in series if passes(facts_of(entry.run), visit.address.filters)]
    columns = _columns(kept, by)
    rows, pager = take_part(visit, _rows(kept, by), "configuration")
    loaded = load_latest(visit.session, (entry for row in rows for entry in row.values()), metric)
    judge = Judge(visit.catalogue, metric)
    choices = {"metric": visit.catalogue.metrics, "by": list(CHOICES)}
    return {
        "title": f"{model}: {by}s side by side",
        "model": model,
        "by": by,
        "form": filter_form(visit, (facts_of(entry.run) for entry in series), **choices),
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


def _columns(series: Sequence[Series], by: str) -> list[str]:
    """The values side by side; the one that others are held against comes first."""
    found = {facts_of(entry.run)[by] for entry in series}
    return sorted(found, key=lambda value: (value != _REFERENCES[by], value))


def _rows(series: Sequence[Series], by: str) -> list[Columns]:
    """Series that differ in what is laid side by side alone."""
    rows: dict[tuple[str, ...], Columns] = {}
    shared = [name for name in ("device", "precision", "backend", "threads") if name != by]
    for entry in series:
        run, facts = entry.run, facts_of(entry.run)
        key = (run.method or "", run.variant or "", *(facts[name] for name in shared), run.sme_mode)
        rows.setdefault(key, {})[facts[by]] = entry
    return [rows[key] for key in sorted(rows, key=lambda k: (k[:-1], sme_key(k[-1])))]


def _cell(
    row: Columns,
    name: str,
    first: str,
    loaded: tuple[Mapping[int, Run], Mapping[int, Metric]],
    judge: Judge,
) -> View | None:
    """One column's latest value, and its change against the first where that may be judged."""
    entry, reference = row.get(name), row.get(first)
    if entry is None or entry.latest_id is None:
        return None
    runs, values = loaded
    value = values.get(entry.latest_id)
    shown = {"series": entry, "value": value, "change": None, "compare": None, "note": ""}
    if reference is None or reference.latest_id is None or entry is reference:
        return shown
    if runs[reference.latest_id].git_commit != runs[entry.latest_id].git_commit:
        return {**shown, "note": f"measured at another commit than {first}"}
    return {
        **shown,
        "change": judge.pair(runs[reference.latest_id], runs[entry.latest_id], first),
        "compare": compare_address(reference.latest_id, entry.latest_id),
    }


PAGE = Page(
    show=show,
    subject=("model", "by", "metric"),
    filters=("find", "device", "precision", "backend", "sme", "threads"),
)
