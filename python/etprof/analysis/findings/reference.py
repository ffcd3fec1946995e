"""F7 and the three questions of the findings guide: this model beside a reference model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from etprof.analysis.findings.finding import Finding, Subject, sum_ns
from etprof.backends.backend import CATEGORIES
from etprof.base.units import format_share

if TYPE_CHECKING:
    from etprof.analysis.insight import ExperimentInsight


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
