"""What a run is held against: a pinned baseline of its series, else the run before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from etprof.dashboard.addresses import Address, make_address
from etprof.dashboard.queries import (
    find_runs_before,
    load_baselines,
    load_runs,
    load_values,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy.orm import Session

    from etprof.history.schema import Metric, Run


@dataclass(frozen=True)
class Reference:
    """The other side of a change."""

    label: str
    run_id: int
    candidate_id: int
    value: Metric | None

    @property
    def compare_address(self) -> Address:
        """Where both are set side by side."""
        return compare_address(self.run_id, self.candidate_id)


def compare_address(baseline: int, candidate: int) -> Address:
    """Returns the address of the page about two runs."""
    return make_address("compare", {"baseline": str(baseline), "candidate": str(candidate)})


def find_references(session: Session, runs: Sequence[Run], metric: str) -> dict[int, Reference]:
    """Returns what each run is held against, by run."""
    pinned = load_baselines(session, {run.series for run in runs})
    before = find_runs_before(session, runs)
    chosen: dict[int, tuple[str, int]] = {}
    for run in runs:
        baseline = next((b for b in pinned.get(run.series, []) if b.run_id != run.id), None)
        if baseline is not None:
            chosen[run.id] = (f"baseline {baseline.name}", baseline.run_id)
        elif run.id in before:
            chosen[run.id] = ("the run before", before[run.id])
    others = load_runs(session, (other for _, other in chosen.values()))
    values = load_values(session, others.values(), metric)
    return {
        run_id: Reference(label, other, run_id, values.get(other))
        for run_id, (label, other) in chosen.items()
    }
