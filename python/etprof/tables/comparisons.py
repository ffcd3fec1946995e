"""What changed from a baseline to a candidate: verdicts, operators, classes, costs, conditions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from etprof.analysis.compare.alignment import label_of
from etprof.analysis.compare.waterfall import WaterfallStep
from etprof.analysis.exact_facts import EXACT_METRICS
from etprof.analysis.split.tree import comparison_tree
from etprof.base.units import format_value
from etprof.run.accuracy import format_differing
from etprof.tables.operators import (
    BOX_COLUMNS,
    DETAIL_COLUMNS,
    NUMBER,
    ROW_COLUMNS,
    BoxSubject,
    launches_text,
)
from etprof.tables.table import Column, Table, estimate, named_column, speed_up
from etprof.tables.verdicts import QUESTIONABLE, WRONG, badge_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from etprof.analysis.compare.amdahl import Bottleneck
    from etprof.analysis.compare.comparison import Change, ComparedTimes, Comparison, OperatorChange
    from etprof.analysis.compare.waterfall import Waterfall
    from etprof.analysis.exact_facts import ExactFacts, ExactMetric
    from etprof.analysis.insight import OperatorDetail
    from etprof.analysis.split.cold_start import LedgerEntry
    from etprof.analysis.validity import ValidityCheck
    from etprof.run.accuracy import Verdict
    from etprof.tables.table import Value

VERDICT_STYLES: Final = {
    "faster": "bold green", "slower": "bold red", "different results": "bold red", WRONG: "bold red",
    "inconclusive": "yellow", QUESTIONABLE: "yellow",
}  # fmt: skip


class _ChangeContext(NamedTuple):
    """What of a change does not differ between operators, classes and categories."""

    comparison: Comparison
    names: tuple[str, ...]
    change: Change | None


class SideFacts(NamedTuple):
    """One side of a comparison, with what no noise changes."""

    comparison: Comparison
    name: str
    facts: ExactFacts


def _fact(metric: ExactMetric) -> Callable[[SideFacts], Value]:
    return lambda side: metric.value_of(side.facts)


def _side_facts(comparison: Comparison) -> Iterator[SideFacts]:
    for name, facts in zip(comparison.short_names, comparison.facts, strict=True):
        yield SideFacts(comparison, name, facts)


class ChangedOperator(NamedTuple):
    """One row: an operator on both sides, with all that is known of the side that is there."""

    comparison: Comparison
    operator: OperatorChange
    number: int
    detail: OperatorDetail | None

    @property
    def change(self) -> Change | None:
        """Its times, where both sides have any."""
        return self.operator.change


class _ListRow(NamedTuple):
    """One row of a comparison's list."""

    comparison: Comparison
    row: LedgerEntry | Bottleneck | ValidityCheck


def _list_rows(
    getter: Callable[[ComparedTimes], Iterable[Any]],
) -> Callable[[Comparison], Iterable[_ListRow]]:
    return lambda c: (_ListRow(c, row) for row in (getter(c.times) if c.times else ()))


def _groups(name: str) -> Callable[[Comparison], Iterable[_ChangeContext]]:
    """Changes by category or class."""

    def read(comparison: Comparison) -> Iterator[_ChangeContext]:
        for key, change in (getattr(comparison.times, name) if comparison.times else {}).items():
            yield _ChangeContext(comparison, (key,) if isinstance(key, str) else tuple(key), change)

    return read


def _of_change(name: str) -> Callable[[Any], Value]:
    return lambda s: getattr(s.change, name) if s.change else None


def _of_panel(name: str) -> Callable[[Any], Value]:
    return lambda comparison: getattr(comparison.times and comparison.times.amdahl, name, None)


def _effect(getter: Callable[[Any], Value]) -> Callable[[Any], Value]:
    """Reads the effect on the latency, where there is one."""
    return lambda comparison: getter(comparison.latency) if comparison.latency else None


def _median_of(side: str) -> Callable[[Comparison], float | None]:
    """Reads a side's latency without tracer, as the speedup has it."""

    def read(comparison: Comparison) -> float | None:
        median_ns: float | None = getattr(comparison.steady, side) if comparison.steady else None
        return median_ns

    return read


