"""What a run's exact figures are held against, for the check and the pages alike."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sqlalchemy import select

from etprof.history.exact.judging import standing_run
from etprof.history.schema import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy.orm import Session

    from etprof.history.exact.judging import ExactComparison
    from etprof.history.gate import Gate


@dataclass(frozen=True)
class ExactReference:
    """The run that stands, and how each exact metric of a later one compares with it."""

    run: Run
    comparisons: tuple[ExactComparison, ...]


def find_runs_before(session: Session, gate: Gate, baseline: str, candidate: Run) -> Sequence[Run]:
    """Returns the runs that a candidate's exact figures may be held against, oldest first.

    `baseline` is NAME, branch:NAME or window:N.
    """
    numbers = gate.runs_before(baseline, candidate)
    query = select(Run).where(Run.id.in_(numbers)).order_by(Run.measured_at, Run.id)
    return session.scalars(query).all()


def compare_with_standing(
    gate: Gate,
    runs: Sequence[Run],
    candidate: Run,
    compare: Callable[[Run, Run], list[ExactComparison]],
) -> ExactReference | None:
    """Judges a run against the newest earlier one that stands; None where none is comparable.

    What is worse in a run that somebody accepted is a change, and no regression.

    Args:
        gate: Which runs are accepted.
        runs: Those before the candidate, oldest first.
        candidate: The run that is judged.
        compare: What judges it: `compare_facts` or `compare_work`.
    """
    accepted = gate.accepted_runs(candidate.series)
    standing = standing_run(candidate, runs, compare, accepted)
    if standing is None:
        return None
    comparisons = compare(standing, candidate)
    if candidate.id in accepted:
        comparisons = [replace(c, judgement=c.judgement.as_accepted()) for c in comparisons]
    return ExactReference(standing, tuple(comparisons))
