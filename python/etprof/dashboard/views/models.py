"""Models side by side, configuration by configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.base.records import sme_label
from etprof.dashboard.addresses import Page
from etprof.dashboard.parts import (
    View,
    choose_metric,
    config_label,
    facts_of,
    filter_form,
    paginate,
    passes,
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
    all_series = [e for e in visit.catalogue.series() if e.latest_id and e.run.representative]
    selected = [
        series for series in all_series if passes(facts_of(series.run), visit.address.filters)
    ]
    visible, pager = paginate(
        visit, _group_by_config(selected), "configuration", size=_GROUPS_A_PAGE
    )
    _, values = load_latest(
        visit.session, (series for group in visible for series in group), metric
    )
    groups = [_group(group, values) for group in visible]
    return {
        "title": "Models side by side",
        "form": filter_form(
            visit, (facts_of(series.run) for series in all_series), metric=visit.catalogue.metrics
        ),
        "metric": metric,
        "groups": [group for group in groups if group["rows"]],
        "pager": {**pager, "counted": "[data-group]"},
    }


def _group_by_config(all_series: Sequence[Series]) -> list[list[Series]]:
    """Series that differ in their model alone."""
    groups: dict[tuple[str, ...], list[Series]] = {}
    for series in all_series:
        facts = facts_of(series.run)
        shared = [facts[n] for n in ("device", "precision", "backend", "threads", "sme")]
        key = (*shared, series.run.method or "", series.run.variant or "")
        groups.setdefault(key, []).append(series)
    return [groups[key] for key in sorted(groups)]


def _group(group: list[Series], values: Mapping[int, Metric]) -> View:
    """The models of one configuration, the smallest value first."""
    latest = [(series, values.get(series.latest_id or 0)) for series in group]
    measured = [(series, value) for series, value in latest if value is not None]
    measured.sort(key=lambda pair: pair[1].value)
    bars = plain_bars([value.value for _, value in measured])
    return {
        "name": f"{config_label(group[0].run)} · {sme_label(group[0].run.sme_mode)}",
        "rows": [
            {"series": series, "value": value, "bar": bar}
            for (series, value), bar in zip(measured, bars, strict=True)
        ],
    }


PAGE = Page(
    show=show,
    menu=(2, "Models"),
    subject=("metric",),
    filters=("find", "model", "device", "precision", "backend", "sme", "threads"),
)