def _label(side: str) -> Callable[[ChangedOperator], str | None]:
    def read(subject: ChangedOperator) -> str | None:
        aligned = subject.operator.aligned
        return label_of(aligned.before if side == "baseline" else aligned.after)

    return read


def _time(side: str) -> Callable[[ChangedOperator], Value]:
    """Nothing where the operator is not on that side: that is no time of zero."""
    getter = _of_change(f"{side}_ns")
    return lambda s: getter(s) if getattr(s.operator.aligned, side) else None


def _launches(side: str) -> Callable[[ChangedOperator], str | None]:
    return lambda s: launches_text(getattr(s.operator.aligned, f"{side}_times"))


def _changed_label(subject: ChangedOperator) -> str | None:
    """What the operator was before, or where alone it is."""
    pair, comparison = subject.operator.aligned, subject.comparison
    if pair.baseline and pair.candidate:
        before, after = label_of(pair.before), label_of(pair.after)
        label = f"before: {before}" if before != after else None
        return label if len(pair.after) == 1 else f"{label}; now: {after}"
    return f"only in {comparison.short_names[pair.baseline is None]}"


def describe_structure(comparison: Comparison) -> str:
    """Says what no noise changes and did change; empty for nothing."""
    before, after = comparison.facts
    changes = []
    for metric in EXACT_METRICS.values():
        old, new = metric.value_of(before), metric.value_of(after)
        if old is None or new is None or abs(new - old) <= metric.tolerance(old):
            continue
        changes.append(
            f"{metric.title} {format_value(metric.unit, old)} → {format_value(metric.unit, new)}"
        )
    return "; ".join(changes)


def changed_operators(
    comparison: Comparison, details: Mapping[int, OperatorDetail] | None = None
) -> list[ChangedOperator]:
    """Returns every aligned operator, with its details by the id of its row."""
    details = details or {}
    return [
        ChangedOperator(comparison, operator, number, details.get(id(operator.aligned.row)))
        for number, operator in enumerate(comparison.operators, start=1)
    ]


_COMPARISON: Final = Column(
    "comparison", "string", of=lambda s: s.comparison.name, visibility="several",
    says="`baseline → candidate`",
)  # fmt: skip
_CHANGE: Final = (
    Column("baseline_ns", "float64", "ns", title="baseline", is_timed=True, adds_up=True,
           of=_of_change("baseline_ns"), says="mean per inference"),
    Column("candidate_ns", "float64", "ns", title="candidate", is_timed=True, adds_up=True,
           of=_of_change("candidate_ns"), says="mean per inference"),
    Column("delta_ns", "float64", "±ns", title="difference", is_timed=True, adds_up=True,
           dropped_first=1, of=_of_change("delta_ns"), says="candidate − baseline: below zero is time saved"),
    *estimate("speed_up", "ratio", lambda s: s.change, _of_change("speed_up"), title="speedup",
              says="baseline ÷ candidate, of the means beside it",
              interval="its 95 % interval between interleaved operator launches"),
    Column("adjusted_p", "float64", "p", basis="per comparison", title="p", is_timed=True, visibility="page",
           of=_of_change("adjusted_p"),
           says="of no change, by Benjamini and Hochberg over the table: of the rows below .05 at "
           "most 5 % are false"),
    Column("verdict", "string", is_timed=True, of=_of_change("verdict"), styles=VERDICT_STYLES,
           says="faster, slower, no difference, inconclusive; missing without interval"),
)  # fmt: skip
_SHARES: Final = (
    Column("baseline_share", "float64", "share", title="share before", is_timed=True, adds_up=True,
           dropped_first=5, of=_of_change("baseline_share"), says="of the baseline's `Method::execute`"),
    Column("candidate_share", "float64", "share", title="share after", is_timed=True, adds_up=True,
           has_bar=True, dropped_first=4, of=_of_change("candidate_share"),
           says="of the candidate's `Method::execute`"),
)  # fmt: skip

