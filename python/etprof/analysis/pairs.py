"""Chooses which experiments to compare: off is the baseline, else fewer threads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etprof.analysis.comparability import Side
from etprof.analysis.comparison import Comparison, compare_sides
from etprof.analysis.provenance import load_provenance
from etprof.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etprof.analysis.run_analysis import ExperimentAnalysis, RunAnalysis


def sides_of(run: RunAnalysis) -> tuple[Side, ...]:
    """Returns every experiment of a run as a side."""
    provenance = load_provenance(run.source) if run.source.is_dir() else None
    return tuple(Side(run, experiment, provenance) for experiment in run.experiments)


def compare_within(run: RunAnalysis) -> tuple[Comparison, ...]:
    """Compares all pairs of one run directory that answer a question."""
    return tuple(compare_sides(one, other) for one, other in _pairs(sides_of(run)))


def _pairs(sides: tuple[Side, ...]) -> Iterator[tuple[Side, Side]]:
    """Yields off against each SME mode at equal threads, then fewest against more threads."""
    for one in sides:
        for other in sides:
            before, after = one.experiment, other.experiment
            if before.threads == after.threads and before.sme == "off" and after.sme != "off":
                yield one, other
    for one in sides:
        alike = [other for other in sides if other.experiment.sme == one.experiment.sme]
        if one is min(alike, key=lambda side: side.experiment.threads or 0):
            yield from (
                (one, other)
                for other in alike
                if (other.experiment.threads or 0) > (one.experiment.threads or 0)
            )


def match_runs(
    baseline: RunAnalysis,
    candidate: RunAnalysis,
    names: tuple[str | None, str | None] = (None, None),
) -> tuple[tuple[Side, Side], ...]:
    """Pairs the experiments of two runs: those named, or those of equal mode and threads.

    Raises UsageError, with the names there are, when nothing can be paired.
    """
    before, after = _named(baseline, names[0]), _named(candidate, names[1])
    if len(before) == len(after) == 1:
        return ((before[0], after[0]),)
    found = [
        (one, other)
        for one in before
        for other in after
        if _kind(one.experiment) == _kind(other.experiment)
    ]
    if not found:
        msg = (
            f"no experiment of {baseline.source} is like one of {candidate.source}; name two, as "
            f"in `etprof compare {before[0].label} {after[-1].label}`; there are "
            f"{_listed(before)} and {_listed(after)}"
        )
        raise UsageError(msg)
    return tuple(found)


def _named(run: RunAnalysis, name: str | None) -> tuple[Side, ...]:
    sides = sides_of(run)
    if name is None:
        return sides
    chosen = tuple(side for side in sides if side.experiment.name == name)
    if not chosen:
        msg = f"{run.source} has no experiment {name!r}; it has {_listed(sides)}"
        raise UsageError(msg)
    return chosen


def _listed(sides: tuple[Side, ...]) -> str:
    return ", ".join(side.experiment.name for side in sides)


def _kind(experiment: ExperimentAnalysis) -> tuple[object, object]:
    return experiment.sme, experiment.threads
