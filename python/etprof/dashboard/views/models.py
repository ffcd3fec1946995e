"""Models side by side, configuration by configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.dashboard.addresses import make_address
from etprof.dashboard.parts import (
    View,
    choose_metric,
    config_words,
    filter_form,
    metric_label,
    passes,
    series_facts,
    sme_label,
    take_part,
    value_view,
)
from etprof.dashboard.queries import load_runs, load_values

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.dashboard.queries import Series
    from etprof.dashboard.visit import Visit
    from etprof.history.schema import Metric

_BAR_WIDTH: Final = 200.0
_GROUPS_A_PAGE: Final = 15


def show(visit: Visit) -> View:
    """Returns what the template shows."""
    metric = choose_metric(visit)
    series = [e for e in visit.catalogue.series() if e.latest_id and e.representative]
    kept = [entry for entry in series if passes(series_facts(entry), visit.address.filters)]
    shown, pager = take_part(visit, _places(kept), "configuration", size=_GROUPS_A_PAGE)
    values = _load(visit, [entry for group in shown for entry in group], metric)
    groups = [_group(entries, values, metric) for entries in shown]
    return {
        "title": "Models side by side",
        "form": filter_form(visit, map(series_facts, series), metric=visit.catalogue.metrics),
        "metric": metric_label(metric),
        "groups": [group for group in groups if group["rows"]],
        "pager": {**pager, "counted": "[data-group]"},
    }


def _places(series: Sequence[Series]) -> list[list[Series]]:
    """Series that differ in their model alone."""
    places: dict[tuple[str, ...], list[Series]] = {}
    for entry in series:
        places.setdefault(_place(entry), []).append(entry)
    return [places[place] for place in sorted(places)]


def _place(entry: Series) -> tuple[str, ...]:
    """What models must share to be set side by side."""
    facts = series_facts(entry)
    shared = ("device", "precision", "backend", "threads", "sme")
    return (*(facts[name] for name in shared), entry.method, entry.variant)


def _load(visit: Visit, series: Sequence[Series], metric: str) -> dict[int, Metric]:
    runs = load_runs(visit.session, (entry.latest_id for entry in series if entry.latest_id))
    return load_values(visit.session, runs.values(), metric)


def _group(series: list[Series], values: dict[int, Metric], metric: str) -> View:
    """The models of one configuration, the smallest value first."""
    known = [(entry, values[entry.latest_id]) for entry in series if entry.latest_id in values]
    known.sort(key=lambda pair: pair[1].value)
    largest = max((value.value for _, value in known), default=0.0) or 1.0
    return {
        "name": f"{config_words(series[0])} · {sme_label(series[0].sme)}",
        "rows": [_row(entry, value, largest, metric) for entry, value in known],
    }


def _row(entry: Series, value: Metric, largest: float, metric: str) -> View:
    return {
        "facts": series_facts(entry),
        "model": entry.model,
        "sides": make_address("sides", {"model": entry.model, "metric": metric}),
        "trend": make_address("trend", {"config": entry.config, "metric": metric}),
        "run": make_address("run", {"id": str(entry.latest_id)}),
        "value": value_view(value),
        "width": f"{value.value / largest * _BAR_WIDTH:.1f}",
    }