COMPARISONS: Final = Table(
    "comparisons",
    (
        Column("comparison", "string", of=lambda c: c.name, visibility="data",
               says="`baseline → candidate`"),
        Column("sides", "string", title="comparison", of=lambda c: c.short_name,
               says="the same, shortened to what differs"),
        Column("mode", "string", of=lambda c: c.common_mode,
               says="SME mode of both sides, where they are of separate runs"),
        Column("verdict", "string", of=badge_of, styles=VERDICT_STYLES,
               says="faster, slower, no difference, inconclusive; or why there is none"),
        Column("baseline_ns", "float64", "ns", title="baseline", is_timed=True,
               of=_median_of("baseline"), says="median latency without tracer"),
        Column("candidate_ns", "float64", "ns", title="candidate", is_timed=True,
               of=_median_of("candidate"), says="median latency without tracer"),
        *speed_up(lambda c: c.latency, says="baseline ÷ candidate"),
        Column("p_value", "float64", "p", basis="per comparison", title="p", is_timed=True, dropped_first=2,
               of=_effect(lambda e: e.p_value),
               says="two-sided test of no effect: signed ranks; Student's of separate runs"),
        Column("pairs", "Int64", "count", basis="over the run", is_timed=True, dropped_first=1, of=_effect(lambda e: e.pairs),
               says="pairs of process launches; 0 of separate runs"),
        Column("rests_on", "string", title="rests on", of=_effect(lambda e: e.rests_on or None),
               says="of separate runs: how many, and what is known of how much runs differ"),
        Column("accelerated_share", "float64", "share", title="accelerated", is_timed=True,
               visibility="page", of=_of_panel("accelerated_share"),
               says="share of the baseline's time that changed to SME"),
        Column("ceiling", "float64", "ratio", is_timed=True, visibility="page",
               of=_of_panel("ceiling"),
               says="Amdahl's: what if the accelerated operators took no time"),
    ),
    from_each="comparison",
    title="All comparisons",
    says="one row per pair of experiments that answers a question",
    basis="per inference",
)  # fmt: skip
STRUCTURE: Final = Table(
    "structure",
    (
        _COMPARISON,
        Column("side", "string", of=lambda s: s.name, says="baseline or candidate, by its name"),
        *(
            Column(
                # A column that ends in `share` is one of time.
                name.replace("sme_share", "sme_work"),
                "Int64" if metric.unit in {"count", "bytes"} else "float64", metric.unit,
                title=metric.title,
                dropped_first=1 if metric.better == "neither" else 0,
                of=_fact(metric),
                says="of the model's own" if metric.better == "neither" else f"{metric.better} is better",
            )
            for name, metric in EXACT_METRICS.items()
        ),
    ),
    from_each="comparison",
    rows_of=_side_facts,
    title="Structure",
    says="one row per side: what every repetition of the run gives again",
    basis="per program",
)  # fmt: skip
OPERATOR_CHANGES: Final = Table(
    "operator_changes",
    (
        _COMPARISON,
        named_column(lambda s: s.operator.aligned.name),
        Column("baseline_label", "string", title="baseline", of=_label("baseline"), repeats="name",
               says="the operator's label in the baseline; missing where it is not there"),
        Column("candidate_label", "string", title="candidate", of=_label("candidate"),
               repeats="name", says="the same of the candidate"),
        Column("match", "string", of=lambda s: s.operator.aligned.match,
               says="same, other type; merged, split, regrouped where several are one or more on "
               "the other side; baseline only, candidate only"),
        Column("category", "string", of=lambda s: s.operator.aligned.row.operator_class.category,
               visibility="data", says="of the candidate"),
        Column("class", "string", of=lambda s: s.operator.aligned.row.operator_class.finer,
               visibility="data", says="of the candidate"),
        *_CHANGE,
        *_SHARES,
    ),
    from_each="comparison",
    rows_of=changed_operators,
    title="Operators side by side",
    by="delta_ns",
    says="one row per aligned operator; every operator of both sides exactly once",
    basis="per inference",
)  # fmt: skip
_LAUNCHES: Final = tuple(
    Column(
        f"{side}_launches", "string", is_timed=True, visibility="page",
        of=_launches(side),
        says="mean per inference in each operator launch of that side",
    )
    for side in ("baseline", "candidate")
)  # fmt: skip
_DESCRIBED: Final = {column.name: column for column in ROW_COLUMNS}
COMPARED_OPERATORS: Final = Table(
    "operators",
    (
        NUMBER,
        named_column(lambda s: s.operator.aligned.name),
        replace(_DESCRIBED["label"], dropped_first=3),
        *(replace(column, of=_time(column.name.removesuffix("_ns"))) for column in _CHANGE[:2]),
        *_CHANGE[2:],
        Column("share", "float64", "share", is_timed=True, adds_up=True,
               has_bar=True, of=_of_change("candidate_share")),
        *_LAUNCHES,
        Column("was", "string", title="changed", of=_changed_label, visibility="page"),
        *(column for name, column in _DESCRIBED.items()
          if name not in {"name", "label"}),
        *DETAIL_COLUMNS,
    ),
    title="Operators",
    by="share",
)  # fmt: skip
"""What people see of a comparison: the candidate's operators with their times on both sides."""
_CATEGORY: Final = Column("category", "string", of=lambda s: s.names[0], says="headline category")
CATEGORY_CHANGES: Final = Table(
    "category_changes", (_COMPARISON, _CATEGORY, *_CHANGE, *_SHARES),
    from_each="comparison",
    rows_of=_groups("categories"),
    title="Where the time went", says="one row per comparison and headline category",
    basis="per inference",
)  # fmt: skip
CLASS_CHANGES: Final = Table(
    "classes",
    (_COMPARISON, _CATEGORY, Column("class", "string", of=lambda s: s.names[1], says="finer class"), *_CHANGE,
     *_SHARES),
    from_each="comparison",
    rows_of=_groups("classes"),
    title="Where an inference's time goes",
    says="one row per comparison and finer class",
    basis="per inference",
)  # fmt: skip
ICICLE_CHANGES: Final = Table(
    "icicle_changes",
    (
        replace(_COMPARISON, of=lambda s: s.owner),
        *BOX_COLUMNS,
        Column("baseline_ns", "float64", "ns", title="baseline", is_timed=True,
               of=lambda s: s.box.means_ns[0], says="mean per inference: the sum of the boxes inside"),
        Column("candidate_ns", "float64", "ns", title="candidate", is_timed=True,
               of=lambda s: s.box.means_ns[1], says="the same of the candidate"),
        Column("delta_ns", "float64", "±ns", title="difference", is_timed=True,
               of=lambda s: s.box.means_ns[1] - s.box.means_ns[0],
               says="candidate − baseline: below zero is time saved"),
    ),
    from_each="comparison",
    rows_of=lambda comparison: (BoxSubject(comparison.name, b) for b in comparison_tree(comparison)),
    is_drawn=True,
    title="An inference by module, operator and microkernel",
    says="one row per comparison and box; what is on one side alone takes no time on the other",
    basis="per inference",
)  # fmt: skip
WATERFALL: Final = Table(
    "waterfall",
    (
        replace(_COMPARISON, of=None),
        named_column(None, title="step"),
        Column("label", "string", repeats="name", dropped_first=1, says="the operator or overhead"),
        Column("kind", "string", visibility="data", says="operator, overhead or unattributed"),
        Column("baseline_ns", "float64", "ns", title="baseline", is_timed=True,
               says="mean per inference"),
        Column("candidate_ns", "float64", "ns", title="candidate", is_timed=True,
               says="mean per inference"),
        Column("delta_ns", "float64", "±ns", title="difference", is_timed=True,
               says="candidate − baseline; adds up to the difference of the totals"),
    ),
    from_each="comparison",
    rows_of=lambda comparison: list(_steps(comparison)),
    title="Waterfall",
    says="one row per comparison and step",
    basis="per inference",
)  # fmt: skip
LEDGER: Final = Table(
    "costs",
    (
        _COMPARISON,
        Column("quantity", "string", title="cost", of=lambda s: s.row.label,
               says="such as `Load program` or `Peak memory`"),
        Column("unit", "string", of=lambda s: s.row.unit, visibility="data", says="ns, bytes or 1/s"),
        Column("baseline", "float64", "@unit", basis="by row", is_timed=True, of=lambda s: s.row.baseline,
               says="median over blocks"),
        Column("candidate", "float64", "@unit", basis="by row", is_timed=True, of=lambda s: s.row.candidate,
               says="median over blocks"),
        *speed_up(
            lambda s: s.row.effect,
            says="of times and rates: the median of the ratios of pairs, not the ratio of both medians",
        ),
        Column("verdict", "string", is_timed=True, styles=VERDICT_STYLES,
               of=lambda s: s.row.effect.verdict if s.row.effect else None,
               says="as of the comparison"),
    ),
    from_each="comparison",
    rows_of=_list_rows(lambda times: filter(_has_figures, times.ledger)),
    title="From start to steady state",
    says="one row per comparison and cost",
    basis="by row",
)  # fmt: skip
BOTTLENECKS: Final = Table(
    "bottlenecks",
    (
        _COMPARISON,
        Column("class", "string", title="next bottleneck", of=lambda s: s.row.operator_class.finer,
               says="finer class of the candidate"),
        Column("mean_ns", "float64", "ns", title="time", is_timed=True,
               of=lambda s: s.row.mean_ns, says="mean per inference"),
        Column("share", "float64", "share", is_timed=True, has_bar=True, of=lambda s: s.row.share,
               says="of the candidate's `Method::execute`"),
        Column("speed_up_if_removed", "float64", "ratio", title="speedup without it",
               is_timed=True, of=lambda s: s.row.speed_up_if_removed,
               says="of the whole, if it took no time"),
    ),
    from_each="comparison",
    rows_of=_list_rows(lambda times: times.amdahl.bottlenecks if times.amdahl else ()),
    title="How far it can go",
    says="one row per comparison and class, the largest first",
    basis="per inference",
)  # fmt: skip
VALIDITY: Final = Table(
    "conditions",
    (
        _COMPARISON,
        Column("condition", "string", of=lambda s: s.row.name, says="what a verdict rests on"),
        Column("state", "string", of=lambda s: s.row.state, says="passed, failed or unknown",
               styles={"passed": "green", "failed": "bold red"}),
        Column("detail", "string", of=lambda s: s.row.detail, says="what was seen"),
    ),
    from_each="comparison",
    rows_of=_list_rows(lambda times: times.validity.checks),
    title="Measurement quality",
    says="one row per comparison and condition",
)  # fmt: skip
OUTPUTS: Final = Table(
    "outputs",
    (
        Column("candidate", "string", title="experiment", of=lambda s: s.candidate,
               says="experiment whose output it is"),
        Column("against", "string", of=lambda s: s.against, says="what it is compared with"),
        Column("output", "Int64", "count", basis="position", of=lambda s: s.parity.index, says="number of the output"),
        Column("max_abs", "float64", "1", title="max abs", of=lambda s: s.parity.max_abs,
               says="largest absolute difference"),
        Column("max_rel", "float64", "1", title="max rel", of=lambda s: s.parity.max_rel,
               says="largest relative difference"),
        Column("mse", "float64", "1", title="MSE", visibility="data", of=lambda s: s.parity.mse,
               says="mean squared difference; missing where only one of both is finite"),
        Column("snr_db", "float64", "dB", title="SNR", of=lambda s: s.parity.snr_db,
               says="signal to noise; missing without any error"),
        Column("cosine", "float64", "1", visibility="data", of=lambda s: s.parity.cosine,
               says="of the angle between both; missing where one is zero"),
        Column("top1", "float64", "share", title="top-1", of=lambda s: s.parity.top1,
               says="rows whose largest entry is at the same place; of whole numbers, those that are equal"),
        Column("minimum_snr_db", "float64", "dB", title="at least",
               of=lambda s: s.minimum_snr_db if s.least_equal_share is None else None,
               says="the tolerance; of indices, classes and masks see least_equal_share"),
        Column("least_equal_share", "float64", "share", title="equal at least",
               of=lambda s: s.least_equal_share, says="the tolerance of indices, classes and masks"),
        Column("is_within", "boolean", title="within", of=lambda s: s.is_within,
               styles={"yes": "green", "no": "bold red"}, says="whether they agree"),
    ),
    from_each="output",
    title="Outputs",
    says="one row per output of a program on two sides",
    basis="per output",
)  # fmt: skip


