"""Which rewrites to keep: all of them together first, then without each, until none is idle.

No single rewrite need be a gain, so none is tried alone: a bundle is, and what it does not need is
taken out again (backward elimination). Where the bundle fails, the rewrite that spoils it is found by
halves, and of its modules those where it does, which are left as they are; if it spoils everywhere, but
only with another, the better of the two stays. The order is fixed, so two searches
decide the same. Where programs are timed, one stays only if the program is slower without it by more
than noise; if that left out gains that only add up together, all of them stay. Where one makes the program
worse beside others, a model of effects in pairs says which combinations are worth a trial.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from etprof.base.text import join_names
from etprof.base.units import format_range, format_value
from etprof.optimize.combinations import MOST_PROPOSALS, propose_combination
from etprof.run.optimization import OptimizationStep, Trial, compare, judge_gains
from etprof.statistics.order_statistics import median_interval

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
_MOST_MODULES: Final = 3
"""Of a rewrite, that are left as they are: each costs a search by halves, and what spoils more is taken
for wrong everywhere."""
TOLERANCE_DB: Final = 2.0
"""Unless somebody asks for another: what etprof's own rewrites cost models that they suit is less."""
FAR_DB: Final = 20.0
"""Above what the precision is held to: a hundredth of the error that it may have. There nobody needs
the nearer of two programs; a ratio on one input differs by 2.4 dB (one standard deviation) by chance."""
_TOGETHER: Final = "slower without all that are no gain alone"


