"""Compares two experiments: latency with its verdict, categories, operators, and what is left."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from etprof.analysis.compare.alignment import AlignedOperator, align_operators, align_programs
from etprof.analysis.compare.amdahl import AmdahlPanel, build_amdahl_panel, find_accelerated
from etprof.analysis.compare.comparability import (
    SettingDifference,
    Side,
    find_differences,
    find_unknowns,
    names_of,
    run_one_program,
)
from etprof.analysis.compare.waterfall import Waterfall, build_waterfall
from etprof.analysis.exact_facts import facts_of_experiment
from etprof.analysis.generation import TokenComparison, compare_tokens
from etprof.analysis.output_check import (
    OutputCheck,
    compare_outputs,
    describe_mismatches,
    mode_tolerance_db,
    program_tolerance_db,
)
from etprof.analysis.run_analysis import split_notes
from etprof.analysis.split.cold_start import (
    LedgerEntry,
    SeparateRuns,
    build_ledger,
    build_ledger_of_runs,
    pair_blocks,
)
from etprof.analysis.split.operators import add_parts, category_times, class_times
from etprof.analysis.validity import Validity, check_validity
from etprof.base.records import SME_LABELS
from etprof.base.text import join_names, what_differs
from etprof.base.units import be, format_share
from etprof.run.accuracy import export_place
from etprof.statistics.effect import (
    DEFAULT_MARGIN,
    SESSION_DEVIATION,
    Effect,
    judge,
    took_turns,
)
from etprof.statistics.launch_ratio import LaunchRatio, ratio_of_launches
from etprof.statistics.order_statistics import CONFIDENCE
from etprof.statistics.two_samples import benjamini_hochberg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from etprof.analysis.exact_facts import ExactFacts
    from etprof.analysis.run_analysis import ExperimentAnalysis
    from etprof.analysis.split.operators import PartTimes
    from etprof.backends.backend import OperatorClass
    from etprof.run.accuracy import Verdict
    from etprof.statistics import effect
    from etprof.statistics.order_statistics import Interval
    from etprof.statistics.two_samples import Spread

Key = TypeVar("Key")
STEADY_ENTRY = "Steady inference"
TWO_MODELS = "the sides are different models"
"""Begins the note on a comparison of two models' programs."""
EMULATED = "times under emulation mean nothing; only structure and kernels are compared"
InTurns: TypeAlias = "tuple[Sequence[int], Sequence[int]]"
"""Positions of the operator launches of both sides that were made in turns, pair by pair."""


@dataclass(frozen=True)
class Change:
    """One quantity on both sides; mean ns per inference and share of `Method::execute`."""

    baseline_ns: float
    candidate_ns: float
    baseline_share: float
    candidate_share: float
    between: LaunchRatio | None = None
    """The speedup between interleaved operator launches, where both took time."""
    adjusted_p: float | None = None
    """Its p by Benjamini and Hochberg, over the whole table; None with a single launch a side."""
    verdict: effect.Verdict | None = None
    """From interval and adjusted p; None where there are none."""

    @property
    def interval(self) -> Interval | None:
        """95 % interval of the speedup between launches."""
        return self.between.interval if self.between else None

    @property
    def delta_ns(self) -> float:
        """Candidate minus baseline: below zero is time saved."""
        return self.candidate_ns - self.baseline_ns

    @property
    def speed_up(self) -> float | None:
        """Baseline ÷ candidate; None when either took no time."""
        if self.baseline_ns <= 0 or self.candidate_ns <= 0:
            return None
        return self.baseline_ns / self.candidate_ns


@dataclass(frozen=True)
class OperatorChange:
    """One operator on both sides."""

    aligned: AlignedOperator
    change: Change | None
    """None where a side proves no times."""