def _reason(verdict: Verdict) -> str:
    """Says why it failed or is unknown; of outputs without an SNR, how many are equal."""
    if verdict.reason or verdict.answer != "passed" or verdict.question == "text":
        return verdict.reason
    if verdict.equal_share is not None and verdict.equal_share < 1:
        shares = (verdict.equal_share, verdict.least_equal_share or 0.0)
        return "{} of its whole numbers differ; at most {} may".format(
            *map(format_differing, shares)
        )
    return "no error: the outputs are equal" if verdict.snr_db is None else ""


ACCURACY: Final = Table(
    "accuracy",
    (
        Column("where", "string", title="outputs of", of=lambda s: s.where,
               says="the export's own check, or an experiment"),
        Column("question", "string", of=lambda s: s.question,
               says="lowering: is it what the converted eager model gives? precision: is that good "
               "enough beside float32? text: does a language model predict a text about as well?"),
        Column("answer", "string", of=lambda s: s.answer, says="passed, failed or unknown",
               styles={"passed": "green", "failed": "bold red", "unknown": "yellow"}),
        Column("output", "Int64", "count", basis="position", of=lambda s: s.output, visibility="page",
               says="the one that decides"),
        Column("snr_db", "float64", "dB", title="SNR", dropped_first=1, of=lambda s: s.snr_db,
               says="signal to noise; missing without any error"),
        Column("least_snr_db", "float64", "dB", title="at least", dropped_first=2,
               of=lambda s: None if s.snr_db is None and s.equal_share is not None else s.least_snr_db,
               says="what is asked for"),
        Column("cosine", "float64", "1", of=lambda s: s.cosine, visibility="page",
               says="of the angle between both"),
        Column("top1", "float64", "share", title="top-1", of=lambda s: s.top1,
               visibility="page",
               says="rows whose largest entry is at the same place; of whole numbers, those that are equal"),
        Column("least_equal_share", "float64", "share", title="equal at least", visibility="page",
               of=lambda s: s.least_equal_share, says="of whole numbers, what is asked for"),
        Column("reason", "string", of=_reason,
               says="why it failed or is not known, or that there is no error"),
    ),
    from_each="verdict",
    title="Are the outputs right?",
    says="one row per question and place of outputs",
    basis="per output",
)  # fmt: skip


