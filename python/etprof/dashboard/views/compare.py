"""Two runs side by side: what differs, every metric, and where the time went."""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING, Final

from etprof.base.units import format_delta, format_duration
from etprof.dashboard.addresses import Page, make_address
from etprof.dashboard.judging import Judge
from etprof.dashboard.visit import find_run, metric_key
from etprof.history.schema import TELLS_APART, TITLES
from etprof.views.charts import step_bars

if TYPE_CHECKING:
    from etprof.dashboard.parts import View
    from etprof.dashboard.visit import Visit
    from etprof.history.schema import Run

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
    numbers = str(baseline.id), str(candidate.id)
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
            "change": Judge(visit.catalogue, name).pair(baseline, candidate, "the baseline")
            if may_judge
            else None,
        }
        for name in sorted({*before, *after}, key=metric_key)
    ]


def _waterfall(baseline: Run, candidate: Run) -> list[View] | None:
    """From one sum of categories to the other, the largest step first; None without ETDumps."""
    before, after = (run.categories for run in (baseline, candidate))
    if not before or not after:
        return None
    steps = {name: after.get(name, 0.0) - before.get(name, 0.0) for name in {**before, **after}}
    names = sorted(steps, key=lambda name: (-abs(steps[name]), name))
    first, last = fsum(before.values()), fsum(after.values())
    every = "all categories"
    rows = [
        ("Baseline", format_duration(first), every),
        *(
            (
                name,
                format_delta(steps[name]),
                f"{format_duration(before.get(name))} → {format_duration(after.get(name))}",
            )
            for name in names
        ),
        ("Candidate", format_duration(last), every),
    ]
    bars = step_bars(first, [steps[name] for name in names], last)
    return [
        {"label": label, "value": value, "sides": sides, "bar": bar}
        for (label, value, sides), bar in zip(rows, bars, strict=True)
    ]


PAGE = Page(show=show, menu=(4, "Two runs"), subject=("baseline", "candidate"), is_served_only=True)
