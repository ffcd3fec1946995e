"""Two runs side by side: what differs, every metric, and where the time went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.base.units import format_delta, format_duration
from etprof.dashboard.addresses import make_address
from etprof.dashboard.judging import Judge
from etprof.dashboard.views.run import find_run
from etprof.dashboard.visit import metric_key
from etprof.history.schema import TELLS_APART, TITLES

if TYPE_CHECKING:
    from etprof.dashboard.parts import View
    from etprof.dashboard.visit import Visit
    from etprof.history.schema import Run

Sides = tuple[dict[str, float], dict[str, float]]
_BAR_WIDTH: Final = 300.0
_MUST_AGREE: Final = ("model", "method", "device")
"""Where runs differ in one of these, a change means nothing."""


def show(visit: Visit) -> View:
    """Returns what the template shows; without two runs, the form that asks for them."""
    numbers = visit.address["baseline"], visit.address["candidate"]
    if not all(numbers):
        return {"title": "Two runs", "sides": None, "numbers": numbers}
    baseline, candidate = (find_run(visit, number) for number in numbers)
    differing = [n for n in TELLS_APART if getattr(baseline, n) != getattr(candidate, n)]
    hindering = [name for name in differing if name in _MUST_AGREE]
    return {
        "title": f"Run {candidate.id} against run {baseline.id}",
        "numbers": numbers,
        "sides": [("Baseline", baseline), ("Candidate", candidate)],
        "differences": ", ".join(TITLES[name] for name in differing),
        "may_judge": not hindering,
        "must_agree": ", ".join(TITLES[name] for name in hindering),
        "representative": baseline.representative and candidate.representative,
        "rows": _rows(visit, baseline, candidate, may_judge=not hindering),
        "waterfall": _waterfall(baseline, candidate),
        "swapped": make_address("compare", {"baseline": numbers[1], "candidate": numbers[0]}),
    }


def _rows(visit: Visit, baseline: Run, candidate: Run, *, may_judge: bool) -> list[View]:
    """Every metric that one side has."""
    before, after = ({value.name: value for value in run.metrics} for run in (baseline, candidate))
    return [
        {
            "name": name,
            "baseline": before.get(name),
            "candidate": after.get(name),
            "change": Judge(visit.catalogue, name, [candidate]).change(
                before.get(name), after.get(name), "the baseline"
            )
            if may_judge
            else None,
        }
        for name in sorted({*before, *after}, key=metric_key)
    ]


def _waterfall(baseline: Run, candidate: Run) -> View | None:
    """From one sum of categories to the other, the largest step first; None without ETDumps."""
    before, after = (run.categories for run in (baseline, candidate))
    if not before or not after:
        return None
    steps = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in {**before, **after}}
    first, last = sum(before.values()), sum(after.values())
    edges, level = {}, first
    for name in sorted(steps, key=lambda name: (-abs(steps[name]), name)):
        edges[name] = (level, level + steps[name])
        level += steps[name]
    highest = max(first, last, *map(max, edges.values())) or 1.0
    rows = [_step(name, pair, highest, (before, after)) for name, pair in edges.items()]
    totals = [_total("Baseline", first, highest), _total("Candidate", last, highest)]
    return {"rows": [totals[0], *rows, totals[1]], "width": f"{_BAR_WIDTH:.0f}"}


def _step(name: str, edges: tuple[float, float], highest: float, sides: Sides) -> View:
    start, end = edges
    before, after = (side.get(name) for side in sides)
    return {
        "label": name,
        "kind": "step",
        "left": f"{min(start, end) / highest * _BAR_WIDTH:.1f}",
        "width": f"{max(abs(end - start) / highest * _BAR_WIDTH, 1):.1f}",
        "value": format_delta(end - start),
        "sides": f"{format_duration(before)} → {format_duration(after)}",
    }


def _total(label: str, total_ns: float, highest: float) -> View:
    return {
        "label": label,
        "kind": "total",
        "left": "0",
        "width": f"{total_ns / highest * _BAR_WIDTH:.1f}",
        "value": format_duration(total_ns),
        "sides": "all categories",
    }
