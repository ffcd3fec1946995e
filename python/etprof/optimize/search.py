"""Which rewrites to keep: all of them together first, then without each, until none is idle.

No single rewrite need be a gain, so none is tried alone: a bundle is, and what it does not need is
taken out again (backward elimination). The order is fixed, so two searches decide the same. Where
programs are timed, one stays only if the program is slower without it by more than noise; if that
left out gains that only add up together, all of them stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from etprof.base.units import format_value
from etprof.run.optimization import OptimizationStep, Trial, compare, judge_gains

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from etprof.run.optimization import Comparison, Gain

_OF_FIGURES: Final = {
    "better": "without it the program is worse",
    "same": "it changes no figure",
    "worse": "without it the program is better",
}
_OF_TIMES: Final = {
    "better": "without it the program is slower",
    "same": "no gain beyond noise",
    "worse": "without it the program is faster",
}
_TOGETHER: Final = "slower without all that are no gain alone"


def choose_layers(
    order: Sequence[str],
    is_sound: Callable[[tuple[str, ...]], bool],
    is_time_left: Callable[[], bool],
) -> tuple[str, ...]:
    """Returns the layers that have to stay in float32 for the outputs to hold; none where all fail.

    `order` begins with the layer that spoils most for its work. Twice as many are tried until they
    suffice, then fewer by halves, and then each is taken out again, the one that spoils least first.
    """
    too_few, count = 0, 1
    while not is_sound(tuple(order[:count])):
        if count >= len(order) or not is_time_left():
            return ()
        too_few, count = count, min(2 * count, len(order))
    while count - too_few > 1 and is_time_left():
        middle = (too_few + count) // 2
        if is_sound(tuple(order[:middle])):
            count = middle
        else:
            too_few = middle
    layers = tuple(order[:count])
    for layer in reversed(layers[:-1]):
        without = tuple(path for path in layers if path != layer)
        if is_time_left() and is_sound(without):
            layers = without
    return layers


@dataclass
class Search:
    """A search among `names`; `try_out` makes the program with some of them."""

    names: Sequence[str]
    try_out: Callable[[tuple[str, ...]], Trial]
    tolerance_db: float
    """How much nearer to eager the baseline may be than the result."""
    is_time_left: Callable[[], bool]
    measure: Callable[[Trial, Trial], tuple[Gain, ...]] | None = None
    """Measures a program in turns with another; None where the figures of exports decide."""
    discard: Callable[[Trial], None] = lambda _: None
    """Hears of programs that nothing will be compared with again."""
    steps: list[OptimizationStep] = field(default_factory=list)
    gains: tuple[Gain, ...] = ()
    """Of the result over the baseline."""
    is_complete: bool = True

    def run(self) -> tuple[Trial, Trial]:
        """Returns the baseline and the best program, which may be the baseline itself."""
        baseline = self.try_out(())
        if baseline.problem is not None or not self.names:
            return baseline, baseline
        bundle = self._first_sound(baseline)
        if bundle is None:
            return baseline, baseline
        best = self._prefer_bundle(bundle, self._eliminate(baseline, bundle), baseline)
        # The times of a program that is wrong say nothing.
        if baseline.passed and best is not baseline:
            effect, self.gains = self._weigh(best, baseline, baseline)
            if effect != "better":
                self._give_up()
                return baseline, baseline
        return baseline, baseline if best is baseline else best.without_idle()

    def objection(self, trial: Trial, baseline: Trial) -> str | None:
        """Says why a program may not be used; None for one whose outputs hold."""
        if trial.problem is not None:
            return trial.problem
        if not trial.passed:
            return "its outputs are too far from eager's"
        if trial.counted is not None and trial.counted.problem is not None:
            return trial.counted.problem
        if baseline.passed and trial.snr_db is not None:
            lost_db = (baseline.snr_db or trial.snr_db) - trial.snr_db
            if lost_db > self.tolerance_db:
                lost, tolerance = format_value("dB", lost_db), format_value("dB", self.tolerance_db)
                return f"it loses {lost}, more than {tolerance}"
        return None

    def _weigh(
        self, candidate: Trial, reference: Trial, baseline: Trial
    ) -> tuple[Comparison, tuple[Gain, ...]]:
        """Compares two programs: by times where there are any, and they are not the same bytes."""
        if self.measure is None:
            return compare(candidate, reference, baseline.macs), ()
        if candidate.sha256 is not None and candidate.sha256 == reference.sha256:
            return "same", ()
        gains = self.measure(candidate, reference)
        return judge_gains(gains), gains

    def _first_sound(self, baseline: Trial) -> Trial | None:
        """Returns all rewrites together, or without the fewest that spoil the outputs."""
        names, bundle = tuple(self.names), self.try_out(tuple(self.names))
        if bundle.problem is None and not (bundle.passed or baseline.passed):
            # It was wrong without them: no rewrite spoils it.
            return None
        while (reason := self.objection(bundle, baseline)) is not None:
            reduced = self._without_one(names, baseline)
            if reduced is None:
                return self._grow(baseline)
            culprit, bundle = reduced
            self.steps.append(
                OptimizationStep(rewrite=culprit, kept=False, why=f"with it {reason}")
            )
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
            rewrites = (*current.rewrites, name)
            trial = self.try_out(tuple(rewrite for rewrite in self.names if rewrite in rewrites))
            reason = self.objection(trial, baseline)
            if reason is None:
                current = trial
            else:
                self.steps.append(
                    OptimizationStep(rewrite=name, kept=False, why=f"with it {reason}")
                )
        return current if current.rewrites else None

    def _eliminate(self, baseline: Trial, bundle: Trial) -> Trial:
        """Takes out what does not help, those that changed least first."""
        replaced = {rewrite.name: rewrite.operators for rewrite in bundle.applied}
        for name in bundle.rewrites:
            if name not in replaced:
                why = "it finds nothing to change"
                self.steps.append(OptimizationStep(rewrite=name, kept=False, why=why, is_idle=True))
        best, rewrites = bundle, bundle.without_idle().rewrites
        for name in sorted(rewrites, key=lambda rewrite: replaced[rewrite] or 0):
            if not self._may_go_on():
                why = "the budget ended before the program without it was tried"
                self.steps.append(
                    OptimizationStep(rewrite=name, kept=True, why=why, operators=replaced[name])
                )
                continue
            without = self.try_out(tuple(rewrite for rewrite in rewrites if rewrite != name))
            step = self._judge(name, best, without, baseline)
            self.steps.append(step.model_copy(update={"operators": replaced[name]}))
            loser = without if step.kept else best
            if not step.kept:
                best, rewrites = without, without.rewrites
            if loser not in (baseline, bundle):
                self.discard(loser)
        return best

    def _judge(self, name: str, best: Trial, without: Trial, baseline: Trial) -> OptimizationStep:
        """Decides on one rewrite by the program without it."""
        reason = self.objection(without, baseline)
        if reason is not None:
            return OptimizationStep(
                rewrite=name, kept=True, why=f"without it {reason}", without=without
            )
        effect, gains = self._weigh(best, without, baseline)
        why = (_OF_TIMES if gains else _OF_FIGURES)[effect]
        why = next((f"with it {gain.problem}" for gain in gains if gain.problem), why)
        return OptimizationStep(
            rewrite=name, kept=effect == "better", why=why, without=without, gains=gains
        )

    def _prefer_bundle(self, bundle: Trial, best: Trial, baseline: Trial) -> Trial:
        """Returns all together where that is faster: gains too small for each may add up."""
        if self.measure is None or best is bundle or not baseline.passed or not self._may_go_on():
            return best
        effect, gains = self._weigh(bundle, best, baseline)
        if effect != "better":
            return best
        update, combined = {"kept": True, "why": _TOGETHER, "gains": gains}, bundle.without_idle()
        self.steps = [
            step.model_copy(update=update)
            if step.rewrite in combined.rewrites and not step.kept
            else step
            for step in self.steps
        ]
        return bundle

    def _give_up(self) -> None:
        why = "together they make no figure better"
        if self.measure is not None:
            why = "together they are no gain beyond noise"
        self.steps = [
            step.model_copy(update={"kept": False, "why": why}) if step.kept else step
            for step in self.steps
        ]

    def _may_go_on(self) -> bool:
        self.is_complete = self.is_complete and self.is_time_left()
        return self.is_complete