@dataclass(frozen=True)
class ComparedTimes:
    """What a clock had a part in."""

    latency: Effect | None
    """Steady latency without tracer, over pairs of blocks; None when it was not timed."""
    ledger: tuple[LedgerEntry, ...]
    categories: dict[str, Change]
    classes: dict[OperatorClass, Change]
    waterfall: Waterfall | None
    """None where a per-operator breakdown does not agree with the timed latency; so the next."""
    amdahl: AmdahlPanel | None
    accelerated: Change | None
    """Operators that only the candidate runs on SME, together; None where there are none too."""
    validity: Validity
    """What surrounds the numbers: without it no verdict is to be believed."""

    @property
    def saved_ns(self) -> float | None:
        """What of the timed latency the candidate saves; below zero when it is slower."""
        steady = next(
            (quantity for quantity in self.ledger if quantity.label == STEADY_ENTRY), None
        )
        if steady is None or steady.baseline is None or steady.candidate is None:
            return None
        return steady.baseline - steady.candidate


@dataclass(frozen=True)
class Comparison:
    """Everything that can be said of a candidate beside its baseline."""

    baseline: Side
    candidate: Side
    differences: tuple[SettingDifference, ...]
    """Settings in which the sides differ although the comparison was allowed."""
    operators: tuple[OperatorChange, ...]
    times: ComparedTimes | None
    """None where a side proves no times."""
    outputs: tuple[OutputCheck, ...]
    """What both sides computed; empty when it was not kept, or they are of two models."""
    tokens: TokenComparison | None
    """What language models generated on both sides; None when there are no tokens."""
    notes: tuple[str, ...]

    @cached_property
    def facts(self) -> tuple[ExactFacts, ExactFacts]:
        """What no noise changes, of the baseline and of the candidate."""
        before, after = (
            facts_of_experiment(side.experiment, side.run.verdicts)
            for side in (self.baseline, self.candidate)
        )
        return before, after

    @property
    def common_mode(self) -> str | None:
        """The SME mode of both sides, where it tells pairs of two separate runs apart."""
        sides = (self.baseline, self.candidate)
        modes = {side.experiment.sme for side in sides}
        of_runs = {experiment.sme for side in sides for experiment in side.run.experiments}
        mode = next(iter(modes))
        are_apart = len(modes) == 1 < len(of_runs) and sides[0].run.source != sides[1].run.source
        return SME_LABELS.get(mode) if mode and are_apart else None

    @property
    def outputs_agree(self) -> bool:
        """False when some output is further off than its precision explains."""
        return all(check.is_within for check in self.outputs)

    @property
    def is_of_two_programs(self) -> bool:
        """Whether the sides of one run have a program each, be it the same under two names."""
        names = [side.experiment.program.name for side in (self.baseline, self.candidate)]
        return self.baseline.run.source == self.candidate.run.source and names[0] != names[1]

    @property
    def wrong(self) -> tuple[Verdict, ...]:
        """The verdicts that a side's outputs are wrong: no time of such a side counts."""
        sides = (self.baseline, self.candidate)
        return tuple(dict.fromkeys(verdict for side in sides for verdict in _wrong_of(side)))

    @property
    def latency(self) -> Effect | None:
        """Steady latency without tracer, over pairs of blocks; None when it was not timed."""
        return self.times.latency if self.times else None

    @property
    def name(self) -> str:
        """The pair's name, such as `off → sme2`."""
        return " → ".join(self.side_names)

    @property
    def side_names(self) -> tuple[str, str]:
        """What tells the sides apart: the experiments, else the models, else the runs."""
        return names_of(self.baseline, self.candidate)

    @property
    def short_names(self) -> tuple[str, str]:
        """The same, shortened to what differs; SME modes in words."""
        before, after = what_differs(*self.side_names)
        return _in_words(before, self.baseline), _in_words(after, self.candidate)

    @property
    def short_name(self) -> str:
        """The pair's name for people."""
        return " → ".join(self.short_names)

    @property
    def has_two_models(self) -> bool:
        """Whether the sides are different models, as far as recorded."""
        return bool(_different_models(self.baseline, self.candidate))

    @property
    def wrong_outputs(self) -> tuple[str, ...]:
        """What is wrong with the outputs, in words; of two programs, only by their own verdicts.

        Empty where the measurement was told to go on all the same: then every page has a banner.
        """
        settings = [s.provenance.settings for s in (self.baseline, self.candidate) if s.provenance]
        if any(each.allow_inaccurate for each in settings):
            return ()
        checks = self.outputs if run_one_program(self.baseline, self.candidate) else ()
        return (*(verdict.text for verdict in self.wrong), *describe_mismatches(checks))

    @property
    def steady(self) -> LedgerEntry | None:
        """Steady latency of both sides, whose ratio the speedup is."""
        ledger = self.times.ledger if self.times else ()
        return next((quantity for quantity in ledger if quantity.label == STEADY_ENTRY), None)


