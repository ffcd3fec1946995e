"""Are a program's outputs right? Three questions, one table of thresholds, one record of the answers.

*Lowering*: does the program compute what the converted (cast, quantised) eager model computes?
*Precision*: is that good enough, compared with the float32 model? *Text*, of language models: does it
predict a text about as well as the float32 model? A program that fails the first is broken, and one
that fails another is of no use at this precision; no time of it counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log10
from typing import TYPE_CHECKING, Final, Literal

from etprof.base.records import Count, Name, Record
from etprof.base.text import join_names
from etprof.base.units import (
    format_count,
    format_number,
    format_share,
    format_value,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from etprof.statistics.likeness import Parity

Question = Literal["lowering", "precision", "text"]
QUESTIONS: Final[tuple[Question, ...]] = ("lowering", "precision")
"""Of every program; the third is of language models alone."""
Answer = Literal["passed", "failed", "unknown"]
AT_EXPORT: Final = "export"
_ANYWAY: Final = "--allow-inaccurate continues anyway, and every report says so"
WAY_TO_RIGHT: Final = (
    f"export another precision, or calibrate with inputs like the real ones; {_ANYWAY}"
)
WAY_TO_FAITHFUL: Final = (
    "it differs from eager in the same precision: `etprof numerics` of the model names the operator; "
    "--allow-inaccurate continues anyway, and every report says so"
)
NO_LIKENESS_DB: Final = -3000.0
"""Of values that are not finite: JSON has no number for infinity."""


def export_place(program: str) -> str:
    """Says whose verdict the export's is; `program` is what experiments call it, empty for none."""
    return f"{AT_EXPORT} of {program}" if program else AT_EXPORT


def way_to_right(failed: Iterable[Verdict], precision: str | None = None) -> str:
    """Says what to do about outputs that are wrong, by which questions they fail.

    Nothing of a float precision is calibrated.
    """
    if any(verdict.question == "lowering" for verdict in failed):
        return WAY_TO_FAITHFUL
    is_float = _kind(precision) in {"fp32", "fp16", "bf16"}
    return f"export another precision; {_ANYWAY}" if is_float else WAY_TO_RIGHT


class Floors(Record):
    """The least likeness to the float32 model that is good enough; no margin lowers it."""

    snr_db: float
    cosine: float
    top1: float
    """Over rows whose largest entry leads clearly."""


class Verdict(Record):
    """The answer to one question, and what it rests on: the worst output's likeness."""

    question: Question
    answer: Answer
    where: Name = AT_EXPORT
    """The export, or the experiment whose outputs these are."""
    output: Count | None = None
    step: Count | None = None
    """Which of several inferences in a row; None where there was one."""
    snr_db: float | None = None
    """None without any error."""
    least_snr_db: float | None = None
    cosine: float | None = None
    top1: float | None = None
    equal_share: float | None = None
    """Of whole numbers, that are equal; None of floats."""
    least_equal_share: float | None = None
    """What is asked of it."""
    reason: Name = ""

    @property
    def text(self) -> str:
        """The answer in words, for a banner."""
        failure_texts = {
            "lowering": "lowering is not faithful",
            "precision": "precision is not good enough",
            "text": "the language model is ruined",
        }
        return f"{self.where}: {failure_texts[self.question]}: {self.reason}"


class InputsVerdict(Record):
    """Whether a program is right on inputs beside the example."""

    inputs: Name
    """What they are, such as `inputs of 1x512`."""
    answer: Answer
    """`unknown` where the eager model itself fails on them, or gives nothing to compare with."""
    snr_db_converted: float | None = None
    """Against the converted eager model; None without any error."""
    snr_db: float | None = None
    """Against the float32 model; None of inputs that were made up, and without any error."""
    reason: Name = ""


@dataclass(frozen=True)
class _FaithfulnessLimits:
    """How near a program must be to the converted eager model."""

    usual_db: float
    least_db: float
    """Even where the model amplifies rounding, so that the usual cannot be had."""
    margin_db: float = 3.0
    """The program may be this much further from the converted model than that is from float32.

    Two roundings of one model that are independent of each other are 3 dB further apart than either
    is from float32.
    """

    @property
    def error_growth(self) -> float:
        """Of a faithful program's error power beside float32, ÷ the converted model's.

        The program's own rounding adds up with that of the conversion, and the two are independent.
        """
        return 1 + 10 ** (self.margin_db / 10)