@dataclass
class Search:
    """A search among `names`; `try_out` makes the program with some of them."""

    names: Sequence[str]
    try_out: Callable[[tuple[str, ...]], Trial]
    tolerance_db: float
    """How much nearer to eager the baseline may be than the result, on the median input."""
    is_time_left: Callable[[], bool]
    measure: Callable[[Trial, Trial], tuple[Gain, ...]] | None = None
    """Measures a program in turns with another; None where the figures of exports decide."""
    discard: Callable[[Trial], None] = lambda _: None
    """Hears of programs that nothing will be compared with again."""
    find_modules: Callable[[tuple[str, ...], str], Sequence[str]] = lambda _, __: ()
    """Returns the paths of the modules that the second changes among the first; none if unknown."""
    exclude: Callable[[str, Sequence[str]], None] = lambda _, __: None
    """Has a rewrite leave these modules as they are, and no others, from now on."""
    far_db: float = FAR_DB
    """Above what the precision is held to; from there on the tolerance does not count."""
    losses_of: Callable[[Trial, Trial], Sequence[float]] = lambda _, __: ()
    """Returns by how many dB the first program is further from eager than the second, input by
    input; none where that is known of one input alone."""
    steps: list[OptimizationStep] = field(default_factory=list)
    gains: tuple[Gain, ...] = ()
    """Of the result over the baseline."""
    is_complete: bool = True
    tried: dict[tuple[str, ...], Trial] = field(default_factory=dict)
    """Every program so far, by its rewrites."""
    spoilers: list[str] = field(default_factory=list)
    """Rewrites that were left out since with others the outputs or the export fail."""

    def run(self) -> tuple[Trial, Trial]:
        """Returns the baseline and the best program, which may be the baseline itself."""
        baseline = self._try(())
        if baseline.problem is not None or not self.names:
            return baseline, baseline
        bundle = self._first_sound(baseline)
        if bundle is None:
            return baseline, baseline
        best = self._exchange(self._eliminate(baseline, bundle), bundle, baseline)
        best = self._combine(best, baseline)
        best = self._prefer_bundle(bundle, best, baseline)
        # The times of a program that is wrong say nothing.
        if baseline.passed and best is not baseline:
            effect, self.gains = self._weigh(best, baseline, baseline)
            if effect != "better":
                self._give_up()
                return baseline, baseline
        return baseline, baseline if best is baseline else best.without_idle()

    def _try(self, names: tuple[str, ...]) -> Trial:
        trial = self.try_out(names)
        self.tried[names] = trial
        return trial

    def _exclude(self, name: str, modules: Sequence[str]) -> None:
        """Has a rewrite leave modules alone: programs with it are others from now on."""
        self.exclude(name, modules)
        for names in [names for names in self.tried if name in names]:
            del self.tried[names]

    def objection(self, trial: Trial, baseline: Trial) -> str | None:
        """Says why a program may not be used; None for one whose outputs hold."""
        if trial.problem is not None:
            return trial.problem
        if not trial.passed:
            return "its outputs are too far from eager's"
        if trial.counted is not None and trial.counted.problem is not None:
            return trial.counted.problem
        if baseline.passed and trial.snr_db is not None:
            return self._find_loss(
                trial, baseline, (baseline.snr_db or trial.snr_db) - trial.snr_db
            )
        return None

    def _find_loss(self, trial: Trial, baseline: Trial, lost_db: float) -> str | None:
        """Says how much further from eager a program is, where that is more than the tolerance.

        The loss on one input is judged only where the outputs are near what is asked for, and where
        it is too large by several inputs: rounding makes now one program the nearer, now the other.
        """
        if lost_db <= self.tolerance_db or (trial.spare_db or 0.0) >= self.far_db:
            return None
        tolerance = format_value("dB", self.tolerance_db)
        losses = self.losses_of(trial, baseline)
        # Of the median, which one input that goes wrong widens no more than any other does.
        interval = median_interval(losses)
        if interval is None:
            return f"it loses {format_value('dB', lost_db)}, more than {tolerance}"
        if interval.low <= self.tolerance_db:
            return None
        lost = format_range("dB", interval.low, interval.high)
        return f"it loses {lost} over {len(losses)} inputs, more than {tolerance}"

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
        """Returns all rewrites together, or without those that spoil the outputs or the export."""
        bundle = self._try(tuple(self.names))
        if bundle.problem is None and not (bundle.passed or baseline.passed):
            # It was wrong without them: no rewrite spoils it.
            return None
        while (reason := self.objection(bundle, baseline)) is not None:
            # What found nothing to change spoils nothing; of an export that failed nobody knows.
            is_known = bundle.problem is None and bundle.applied
            names = bundle.without_idle().rewrites if is_known else bundle.rewrites
            sound, spoiled = self._bisect(names, reason, baseline)
            if spoiled is None:
                return sound
            culprit, why = spoiled
            if not self._narrow(names[: names.index(culprit) + 1], why, baseline):
                self.spoilers.append(culprit)
                self.steps.append(
                    OptimizationStep(rewrite=culprit, kept=False, why=f"with it {why}")
                )
                names = tuple(name for name in names if name != culprit)
            if not names:
                return None
            bundle = self._try(names)
        return bundle

    def _bisect(
        self, names: tuple[str, ...], reason: str, baseline: Trial
    ) -> tuple[Trial | None, tuple[str, str] | None]:
        """Finds the first rewrite that spoils a program which is sound with those before it.

        Returns the largest sound program of the first ones, and the culprit with what is wrong with
        it; no culprit where the budget ended. `reason` is the objection to all of them.
        """
        sound, sound_count, spoiled_count = None, 0, len(names)
        while spoiled_count - sound_count > 1:
            if not self._may_go_on():
                return sound, None
            middle = (sound_count + spoiled_count) // 2
            trial = self._try(names[:middle])
            objection = self.objection(trial, baseline)
            if objection is None:
                sound, sound_count = trial, middle
            else:
                reason, spoiled_count = objection, middle
        return sound, (names[spoiled_count - 1], reason)

    def _narrow(self, names: tuple[str, ...], reason: str, baseline: Trial) -> bool:
        """Has the last of `names`, which spoils a sound program, leave alone the modules where it does.

        Returns False where that cannot be: it spoils in all of them, in too many, or nobody knows
        which it changes. `reason` is the objection to it.
        """
        culprit = names[-1]
        left_alone: list[str] = []
        # Each time anew: where an export fails nothing beyond that place is known.
        while len(left_alone) < _MOST_MODULES and self._may_go_on():
            modules = self.find_modules(names, culprit)
            spoiling = self._find_module(names, modules, left_alone, baseline)
            if spoiling is None:
                break
            left_alone.append(spoiling)
            self._exclude(culprit, left_alone)
            trial = self._try(names)
            if self.objection(trial, baseline) is None:
                if culprit not in {rewrite.name for rewrite in trial.applied}:
                    break
                site = f"{culprit} in {join_names(left_alone)}"
                self.steps.append(OptimizationStep(rewrite=site, kept=False, why=f"there {reason}"))
                return True
        self._exclude(culprit, ())
        return False

    def _find_module(
        self,
        names: tuple[str, ...],
        modules: Sequence[str],
        left_alone: Sequence[str],
        baseline: Trial,
    ) -> str | None:
        """Returns the first module where the last of `names` spoils a program that is sound before it.

        By halves. None where it changes none, where it spoils by the operators of the model itself,
        which have no path and cannot be left alone, or where the budget ended.
        """
        paths = [path for path in modules if path]
        if not paths:
            return None
        if len(paths) < len(modules):
            self._exclude(names[-1], (*left_alone, *paths))
            if self.objection(self._try(names), baseline) is not None:
                return None
        sound_count, spoiled_count = 0, len(paths)
        while spoiled_count - sound_count > 1:
            if not self._may_go_on():
                return None
            middle = (sound_count + spoiled_count) // 2
            self._exclude(names[-1], (*left_alone, *paths[middle:]))
            if self.objection(self._try(names), baseline) is None:
                sound_count = middle
            else:
                spoiled_count = middle
        return paths[spoiled_count - 1]

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
            without = self._try(tuple(rewrite for rewrite in rewrites if rewrite != name))
            step = self._judge(name, best, without, baseline)
            self.steps.append(step.model_copy(update={"operators": replaced[name]}))
            loser = without if step.kept else best
            if not step.kept:
                best, rewrites = without, without.rewrites
            if loser not in (baseline, bundle):
                self.discard(loser)
        return best

    def _exchange(self, best: Trial, bundle: Trial, baseline: Trial) -> Trial:
        """Searches again with what was left out, in the place of the one that it does not go with.

        Of two that spoil the outputs only together the first one was kept, whichever is worth more.
        """
        for spoiler in self.spoilers:
            rival = self._find_rival(spoiler, bundle.rewrites, baseline)
            if rival is None:
                continue
            names = [name for name in self.names if name in {spoiler, *bundle.rewrites} - {rival}]
            second = replace(self, names=names, steps=[], spoilers=[])
            start = second._first_sound(baseline)
            if start is None:
                continue
            result = second._eliminate(baseline, start)
            self.is_complete = self.is_complete and second.is_complete
            effect, _ = self._weigh(result, best, baseline)
            if effect == "better":
                best = result
                why = f"worth less than {spoiler}, and the outputs do not hold with both"
                second.steps.append(OptimizationStep(rewrite=rival, kept=False, why=why))
                decided = {step.rewrite for step in second.steps}
                earlier = [step for step in self.steps if step.rewrite not in decided]
                self.steps = [*earlier, *second.steps]
        return best

    def _combine(self, best: Trial, baseline: Trial) -> Trial:
        """Tries rewrites again that were taken out since a program is better without them.

        Beside fewer others they may help: without the one that each does not go with, and then in
        what effects in pairs promise. Not where programs are timed: a measurement costs minutes, and
        most pairs of programs are not told apart.
        """
        harmful = [step.rewrite for step in self.steps if step.why == _OF_FIGURES["worse"]]
        if self.measure is not None or not harmful:
            return best
        first = best
        for name in harmful:
            best = self._return(name, best, baseline)
        applied = {rewrite.name for trial in self.tried.values() for rewrite in trial.applied}
        names = tuple(name for name in self.names if name in applied)
        for _ in range(MOST_PROPOSALS):
            if not self._may_go_on():
                break
            sound, failed = list[Trial](), list[Trial]()
            for trial in self.tried.values():
                is_sound = self.objection(trial, baseline) is None
                (sound if is_sound else failed).append(trial)
            proposal = propose_combination(names, baseline, best, sound, failed)
            if proposal is None:
                break
            best = self._keep_better(proposal, best, baseline)
        if best is not first:
            self._tell_combination(first.without_idle(), best)
        return best

    def _keep_better(self, names: Sequence[str], best: Trial, baseline: Trial) -> Trial:
        """Tries a combination, and returns the better of it and `best`; the worse is discarded."""
        trial = self._try(tuple(name for name in self.names if name in names))
        is_better = self._hurts(best, trial, baseline)
        loser = best if is_better else trial
        if loser is not baseline:
            self.discard(loser)
        return trial.without_idle() if is_better else best

    def _hurts(self, trial: Trial, without: Trial, baseline: Trial) -> bool:
        """Whether a program is worse than the one without a rewrite, or cannot be used."""
        if self.objection(without, baseline) is not None:
            return False
        is_worse = compare(without, trial, baseline.macs) == "better"
        return is_worse or self.objection(trial, baseline) is not None

    def _return(self, name: str, best: Trial, baseline: Trial) -> Trial:
        """Returns the better of `best` and the same with a rewrite in the place of its rival."""
        if not self._may_go_on():
            return best
        kept = best.rewrites
        with_it = self._keep_better((*kept, name), best, baseline)
        if with_it is not best:
            return with_it

        def hurts(count: int) -> bool:
            trials = [
                self._try(tuple(n for n in self.names if n in chosen))
                for chosen in ({name, *kept[:count]}, {*kept[:count]})
            ]
            return self._hurts(trials[0], trials[1], baseline)

        rival = self._first_rival(kept, hurts)
        if rival is None or not self._may_go_on():
            return best
        return self._keep_better([name, *(n for n in kept if n != rival)], best, baseline)

    def _tell_combination(self, first: Trial, best: Trial) -> None:
        """Says of each rewrite that one program has and the other has not why that is better."""
        added = [name for name in best.rewrites if name not in first.rewrites]
        removed = [name for name in first.rewrites if name not in best.rewrites]
        difference = [f"with {join_names(added)}"] * bool(added)
        difference += [f"without {join_names(removed)}"] * bool(removed)
        reasons = dict.fromkeys(
            (*added, *removed), f"{' and '.join(difference)} the program is better"
        )
        self.steps = [
            step.model_copy(
                update={
                    "kept": step.rewrite in added, "is_idle": False,
                    "why": reasons[step.rewrite], "without": None,
                }
            )
            if step.rewrite in reasons
            else step
            for step in self.steps
        ]  # fmt: skip

    def _find_rival(self, spoiler: str, names: tuple[str, ...], baseline: Trial) -> str | None:
        """Returns the one of `names` with which `spoiler` spoils, as `_first_rival` does."""

        def spoils(count: int) -> bool:
            tried = {spoiler, *names[:count]}
            trial = self._try(tuple(name for name in self.names if name in tried))
            return self.objection(trial, baseline) is not None

        return self._first_rival(names, spoils)

    def _first_rival(self, names: tuple[str, ...], is_wrong: Callable[[int], bool]) -> str | None:
        """Returns the first of `names` with which something goes wrong that does with all, by halves.

        `is_wrong` says it of the first so many. None where it does with none of them, or the budget
        ended.
        """
        sound_count, wrong_count = -1, len(names)
        while wrong_count - sound_count > 1:
            if not self._may_go_on():
                return None
            middle = 0 if sound_count < 0 else (sound_count + wrong_count) // 2
            if not is_wrong(middle):
                sound_count = middle
            elif middle == 0:
                return None
            else:
                wrong_count = middle
        return names[wrong_count - 1] if names else None

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