def _in_words(name: str, side: Side) -> str:
    """Writes the mode that a shortened name begins with as people do, such as `SME2 512`."""
    mode, *others = name.split("_")
    return " ".join([SME_LABELS[mode], *others]) if mode == side.experiment.sme else name


def compare_sides(
    baseline: Side,
    candidate: Side,
    *,
    margin: float = DEFAULT_MARGIN,
    run_spreads: Mapping[str, Spread] | None = None,
) -> Comparison:
    """Compares two experiments that may be compared; `margin` is what counts as no difference.

    Of separate runs, `run_spreads` has the spread of one run's log value by the history's metrics.
    """
    before, after = baseline.experiment, candidate.experiment
    if run_one_program(baseline, candidate):
        aligned = align_operators(before.split.rows, after.split.rows)
    else:
        aligned = align_programs(before, after)
    outputs = check_outputs(baseline, candidate)
    times = _compare_times(baseline, candidate, aligned, outputs, (margin, run_spreads or {}))
    return Comparison(
        baseline=baseline,
        candidate=candidate,
        differences=find_differences(baseline, candidate),
        operators=_operator_changes(baseline, candidate, aligned, margin),
        times=times,
        outputs=outputs,
        tokens=(tokens := _compare_tokens(before, after)),
        notes=(
            *_wrong_notes(baseline, candidate),
            *_output_notes(outputs),
            *_token_notes(tokens),
            *_notes(baseline, candidate),
        ),
    )


def _wrong_notes(*sides: Side) -> list[str]:
    """Says which side's outputs are wrong."""
    notes = [
        f"wrong outputs of {side.run.name}, {verdict.text}"
        for side in sides
        for verdict in _wrong_of(side)
    ]
    return list(dict.fromkeys(notes))


def _wrong_of(side: Side) -> list[Verdict]:
    """The verdicts against a side's program, and against what it computed."""
    locations = {export_place(side.experiment.program.name), side.experiment.name}
    return [verdict for verdict in side.run.wrong if verdict.where in locations]


def _compare_times(
    baseline: Side,
    candidate: Side,
    aligned: Sequence[AlignedOperator],
    outputs: tuple[OutputCheck, ...],
    judged: tuple[float, Mapping[str, Spread]],
) -> ComparedTimes | None:
    old, new = baseline.experiment, candidate.experiment
    before, after = old.split.times, new.split.times
    if before is None or after is None:
        return None
    ledger, in_turns = tuple[LedgerEntry, ...](), _launches_in_turns(baseline, candidate)
    margin, run_spreads = judged
    if old.metrics is not None and new.metrics is not None:
        if _are_in_turns(baseline, candidate):
            ledger = build_ledger(old.metrics, new.metrics, margin=margin)
        elif baseline.timed and candidate.timed:
            alternate = took_turns(baseline.moments, candidate.moments)
            runs = SeparateRuns(baseline.timed, candidate.timed, run_spreads, alternate)
            ledger = build_ledger_of_runs(runs, margin=margin)
    steady = next((entry for entry in ledger if entry.label == STEADY_ENTRY), None)
    in_doubt = old.is_in_doubt or new.is_in_doubt
    accelerated = find_accelerated(old, new, aligned)
    return ComparedTimes(
        latency=steady.effect if steady is not None else None,
        ledger=ledger,
        categories=_changes(category_times(old.split), category_times(new.split), in_turns, margin),
        classes=_changes(class_times(old.split), class_times(new.split), in_turns, margin),
        waterfall=None
        if in_doubt
        else build_waterfall((old.split, before), (new.split, after), aligned),
        accelerated=None
        if in_doubt or not accelerated
        else _change(
            add_parts([times for times, _ in accelerated]),
            add_parts([times for _, times in accelerated]),
            in_turns,
        ),
        amdahl=None if in_doubt else build_amdahl_panel((old, before), (new, after), accelerated),
        validity=check_validity(baseline, candidate, outputs, steady),
    )


