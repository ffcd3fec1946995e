"""What a run's exact figures are held against, for the check and the pages alike."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy import select

from etprof.history.exact.judging import standing_run
from etprof.history.schema import Run

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

    from etprof.history.exact.judging import ExactComparison
    from etprof.history.gate import Gate


@dataclass(frozen=True)
class ExactReference:
    """The run that stands, and how each exact metric of a later one compares with it."""

    run: Run
    comparisons: tuple[ExactComparison, ...]


def compare_with_standing(
    session: Session,
    gate: Gate,
    baseline: str,
    candidate: Run,
    compare: Callable[[Run, Run], list[ExactComparison]],
) -> ExactReference | None:
    """Judges a run against the newest earlier one that stands; None where none is comparable.

    What is worse in a run that somebody accepted is a change, and no regression.

    Args:
        session: The history, for reading.
        gate: Which runs may be a baseline, and which are accepted.
        baseline: NAME, branch:NAME or window:N.
        candidate: The run that is judged.
        compare: What judges it: `compare_facts` or `compare_work`.
    """
    numbers = gate.runs_before(baseline, candidate)
    query = select(Run).where(Run.id.in_(numbers)).order_by(Run.measured_at, Run.id)
    accepted = gate.accepted_runs(candidate.series)
    standing = standing_run(candidate, session.scalars(query).all(), compare, accepted)
    if standing is None:
        return None
    comparisons = compare(standing, candidate)
    if candidate.id in accepted:
        comparisons = [_accept(comparison) for comparison in comparisons]
    return ExactReference(standing, tuple(comparisons))


def _accept(comparison: ExactComparison) -> ExactComparison:
    judgement = comparison.judgement
    if judgement.verdict != "regression":
        return comparison
    reason = f"accepted, though worse: {judgement.reason}"
    return replace(comparison, judgement=replace(judgement, verdict="changed", reason=reason))