FLOORS: Final[Mapping[str, Floors]] = {
    "fp32": Floors(snr_db=80, cosine=0.99999, top1=0.99),
    "fp16": Floors(snr_db=40, cosine=0.9995, top1=0.95),
    "bf16": Floors(snr_db=30, cosine=0.999, top1=0.9),
    "int8": Floors(snr_db=20, cosine=0.99, top1=0.9),
    "8da4w": Floors(snr_db=15, cosine=0.97, top1=0.8),
}
"""By precision; `int8_…` has int8's and `8da4w_…` 8da4w's.

The zoo's models keep all of it. Rounding alone leaves some 40 dB to an 8-bit value and 20 dB to a
4-bit weight. The outputs for another image are 9 to 18 dB away in the zoo's MobileNets, ResNet and
ViT, so that down to 8 bits a program with wrong inputs or weights is below it.
"""
_HALF_MARGIN_DB: Final = 7.0
"""Rounding in halves is no small disturbance: where the model amplifies it, 3 dB are what to expect.

29 random networks with settled batch norms (`python -m tests.reports.half_margin`) are in fp16 2.4 dB
further from eager in half precision than that is from float32, with a standard deviation of 1.5 dB and
5.1 dB at most, and lose up to 5.3 dB beside it: three standard deviations are allowed. On a CPU that sums
halves in halves (AVX512-FP16), a program of 30 layers loses 3.4 dB.
"""
_FAITHFUL: Final[Mapping[str, _FaithfulnessLimits]] = {
    "fp32": _FaithfulnessLimits(80, 60),
    "fp16": _FaithfulnessLimits(40, 20, _HALF_MARGIN_DB),
    "bf16": _FaithfulnessLimits(30, 20, _HALF_MARGIN_DB),
    "int8": _FaithfulnessLimits(20, 12),
    "8da4w": _FaithfulnessLimits(15, 10),
}
_LEAST_EQUAL: Final = FLOORS["8da4w"].top1
"""Of whole numbers beside the converted model's, however few that has of float32's own."""
_FLIP_GROWTH: Final = 3.0
"""Rows or whole numbers that may come out otherwise, ÷ those that the conversion itself changes.

Near ties flip in proportion to the error's amplitude, not its power, and the two that are compared
flip independently: two are to be expected.
"""
_ANY_COSINE: Final = -2.0

_MOST_PERPLEXITY: Final[Mapping[str, float]] = {
    "fp32": 1.001,
    "fp16": 1.02,
    "bf16": 1.05,
    "int8": 1.1,
    "8da4w": 1.25,
}
"""÷ the float32 model's, by precision. Models that are in use with 4-bit weights stay below."""
_KNOWS: Final = 0.5
"""Of the vocabulary: a model of greater perplexity does not know the text, and one that guesses has
the whole. What cannot be lost cannot be missed either."""


def judge_text(
    precision: str, perplexity: float | None, eager: float | None, vocabulary: int
) -> Verdict:
    """Says whether a program predicts a text about as well as the float32 model.

    A perplexity of None is one that is not finite; of `eager`, one that nobody computed.
    """
    if perplexity is None:
        return _failed_text("its scores of the text are not finite")
    if eager is None:
        return unknown("text", "nobody read the text with the float32 model")
    maximum_ratio = _MOST_PERPLEXITY.get(_kind(precision))
    if maximum_ratio is None:
        return unknown("text", f"no threshold is known for precision {precision}")
    if eager > _KNOWS * vocabulary:
        return unknown(
            "text",
            f"the model does not know the text: its perplexity in float32 is {format_number(eager)} of "
            f"{format_count(vocabulary)} tokens; give trained weights, or a text of its own",
        )
    if perplexity <= maximum_ratio * eager:
        return Verdict(question="text", answer="passed")
    return _failed_text(
        f"its perplexity of the text is {format_number(perplexity)} instead of float32's "
        f"{format_number(eager)}, {format_number(perplexity / eager)} times as much and not {maximum_ratio:g} at most"
    )


def _failed_text(reason: str) -> Verdict:
    return Verdict(question="text", answer="failed", reason=reason)


def _kind(precision: str | None) -> str:
    name = precision or ""
    return next((kind for kind in FLOORS if name == kind or name.startswith(f"{kind}_")), "")


def find_floors(precision: str | None) -> Floors | None:
    """Returns what a precision has to keep; None for one that etprof does not know."""
    return FLOORS.get(_kind(precision))


