"""What changed from a baseline to a candidate: verdicts, operators, classes, costs, conditions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from etprof.tables.operators import DETAIL_COLUMNS, NUMBER, ROW_COLUMNS
from etprof.tables.table import Column, Table
from etprof.tables.verdicts import badge_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from etprof.analysis.compare.amdahl import Bottleneck
    from etprof.analysis.compare.comparison import Change, Comparison, OperatorChange
    from etprof.analysis.compare.waterfall import Waterfall
    from etprof.analysis.insight import OperatorDetail
    from etprof.analysis.split.cold_start import LedgerEntry
    from etprof.analysis.validity import Check
    from etprof.tables.table import Value

VERDICT_STYLES: Final = {
    "faster": "bold green", "slower": "bold red", "different results": "bold red",
    "inconclusive": "yellow",
}  # fmt: skip


class _Change(NamedTuple):
    """What of a change does not differ between operators, classes and categories."""

    comparison: Comparison
    names: tuple[str, ...]
    change: Change


class ChangedOperator(NamedTuple):
    """One row: an operator on both sides, with all that is known of the side that is there."""

    comparison: Comparison
    entry: OperatorChange
    number: int
    detail: OperatorDetail | None

    @property
    def change(self) -> Change:
        """Its times."""
        return self.entry.change


def _effect(read: Callable[[Any], Value]) -> Callable[[Any], Value]:
    """Reads the effect on the latency, where there is one."""
    return lambda comparison: read(comparison.latency) if comparison.latency else None


def _median_of(side: str) -> Callable[[Comparison], float | None]:
    """Reads a side's latency without tracer."""

    def read(comparison: Comparison) -> float | None:
        latency = getattr(comparison, side).experiment.latency
        return latency.steady.median if latency else None

    return read


def _bound(effect: Any, end: str) -> float | None:  # noqa: ANN401 - an Effect or None
    return getattr(effect.interval, end) if effect and effect.interval else None


def _label(side: str) -> Callable[[ChangedOperator], str | None]:
    def read(subject: ChangedOperator) -> str | None:
        row = getattr(subject.entry.aligned, side)
        return row.label if row else None

    return read


def _time(side: str) -> Callable[[ChangedOperator], float | None]:
    """Nothing where the operator is not on that side: that is no time of zero."""
    return lambda s: getattr(s.change, f"{side}_ns") if getattr(s.entry.aligned, side) else None


def _changed_label(subject: ChangedOperator) -> str | None:
    """What the operator was before, or where alone it is."""
    pair, comparison = subject.entry.aligned, subject.comparison
    if pair.baseline and pair.candidate:
        before, after = pair.baseline.label, pair.candidate.label
        return f"before: {before}" if before != after else None
    side = comparison.candidate if pair.baseline is None else comparison.baseline
    return f"only in {side.experiment.name}"


_COMPARISON: Final = Column(
    "comparison", "string", of=lambda s: s.comparison.name, place="several",
    says="`baseline → candidate`",
)  # fmt: skip
_CHANGE: Final = (
    Column("baseline_ns", "float64", "ns", title="baseline", is_timed=True, adds_up=True,
           of=lambda s: s.change.baseline_ns, says="mean per inference"),
    Column("candidate_ns", "float64", "ns", title="candidate", is_timed=True, adds_up=True,
           of=lambda s: s.change.candidate_ns, says="mean per inference"),
    Column("delta_ns", "float64", "±ns", title="difference", is_timed=True, adds_up=True,
           of=lambda s: s.change.delta_ns, says="candidate − baseline: below zero is time saved"),
    Column("speed_up", "float64", "ratio", title="speed-up", is_timed=True,
           of=lambda s: s.change.speed_up, says="baseline ÷ candidate"),
)  # fmt: skip
_SHARES: Final = (
    Column("baseline_share", "float64", "share", title="share before", is_timed=True, adds_up=True,
           of=lambda s: s.change.baseline_share, says="of the baseline's `Method::execute`"),
    Column("candidate_share", "float64", "share", title="share after", is_timed=True, adds_up=True,
           has_bar=True, of=lambda s: s.change.candidate_share,
           says="of the candidate's `Method::execute`"),
)  # fmt: skip