def compared_operators(comparison: Comparison, details: Mapping[int, OperatorDetail]) -> Table:
    """Returns one comparison's operators with what is known of each."""
    subjects = changed_operators(comparison, details)
    table = COMPARED_OPERATORS.of(subjects)
    return sides_named(table, comparison)


def sides_named(table: Table, comparison: Comparison) -> Table:
    """Heads the columns of both sides with the names of their experiments."""
    before, after = comparison.short_names
    return table.titled(
        **dict.fromkeys(("baseline", "baseline_ns"), before),
        **dict.fromkeys(("candidate", "candidate_ns"), after),
        baseline_launches=f"{before} by launch",
        candidate_launches=f"{after} by launch",
    )


def waterfall_between_totals(comparison: Comparison, waterfall: Waterfall, count: int) -> Table:
    """Returns the largest steps, between the totals that they lead from and to."""
    first, last = comparison.short_names
    total = WaterfallStep("", "total", waterfall.baseline_ns, waterfall.candidate_ns)
    steps = [
        {
            **_step(comparison, total),
            "name": first,
            "label": first,
            "candidate_ns": None,
            "delta_ns": None,
        },
        *(_step(comparison, step) for step in waterfall.largest(count)),
        {**_step(comparison, total), "name": last, "label": last, "baseline_ns": None},
    ]
    return sides_named(WATERFALL.of(steps), comparison)


def _steps(comparison: Comparison) -> Iterator[dict[str, Value]]:
    waterfall = comparison.times.waterfall if comparison.times else None
    yield from (_step(comparison, step) for step in (waterfall.steps if waterfall else ()))


def _step(comparison: Comparison, step: WaterfallStep) -> dict[str, Value]:
    names = ("name", "label", "kind", "baseline_ns", "candidate_ns", "delta_ns")
    return {"comparison": comparison.name, **{name: getattr(step, name) for name in names}}


def _has_figures(row: LedgerEntry) -> bool:
    return row.baseline is not None or row.candidate is not None
