"""Changes as pages show them: against what, judged by the gate, in a sign, a word and a colour."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from etprof.base.units import format_change, format_ratio
from etprof.dashboard.addresses import Address, make_address
from etprof.dashboard.queries import find_runs_before, load_baselines, load_runs, load_values
from etprof.history.gate import judge

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy.orm import Session

    from etprof.dashboard.visit import Catalogue
    from etprof.history.gate import Judgement
    from etprof.history.noise import NoiseFloor
    from etprof.history.schema import Metric, Run

View = dict[str, Any]
_COLOURS: Final = {"regression": "worse", "improvement": "better"}
"""Everything else is grey."""
_ONE_NIGHT: Final = timedelta(days=1)


class Judge:
    """Judges changes of one metric with the noise floor of the device, as the gate does.

    A device's floor is of the runs before those that are judged: the newest of `candidates` on the
    device and what was measured within a day before it.
    """

    def __init__(self, catalogue: Catalogue, metric: str, candidates: Iterable[Run]) -> None:
        self._catalogue = catalogue
        self._metric = metric
        self._runs: dict[str, list[Run]] = {}
        for run in candidates:
            self._runs.setdefault(run.device, []).append(run)

    def change(
        self,
        baseline: Metric | None,
        candidate: Metric | None,
        against: str,
    ) -> View | None:
        """Returns the change for a template; None where there is nothing to judge."""
        if baseline is None or candidate is None:
            return None
        found = judge(baseline, candidate, noise=self._floor(candidate.run.device))
        return {
            "text": format_change(found.change),
            "word": found.verdict,
            "colour": _COLOURS.get(found.verdict, "same"),
            "interval": _interval_text(found),
            "reason": found.reason,
            "against": against,
            **({} if candidate.unit == "bytes" else _speed_up(found, candidate)),
        }

    def _floor(self, device: str) -> NoiseFloor | None:
        moments = [run.measured_at for run in self._runs.get(device, [])]
        newest = max(moments, default=None)
        judged = [each for each in moments if newest and newest - each < _ONE_NIGHT]
        return self._catalogue.noise_floor(device, self._metric, min(judged, default=None))


def _interval_text(found: Judgement) -> str:
    if found.low is None or found.high is None:
        return ""
    return f"{format_change(found.low)} … {format_change(found.high)}"


def _speed_up(found: Judgement, candidate: Metric) -> View:
    """The same change as a speed-up: baseline ÷ candidate for times, the inverse for rates."""
    if found.change is None:
        return {}
    ratios = [
        1 + change if candidate.higher_is_better else 1 / (1 + change)
        for change in (found.change, found.low, found.high)
        if change is not None
    ]
    ends = [format_ratio(end) for end in sorted(ratios[1:])]
    return {"speed_up": format_ratio(ratios[0]), "speed_up_interval": " … ".join(ends)}


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
