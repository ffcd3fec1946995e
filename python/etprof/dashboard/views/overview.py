"""The newest run of every configuration, with and without SME."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from etprof.dashboard.addresses import make_address
from etprof.dashboard.judging import Judge
from etprof.dashboard.parts import (
    View,
    choose_metric,
    filter_form,
    format_commit,
    format_moment,
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
from etprof.dashboard.references import compare_address, find_references
from etprof.history.schema import FAILED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.dashboard.queries import Series
    from etprof.dashboard.references import Reference
    from etprof.dashboard.visit import Visit
    from etprof.history.schema import Metric, Run

_SIDES: Final = ("off", "sme2")
Group = dict[str, "Series"]
"""The series of one configuration by SME mode."""


@dataclass(frozen=True)
class Loaded:
    """What the shown rows need of the store."""

    runs: dict[int, Run]
    values: dict[int, Metric]
    references: dict[int, Reference]
    judge: Judge


def show(visit: Visit) -> View:
    """Returns what the template shows."""
    metric = choose_metric(visit)
    groups = group_by_config(visit.catalogue.series(visit.address["branch"]))
    facts = [series_facts(_any(group)) for group in groups]
    kept = [g for g, f in zip(groups, facts, strict=True) if passes(f, visit.address.filters)]
    shown, pager = take_part(visit, kept, "configuration")
    modes = sorted({mode for group in groups for mode in group}, key=sme_key)
    loaded = _load(visit, shown, metric)
    return {
        "title": "Overview",
        "form": filter_form(
            visit, facts, metric=visit.catalogue.metrics, branch=["", *visit.catalogue.branches]
        ),
        "metric": metric_label(metric),
        "modes": [sme_label(mode) for mode in modes],
        "rows": [_row(group, modes, metric, loaded) for group in shown],
        "pager": pager,
    }


def group_by_config(series: Sequence[Series]) -> list[Group]:
    """Puts series together that differ in SME alone, in the order of the series."""
    groups: dict[str, Group] = {}
    for entry in series:
        groups.setdefault(entry.config, {})[entry.sme] = entry
    return list(groups.values())


def _any(group: Group) -> Series:
    return next(iter(group.values()))


def _load(visit: Visit, groups: Sequence[Group], metric: str) -> Loaded:
    ids = [entry.latest_id for group in groups for entry in group.values() if entry.latest_id]
    runs = load_runs(visit.session, ids)
    values = load_values(visit.session, runs.values(), metric)
    references = find_references(visit.session, list(runs.values()), metric)
    return Loaded(runs, values, references, Judge(visit.catalogue, metric, runs.values()))


def _row(group: Group, modes: Sequence[str], metric: str, loaded: Loaded) -> View:
    entry = max(group.values(), key=lambda e: e.newest_at)
    runs = [loaded.runs[e.latest_id] for e in group.values() if e.latest_id in loaded.runs]
    newest = max(runs, key=lambda run: run.measured_at) if runs else None
    return {
        "facts": series_facts(entry),
        "how": how_words(entry),
        "representative": entry.representative,
        "sides": make_address("sides", {"model": entry.model, "metric": metric}),
        "trend": make_address("trend", {"config": entry.config, "metric": metric}),
        "cells": [_cell(group.get(mode), loaded) for mode in modes],
        "speed_up": _speed_up(group, loaded),
        "when": format_moment(entry.newest_at),
        "commit": format_commit(newest.git_commit) if newest else "",
        "branch": (newest.git_branch or "") if newest else "",
    }


def _cell(entry: Series | None, loaded: Loaded) -> View | None:
    """One SME mode's latest value and its change; None where it was never measured."""
    if entry is None:
        return None
    value = loaded.values.get(entry.latest_id or 0)
    reference = loaded.references.get(entry.latest_id or 0)
    return {
        "run": make_address("run", {"id": str(entry.latest_id)}) if entry.latest_id else None,
        "value": value_view(value),
        "change": loaded.judge.change(entry.device, reference.value, value, reference.label)
        if reference
        else None,
        "compare": reference.compare_address if reference else None,
        "failed": make_address("run", {"id": str(entry.newest_id)})
        if entry.newest_status == FAILED
        else None,
    }


def _speed_up(group: Group, loaded: Loaded) -> View:
    """SME2 against off, where they differ in nothing else; else why there is no figure."""
    off, on = (
        loaded.runs.get(group[mode].latest_id or 0) if mode in group else None for mode in _SIDES
    )
    missing = _why_not_compared(off, on, loaded)
    if missing or off is None or on is None:
        return {"missing": missing, "change": None, "compare": None}
    values = loaded.values[off.id], loaded.values[on.id]
    return {
        "missing": "",
        "change": loaded.judge.change(on.device, *values, "SME off"),
        "compare": compare_address(off.id, on.id),
    }


def _why_not_compared(off: Run | None, on: Run | None, loaded: Loaded) -> str:
    """Returns what stands against a comparison; empty when nothing does."""
    if off is None or on is None:
        absent = [sme_label(m) for m, run in zip(_SIDES, (off, on), strict=True) if run is None]
        return f"no run with {' or '.join(absent)}"
    if not (off.representative and on.representative):
        return "not representative: times mean nothing"
    if off.id not in loaded.values or on.id not in loaded.values:
        return "not measured on both sides"
    return "" if differ_in_sme_alone(off, on) else "the newest runs differ in more than SME"


def differ_in_sme_alone(off: Run, on: Run) -> bool:
    """Whether two runs of one configuration are of the same program, runner and commit."""
    if off.revision is not None or on.revision is not None:
        return off.revision == on.revision
    places = [(run.run_name, run.run_path, run.measured_at) for run in (off, on)]
    return places[0] == places[1]
