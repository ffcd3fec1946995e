"""The rules in their order, and what they say of a run."""

from __future__ import annotations

import pkgutil
import re
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Final, get_args

from etprof.analysis import findings
from etprof.analysis.compare.comparison import compare_sides
from etprof.analysis.compare.pairs import compare_within, sides_of
from etprof.analysis.findings import finding
from etprof.analysis.findings.causes import find_inexact
from etprof.analysis.findings.finding import Finding, ReferenceAnswer, Rule, Subject, Thresholds
from etprof.analysis.findings.gains import TimeToGain, divide_gains
from etprof.analysis.findings.measurement import NOISE
from etprof.analysis.findings.sme import WhyNotGroup, explain_missing_sme2
from etprof.base.records import SME_ON

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.analysis.compare.comparability import Side
    from etprof.analysis.compare.comparison import Comparison
    from etprof.analysis.insight import ExperimentInsight, RunInsight
    from etprof.run.program import LoadedProgram

_SEVERITIES: Final = get_args(finding.Severity)


def _collect() -> dict[str, Rule]:
    """Every module of this folder may hold rules; F2 comes before F2b, and both before F10."""
    for module in pkgutil.iter_modules(findings.__path__):
        import_module(f"{findings.__name__}.{module.name}")
    names = sorted(finding.RULES, key=lambda name: (int(re.sub(r"\D", "", name)), name))
    return {name: finding.RULES[name] for name in names}


RULES: Final = _collect()


@dataclass(frozen=True)
class ExperimentFindings:
    """Everything that the rules say of one experiment."""

    experiment: str
    findings: tuple[Finding, ...]
    """Worst first, then by gain."""
    why_not_sme2: tuple[WhyNotGroup, ...]
    reference_answers: tuple[ReferenceAnswer, ...]
    checked: tuple[str, ...]
    """Names of the rules that were asked; those without a finding are ruled out."""
    withheld: tuple[str, ...] = ()
    """Names of the rules whose findings rest on operator times that nobody can rely on."""


def evaluate_run(  # noqa: PLR0913 - keyword-only: a run and what is set beside it
    run: RunInsight,
    *,
    comparisons: Sequence[Comparison] | None = None,
    reference: RunInsight | None = None,
    rivals: Sequence[RunInsight] = (),
    repeats: Sequence[RunInsight] = (),
    thresholds: Thresholds | None = None,
) -> tuple[ExperimentFindings, ...]:
    """Asks all rules about every experiment of `run`.

    `comparisons` are those of `compare_within`, made here when not given; `rivals` are runs of
    the same model at another precision, `repeats` further runs of this one.
    """
    if comparisons is None:
        comparisons = compare_within(run.run)
    return tuple(
        evaluate(
            Subject(
                run=run,
                insight=insight,
                thresholds=thresholds or Thresholds(),
                comparison=_against_off(insight, comparisons),
                reference=_like(reference, insight) if reference else None,
                reference_name=reference.run.name if reference else "",
                precision_rivals=_precision_rivals([run, *repeats], insight, rivals),
            )
        )
        for insight in run.experiments
    )


def evaluate(subject: Subject) -> ExperimentFindings:
    """Asks all rules about one experiment."""
    answers = {name: rule.ask(subject) for name, rule in RULES.items()}
    answered = [answer.finding for answer in answers.values() if answer.finding is not None]
    experiment = subject.insight.experiment
    time = TimeToGain(experiment)
    answered.sort(
        key=lambda f: (_SEVERITIES.index(f.severity), -time.measure(time.spread(f.claims)))
    )
    if any(finding.rule == NOISE for finding in answered):
        answered = [replace(finding, ruled_out=_without_noise(finding)) for finding in answered]
    divided = [
        replace(finding, inexact_rewrites=find_inexact(subject, finding))
        for finding in _without_repetition(divide_gains(answered, subject, time))
    ]
    is_sound = subject.is_timed and not experiment.is_in_doubt
    return ExperimentFindings(
        subject.name,
        tuple(divided),
        explain_missing_sme2(subject, time if is_sound else None),
        subject.answers if subject.is_timed else (),
        tuple(name for name, answer in answers.items() if answer.is_asked),
        tuple(name for name, answer in answers.items() if answer.is_withheld),
    )


