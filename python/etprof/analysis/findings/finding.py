"""How a rule is declared, what it looks at, what it says, and the numbers that decide."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import fsum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, NamedTuple, TypeVar, overload

from pydantic import BaseModel, ConfigDict, Field

from etprof.analysis.findings.commands import command_in
from etprof.analysis.split.operators import add_parts
from etprof.backends.backend import CATEGORIES
from etprof.base.text import join_names
from etprof.base.units import (
    count_of,
    first_texts,
    format_duration,
    format_ratio_ends,
    format_share,
)
from etprof.statistics.effect import DEFAULT_MARGIN
from etprof.statistics.noise import DRIFT, VARIATION
from etprof.statistics.two_samples import mean_interval

if TYPE_CHECKING:
    from etprof.analysis.compare.comparison import Comparison
    from etprof.analysis.insight import ExperimentInsight, OperatorDetail, RunInsight
    from etprof.analysis.split.evidence import OperatorEvidence
    from etprof.analysis.split.operators import OperatorSplit, OperatorTimes, OverheadRow
    from etprof.run.manifest import Manifest
    from etprof.statistics.effect import Effect
    from etprof.statistics.order_statistics import Interval

Severity = Literal["high", "medium", "note", "good"]
SHOWN_ROWS = 6
_MOST_REFUSALS: Final = 4
GUIDE: Final = "docs/findings.md"
EVERYTHING: Final = -1
"""A claim on every part of an inference."""
Share = Annotated[float, Field(ge=0, le=1)]
Ratio = Annotated[float, Field(gt=0)]
Need = TypeVar("Need")
Required = TypeVar("Required")


class Thresholds(BaseModel):
    """Shares are of `Method::execute`; ratios have no unit."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    norm_share: Share = 0.15
    least_share: Share = 0.05
    """Below this nothing is worth a finding of its own."""
    small_layout_count: Annotated[int, Field(ge=1)] = 10
    small_layout_ns: Annotated[float, Field(gt=0)] = 1e6
    small_layout_share: Share = 0.02
    small_layout_total_share: Share = 0.10
    layout_share: Share = 0.30
    large_layout_share: Share = 0.10
    slow_convolution_ratio: Ratio = 10.0
    depthwise_share: Share = 0.05
    portable_share: Share = 0.05
    splitting_operator_share: Share = 0.01
    other_share: Share = 0.10
    pair_share: Share = 0.01
    reference_excess: Share = 0.05
    tile_share: Share = 0.25
    packing_ratio: Ratio = 1.0
    boundary_share: Share = 0.25
    unattributed_share: Share = 0.05
    shift_before_share: Share = 0.50
    shift_after_share: Share = 0.30
    shift_movement_share: Share = 0.40
    accelerated_ratio: Ratio = 1.2
    overhead_share: Share = 0.10
    variation: Share = VARIATION
    drift: Share = DRIFT


@dataclass(frozen=True)
class EvidenceRow:
    """One figure behind a finding."""

    label: str
    text: str


@dataclass(frozen=True)
class Refusal:
    """Operators outside the delegate that no rewrite of etprof replaces."""

    operator: str
    """ATen's name of what the model has there, such as `gru`, else the kernel's."""
    text: str
    """What they are, and why they are outside."""


