"""Chooses which experiments to compare: off is the baseline, else fewer threads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import ValidationError

from etprof.analysis.compare.comparability import Side, refuse_unlike, run_one_program
from etprof.analysis.compare.comparison import Comparison, compare_sides
from etprof.base.errors import InputFileError, UsageError
from etprof.base.records import first_problem
from etprof.base.text import as_operand, command_line
from etprof.run.manifest import MANIFEST, ComparisonSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from etprof.analysis.run_analysis import ExperimentAnalysis, RunAnalysis
    from etprof.run.manifest import ComparedSide


def sides_of(run: RunAnalysis) -> tuple[Side, ...]:
    """Returns every experiment of a run as a side."""
    return tuple(Side(run, experiment, run.manifest) for experiment in run.experiments)


def compare_within(run: RunAnalysis) -> tuple[Comparison, ...]:
    """Compares the pairs that the run's config names, or else all that answer a question."""
    sides = sides_of(run)
    settings = _configured_analysis(run)
    pairs = tuple(_configured_pairs(sides, settings)) or tuple(_pairs(sides))
    return tuple(
        compare_sides(baseline, candidate, margin=settings.margin) for baseline, candidate in pairs
    )


def _configured_analysis(run: RunAnalysis) -> ComparisonSettings:
    """Reads what the config wanted to be compared; the config was checked when it was run."""
    config = run.manifest.config if run.manifest else None
    content = (config or {}).get("content")
    section = content.get("analysis", {}) if isinstance(content, dict) else {}
    try:
        return ComparisonSettings.model_validate(section)
    except ValidationError as error:
        msg = (
            f"{run.source / MANIFEST} is damaged: config.content.analysis.{first_problem(error)}; "
            "measure again"
        )
        raise InputFileError(msg) from None


def _configured_pairs(
    sides: tuple[Side, ...], settings: ComparisonSettings
) -> Iterator[tuple[Side, Side]]:
    """Yields the wanted pairs that were measured; without thread count, at every common one."""
    for pair in settings.compare_pairs:
        for baseline in (side for side in sides if _is_selected(side, pair.baseline)):
            for candidate in (side for side in sides if _is_selected(side, pair.candidate)):
                alike = baseline.experiment.threads == candidate.experiment.threads
                is_ambiguous = sum(_is_selected(side, pair.candidate) for side in sides) > 1
                if alike or not is_ambiguous:
                    yield baseline, candidate


def has_declared_pairs(run: RunAnalysis) -> bool:
    """Whether the run's config names pairs to compare."""
    return bool(_configured_analysis(run).compare_pairs)


def is_declared(one: Side, other: Side) -> bool:
    """Whether the config of the run that both sides are of names them as a pair, either way round."""
    if one.run.source != other.run.source:
        return False
    declared = _configured_pairs(sides_of(one.run), _configured_analysis(one.run))
    names = {one.experiment.name, other.experiment.name}
    return any({a.experiment.name, b.experiment.name} == names for a, b in declared)


def _is_selected(side: Side, selection: ComparedSide) -> bool:
    """Whether the side is the named experiment, at the wanted thread count if one is given."""
    experiment, name = side.experiment, selection.experiment
    called = experiment.name in {name, f"{name}_t{experiment.threads}"}
    return called and selection.threads in {None, experiment.threads}


def _pairs(sides: tuple[Side, ...]) -> Iterator[tuple[Side, Side]]:
    """Yields what answers a question.

    That is the run's model against each other program in the same mode at equal threads; then of
    each program off against each SME mode at equal threads, and fewest against more threads.
    """
    for baseline in (side for side in sides if not side.experiment.program.name):
        for candidate in (side for side in sides if side.experiment.program.name):
            if _kind(baseline.experiment) == _kind(candidate.experiment):
                yield baseline, candidate
    for baseline in sides:
        for candidate in _of_its_program(baseline, sides):
            before, after = baseline.experiment, candidate.experiment
            if before.threads == after.threads and before.sme == "off" and after.sme != "off":
                yield baseline, candidate
    for baseline in sides:
        alike = [
            candidate
            for candidate in _of_its_program(baseline, sides)
            if candidate.experiment.sme == baseline.experiment.sme
        ]
        if baseline is min(alike, key=lambda side: side.experiment.threads or 0):
            yield from (
                (baseline, candidate)
                for candidate in alike
                if (candidate.experiment.threads or 0) > (baseline.experiment.threads or 0)
            )


def _of_its_program(one: Side, sides: tuple[Side, ...]) -> Iterator[Side]:
    return (side for side in sides if side.experiment.program is one.experiment.program)


Named = tuple["RunAnalysis", "str | None"]
"""A run, and the one experiment that is meant; None: whichever there are."""


def match_groups(
    baseline: Sequence[Named], candidate: Sequence[Named]
) -> tuple[tuple[Side, Side], ...]:
    """Pairs the experiments of two groups of runs; the first of each is shown, the rest repeat it.

    Raises UsageError for a run that does not repeat the first of its group, or nothing to pair.
    """
    (old, old_name), (new, new_name) = baseline[0], candidate[0]
    pairs = match_runs(old, new, (old_name, new_name))
    return tuple(
        (_with_repeats(before, baseline[1:]), _with_repeats(after, candidate[1:]))
        for before, after in pairs
    )


def _with_repeats(side: Side, further: Sequence[Named]) -> Side:
    """Finds the side's experiment in further runs of the same thing."""
    repeats = []
    for run, name in further:
        experiment_name = side.experiment.name if name is None else name
        (repeat,) = _named(run, experiment_name)
        if repeat.run.source == side.run.source:
            raise UsageError(f"{repeat.label} is given twice; it is one run, not two")
        if not run_one_program(repeat, side):
            raise UsageError(
                f"{repeat.label} is not a repetition of {side.label}: it measured another program; "
                "compare it by itself"
            )
        refuse_unlike(side, repeat, ())
        repeats.append(repeat)
    return replace(side, repeats=tuple(repeats))


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
    pairs = [
        (old, new)
        for old in before
        for new in after
        if _kind(old.experiment) == _kind(new.experiment)
    ]
    if not pairs:
        labels = (as_operand(side.label) for side in (before[0], after[-1]))
        msg = (
            f"no experiment of {baseline.source} is like one of {candidate.source}; name two, as "
            f"in `{command_line('compare', *labels)}`; there are "
            f"{_listed(before)} and {_listed(after)}"
        )
        raise UsageError(msg)
    return tuple(pairs)


def _named(run: RunAnalysis, name: str | None) -> tuple[Side, ...]:
    sides = sides_of(run)
    if name is None:
        return sides
    matching = tuple(side for side in sides if side.experiment.name == name)
    if not matching:
        msg = f"{run.source} has no experiment {name!r}; it has {_listed(sides)}"
        raise UsageError(msg)
    return matching


def _listed(sides: tuple[Side, ...]) -> str:
    return ", ".join(side.experiment.name for side in sides)


def _kind(experiment: ExperimentAnalysis) -> tuple[object, object]:
    return experiment.sme, experiment.threads
