"""Models side by side, configuration by configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.dashboard.addresses import Page
from etprof.dashboard.parts import (
    View,
    choose_metric,
    config_words,
    facts_of,
    filter_form,
    passes,
    sme_label,
    take_part,
)  # fmt: skip
from etprof.dashboard.queries import load_latest
from etprof.views.charts import plain_bars

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from etprof.dashboard.queries import Series
    from etprof.dashboard.visit import Visit
    from etprof.history.schema import Metric

_GROUPS_A_PAGE: Final = 15


def show(visit: Visit) -> View:
    """Returns what the template shows."""
    metric = choose_metric(visit)
    series = [e for e in visit.catalogue.series() if e.latest_id and e.run.representative]
    kept = [entry for entry in series if passes(facts_of(entry.run), visit.address.filters)]
    shown, pager = take_part(visit, _places(kept), "configuration", size=_GROUPS_A_PAGE)
    _, values = load_latest(visit.session, (entry for group in shown for entry in group), metric)
    groups = [_group(entries, values) for entries in shown]
    return {
        "title": "Models side by side",
        "form": filter_form(
            visit, (facts_of(entry.run) for entry in series), metric=visit.catalogue.metrics
        ),
        "metric": metric,
        "groups": [group for group in groups if group["rows"]],
        "pager": {**pager, "counted": "[data-group]"},
    }


def _places(series: Sequence[Series]) -> list[list[Series]]:
    """Series that differ in their model alone."""
    places: dict[tuple[str, ...], list[Series]] = {}
    for entry in series:
        facts = facts_of(entry.run)
        shared = [facts[n] for n in ("device", "precision", "backend", "threads", "sme")]
        place = (*shared, entry.run.method or "", entry.run.variant or "")
        places.setdefault(place, []).append(entry)
    return [places[place] for place in sorted(places)]


def _group(series: list[Series], values: Mapping[int, Metric]) -> View:
    """The models of one configuration, the smallest value first."""
    found = [(entry, values.get(entry.latest_id or 0)) for entry in series]
    known = [(entry, value) for entry, value in found if value is not None]
    known.sort(key=lambda pair: pair[1].value)
    bars = plain_bars([value.value for _, value in known])
    return {
        "name": f"{config_words(series[0].run)} · {sme_label(series[0].run.sme_mode)}",
        "rows": [
            {"series": entry, "value": value, "bar": bar}
            for (entry, value), bar in zip(known, bars, strict=True)
        ],
    }


PAGE = Page(
    show=show,
    menu=(2, "Models"),
    subject=("metric",),
    filters=("find", "model", "device", "precision", "backend", "sme", "threads"),
)