def reachable_floors(floors: Floors, precision: str | None, cost: Parity | None) -> Floors:
    """Returns what can be asked of a float precision: no more than eager in that precision has.

    And never less than of int8. Floors that the user chose stay as they are, and so do those of
    integers: their scales are of the calibration, which may be at fault.

    Args:
        floors: What is asked for.
        precision: Its name.
        cost: Eager in that precision beside the float32 model; None where nobody knows.
    """
    kind, least = _kind(precision), FLOORS["int8"]
    if cost is None or kind not in {"fp16", "bf16"} or floors != FLOORS[kind]:
        return floors
    growth = _FAITHFUL[kind].error_growth
    snr, cosine = cost.snr_db, cost.cosine
    top1 = cost.clear_top1 if cost.equal_share is None else cost.equal_share
    return Floors(
        snr_db=floors.snr_db
        if snr is None
        else _within(least.snr_db, snr - 10 * log10(growth), floors.snr_db),
        # One less the cosine is half the error's power ÷ the signal's.
        cosine=floors.cosine
        if cosine is None
        else _within(least.cosine, _grown(cosine, growth), floors.cosine),
        top1=floors.top1
        if top1 is None
        else _within(least.top1, _grown(top1, _FLIP_GROWTH), floors.top1),
    )


def _grown(likeness: float, growth: float) -> float:
    """Returns a likeness of 1 at most, a cosine or a share, once its error has grown so many times."""
    return 1 - growth * (1 - likeness)


def _within(least: float, value: float, most: float) -> float:
    return max(least, min(value, most))


def judge_precision(
    parities: Iterable[Parity],
    floors: Floors,
    where: str = AT_EXPORT,
    *,
    precision: str | None = None,
    costs: Mapping[int, Parity] | None = None,
) -> Verdict:
    """Says whether outputs are good enough beside the float32 model's.

    `costs` has the converted model's own likeness to it, by output.
    """
    rows = []
    for parity in parities:
        reachable = reachable_floors(floors, precision, (costs or {}).get(parity.index))
        rows.append((parity, reachable))
    return _worst("precision", where, rows)


def judge_lowering(
    parities: Iterable[Parity],
    precision: str | None,
    costs: Mapping[int, Parity],
    where: str = AT_EXPORT,
    *,
    are_made_up: bool = False,
) -> Verdict:
    """Says whether outputs are those of the converted eager model.

    `costs` has the converted model's own likeness to the float32 one, by output. Of inputs that are
    made up the least is asked: how much rounding the model amplifies there, nobody knows.
    """
    limits = _FAITHFUL.get(_kind(precision))
    if limits is None:
        return unknown("lowering", f"no threshold is known for precision {precision}", where)
    usual_equal = FLOORS[_kind(precision)].top1
    rows = []
    for parity in parities:
        cost = costs.get(parity.index)
        floor_db, floor_equal = limits.usual_db, usual_equal
        if are_made_up:
            floor_db, floor_equal = limits.least_db, _LEAST_EQUAL
        if cost is not None and cost.snr_db is not None:
            floor_db = _within(limits.least_db, cost.snr_db - limits.margin_db, limits.usual_db)
        if cost is not None and cost.equal_share is not None:
            grown = _grown(cost.equal_share, _FLIP_GROWTH)
            floor_equal = _within(_LEAST_EQUAL, grown, usual_equal)
        is_whole = parity.equal_share is not None
        rows.append((parity, _floors_of_lowering(floor_db, floor_equal if is_whole else 0.0)))
    return _worst("lowering", where, rows)


def _floors_of_lowering(snr_db: float, equal_share: float) -> Floors:
    """Asks no cosine, which is a matter of precision."""
    return Floors(snr_db=snr_db, cosine=_ANY_COSINE, top1=equal_share)


def unknown(question: Question, reason: str, where: str = AT_EXPORT) -> Verdict:
    """Returns a verdict without an answer."""
    return Verdict(question=question, answer="unknown", where=where, reason=reason)


def _worst(question: Question, where: str, rows: Sequence[tuple[Parity, Floors]]) -> Verdict:
    """Returns the verdict of the output that decides: a failed one, else the furthest one."""
    if not rows:
        return unknown(question, "there is no output to compare", where)
    judged = [_judge(question, where, *row) for row in rows]
    first = min(judged, key=_rank)
    unjudged = [
        verdict for verdict in judged if verdict.answer == "unknown" and verdict is not first
    ]
    reasons = "; ".join(filter(None, [first.reason, *(verdict.reason for verdict in unjudged)]))
    return first.model_copy(update={"reason": reasons})


def _rank(verdict: Verdict) -> tuple[int, float]:
    """Orders verdicts: what decides comes first."""
    ratio = float("inf") if verdict.snr_db is None else verdict.snr_db
    return ("failed", "passed", "unknown").index(verdict.answer), ratio


def worst_step(verdicts: Mapping[int, Verdict]) -> Verdict:
    """Returns the verdict that decides of those on several inferences in a row, by their number.

    Where there are several and one is wrong, its reason says which is the first.
    """
    failed = [step for step, verdict in verdicts.items() if verdict.answer == "failed"]
    step = min(failed) if failed else min(verdicts, key=lambda step: _rank(verdicts[step]))
    verdict = verdicts[step]
    if len(verdicts) == 1:
        return verdict
    reason = (
        f"at inference {step} of {len(verdicts)}, {verdict.reason}" if failed else verdict.reason
    )
    return verdict.model_copy(update={"step": step, "reason": reason})


