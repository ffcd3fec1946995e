"""The table of rules, what was asked beside a reference, and the evaluation over a run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from etprof.analysis.compare.comparison import compare_sides
from etprof.analysis.compare.pairs import compare_within, sides_of
from etprof.analysis.findings import delegation, layers, measurement, sme
from etprof.analysis.findings.finding import Finding, Subject, sum_ns
from etprof.analysis.findings.thresholds import Thresholds
from etprof.analysis.findings.why_not import WhyNotGroup, explain_missing_sme2
from etprof.backends.backend import CATEGORIES
from etprof.base.units import format_share

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from etprof.analysis.compare.comparison import Comparison
    from etprof.analysis.insight import ExperimentInsight, RunInsight


@dataclass(frozen=True)
class ReferenceAnswer:
    """One of the guide's questions with this model's figures."""

    question: str
    share: float
    reference_share: float
    answer: str


def answer_questions(
    insight: ExperimentInsight, reference: ExperimentInsight
) -> tuple[ReferenceAnswer, ...]:
    """Answers: is data movement higher, is Other higher, is convolution lower?"""
    mine, theirs = (_shares(entry) for entry in (insight, reference))
    movement = ("higher: layout churn", "not higher")
    other = ("higher: operators that are not delegated or have no fast kernel", "not higher")
    convolution = ("lower: convolution is no longer what takes the time", "not lower")
    return (
        _answer("Is its Data Movement share higher?", "Data Movement", mine, theirs, movement),
        _answer("Is its Other share higher?", "Other", mine, theirs, other),
        _answer("Is its Convolution share lower?", "Convolution", theirs, mine, convolution),
    )


def _answer(
    question: str,
    category: str,
    larger: dict[str, float],
    smaller: dict[str, float],
    texts: tuple[str, str],
) -> ReferenceAnswer:
    """`texts` are for yes, `larger` above `smaller`, and for no."""
    yes = larger[category] > smaller[category]
    word = "Yes" if yes else "No"
    is_lower = "lower" in question
    share, reference = (smaller, larger) if is_lower else (larger, smaller)
    return ReferenceAnswer(
        question, share[category], reference[category], f"{word}, {texts[0 if yes else 1]}."
    )


def _shares(insight: ExperimentInsight) -> dict[str, float]:
    """Shares of the headline categories without interruptions; overheads count as Other."""
    shares = dict.fromkeys(CATEGORIES, 0.0)
    for detail in insight.details:
        shares[detail.row.operator_class.category] += insight.typical_share([detail])
    shares["Other"] += 1 - sum(shares.values())
    return shares


def find_movement_above_reference(subject: Subject) -> Finding | None:
    """F7: data movement takes a larger share than in the reference."""
    if subject.reference is None:
        return None
    answer = answer_questions(subject.insight, subject.reference)[0]
    if answer.share <= answer.reference_share:
        return None
    movement = subject.in_category("Data Movement")
    excess = (answer.share - answer.reference_share) * subject.total_ns
    return Finding(
        rule="F7",
        title="More data movement than in the reference",
        severity="medium",
        experiment=subject.name,
        summary=(
            f"Data movement is {format_share(answer.share)} of an inference, in the reference "
            f"({subject.reference_name}) {format_share(answer.reference_share)}."
        ),
        evidence=subject.show(movement),
        gain_ns=min(excess, sum_ns(movement)),
        action="see F2: keep one layout and remove transposes and copies",
    )


_Need = Literal[
    "times",
    "reference",
    "rivals",
    "comparison",
    "threads",
    "blocks",
    "build",
    "flow",
    "outputs",
]
_Rule = tuple[str, str, "Callable[[Subject], Finding | None]", tuple[_Need, ...]]
"""Name, what it looks for, function, and what must be there for it to be asked at all."""

RULES: Final[tuple[_Rule, ...]] = (
    ("F1", "normalisation dominates", layers.find_norm_dominance, ("times",)),
    ("F2", "many small layout operators", layers.find_small_layout_operators, ("times",)),
    (
        "F2b",
        "transposes that undo each other",
        layers.find_inverse_transposes,
        ("times", "flow"),
    ),
    ("F2c", "layout churn", layers.find_layout_churn, ("times",)),
    ("F3", "a slow convolution", layers.find_slow_convolution, ("times",)),
    (
        "F3b",
        "convolutions outside the delegate",
        layers.find_undelegated_convolution,
        ("times",),
    ),
    ("F3c", "depthwise convolutions", layers.note_depthwise, ("times",)),
    ("F4", "FP16 faster than INT8", measurement.find_precision_win, ("times", "rivals")),
    ("F5", "fallback to portable kernels", delegation.find_fallback, ("times",)),
    ("F6", "a large part is of category Other", delegation.find_high_other, ("times",)),
    (
        "F7",
        "more data movement than the reference",
        find_movement_above_reference,
        ("times", "reference"),
    ),
    (
        "F8",
        "less convolution than the reference",
        sme.note_convolution_share,
        ("times", "reference", "comparison"),
    ),
    ("F9", "the bottleneck has moved", sme.find_bottleneck_shift, ("times", "comparison")),
    ("F10", "SME2 without effect", sme.find_no_effect, ()),
    ("F11", "SME2 makes it slower", sme.find_slowdown, ("times", "comparison")),
    ("F12", "overhead", delegation.find_overhead, ("times",)),
    ("F13", "a noisy measurement", measurement.find_noise, ("times", "blocks")),
    ("F14", "more threads are slower", measurement.find_thread_slowdown, ("times", "threads")),
    ("F15", "no release build", measurement.find_debug_build, ("build",)),
    ("F16", "the export's description is missing", delegation.find_missing_description, ()),
    ("F17", "wrong outputs", measurement.find_wrong_outputs, ("outputs",)),
)
_SEVERITIES: Final = ("high", "medium", "note", "good")


def describe_rule(name: str) -> str:
    """Says what a rule looks for."""
    return next(subject for rule, subject, _, _ in RULES if rule == name)


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


def evaluate_run(
    run: RunInsight,
    *,
    comparisons: Sequence[Comparison] | None = None,
    reference: RunInsight | None = None,
    rivals: Sequence[RunInsight] = (),
    thresholds: Thresholds | None = None,
) -> tuple[ExperimentFindings, ...]:
    """Asks all rules about every experiment of `run`.

    `comparisons` are those of `compare_within`, made here when not given; `rivals` are runs of
    the same model at another precision.
    """
    if comparisons is None:
        comparisons = compare_within(run.run)
    return tuple(
        evaluate(
            Subject(
                run=run,
                insight=entry,
                provenance=run.run.manifest,
                thresholds=thresholds or Thresholds(),
                comparison=_against_off(entry, comparisons),
                thread_comparisons=_against_fewer_threads(entry, comparisons),
                reference=_like(reference, entry) if reference else None,
                reference_name=reference.run.name if reference else "",
                precision_rivals=_precision_rivals(run, entry, rivals),
            )
        )
        for entry in run.experiments
    )


def evaluate(subject: Subject) -> ExperimentFindings:
    """Asks all rules about one experiment."""
    there = _what_is_there(subject)
    asked = [(name, rule) for name, _, rule, needs in RULES if there.issuperset(needs)]
    found = [finding for _, rule in asked if (finding := rule(subject)) is not None]
    found.sort(key=lambda f: (_SEVERITIES.index(f.severity), -(f.gain_ns or 0.0)))
    answers: tuple[ReferenceAnswer, ...] = ()
    if subject.reference is not None and "times" in there:
        answers = answer_questions(subject.insight, subject.reference)
    return ExperimentFindings(
        subject.name,
        tuple(found),
        explain_missing_sme2(subject),
        answers,
        tuple(name for name, _ in asked),
    )


def _what_is_there(subject: Subject) -> set[_Need]:
    """Rules whose input is missing are not asked, so that their silence says nothing."""
    provenance = subject.provenance
    there: dict[_Need, bool] = {
        "times": subject.run.run.is_timed,
        "reference": subject.reference is not None,
        "rivals": bool(subject.precision_rivals),
        "comparison": subject.comparison is not None,
        "threads": bool(subject.thread_comparisons),
        "blocks": subject.insight.experiment.metrics is not None,
        "flow": subject.run.report is not None and subject.run.report.has_data_flow,
        "outputs": _has_outputs(subject),
        "build": provenance is not None and provenance.runner is not None,
    }
    return {need for need, found in there.items() if found}


def _has_outputs(subject: Subject) -> bool:
    """Whether outputs were kept; a damaged result does not forbid to read the times."""
    result = subject.insight.experiment.loaded.result
    return bool(result and result.outputs)


def _against_off(entry: ExperimentInsight, comparisons: Sequence[Comparison]) -> Comparison | None:
    name = entry.experiment.name
    return next(
        (
            c
            for c in comparisons
            if c.candidate.experiment.name == name
            and c.baseline.experiment.sme == "off" != c.candidate.experiment.sme
        ),
        None,
    )


def _against_fewer_threads(
    entry: ExperimentInsight, comparisons: Sequence[Comparison]
) -> tuple[Comparison, ...]:
    name = entry.experiment.name
    return tuple(
        c
        for c in comparisons
        if c.candidate.experiment.name == name
        and c.baseline.experiment.sme == c.candidate.experiment.sme
        and c.baseline.experiment.threads != c.candidate.experiment.threads
    )


def _like(reference: RunInsight, entry: ExperimentInsight) -> ExperimentInsight:
    """The reference's experiment in the same mode at the same threads, else in the same mode."""
    mine = entry.experiment
    same_mode = [e for e in reference.experiments if e.experiment.sme == mine.sme]
    same = [e for e in same_mode if e.experiment.threads == mine.threads]
    return (same or same_mode or list(reference.experiments))[0]


def _precision_rivals(
    run: RunInsight, entry: ExperimentInsight, rivals: Sequence[RunInsight]
) -> tuple[Comparison, ...]:
    """Compares with the same model's experiments of other precision, equal mode and threads."""
    mine = next(s for s in sides_of(run.run) if s.experiment.name == entry.experiment.name)
    return tuple(
        compare_sides(side, mine)
        for rival in rivals
        for side in sides_of(rival.run)
        if side.experiment.sme == entry.experiment.sme
        and side.experiment.threads == entry.experiment.threads
    )