def _are_in_turns(baseline: Side, candidate: Side) -> bool:
    """Whether both were measured in one run, so that launches of a block are neighbours."""
    return baseline.run.source == candidate.run.source


def check_outputs(baseline: Side, candidate: Side) -> tuple[OutputCheck, ...]:
    """Compares all outputs that both sides kept whole.

    None of programs of two runs, of two models, or with other inputs.
    """
    old, new = baseline.experiment.loaded, candidate.experiment.loaded
    types = {
        name
        for row in candidate.experiment.split.rows
        for name in row.backend.plain_types(row.data_types)
    }
    tolerance: float | None = mode_tolerance_db(types)
    if not run_one_program(baseline, candidate):
        in_turns = baseline.run.source == candidate.run.source
        tolerance = program_tolerance_db(old.program, new.program) if in_turns else None
    return () if tolerance is None else compare_outputs(new, old, tolerance)


def _launches_in_turns(baseline: Side, candidate: Side) -> InTurns:
    """Returns the positions of the operator launches that both sides have, made in turns."""
    if not _are_in_turns(baseline, candidate):
        return (), ()
    old, new = (side.experiment.split.launches for side in (baseline, candidate))
    common = sorted({*old} & {*new})
    return [old.index(launch) for launch in common], [new.index(launch) for launch in common]


def _changes(
    before: Mapping[Key, PartTimes],
    after: Mapping[Key, PartTimes],
    in_turns: InTurns,
    margin: float,
) -> dict[Key, Change]:
    keys = list(dict.fromkeys([*before, *after]))
    pairs = [(before.get(key), after.get(key)) for key in keys]
    return dict(zip(keys, judge_changes(pairs, in_turns, margin), strict=True))


def judge_changes(
    pairs: Iterable[tuple[PartTimes | None, PartTimes | None]], in_turns: InTurns, margin: float
) -> Iterator[Change]:
    """Yields the changes of one table, whose p are adjusted together."""
    changes = [_change(before, after, in_turns) for before, after in pairs]
    p_values = {
        index: change.between.p_value
        for index, change in enumerate(changes)
        if change.between and change.between.p_value is not None
    }
    adjusted = dict(zip(p_values, benjamini_hochberg(list(p_values.values())), strict=True))
    for index, change in enumerate(changes):
        if (p_value := adjusted.get(index)) is None:
            yield change
        else:
            verdict = judge(change.interval, margin)
            is_sure = (
                p_value <= 1 - CONFIDENCE and change.between is not None and change.between.is_sure
            )
            if verdict in {"faster", "slower"} and not is_sure:
                verdict = "inconclusive"
            yield replace(change, adjusted_p=p_value, verdict=verdict)


def _change(before: PartTimes | None, after: PartTimes | None, in_turns: InTurns) -> Change:
    """What is not on a side takes no time there."""
    between = None
    if before and after and in_turns[0]:
        old_ns, new_ns = (
            [times.launches_ns[index] for index in indices]
            for times, indices in zip((before, after), in_turns, strict=True)
        )
        between = ratio_of_launches(old_ns, new_ns) if sum(old_ns) and sum(new_ns) else None
    means = [times.mean_ns if times else 0.0 for times in (before, after)]
    shares = [times.share if times else 0.0 for times in (before, after)]
    return Change(means[0], means[1], shares[0], shares[1], between)