@dataclass(frozen=True)
class Finding:
    """What one rule found in one experiment."""

    title: str
    severity: Severity
    summary: str
    action: str
    """What to do; empty where nothing can be done."""
    evidence: tuple[EvidenceRow, ...] = ()
    claims: Mapping[int, float] = field(default_factory=dict)
    """What it is about: the share of each part of the split, by its place among them."""
    ruled_out: tuple[str, ...] = ()
    rule: str = ""
    """Such as F1; it, the experiment and all below are filled in by the evaluation of the rules."""
    experiment: str = ""
    time_ns: float | None = None
    """What it is about takes of an inference; None where it is about no time."""
    gain_ns: float | None = None
    """What an inference gains by its command, beside what the findings above it gain, as predicted,
    or as measured between two settings; None where nobody knows it."""
    interval: Interval | None = None
    """95 % interval of the prediction; None with a single operator launch."""
    shares_with: tuple[str, ...] = ()
    """Rules above it whose commands gain a part of the same time."""
    together_ns: float | None = None
    """What it and these gain."""
    latency_ns: float | None = None
    """Of an inference, of which the gain is a part; None without a gain."""
    operators: int | None = None
    """Operators that its command is for; None without a command that exports with rewrites."""
    replaced_operators: int | None = None
    """Those of them that the command's rewrites replace in this program."""
    inexact_rewrites: tuple[str, ...] = ()
    """Rewrites of its command that round more than what they replace."""
    refusals: tuple[Refusal, ...] = ()
    """Those of them that it has no command for."""

    @property
    def explanation(self) -> str:
        """Says what no rewrite helps, and why; empty where nothing is known of it."""
        if not self.refusals:
            return ""
        where = "the others" if command_in(self.action) else "here"
        texts = "; ".join(first_texts([refusal.text for refusal in self.refusals], _MOST_REFUSALS))
        hint = "" if self.action else f" (what to do: `{self.guide_command}`)"
        return f"No rewrite of etprof helps {where}: {texts}{hint}"

    @property
    def caveat(self) -> str:
        """Says that its command costs accuracy; empty where it does not."""
        if not self.inexact_rewrites:
            return ""
        names = join_names(self.inexact_rewrites)
        return f"{names} can cost accuracy: `optimize` measures how much, and decides"

    @property
    def advice(self) -> str:
        """What to do in full: its action, what that does not reach, and what it may cost."""
        return ". ".join(filter(None, (self.action, self.explanation, self.caveat)))

    @property
    def is_below_margin(self) -> bool:
        """Whether its whole prediction is less than what counts as no difference."""
        if self.gain_ns is None or self.latency_ns is None or self.is_gain_measured:
            return False
        most_ns = self.interval.high if self.interval else self.gain_ns
        return most_ns < DEFAULT_MARGIN * self.latency_ns

    @property
    def is_gain_measured(self) -> bool:
        """Whether its gain is a difference between two settings that were measured."""
        return EVERYTHING in self.claims

    @property
    def guide(self) -> str:
        """Where the rule is explained."""
        return f"{GUIDE}#{self.rule.lower()}"

    @property
    def guide_command(self) -> str:
        """The command that prints what the guide says of this finding."""
        return f"etprof docs {self.rule}"


@dataclass(frozen=True)
class ReferenceAnswer:
    """One of the guide's questions with this model's figures."""

    question: str
    share: float
    reference_share: float
    answer: str