COMPARISONS: Final = Table(
    "comparisons",
    (
        Column("comparison", "string", of=lambda c: c.name, says="`baseline → candidate`"),
        Column("verdict", "string", of=badge_of, styles=VERDICT_STYLES,
               says="faster, slower, no difference, inconclusive; or why there is none"),
        Column("baseline_ns", "float64", "ns", title="baseline", is_timed=True,
               of=_median_of("baseline"), says="median latency without tracer"),
        Column("candidate_ns", "float64", "ns", title="candidate", is_timed=True,
               of=_median_of("candidate"), says="median latency without tracer"),
        Column("speed_up", "float64", "ratio", title="speed-up", is_timed=True,
               bounds=("speed_up_low", "speed_up_high"), of=_effect(lambda e: e.speed_up),
               says="baseline ÷ candidate"),
        Column("speed_up_low", "float64", "ratio", is_timed=True, place="data",
               of=_effect(lambda e: _bound(e, "low")), says="lower end of its 95 % interval"),
        Column("speed_up_high", "float64", "ratio", is_timed=True, place="data",
               of=_effect(lambda e: _bound(e, "high")), says="upper end of that interval"),
        Column("p_value", "float64", "p", title="p", is_timed=True, of=_effect(lambda e: e.p_value),
               says="two-sided sign-flip test of no effect"),
        Column("pairs", "Int64", "count", is_timed=True, of=_effect(lambda e: e.pairs),
               says="pairs of process launches"),
        Column("accelerated_share", "float64", "share", title="accelerated", is_timed=True,
               place="page", of=lambda c: c.amdahl.accelerated_share,
               says="share of the baseline's time that changed to SME"),
        Column("ceiling", "float64", "ratio", is_timed=True, place="page",
               of=lambda c: c.amdahl.ceiling,
               says="Amdahl's: what if the accelerated operators took no time"),
    ),
    title="All comparisons",
    says="one row per pair of experiments that answers a question",
)  # fmt: skip
OPERATOR_CHANGES: Final = Table(
    "operator_changes",
    (
        _COMPARISON,
        Column("baseline_label", "string", title="baseline", of=_label("baseline"),
               says="the operator's name in the baseline; missing where it is not there"),
        Column("candidate_label", "string", title="candidate", of=_label("candidate"),
               says="the same of the candidate"),
        Column("match", "string", of=lambda s: s.entry.aligned.match,
               says="same, other type, baseline only, candidate only"),
        Column("category", "string", of=lambda s: s.entry.aligned.row.operator_class.category,
               place="data", says="of the candidate"),
        Column("class", "string", of=lambda s: s.entry.aligned.row.operator_class.finer,
               place="data", says="of the candidate"),
        *_CHANGE,
        Column("speed_up_low", "float64", "ratio", is_timed=True, place="data",
               of=lambda s: s.entry.interval[0] if s.entry.interval else None,
               says="from the medians' intervals over calls; noise between launches is not in it"),
        Column("speed_up_high", "float64", "ratio", is_timed=True, place="data",
               of=lambda s: s.entry.interval[1] if s.entry.interval else None,
               says="the upper end"),
        *_SHARES,
    ),
    title="Operators side by side",
    by="delta_ns",
    says="one row per aligned operator; every operator of both sides exactly once",
)  # fmt: skip
_DESCRIBED: Final = {column.name: column for column in ROW_COLUMNS}
COMPARED_OPERATORS: Final = Table(
    "operators",
    (
        NUMBER,
        _DESCRIBED["label"],
        *(replace(column, of=_time(column.name.removesuffix("_ns"))) for column in _CHANGE[:2]),
        *_CHANGE[2:],
        Column("share", "float64", "share", is_timed=True, adds_up=True,
               of=lambda s: s.change.candidate_share),
        Column("was", "string", title="changed", of=_changed_label, place="page"),
        *(column for name, column in _DESCRIBED.items() if name != "label"),
        *DETAIL_COLUMNS,
    ),
    title="Operators",
    by="share",
)  # fmt: skip
"""What people see of a comparison: the candidate's operators with their times on both sides."""
_CATEGORY: Final = Column("category", "string", of=lambda s: s.names[0], says="headline category")
CATEGORY_CHANGES: Final = Table(
    "category_changes", (_COMPARISON, _CATEGORY, *_CHANGE, *_SHARES), is_about_times=True,
    title="Where the time went", says="one row per comparison and headline category",
)  # fmt: skip
CLASS_CHANGES: Final = Table(
    "classes",
    (_COMPARISON, _CATEGORY, Column("class", "string", of=lambda s: s.names[1], says="finer class"), *_CHANGE,
     *_SHARES),
    title="Where an inference's time goes",
    is_about_times=True,
    says="one row per comparison and finer class",
)  # fmt: skip
WATERFALL: Final = Table(
    "waterfall",
    (
        replace(_COMPARISON, of=None),
        Column("label", "string", title="step", says="the operator or overhead"),
        Column("kind", "string", place="data", says="operator, overhead or unattributed"),
        Column("baseline_ns", "float64", "ns", title="baseline", is_timed=True,
               says="mean per inference"),
        Column("candidate_ns", "float64", "ns", title="candidate", is_timed=True,
               says="mean per inference"),
        Column("delta_ns", "float64", "±ns", title="difference", is_timed=True,
               says="candidate − baseline; adds up to the difference of the totals"),
    ),
    title="From one total to the other",
    is_about_times=True,
    says="one row per comparison and step",
)  # fmt: skip
LEDGER: Final = Table(
    "costs",
    (
        _COMPARISON,
        Column("quantity", "string", title="cost", of=lambda s: s.entry.label,
               says="such as `Load program` or `Peak memory`"),
        Column("unit", "string", of=lambda s: s.entry.unit, place="data", says="ns, bytes or 1/s"),
        Column("baseline", "float64", "@unit", is_timed=True, of=lambda s: s.entry.baseline,
               says="median over blocks"),
        Column("candidate", "float64", "@unit", is_timed=True, of=lambda s: s.entry.candidate,
               says="median over blocks"),
        Column("speed_up", "float64", "ratio", title="speed-up", is_timed=True,
               bounds=("speed_up_low", "speed_up_high"), says="of times and rates",
               of=lambda s: s.entry.effect.speed_up if s.entry.effect else None),
        Column("speed_up_low", "float64", "ratio", is_timed=True, place="data",
               of=lambda s: _bound(s.entry.effect, "low"), says="lower end of its 95 % interval"),
        Column("speed_up_high", "float64", "ratio", is_timed=True, place="data",
               of=lambda s: _bound(s.entry.effect, "high"), says="upper end of that interval"),
        Column("verdict", "string", is_timed=True, styles=VERDICT_STYLES,
               of=lambda s: s.entry.effect.verdict if s.entry.effect else None,
               says="as of the comparison"),
    ),
    title="From start to steady state",
    is_about_times=True,
    says="one row per comparison and cost",
)  # fmt: skip
BOTTLENECKS: Final = Table(
    "bottlenecks",
    (
        _COMPARISON,
        Column("class", "string", title="next bottleneck", of=lambda s: s.entry.operator_class.finer,
               says="finer class of the candidate"),
        Column("mean_ns", "float64", "ns", title="time", is_timed=True,
               of=lambda s: s.entry.mean_ns, says="mean per inference"),
        Column("share", "float64", "share", is_timed=True, has_bar=True, of=lambda s: s.entry.share,
               says="of the candidate's `Method::execute`"),
        Column("speed_up_if_removed", "float64", "ratio", title="speed-up without it",
               is_timed=True, of=lambda s: s.entry.speed_up_if_removed,
               says="of the whole, if it took no time"),
    ),
    title="How far it can go",
    is_about_times=True,
    says="one row per comparison and class, the largest first",
)  # fmt: skip
VALIDITY: Final = Table(
    "conditions",
    (
        _COMPARISON,
        Column("condition", "string", of=lambda s: s.entry.name, says="what a verdict rests on"),
        Column("state", "string", of=lambda s: s.entry.state, says="passed, failed or unknown",
               styles={"passed": "green", "failed": "bold red"}),
        Column("detail", "string", of=lambda s: s.entry.detail, says="what was seen"),
    ),
    title="May this be believed?",
    is_about_times=True,
    says="one row per comparison and condition",
)  # fmt: skip
OUTPUTS: Final = Table(
    "outputs",
    (
        Column("candidate", "string", title="mode", of=lambda s: s.candidate,
               says="experiment or SME mode"),
        Column("against", "string", of=lambda s: s.against, says="what it is compared with"),
        Column("output", "Int64", "count", of=lambda s: s.parity.index, says="number of the output"),
        Column("max_abs", "float64", title="max abs", of=lambda s: s.parity.max_abs,
               says="largest absolute difference"),
        Column("max_rel", "float64", title="max rel", of=lambda s: s.parity.max_rel,
               says="largest relative difference"),
        Column("snr_db", "float64", "dB", title="SNR", of=lambda s: s.parity.snr_db,
               says="signal to noise; missing without any error"),
        Column("top1", "float64", "share", title="top-1", of=lambda s: s.parity.top1,
               says="rows whose largest entry is at the same place"),
        Column("minimum_snr_db", "float64", "dB", title="at least", of=lambda s: s.minimum_snr_db,
               says="the tolerance"),
        Column("is_within", "boolean", title="within", of=lambda s: s.is_within,
               styles={"yes": "green", "no": "bold red"}, says="whether they agree"),
    ),
    title="Outputs",
    says="one row per output of a program on two sides",
)  # fmt: skip