def _operator_changes(
    baseline: Side, candidate: Side, aligned: Sequence[AlignedOperator], margin: float
) -> tuple[OperatorChange, ...]:
    sides = [side.experiment.split.times for side in (baseline, candidate)]
    if None in sides:
        return tuple(OperatorChange(pair, None) for pair in aligned)
    times = [(pair.baseline_times, pair.candidate_times) for pair in aligned]
    changes = judge_changes(times, _launches_in_turns(baseline, candidate), margin)
    return tuple(map(OperatorChange, aligned, changes))


def _output_notes(outputs: tuple[OutputCheck, ...]) -> list[str]:
    """Says so when the sides did not compute the same."""
    wrong = [str(check) for check in outputs if not check.is_within]
    if not wrong:
        return []
    return [f"the sides computed different results, so no speedup counts: {'; '.join(wrong)}"]


def _compare_tokens(
    before: ExperimentAnalysis, after: ExperimentAnalysis
) -> TokenComparison | None:
    sides = [experiment.metrics.generated if experiment.metrics else None
             for experiment in (before, after)]  # fmt: skip
    return compare_tokens(*sides)


def _token_notes(tokens: TokenComparison | None) -> list[str]:
    """Says so when the sides said different things: kernels round differently, and so may choose."""
    if tokens is None or tokens.first_difference is None:
        return []
    return [f"the sides generated different tokens: {tokens}"]


def _notes_on_runs(baseline: Side, candidate: Side) -> list[str]:
    """Says what separate runs leave open, and the way out."""
    notes = [
        "the sides come from different runs, so drift between the runs is part of the difference"
    ]
    if len(baseline.timed) == len(candidate.timed) == 1:
        notes.append(
            "one run per side: the interval is between launches and does not cover another run; "
            "measure both in one run, or repeat them (`etprof compare A1 A2 A3 --against B1 B2 B3`)"
        )
        return notes
    if not took_turns(baseline.moments, candidate.moments):
        notes.append(
            "the sides' runs were measured one after the other, so the interval allows for sessions "
            f"that differ by {format_share(SESSION_DEVIATION)}; interleave them (A1 B1 A2 B2 "
            "…), or both sides in one run (`etprof profile A.pte --against B.pte`)"
        )
    return notes


def _different_models(baseline: Side, candidate: Side) -> tuple[str, ...]:
    """Returns the names of two models; nothing of one, or where a name is not known."""
    models = [side.experiment.program.model for side in (baseline, candidate)]
    names = tuple(dict.fromkeys(model.name for model in models if model is not None))
    return names if len(names) > 1 else ()


def _notes(baseline: Side, candidate: Side) -> list[str]:
    """What stands against taking the comparison at face value."""
    notes = [
        f"the sides differ in {difference}" for difference in find_differences(baseline, candidate)
    ]
    if baseline.label == candidate.label and baseline.run.source == candidate.run.source:
        notes.insert(0, "both sides are the same run; name two")
    if names := _different_models(baseline, candidate):
        notes.insert(0, f"{TWO_MODELS}, {join_names(names)}")
    for side in (baseline, candidate):
        notes += split_notes(side.experiment)
    unknown = find_unknowns(baseline, candidate)
    if unknown:
        notes.append(f"{join_names(unknown)} {be(len(unknown))} not known for at least one side")
    if not (baseline.run.is_timed and candidate.run.is_timed):
        notes.append(EMULATED)
        return notes
    before, after = baseline.experiment.metrics, candidate.experiment.metrics
    if before is None or after is None:
        notes.append("not timed without tracer on both sides, so there is no verdict")
    elif not _are_in_turns(baseline, candidate):
        notes += _notes_on_runs(baseline, candidate)
    elif len(pair_blocks(before, after)) < 6:
        notes.append("fewer than six pairs of blocks: no interval of 95 % exists; use --blocks 10")
    return notes