@dataclass(frozen=True)
class Subject:
    """One experiment with everything that rules may read."""

    run: RunInsight
    insight: ExperimentInsight
    thresholds: Thresholds
    comparison: Comparison | None = None
    """With SME off as the baseline and this experiment as the candidate."""
    reference: ExperimentInsight | None = None
    reference_name: str = ""
    """The reference's model, or its experiment where the model is not known."""
    precision_rivals: tuple[Comparison, ...] = ()
    """The same model at another precision as the baseline, this experiment as the candidate."""
    leaves_times_out: bool = False
    """Its times disagree with each other: what is asked of it is asked without them."""

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.insight.experiment.name

    @property
    def provenance(self) -> Manifest | None:
        """The run's manifest."""
        return self.run.run.manifest

    @property
    def details(self) -> tuple[OperatorDetail, ...]:
        """The operators in program order."""
        return self.insight.details

    @property
    def is_timed(self) -> bool:
        """Whether its operators have times, and those are performance."""
        is_timed = self.run.run.is_timed and self.split.times is not None
        return is_timed and not self.leaves_times_out

    @property
    def total_ns(self) -> float:
        """A mean inference of the per-operator breakdown."""
        return required(self.insight.experiment.split.times).execute.mean_ns

    @property
    def split(self) -> OperatorSplit:
        """Its per-operator breakdown."""
        return self.insight.experiment.split

    def cost(
        self, details: Sequence[OperatorDetail]
    ) -> tuple[tuple[EvidenceRow, ...], dict[int, float]]:
        """What operators take, as evidence and as the most that could be gained."""
        return self.show(details), self.claim(details)

    def claim(self, details: Iterable[OperatorDetail], share: float = 1.0) -> dict[int, float]:
        """Claims a share of the time of each of these operators."""
        claimed_ids = {id(detail) for detail in details}
        return {
            index: share for index, detail in enumerate(self.details) if id(detail) in claimed_ids
        }

    def claim_of_latency(self, saved_ns: float | None) -> dict[int, float]:
        """Claims time of the timed latency, wherever in an inference it goes."""
        inference_ns = self.insight.experiment.inference_ns
        return {EVERYTHING: min(saved_ns / inference_ns, 1.0)} if saved_ns and inference_ns else {}

    def reaches(self, details: Sequence[OperatorDetail], share: float) -> bool:
        """Whether these take at least `share`: all of the interval where there is one."""
        interval = share_interval(self.insight, details)
        point = self.share_of(details)
        return bool(details) and point >= share and (interval is None or interval.low >= share)

    def exceeds_reference(self, category: str) -> float:
        """How much more of an inference a category takes than in the reference; 0 when in doubt.

        Both intervals between launches have to be apart, where there are some.
        """
        if self.reference is None:
            return 0.0
        mine, theirs = (
            [d for d in insight.details if d.row.operator_class.category == category]
            for insight in (self.insight, self.reference)
        )
        here, there = share_interval(self.insight, mine), share_interval(self.reference, theirs)
        if here and there and here.low <= there.high:
            return 0.0
        return max(self.share_of(mine) - required(self.reference.share(theirs)), 0.0)

    def weigh(self, details: Sequence[OperatorDetail]) -> str:
        """Says what these operators take, such as `10.4 µs per inference, 19.4 %`."""
        share = format_share(self.share_of(details))
        return f"{format_duration(sum_ns(details))} per inference, {share}"

    def show(
        self, details: Sequence[OperatorDetail], count: int = SHOWN_ROWS
    ) -> tuple[EvidenceRow, ...]:
        """Shows the first `count` operators and how many more; no time where those mean nothing."""
        rows = [EvidenceRow(detail.name, _figures(detail)) for detail in details[:count]]
        if remaining := details[count:]:
            time = format_duration(sum_ns(remaining)) if self.is_timed else "not shown"
            rows.append(EvidenceRow(count_of(len(remaining), "other"), time))
        return tuple(rows)

    @cached_property
    def answers(self) -> tuple[ReferenceAnswer, ...]:
        """The guide's three questions beside the reference; empty without one."""
        if self.reference is None:
            return ()
        mine, theirs = _shares(self.insight), _shares(self.reference)
        is_delegated_whole = all(detail.row.is_delegated for detail in self.details)
        return tuple(
            _answer(
                question,
                mine[category],
                theirs[category],
                _OVERHEAD_ONLY if category == "Other" and is_delegated_whole else yes,
                self.thresholds.reference_excess,
            )
            for question, category, yes in _QUESTIONS
        )

    def name_of(self, operator: OperatorEvidence) -> str:
        """Returns the layer of a counted operator, else its label."""
        details = (detail for detail in self.details if detail.evidence is operator)
        return next((detail.name for detail in details), operator.name)

    def share_of(self, details: Iterable[OperatorDetail]) -> float:
        """Share of these operators in an inference, as the tables have it."""
        return required(self.insight.share(details))

    def select(self, predicate: Callable[[OperatorDetail], bool]) -> list[OperatorDetail]:
        """Returns the operators for which `predicate` holds, the slowest first, else in order."""
        return slowest_first(filter(predicate, self.details))

    def in_class(self, *finer: str) -> list[OperatorDetail]:
        """Returns the operators of these finer classes, the slowest first."""
        return self.select(lambda detail: detail.row.operator_class.finer in finer)

    def in_category(self, *categories: str) -> list[OperatorDetail]:
        """Returns the operators of these categories, the slowest first."""
        return self.select(lambda detail: detail.row.operator_class.category in categories)


def describe_interval(effect: Effect | None) -> str:
    """Says between what a speedup is."""
    interval = effect.interval if effect else None
    if interval is None:
        return "the verdict has it within"
    low, high = format_ratio_ends(effect.speed_up if effect else None, interval.low, interval.high)
    return f"the 95 % interval of the speedup is {low} to {high}"


def required(value: Required | None) -> Required:
    """Returns a value that the rule's needs guarantee, such as the times of a timed rule."""
    if value is None:
        msg = "a rule read what it does not name among its needs"
        raise LookupError(msg)
    return value


def share_interval(
    insight: ExperimentInsight, details: Sequence[OperatorDetail]
) -> Interval | None:
    """95 % interval of the share of `details` between launches; None with a single one."""
    split_times = insight.experiment.split.times
    times = add_parts([detail.row.times for detail in details])
    if split_times is None or times is None:
        return None
    pairs = zip(times.launches_ns, split_times.execute.launches_ns, strict=True)
    return mean_interval([mine / every for mine, every in pairs if every])


def times_of(detail: OperatorDetail) -> OperatorTimes:
    """The operator's times, for rules that need them."""
    return required(detail.row.times)


def sum_ns(details: Iterable[OperatorDetail]) -> float:
    """Mean time per inference of all `details`, as the tables have it."""
    return fsum(times_of(detail).mean_ns for detail in details)


def slowest_first(details: Iterable[OperatorDetail]) -> list[OperatorDetail]:
    """Orders operators by their time, where that is known."""
    return sorted(details, key=lambda d: -d.row.times.mean_ns if d.row.times else 0.0)


def _figures(detail: OperatorDetail) -> str:
    times, row = detail.row.times, detail.row
    figures = [format_duration(times.mean_ns)] if times else []
    figures.append("delegated" if row.is_delegated else "not delegated")
    figures += [row.label] if row.location else []
    return ", ".join(figures)


