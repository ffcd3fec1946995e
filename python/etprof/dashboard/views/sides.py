"""One model: its precisions or its backends side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from etprof.dashboard.addresses import make_address
from etprof.dashboard.judging import Judge
from etprof.dashboard.parts import (
    View,
    choose_metric,
    filter_form,
    how_words,
    metric_label,
    passes,
    series_facts,
    sme_key,
    sme_label,
    take_part,
    value_view,
)
from etprof.dashboard.queries import load_runs, load_values
from etprof.dashboard.references import compare_address
from etprof.dashboard.visit import NoSuchPageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.dashboard.queries import Series
    from etprof.dashboard.visit import Visit
    from etprof.history.schema import Metric, Run

CHOICES: Final = ("precision", "backend")
_REFERENCES: Final = {"precision": "fp32", "backend": "portable"}
Columns = dict[str, "Series"]


def show(visit: Visit) -> View:
    """Returns what the template shows."""
    model, by, metric = visit.address["model"], visit.address["by"], choose_metric(visit)
    series = [entry for entry in visit.catalogue.series() if entry.model == model]
    if not series or by not in CHOICES:
        msg = f"no run of a model {model} that could be laid out by {by}"
        raise NoSuchPageError(msg)
    kept = [entry for entry in series if passes(series_facts(entry), visit.address.filters)]
    columns = _columns(kept, by)
    rows, pager = take_part(visit, _rows(kept, by), "configuration")
    loaded = _load(visit, rows, metric)
    return {
        "title": f"{model}: {by}s side by side",
        "model": model,
        "form": filter_form(
            visit, map(series_facts, series), metric=visit.catalogue.metrics, by=list(CHOICES)
        ),
        "metric": metric_label(metric),
        "columns": columns,
        "reference": columns[0] if columns else "",
        "rows": [_row(row, by, columns, loaded, metric) for row in rows],
        "pager": pager,
    }


def _columns(series: Sequence[Series], by: str) -> list[str]:
    """The values side by side; the one that others are held against comes first."""
    found = {series_facts(entry)[by] for entry in series}
    return sorted(found, key=lambda value: (value != _REFERENCES[by], value))


def _rows(series: Sequence[Series], by: str) -> list[Columns]:
    """Series that differ in what is laid side by side alone."""
    rows: dict[tuple[str, ...], Columns] = {}
    for entry in series:
        facts = series_facts(entry)
        key = (entry.method, entry.variant, *(value for name, value in facts.items() if name != by))
        rows.setdefault(key, {})[facts[by]] = entry
    return [rows[key] for key in sorted(rows, key=lambda k: (k[:-1], sme_key(k[-1])))]


@dataclass(frozen=True)
class Loaded:
    """What the shown rows need of the store."""

    runs: dict[int, Run]
    values: dict[int, Metric]
    judge: Judge

    def value(self, entry: Series | None) -> Metric | None:
        """The latest value of a series."""
        return None if entry is None else self.values.get(entry.latest_id or 0)


def _load(visit: Visit, rows: Sequence[Columns], metric: str) -> Loaded:
    ids = [entry.latest_id for row in rows for entry in row.values() if entry.latest_id]
    runs = load_runs(visit.session, ids)
    values = load_values(visit.session, runs.values(), metric)
    return Loaded(runs, values, Judge(visit.catalogue, metric, runs.values()))


def _row(row: Columns, by: str, columns: Sequence[str], loaded: Loaded, metric: str) -> View:
    entry = next(iter(row.values()))
    reference = row.get(columns[0])
    return {
        "facts": {name: value for name, value in series_facts(entry).items() if name != by},
        "sme": sme_label(entry.sme),
        "how": how_words(entry, by),
        "representative": entry.representative,
        "cells": [_cell(row.get(name), reference, columns[0], loaded, metric) for name in columns],
    }


def _cell(
    entry: Series | None, reference: Series | None, name: str, loaded: Loaded, metric: str
) -> View | None:
    if entry is None or entry.latest_id is None:
        return None
    value, baseline = loaded.value(entry), loaded.value(reference)
    shown: View = {
        "run": make_address("run", {"id": str(entry.latest_id)}),
        "trend": make_address("trend", {"config": entry.config, "metric": metric}),
        "value": value_view(value),
        "change": None,
        "note": "",
        "compare": None,
    }
    if reference is None or reference.latest_id is None or entry is reference:
        return shown
    runs = loaded.runs[reference.latest_id], loaded.runs[entry.latest_id]
    if runs[0].git_commit != runs[1].git_commit:
        return {**shown, "note": f"measured at another commit than {name}"}
    return {
        **shown,
        "change": loaded.judge.change(entry.device, baseline, value, name),
        "compare": compare_address(reference.latest_id, entry.latest_id),
    }