class _Entry(NamedTuple):
    """One row of a comparison's list."""

    comparison: Comparison
    entry: LedgerEntry | Bottleneck | Check


def changed_operators(
    comparison: Comparison, details: Mapping[int, OperatorDetail] | None = None
) -> list[ChangedOperator]:
    """Returns every aligned operator, with its details by the id of its row."""
    known = details or {}
    return [
        ChangedOperator(comparison, entry, number, known.get(id(entry.aligned.row)))
        for number, entry in enumerate(comparison.operators, start=1)
    ]


def operator_changes(comparisons: Iterable[Comparison], *, is_timed: bool) -> Table:
    """Returns the operators of all comparisons."""
    subjects = [subject for each in comparisons for subject in changed_operators(each)]
    return OPERATOR_CHANGES.of(subjects, is_timed=is_timed)


def compared_operators(comparison: Comparison, details: Mapping[int, OperatorDetail]) -> Table:
    """Returns one comparison's operators with what is known of each."""
    subjects = changed_operators(comparison, details)
    table = COMPARED_OPERATORS.of(subjects, is_timed=comparison.times_are_meaningful)
    return sides_named(table, comparison)


def category_changes(comparisons: Iterable[Comparison], *, is_timed: bool = True) -> Table:
    """Returns the headline categories of all comparisons."""
    subjects = [_Change(each, (n,), c) for each in comparisons for n, c in each.categories.items()]
    return CATEGORY_CHANGES.of(subjects, is_timed=is_timed)