def _judge(question: Question, where: str, parity: Parity, floors: Floors) -> Verdict:
    shortfalls = list(_shortfalls(parity, floors))
    is_scored = parity.degenerate is None
    answer: Answer = "failed" if shortfalls else "passed" if is_scored else "unknown"
    unscored = f"output {parity.index} is not scored: of the reference, {parity.degenerate}"
    reason = f"output {parity.index} has {join_names(shortfalls)}" if shortfalls else ""
    ratio = None if parity.snr_db is None or not is_scored else max(parity.snr_db, NO_LIKENESS_DB)
    return Verdict(
        question=question,
        answer=answer,
        where=where,
        output=parity.index,
        snr_db=ratio,
        least_snr_db=floors.snr_db,
        cosine=parity.cosine,
        top1=parity.top1,
        equal_share=parity.equal_share,
        least_equal_share=None if parity.equal_share is None else floors.top1,
        reason=reason if shortfalls or is_scored else unscored,
    )


def _shortfalls(parity: Parity, floors: Floors) -> Iterable[str]:
    if parity.nonfinite_differences:
        yield f"{parity.nonfinite_differences} values that are not finite on one side only"
    if parity.degenerate is not None or parity.has_equal(floors.top1):
        return
    if parity.snr_db is None and parity.equal_share is not None:
        shares = map(format_differing, (parity.equal_share, floors.top1))
        yield "{} of its whole numbers different instead of {} or fewer".format(*shares)
    if parity.snr_db is not None and not parity.snr_db >= floors.snr_db:
        ratio = format_value("dB", max(parity.snr_db, NO_LIKENESS_DB))
        yield _instead(f"{ratio} signal to noise", ratio, format_value("dB", floors.snr_db))
    if parity.cosine is not None and not parity.cosine >= floors.cosine:
        cosine = str(round(parity.cosine, 5))
        yield _instead(f"a cosine of {cosine}", cosine, str(floors.cosine))
    if parity.clear_top1 is not None and parity.clear_top1 < floors.top1:
        share = format_share(parity.clear_top1)
        description = f"the same largest entry in {share} of the rows where it is clear,"
        yield _instead(description, share, format_share(floors.top1))


def format_differing(equal_share: float) -> str:
    """Formats how many values differ; three digits, since one in a million is no 0.0 %."""
    return f"{format_number(100 * (1 - equal_share))} %"


def _instead(description: str, measured: str, minimum: str) -> str:
    """Adds the required minimum; a figure that rounds to it is shown as just under it."""
    text = (
        description.replace(measured, f"just under {measured}")
        if measured == minimum
        else description
    )
    return f"{text} instead of {minimum} or more"


class LayerLoss(Record):
    """What the weights of one layer cost, rounded alone in a model that is float32 otherwise."""

    module: Name
    divergence_nats: float


class TextQuality(Record):
    """How a program read a text token by token, and what it added to the text's beginning.

    Both in ExecuTorch's runtime on the host that exported.
    """

    program: Name
    """The program by its content: of another one this says nothing."""
    text: Name
    """Which text, and how it became ids."""
    tokens: Count
    """Ids whose successor was scored."""
    vocabulary: Count
    perplexity: float | None
    """e to the mean negative log-probability of each next token; None where that is not finite."""
    eager_perplexity: float | None = None
    """Of the float32 model on the same ids; None, as all below, where not computed."""
    same_top1: float | None = None
    """Share of the places at which the most likely token is the float32 model's."""
    divergence_nats: float | None = None
    """Mean Kullback-Leibler divergence from the float32 model's probabilities."""
    prompt_tokens: Count = 0
    """From which both generated."""
    new_tokens: Count = 0
    same_tokens: Count | None = None
    """Of these, before the first that is not the float32 model's."""
    layers: tuple[LayerLoss, ...] = ()
    """Of a program that failed: which layers' weights cost most, the worst first."""
    verdict: Verdict

    @property
    def perplexity_ratio(self) -> float | None:
        """÷ the float32 model's: 1 costs nothing."""
        if self.perplexity is None or self.eager_perplexity is None:
            return None
        return self.perplexity / self.eager_perplexity

    @property
    def agreement(self) -> float | None:
        """Share of the new tokens that come before the first other one."""
        is_compared = self.same_tokens is not None and self.new_tokens
        return (self.same_tokens or 0) / self.new_tokens if is_compared else None