def overhead_evidence(rows: Iterable[OverheadRow]) -> tuple[EvidenceRow, ...]:
    """Shows rows that are no operators."""
    return tuple(
        EvidenceRow(
            row.label, f"{format_duration(row.times.mean_ns)}, {format_share(row.times.share)}"
        )
        for row in rows
    )


_QUESTIONS: Final = (
    ("Is its Data Movement share higher?", "Data Movement", "higher: layout churn"),
    (
        "Is its Other share higher?",
        "Other",
        "higher: operators that are not delegated or have no fast kernel",
    ),
    (
        "Is its Convolution share lower?",
        "Convolution",
        "lower: other classes take more of the time (1x1 convolutions count as products)",
    ),
)
"""With the category, and what it means if so; its first word says which way."""
_OVERHEAD_ONLY: Final = (
    "higher: overhead of framework and delegate, since no operator is outside the delegate"
)


def _answer(
    question: str, mine: float, theirs: float, yes: str, minimum_difference: float
) -> ReferenceAnswer:
    """Shares that differ by less than `minimum_difference` count as equal."""
    direction = yes.partition(":")[0]
    is_so = (mine - theirs if direction == "higher" else theirs - mine) >= minimum_difference
    return ReferenceAnswer(
        question, mine, theirs, f"Yes, {yes}." if is_so else f"No, not {direction}."
    )


def _shares(insight: ExperimentInsight) -> dict[str, float]:
    """Shares of the headline categories; overheads count as Other."""
    shares = dict.fromkeys(CATEGORIES, 0.0)
    for detail in insight.details:
        shares[detail.row.operator_class.category] += required(insight.share([detail]))
    shares["Other"] += 1 - fsum(shares.values())
    return shares


class RuleAnswer(NamedTuple):
    """What one rule says of one experiment."""

    is_asked: bool
    """Whether its needs are met, so that no finding means that there is nothing."""
    finding: Finding | None = None
    is_withheld: bool = False
    """It has a finding by operator times that do not agree with the latency."""


@dataclass(frozen=True)
class Rule:
    """A question about one experiment."""

    name: str
    """Such as F2b."""
    looks_for: str
    needs: Callable[[Subject], object]
    """What it reads; without it the rule is skipped, so that its silence says nothing."""
    find: Callable[..., Finding | None]
    takes_need: bool
    is_timed: bool
    reads_operators: bool
    """It looks at operators' times: where they are in doubt, finding nothing says nothing."""

    def ask(self, subject: Subject) -> RuleAnswer:
        """Returns whether its needs are met, and its finding."""
        need = self.needs(subject)
        if not need or (self.is_timed and not subject.is_timed):
            return RuleAnswer(is_asked=False)
        finding = self._find(subject, need)
        rests_on_split = finding and finding.claims and EVERYTHING not in finding.claims
        if rests_on_split and subject.insight.experiment.is_in_doubt:
            if self.is_timed:
                return RuleAnswer(is_asked=False, is_withheld=True)
            # What is outside the delegate is so in a noisy run too: without what it would gain.
            finding = self._find(replace(subject, leaves_times_out=True), need)
            finding = finding and replace(finding, claims={})
        if finding is None and self.reads_operators and subject.insight.experiment.is_in_doubt:
            return RuleAnswer(is_asked=False)
        named = finding and replace(finding, rule=self.name, experiment=subject.name)
        return RuleAnswer(is_asked=True, finding=named)

    def _find(self, subject: Subject, need: object) -> Finding | None:
        return self.find(subject, need) if self.takes_need else self.find(subject)


RULES: Final[dict[str, Rule]] = {}
"""By name; filled by the modules of this folder as they are imported."""


@overload
def rule(
    name: str, looks_for: str, *, is_timed: bool = True, reads_operators: bool = False
) -> Callable[[Callable[[Subject], Finding | None]], object]: ...


@overload
def rule(
    name: str,
    looks_for: str,
    needs: Callable[[Subject], Need | None],
    *,
    is_timed: bool = True,
    reads_operators: bool = False,
) -> Callable[[Callable[[Subject, Need], Finding | None]], object]: ...


def rule(
    name: str,
    looks_for: str,
    needs: Callable[[Subject], Any] | None = None,
    *,
    is_timed: bool = True,
    reads_operators: bool = False,
) -> Callable[[Any], object]:
    """Declares a rule: `find(subject)`, or `find(subject, need)` where it needs more than times."""

    def declare(find: Callable[..., Finding | None]) -> object:
        need_of = needs or (lambda _: True)
        RULES[name] = Rule(
            name, looks_for, need_of, find, needs is not None, is_timed, reads_operators
        )
        return find

    return declare
