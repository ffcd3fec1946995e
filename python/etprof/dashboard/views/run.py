"""One run: its figures, what it is compared with, its report, and where it comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.base.records import sme_label
from etprof.base.units import format_size, format_value
from etprof.dashboard.addresses import Page
from etprof.dashboard.judging import Judge, compare_address, exact_changes
from etprof.dashboard.queries import (
    config_key,
    find_runs_before,
    find_sme_sides,
    load_baselines,
)  # fmt: skip
from etprof.dashboard.views.report import read_report
from etprof.dashboard.visit import find_run, metric_key
from etprof.history.metric_names import HEADLINE
from etprof.history.schema import FAILED, TITLES

if TYPE_CHECKING:
    from etprof.dashboard.addresses import Address
    from etprof.dashboard.parts import View
    from etprof.dashboard.visit import Visit
    from etprof.history.schema import Metric, Run

_STRIP_WIDTH: Final = 1000.0


def show(visit: Visit) -> View:
    """Returns what the template shows."""
    run = find_run(visit, visit.address["id"])
    values = {value.name: value for value in run.metrics}
    before = find_runs_before(visit.session, [run]).get(run.id)
    latency = values.get(HEADLINE)
    report, no_report = read_report(run)
    return {
        "title": f"{run.model}, run {run.id}",
        "run": run,
        "config": config_key(run),
        "rows": _rows(visit, run, values),
        "exact": exact_changes(visit.catalogue, run),
        "strip": _strip(latency) if latency else None,
        "comparisons": _comparisons(visit, run, before),
        "report": report is not None,
        "no_report": no_report,
        "facts": [
            (title, str(fact))
            for name, title in TITLES.items()
            if name not in ("pins", "artefacts") and (fact := getattr(run, name)) is not None
        ],
        "artefacts": _artefacts(run),
    }


def _rows(visit: Visit, run: Run, values: dict[str, Metric]) -> list[View]:
    """Every metric with its change against the baseline."""
    names = sorted(values, key=metric_key)
    references = {
        name: Judge(visit.catalogue, name).references([run]).get(run.id) for name in names
    }
    return [
        {"value": values[name], "change": reference.change if reference else None}
        for name, reference in references.items()
    ]


def _strip(value: Metric) -> View | None:
    """The values of the blocks as dots on one line."""
    if len(value.samples) < 2:
        return None
    low, high = min(value.samples), max(value.samples)
    reach = (high - low) or 1.0
    return {
        "dots": [f"{20 + (v - low) / reach * (_STRIP_WIDTH - 40):.1f}" for v in value.samples],
        "low": format_value(value.unit, low),
        "high": format_value(value.unit, high),
        "count": len(value.samples),
    }


def _comparisons(visit: Visit, run: Run, before: int | None) -> list[tuple[str, Address]]:
    """What this run may be set beside."""
    if run.status == FAILED:
        return []
    pairs = [("the run before", before, run.id)] if before else []
    for side in find_sme_sides(visit.session, run):
        pair = (run.id, side.id) if run.sme_mode == "off" else (side.id, run.id)
        pairs.append((f"{sme_label(side.sme_mode)} of the same run", *pair))
    pinned = load_baselines(visit.session, [run.series]).get(run.series, [])
    pairs += [(f"baseline {b.name}", b.run_id, run.id) for b in pinned if b.run_id != run.id]
    return [(label, compare_address(*pair)) for label, *pair in pairs]


def _artefacts(run: Run) -> list[tuple[str, str]]:
    """Names, sizes and hashes of the files the run was made with."""
    lines = []
    for name, facts in sorted(run.artefacts.items()):
        artefact = facts if isinstance(facts, dict) else {}
        size = artefact.get("size_bytes")
        details = [
            format_size(size) if isinstance(size, int | float) else "",
            artefact.get("sha256"),
        ]
        lines.append((name, " · ".join(str(detail) for detail in details if detail)))
    return lines


PAGE = Page(show=show, subject=("id",))
