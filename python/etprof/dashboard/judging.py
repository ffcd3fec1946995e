"""Changes as pages show them: against what, judged by the gate, in a sign, a word and a colour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from etprof.analysis.exact_facts import describe_value
from etprof.base.units import count_of, format_change, format_ratio, format_ratio_ends
from etprof.dashboard.addresses import Address, make_address
from etprof.dashboard.queries import load_baselines
from etprof.history.exact.judging import EXACT_LABELS, compare_facts
from etprof.history.exact.standing import compare_with_standing, find_runs_before
from etprof.history.gate import judge_all
from etprof.history.selection import WINDOW

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from etprof.dashboard.visit import Catalogue
    from etprof.history.gate import Judgement, MetricComparison
    from etprof.history.schema import Baseline, Metric, Run

View = dict[str, Any]
WORSE: Final = "worse"
_COLOURS: Final = {"regression": WORSE, "improvement": "better"}
"""Everything else is grey."""
BASELINE: Final = f"{WINDOW}7"
"""Of runs whose series has none that is pinned; what CI checks against by default."""


@dataclass(frozen=True)
class Reference:
    """What a run is compared with, and how it compares."""

    change: View
    run_id: int
    """The newest run of the baseline."""
    candidate_id: int

    @property
    def compare_address(self) -> Address:
        """Where both are set side by side."""
        return compare_address(self.run_id, self.candidate_id)


class Judge:
    """Judges changes of one metric as `history check` does, in the family of a whole check."""

    def __init__(self, catalogue: Catalogue, metric: str) -> None:
        self._catalogue, self._metric = catalogue, metric
        self._gate = catalogue.gate()

    def pair(self, baseline: Run | None, candidate: Run | None, against: str) -> View | None:
        """Returns the change of one run against one other; None where one has no value."""
        if baseline is None or candidate is None:
            return None
        comparison = self._gate.compare_runs(baseline, candidate, self._metric)
        if comparison is None:
            return None
        # Of two runs of one series the gate may have judged the newer one already.
        is_gate = (
            baseline.series == candidate.series and baseline.measured_at < candidate.measured_at
        )
        return self._view(
            comparison, against, is_gate=is_gate and self._is_of_level(baseline, candidate)
        )

    def _is_of_level(self, baseline: Run, candidate: Run) -> bool:
        return baseline.id in self._gate.baseline_ids(BASELINE, candidate, self._metric)

    def references(self, runs: Iterable[Run]) -> dict[int, Reference]:
        """Holds runs against the pinned baseline of their series, else against the runs before."""
        runs = list(runs)
        pinned = load_baselines(self._catalogue.session, {run.series for run in runs})
        names = {run.id: _pinned_name(pinned, run) for run in runs}
        self._gate.load([run.id for run in runs], self._metric)
        before = [
            number
            for run in runs
            if names[run.id] is None
            for number in self._gate.baseline_ids(BASELINE, run, self._metric)
        ]
        self._gate.load([*(run.id for run in runs), *before], self._metric)
        references = {run.id: self._reference(run, names[run.id]) for run in runs}
        return {
            number: reference for number, reference in references.items() if reference is not None
        }

    def _reference(self, run: Run, name: str | None) -> Reference | None:
        comparison = self._gate.compare(name or BASELINE, run, self._metric)
        if comparison is None:
            return None
        count = len(comparison.baseline)
        before = "the run before" if count == 1 else f"the {count_of(count, 'run')} before"
        view = self._view(comparison, f"baseline {name}" if name else before, is_gate=True)
        return Reference(view, comparison.baseline[0].run_id, run.id)

    def _view(self, comparison: MetricComparison, against: str, *, is_gate: bool) -> View:
        (judged,) = judge_all([comparison], self._catalogue.family)
        candidate = comparison.candidate
        judgement = (
            self._gate.as_checked(candidate.run, self._metric, judged) if is_gate else judged
        )
        return {
            "size": judgement.change,
            "text": format_change(judgement.change),
            "word": judgement.verdict,
            "colour": _COLOURS.get(judgement.verdict, "same"),
            "interval": _interval_text(judgement),
            "reason": judgement.reason,
            "against": against,
            **({} if candidate.unit == "bytes" else _speed_up(judgement, candidate)),
        }


def _pinned_name(pinned: Mapping[str, Sequence[Baseline]], run: Run) -> str | None:
    """The newest baseline of the run's series that is another run; None without one."""
    return next((b.name for b in pinned.get(run.series, ()) if b.run_id != run.id), None)


def _interval_text(judgement: Judgement) -> str:
    if judgement.low is None or judgement.high is None:
        return ""
    return f"{format_change(judgement.low)} … {format_change(judgement.high)}"


def _speed_up(judgement: Judgement, candidate: Metric) -> View:
    """The same change as a speedup: baseline ÷ candidate for times, the inverse for rates."""
    if judgement.change is None:
        return {}
    ratios = [
        1 + change if candidate.higher_is_better else 1 / (1 + change)
        for change in (judgement.change, judgement.low, judgement.high)
        if change is not None
    ]
    ends = sorted(ratios[1:])
    half_width = (ends[-1] - ends[0]) / 2 if ends else None
    return {
        "speed_up": format_ratio(ratios[0], half_width),
        "speed_up_interval": " … ".join(format_ratio_ends(ratios[0], *ends))
        if len(ends) == 2
        else "",
    }


def exact_changes(catalogue: Catalogue, run: Run) -> list[View]:
    """Returns the exact figures of a run beside those of the run that stands, as a check has them.

    Without noise and without a device: empty where no earlier run has any.
    """
    if not run.exact_facts:
        return []
    session, gate = catalogue.session, catalogue.gate()
    name = _pinned_name(load_baselines(session, [run.series]), run)
    runs = find_runs_before(session, gate, name or BASELINE, run)
    reference = compare_with_standing(gate, runs, run, compare_facts)
    if reference is None:
        return []
    return [
        {
            "label": EXACT_LABELS[comparison.metric],
            "value": describe_value(comparison.unit, comparison.after),
            "before": describe_value(comparison.unit, comparison.before),
            "word": comparison.judgement.verdict,
            "colour": _COLOURS.get(comparison.judgement.verdict, "same"),
            "reason": comparison.judgement.reason,
            "reference": reference.run.id,
        }
        for comparison in reference.comparisons
    ]


def compare_address(baseline: int, candidate: int) -> Address:
    """Returns the address of the page about two runs."""
    return make_address("compare", {"baseline": str(baseline), "candidate": str(candidate)})