def class_changes(comparisons: Iterable[Comparison], *, is_timed: bool = True) -> Table:
    """Returns the finer classes of all comparisons."""
    subjects = [
        _Change(each, tuple(entry), change)
        for each in comparisons
        for entry, change in each.classes.items()
    ]
    return CLASS_CHANGES.of(subjects, is_timed=is_timed)


def sides_named(table: Table, comparison: Comparison) -> Table:
    """Heads the columns of both sides with the names of their experiments."""
    return table.titled(
        baseline_ns=comparison.baseline.experiment.name,
        candidate_ns=comparison.candidate.experiment.name,
    )


def waterfall_table(comparisons: Iterable[Comparison], *, is_timed: bool = True) -> Table:
    """Returns every step from a baseline's total to the candidate's."""
    steps = [
        _step(each, s.label, s.kind, s.baseline_ns, s.candidate_ns)
        for each in comparisons
        for s in each.waterfall.steps
    ]
    return WATERFALL.of(steps, is_timed=is_timed)


def waterfall_between_totals(comparison: Comparison, count: int) -> Table:
    """Returns the largest steps, between the totals that they lead from and to."""
    found: Waterfall = comparison.waterfall
    first, last = comparison.baseline.experiment.name, comparison.candidate.experiment.name
    steps = [
        _step(comparison, first, "total", found.baseline_ns, None),
        *(_step(comparison, s.label, s.kind, s.baseline_ns, s.candidate_ns)
          for s in found.largest(count)),
        {**_step(comparison, last, "total", None, found.candidate_ns),
         "delta_ns": found.candidate_ns - found.baseline_ns},
    ]  # fmt: skip
    table = WATERFALL.of(steps, is_timed=comparison.times_are_meaningful)
    return sides_named(table, comparison)


def _step(
    comparison: Comparison,
    label: str,
    kind: str,
    baseline_ns: float | None,
    candidate_ns: float | None,
) -> dict[str, Value]:
    delta = None if baseline_ns is None or candidate_ns is None else candidate_ns - baseline_ns
    return {
        "comparison": comparison.name, "label": label, "kind": kind, "baseline_ns": baseline_ns, "candidate_ns": candidate_ns,
        "delta_ns": delta,
    }  # fmt: skip


def cost_table(comparisons: Iterable[Comparison], *, is_timed: bool = True) -> Table:
    """Returns the ledgers from start to steady state."""
    return LEDGER.of(_entries(comparisons, lambda c: c.ledger, _is_known), is_timed=is_timed)


def _is_known(entry: LedgerEntry) -> bool:
    return entry.baseline is not None or entry.candidate is not None


def bottleneck_table(comparisons: Iterable[Comparison], *, is_timed: bool = True) -> Table:
    """Returns what is next to accelerate."""
    subjects = _entries(comparisons, lambda c: c.amdahl.bottlenecks)
    return BOTTLENECKS.of(subjects, is_timed=is_timed)


def condition_table(comparisons: Iterable[Comparison], *, is_timed: bool = True) -> Table:
    """Returns the conditions of the verdicts."""
    return VALIDITY.of(_entries(comparisons, lambda c: c.validity.checks), is_timed=is_timed)


def output_table(comparisons: Iterable[Comparison]) -> Table:
    """Returns the candidates' outputs beside the baselines'."""
    return OUTPUTS.of(check for comparison in comparisons for check in comparison.outputs)


def _entries(
    comparisons: Iterable[Comparison],
    read: Callable[[Comparison], Sequence[Any]],
    keep: Callable[[Any], bool] = bool,
) -> list[_Entry]:
    return [_Entry(c, entry) for c in comparisons for entry in read(c) if keep(entry)]
