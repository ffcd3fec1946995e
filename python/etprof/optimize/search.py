"""Which rewrites to keep: all of them together first, then without each, until none is idle.

No single rewrite need be a gain, so none is tried alone: a bundle is, and what it does not need is
taken out again (backward elimination). The order is fixed, so two searches decide the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from etprof.base.units import format_value
from etprof.optimize.trial import Step, Trial, compare

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass
class Search:
    """A search among `names`; `try_out` makes the program with some of them."""

    names: Sequence[str]
    try_out: Callable[[tuple[str, ...]], Trial]
    tolerance_db: float
    """How much nearer to eager the baseline may be than the result."""
    is_time_left: Callable[[], bool]
    steps: list[Step] = field(default_factory=list)
    is_complete: bool = True

    def run(self) -> tuple[Trial, Trial]:
        """Returns the baseline and the best program, which may be the baseline itself."""
        baseline = self.try_out(())
        if baseline.problem is not None or not self.names:
            return baseline, baseline
        bundle = self._first_sound(baseline)
        if bundle is None:
            return baseline, baseline
        best = self._eliminate(baseline, bundle)
        is_mended = not baseline.passed
        if not is_mended and compare(best, baseline, baseline.macs) != "better":
            self._give_up()
            return baseline, baseline
        return baseline, best

    def objection(self, trial: Trial, baseline: Trial) -> str | None:
        """Says why a program may not be used; None for one whose outputs hold."""
        if trial.problem is not None:
            return trial.problem
        if not trial.passed:
            return "its outputs are too far from eager's"
        if baseline.passed and trial.snr_db is not None:
            lost_db = (baseline.snr_db or trial.snr_db) - trial.snr_db
            if lost_db > self.tolerance_db:
                lost, most = format_value("dB", lost_db), format_value("dB", self.tolerance_db)
                return f"it loses {lost}, more than {most}"
        return None

    def _first_sound(self, baseline: Trial) -> Trial | None:
        """Returns all rewrites together, or without the fewest that spoil the outputs."""
        names, bundle = tuple(self.names), self.try_out(tuple(self.names))
        while (reason := self.objection(bundle, baseline)) is not None:
            found = self._without_one(names, baseline)
            if found is None:
                return self._grow(baseline)
            culprit, bundle = found
            self.steps.append(Step(rewrite=culprit, kept=False, why=f"with it {reason}"))
            names = tuple(name for name in names if name != culprit)
        return bundle

    def _without_one(self, names: tuple[str, ...], baseline: Trial) -> tuple[str, Trial] | None:
        for culprit in reversed(names):
            if not self._may_go_on():
                return None
            trial = self.try_out(tuple(name for name in names if name != culprit))
            if self.objection(trial, baseline) is None:
                return culprit, trial
        return None

    def _grow(self, baseline: Trial) -> Trial | None:
        """Adds one rewrite after another while the outputs hold, where several spoil them."""
        current = baseline
        for name in self.names:
            if not self._may_go_on():
                break
            asked = (*current.rewrites, name)
            trial = self.try_out(tuple(each for each in self.names if each in asked))
            reason = self.objection(trial, baseline)
            if reason is None:
                current = trial
            else:
                self.steps.append(Step(rewrite=name, kept=False, why=f"with it {reason}"))
        return current if current.rewrites else None

    def _eliminate(self, baseline: Trial, current: Trial) -> Trial:
        """Takes out what does not help, those that changed least first."""
        replaced = {each.name: each.operators for each in current.applied}
        for name in current.rewrites:
            if name not in replaced:
                why = "it finds nothing to change"
                self.steps.append(Step(rewrite=name, kept=False, why=why, is_idle=True))
        names = tuple(name for name in current.rewrites if name in replaced)
        best = current.model_copy(update={"rewrites": names})
        for name in sorted(names, key=lambda each: replaced[each] or 0):
            if not self._may_go_on():
                why = "the budget ended before the program without it was tried"
                self.steps.append(self._step(name, True, why, replaced[name], None))
                continue
            without = self.try_out(tuple(each for each in best.rewrites if each != name))
            reason = self.objection(without, baseline)
            effect = compare(best, without, baseline.macs)
            is_needed = reason is not None or effect == "better"
            why = {"better": "without it the program is worse", "same": "it changes no figure"}.get(
                effect, "without it the program is better"
            )
            why = why if reason is None else f"without it {reason}"
            self.steps.append(self._step(name, is_needed, why, replaced[name], without))
            best = best if is_needed else without
        return best

    @staticmethod
    def _step(
        name: str, kept: bool, why: str, operators: int | None, without: Trial | None
    ) -> Step:
        return Step(rewrite=name, kept=kept, why=why, operators=operators, without=without)

    def _give_up(self) -> None:
        why = "together they make no figure better"
        self.steps = [
            each.model_copy(update={"kept": False, "why": why}) if each.kept else each
            for each in self.steps
        ]

    def _may_go_on(self) -> bool:
        self.is_complete = self.is_complete and self.is_time_left()
        return self.is_complete