def _without_repetition(ranked_findings: Sequence[Finding]) -> list[Finding]:
    """Leaves each refusal to the first finding that has it."""
    owners: dict[str, Finding] = {}
    for owner in ranked_findings:
        for refusal in owner.refusals:
            owners.setdefault(refusal.operator, owner)
    return [
        _leave_refusals(finding, [owners[refusal.operator] for refusal in finding.refusals])
        for finding in ranked_findings
    ]


def _leave_refusals(finding: Finding, owners: Sequence[Finding]) -> Finding:
    """Returns a finding with the refusals that are its own; `owners` are those of each."""
    pairs = zip(finding.refusals, owners, strict=True)
    own_refusals = tuple(refusal for refusal, owner in pairs if owner is finding)
    action = finding.action
    if owners and not own_refusals and not action:
        action = f"see {owners[0].rule}"
    return replace(finding, refusals=own_refusals, action=action)


def _without_noise(finding: Finding) -> tuple[str, ...]:
    """Beside a finding of noise nothing on the page says that there is none."""
    return tuple(reason for reason in finding.ruled_out if not reason.startswith("noise"))


def _against_off(
    insight: ExperimentInsight, comparisons: Sequence[Comparison]
) -> Comparison | None:
    name = insight.experiment.name
    return next(
        (
            c
            for c in comparisons
            if c.candidate.experiment.name == name
            and not c.is_of_two_programs
            and c.baseline.experiment.sme == "off"
            and c.candidate.experiment.sme in SME_ON
        ),
        None,
    )


def _like(reference: RunInsight, insight: ExperimentInsight) -> ExperimentInsight | None:
    """The reference's experiment of the same kind, on which shares hang; it has to have some."""
    kind = _kind_of(insight)
    alike = (experiment for experiment in reference.experiments if _kind_of(experiment) == kind)
    return next(
        (experiment for experiment in alike if experiment.experiment.split.times is not None), None
    )


def _kind_of(insight: ExperimentInsight) -> tuple[object, ...]:
    """Mode, threads, and precision of the program: a run may have programs of several."""
    experiment = insight.experiment
    return experiment.sme, experiment.threads, experiment.program.precision


def _is_rival(mine: LoadedProgram, theirs: LoadedProgram) -> bool:
    """Whether they are of one model at different precision."""
    names = [program.model.name if program.model else None for program in (mine, theirs)]
    return names[0] == names[1] and mine.precision != theirs.precision


def _precision_rivals(
    runs: Sequence[RunInsight], insight: ExperimentInsight, rivals: Sequence[RunInsight]
) -> tuple[Comparison, ...]:
    """Compares with the same model's experiments of other precision, equal mode and threads.

    They are of another program that was measured in turns, or of other runs. Separate runs of one
    precision repeat each other; a single one a side has no verdict.
    """
    mine, *repeats = _sides_like(insight, runs)
    in_turns = [
        [side]
        for side in sides_of(runs[0].run)
        if _is_rival(side.experiment.program, mine.experiment.program)
        and (side.experiment.sme, side.experiment.threads)
        == (insight.experiment.sme, insight.experiment.threads)
    ]
    groups: dict[str | None, list[Side]] = {}
    for side in _sides_like(insight, rivals):
        groups.setdefault(side.experiment.program.precision, []).append(side)
    return tuple(
        compare_sides(replace(first, repeats=tuple(further)), replace(mine, repeats=tuple(repeats)))
        for first, *further in (*in_turns, *groups.values())
    )


def _sides_like(insight: ExperimentInsight, runs: Sequence[RunInsight]) -> list[Side]:
    """The experiments of equal mode and threads, one a run at most."""
    mode_and_threads = insight.experiment.sme, insight.experiment.threads
    alike = []
    for run in runs:
        sides = [s for s in sides_of(run.run)
                 if (s.experiment.sme, s.experiment.threads) == mode_and_threads]  # fmt: skip
        same_name = [side for side in sides if side.experiment.name == insight.experiment.name]
        alike += (same_name or sides)[:1]
    return alike
