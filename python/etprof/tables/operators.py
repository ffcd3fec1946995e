"""Events and operators of one experiment, and what they add up to: classes, modules, microkernels."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from etprof.analysis.split.evidence import GRADES
from etprof.analysis.split.operators import (
    OperatorRow,
    OperatorTimes,
    OverheadRow,
    PartTimes,
    class_times,
    group_of,
)
from etprof.analysis.split.rollup import Key, roll_up, uses_by_operator
from etprof.analysis.split.tree import Box, inference_tree
from etprof.analysis.split.work import ProductWork, add_work
from etprof.backends.kernel_names import LEVELS
from etprof.base.units import format_count, format_duration
from etprof.tables.kernels import work_columns
from etprof.tables.table import Column, Table, Value, estimate, named_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from etprof.analysis.insight import ExperimentInsight, OperatorDetail
    from etprof.analysis.roofline import RooflinePoint, Roofs
    from etprof.analysis.run_analysis import ExperimentAnalysis
    from etprof.analysis.split.attribution import Attribution
    from etprof.run.delegation import Origin

_ROOT: Final = "(the model itself)"
_EXPERIMENT: Final = Column(
    "experiment", "string", says="experiment of the run", of=lambda s: s[0], visibility="several"
)


class OperatorSubject(NamedTuple):
    """One row: an operator of an experiment."""

    experiment: str
    number: int
    detail: OperatorDetail


def _of_detail(getter: Callable[[OperatorDetail], Value]) -> Callable[[Any], Value]:
    return lambda subject: getter(subject.detail)


def _of_row(getter: Callable[[OperatorRow], Value]) -> Callable[[Any], Value]:
    return lambda subject: getter(subject.detail.row)


def _of_times(getter: Callable[[OperatorTimes], Value]) -> Callable[[Any], Value]:
    """Reads a time of an operator, where it has any."""
    return _of_row(lambda row: getter(row.times) if row.times else None)


def _of_work(getter: Callable[[Attribution], Value]) -> Callable[[Any], Value]:
    """Reads what the export knows of an operator, where it does."""
    return _of_detail(lambda d: getter(d.attribution) if d.attribution else None)


def _of_origin(getter: Callable[[Origin], Value]) -> Callable[[Any], Value]:
    return _of_work(lambda attribution: getter(attribution.origin) if attribution.origin else None)


def _kernels(detail: OperatorDetail) -> str | None:
    """Counted microkernels with their calls, else what the name says."""
    named = [f"{k.name.removeprefix('kai_run_')} ×{format_count(k.calls)}" for k in detail.kernels]
    return ", ".join(named) or detail.kernel_hint


def _mean(
    of: Callable[[Any], PartTimes | None], *, title: str = "mean", step: str = ""
) -> tuple[Column, Column, Column]:
    """A mean time with its interval, which adds up."""
    mean, *ends = estimate(
        "mean_ns", "ns", of, lambda subject: times.mean_ns if (times := of(subject)) else None,
        title=title, interval="its 95 % interval between operator launches; missing with one",
        says="mean per inference over the executions of the split: rows add up",
    )  # fmt: skip
    return (replace(mean, adds_up=True, step=step), ends[0], ends[1])


def _step(of: Callable[[Any], Value]) -> Column:
    return Column("step_ns", "float64", "ns", basis="per call", is_timed=True, visibility="data", of=lambda s: of(s) or None,
                  says="what the times of its calls are rounded down to; missing where they are not, "
                  "as on the operator clock")  # fmt: skip


def _share(of: Callable[[Any], PartTimes | None], **changes: Any) -> Column:  # noqa: ANN401
    """The one share that there is."""
    says = "of `Method::execute`, of the means of both: with the overheads it adds up to one"
    return Column("share", "float64", "share", says, is_timed=True, adds_up=True, **changes,
                  of=lambda subject: times.share if (times := of(subject)) else None)  # fmt: skip


def _operators(insight: ExperimentInsight) -> Iterator[OperatorSubject]:
    for number, detail in enumerate(insight.details, start=1):
        yield OperatorSubject(insight.experiment.name, number, detail)


def launches_text(times: PartTimes | None) -> str | None:
    """A time's mean in each operator launch, such as `98.1 µs, 99.0 µs`."""
    return ", ".join(map(format_duration, times.launches_ns)) or None if times else None


# What the ETDump alone says.
ROW_COLUMNS: Final = (
    named_column(_of_row(lambda r: r.name)),
    Column("label", "string", of=_of_row(lambda r: r.label), repeats="name",
           says="name in the ETDump, with the delegate's running number"),
    Column("operator", "string", of=_of_row(lambda r: r.base), visibility="data",
           says="the delegate's operator type, or ATen name"),
    Column("category", "string", of=_of_row(lambda r: r.operator_class.category), visibility="data",
           says="headline category"),
    Column("class", "string", of=_of_row(lambda r: r.operator_class.finer), visibility="page",
           says="finer class"),
    Column("delegated", "boolean", of=_of_row(lambda r: r.is_delegated),
           says="inside a delegate, or one of ExecuTorch's own kernels"),
    Column("instruction_id", "Int64", "count", basis="position", of=_of_row(lambda r: r.instruction_id), visibility="data",
           says="instruction of the program; a delegate call is one instruction"),
    Column("data_types", "string", of=_of_row(lambda r: " ".join(r.data_types) or None),
           visibility="data", says="the delegate's types, separated by blanks"),
    Column("microkernel_type", "string", of=_of_row(lambda r: r.microkernel_type), visibility="data",
           says="such as `IGEMM`, from the name"),
    Column("executions", "Int64", "count", basis="over the split", of=_of_row(lambda r: r.executions), visibility="data",
           says="executions in which it ran"),
    Column("calls", "Int64", "count", basis="over the split", of=_of_row(lambda r: r.calls), visibility="page",
           says="calls in all executions"),
)  # fmt: skip
TIME_COLUMNS: Final = (
    *_mean(lambda s: s.detail.row.times, step="step_ns"),
    Column("median_ns", "float64", "ns", basis="per call", title="median", is_timed=True, visibility="page",
           step="step_ns", of=_of_times(lambda t: t.median_ns), says="median over calls"),
    Column("minimum_ns", "float64", "ns", basis="per call", is_timed=True, visibility="data",
           of=_of_times(lambda t: t.minimum_ns), says="over calls"),
    Column("maximum_ns", "float64", "ns", basis="per call", is_timed=True, visibility="data",
           of=_of_times(lambda t: t.maximum_ns), says="over calls"),
    Column("standard_deviation_ns", "float64", "ns", basis="per call", title="deviation", is_timed=True, visibility="page",
           of=_of_times(lambda t: t.standard_deviation_ns), says="over calls"),
    Column("total_ns", "float64", "ns", basis="over the split", is_timed=True, visibility="data", goes_with="0.4",
           of=_of_times(lambda t: t.total_ns), says="sum over the executions of the split; deprecated, see mean_ns"),
    _step(lambda s: s.detail.row.step_ns if s.detail.row.times else None),
    _share(lambda s: s.detail.row.times, has_bar=True),
    Column("launches", "string", title="by launch", is_timed=True, visibility="page",
           of=lambda s: launches_text(s.detail.row.times),
           says="mean per inference in each operator launch, in their order"),
)  # fmt: skip
DETAIL_COLUMNS: Final = (
    Column("kernel_hint", "string", of=lambda s: s.detail.kernel_hint, visibility="data",
           says="the microkernels that were called, or the packed type in the name"),
    Column("kernels", "string", title="microkernel", of=_of_detail(_kernels), visibility="page",
           says="the microkernels with their calls per inference, packing included, or the hint"),
    Column("kernel_grade", "string", title="grade", of=lambda s: s.detail.evidence.grade, visibility="page",
           says="; ".join(f"{grade}: {says}" for grade, says in GRADES.items())),
    Column("kernel_level", "string", of=lambda s: s.detail.evidence.level, visibility="data",
           says=" or ".join(LEVELS)),
    Column("kernel_source", "string", visibility="data", says="what the hint rests on",
           of=lambda s: "counted calls" if s.detail.kernels else "operator name"),
    Column("kernel_calls", "Int64", "count", visibility="data", says="KleidiAI calls per inference",
           of=lambda s: sum(k.calls for k in s.detail.kernels) if s.detail.kernels else None),
    Column("why_not_sme2", "string", title="why not SME2", visibility="page",
           of=lambda s: s.detail.why_not_sme2.text if s.detail.why_not_sme2 else None,
           says="reason, for convolutions and products without SME2"),
    Column("macs", "Int64", "count", basis="per call", title="MACs", visibility="page", of=_of_work(lambda f: f.macs),
           says="multiply-accumulates of one call"),
    Column("moved_bytes", "Int64", "bytes", basis="per call", visibility="data", of=_of_work(lambda f: f.moved_bytes),
           says="inputs, weights and outputs of one call"),
    Column("gflops", "float64", "@rate_limit", basis="per call", title="GFLOP/s at the median", is_timed=True, visibility="page",
           of=lambda s: s.detail.gflops, says="2 × macs ÷ median, in 10⁹ operations a second"),
    Column("gigabytes_per_s", "float64", "@rate_limit", basis="per call", title="GB/s at the median", is_timed=True, visibility="page",
           of=lambda s: s.detail.gigabytes_per_s, says="moved bytes ÷ median; missing for views and "
           "look-ups, which need not touch all of it"),
    Column("rate_limit", "string", is_timed=True, visibility="data",
           of=lambda s: "≤" if s.detail.rates_are_limits else None,
           says="`≤` where the clock is too coarse: rates are at most as given"),
    Column("shape", "string", visibility="page", says="output shape, such as `1x32x16x16`",
           of=_of_work(lambda f: "x".join(map(str, f.shape)) if f.shape else None)),
    Column("module_path", "string", title="module", visibility="page", empty=_ROOT,
           of=_of_origin(lambda o: o.module_path), says="module of the model it was traced from"),
    Column("module_type", "string", of=_of_origin(lambda o: o.module_type), visibility="data",
           says="that module's type"),
    Column("module_certainty", "string", of=_of_work(lambda f: f.certainty), visibility="data",
           says="what that rests on: `instruction` (a number that ETDump and export share), `kind` "
           "(as many operators of its kind ran as the delegate has nodes), `order` (some nodes "
           "left none; alignment chose), `place` (only its place decided), `inserted` (a layout "
           "change or conversion, counted with what it prepares)"),
    Column("modules", "string", visibility="data",
           of=_of_work(lambda f: ", ".join(filter(None, f.modules)) or None),
           says="the modules of all operators that were merged into it"),
    Column("source", "string", of=lambda s: s.detail.source, visibility="page",
           says="the model's own line, `file:line`"),
    Column("code", "string", visibility="page", says="that line itself",
           of=_of_origin(lambda o: o.source.code if o.source else None)),
    Column("graph_operators", "string", visibility="data",
           of=_of_work(lambda f: " ".join(f.graph_operators)),
           says="nodes of the exported graph it computes"),
    Column("not_delegated_because", "string", of=_of_work(lambda f: f.reason), visibility="data",
           says="the partitioner's own reason"),
)  # fmt: skip
NUMBER: Final = Column(
    "number", "Int64", "count", basis="position", title="#", of=lambda s: s.number, visibility="page",
    says="place in the order of the program",
)  # fmt: skip
OPERATORS: Final = Table(
    "operators",
    (
        Column("experiment", "string", visibility="several", says="experiment of the run",
               of=lambda s: s.experiment),
        NUMBER, *ROW_COLUMNS, *TIME_COLUMNS, *DETAIL_COLUMNS,
    ),
    title="Operators",
    by="share",
    from_each="insight",
    rows_of=_operators,
    says="one row per experiment and operator",
    basis="per inference",
)  # fmt: skip
CATEGORIES: Final = Table(
    "categories",
    (
        _EXPERIMENT,
        Column("category", "string", says="headline category", of=lambda s: s[1].category),
        Column("class", "string", says="finer class", of=lambda s: s[1].finer),
        Column("group", "string", visibility="data", title="category", of=lambda s: group_of(s[1]),
               says="headline category, with overheads apart"),
        *_mean(lambda s: s[2]),
        _share(lambda s: s[2], has_bar=True),
    ),
    title="Where an inference's time goes",
    from_each="experiment",
    rows_of=lambda e: ((e.name, key, times) for key, times in class_times(e.split).items()),
    says="one row per experiment and finer class",
    basis="per inference",
)  # fmt: skip


class SplitRow(NamedTuple):
    """One row: what an experiment's inference is made of."""

    experiment: ExperimentAnalysis
    row: OperatorRow | OverheadRow


def _of_operator(getter: Callable[[SplitRow, OperatorRow], Value]) -> Callable[[SplitRow], Value]:
    return lambda s: getter(s, s.row) if isinstance(s.row, OperatorRow) else None


def _where(subject: SplitRow) -> str:
    if isinstance(subject.row, OverheadRow):
        return "overhead"
    return "delegate" if subject.row.is_delegated else "portable"


SPLIT: Final = Table(
    "split",
    (
        Column("experiment", "string", visibility="several", of=lambda s: s.experiment.name,
               says="experiment of the run"),
        named_column(lambda s: s.row.name),
        Column("label", "string", of=lambda s: s.row.label, repeats="name",
               says="name in the ETDump, or the overhead"),
        Column("where", "string", dropped_first=1, of=_where, says="delegate, portable or overhead"),
        Column("class", "string", of=lambda s: s.row.operator_class.finer, visibility="page",
               says="finer class"),
        Column("calls_per_inference", "float64", "count", title="calls", dropped_first=3,
               of=_of_operator(lambda s, row: row.calls / s.experiment.split.executions),
               says="calls ÷ executions of the split"),
        Column("median_ns", "float64", "ns", basis="per call", title="median", is_timed=True, step="step_ns",
               dropped_first=2, of=_of_operator(lambda _, row: row.times.median_ns if row.times else None), says="median over calls"),
        *_mean(lambda s: s.row.times, step="step_ns"),
        _step(_of_operator(lambda _, row: row.step_ns if row.times else None)),
        _share(lambda s: s.row.times),
    ),
    title="Operators",
    by="share",
    from_each="experiment",
    rows_of=lambda experiment: (SplitRow(experiment, e) for e in experiment.split.entries),
    says="one row per experiment and operator or overhead, which together are the whole inference",
    basis="per inference",
)  # fmt: skip

_CODE: Final = Column(
    "code", "string", of=lambda s: s[2].get(s[1].key), visibility="page", says="the line itself"
)


def _rolled_up(by: Key) -> Callable[[ExperimentInsight], Iterator[tuple[object, ...]]]:
    """Reads an experiment's operators, added up by what they have in common."""

    def read(insight: ExperimentInsight) -> Iterator[tuple[object, ...]]:
        origins = [d.attribution.origin for d in insight.details if d.attribution]
        code = {str(o.source): o.source.code for o in origins if o and o.source}
        yield from ((insight.experiment.name, row, code) for row in roll_up(insight, by))

    return read


def _rollup(name: str, by: Key, title: str) -> Table:
    return Table(
        name,
        (
            _EXPERIMENT,
            Column(by, "string", of=lambda s: s[1].key, empty=_ROOT,
                   says="missing for operators without one"),
            *((_CODE,) if by == "source" else ()),
            Column("operators", "Int64", "count", basis="per program", of=lambda s: s[1].operators, says="how many"),
            *_mean(lambda s: s[1].times, title="time"),
            _share(lambda s: s[1].times, has_bar=True),
            Column("macs", "Int64", "count", basis="per call", title="MACs", of=lambda s: s[1].macs, visibility="page",
                   says="multiply-accumulates of one call of each"),
            *work_columns(lambda s: s[1].work),
        ),
        title=title,
        by="share",
        from_each="insight",
        rows_of=_rolled_up(by),
        says=f"one row per experiment and {by}, the most time first",
        basis="per inference",
    )  # fmt: skip


MODULES: Final = _rollup("modules", "module", "Modules")
SOURCE_LINES: Final = _rollup("source_lines", "source", "Hot lines of the model")
MICROKERNELS: Final = _rollup("microkernels", "microkernel", "Microkernels")
ROLLUPS: Final[dict[Key, Table]] = {
    "module": MODULES, "source": SOURCE_LINES, "microkernel": MICROKERNELS,
}  # fmt: skip


class BoxSubject(NamedTuple):
    """One row: a box of an icicle."""

    owner: str
    box: Box


BOX_COLUMNS: Final = (
    Column("number", "Int64", "count", basis="position", of=lambda s: s.box.number, says="place, depth first"),
    Column("parent", "Int64", "count", basis="position", of=lambda s: s.box.parent,
           says="number of the box that it is in; missing for the whole"),
    Column("depth", "Int64", "count", basis="position", of=lambda s: s.box.depth, says="boxes that it is in"),
    Column("kind", "string", of=lambda s: s.box.kind,
           says="whole, module, operator, microkernel or overhead"),
    Column("label", "string", of=lambda s: s.box.label,
           says="name of module, operator, microkernels or overhead"),
    Column("module", "string", of=lambda s: s.box.path, empty=_ROOT,
           says="path of the module that it is or is in"),
    Column("operator", "Int64", "count", basis="position", of=lambda s: s.box.operator,
           says="number of the operator in the operator table"),
    Column("group", "string", says="headline category, with overheads apart",
           of=lambda s: group_of(s.box.operator_class) if s.box.operator_class else None),
)  # fmt: skip
ICICLE: Final = Table(
    "icicle",
    (
        Column("experiment", "string", visibility="several", of=lambda s: s.owner,
               says="experiment of the run"),
        *BOX_COLUMNS,
        Column("mean_ns", "float64", "ns", title="mean", is_timed=True,
               of=lambda s: s.box.means_ns[0],
               says="mean per inference: the sum of the boxes inside, the whole's of everything"),
    ),
    title="An inference by module, operator and microkernel",
    from_each="insight",
    rows_of=lambda insight: (BoxSubject(insight.experiment.name, b) for b in inference_tree(insight)),
    is_drawn=True,
    says="one row per experiment and box; a box's time is that of the boxes inside it",
    basis="per inference",
)  # fmt: skip


class WorkSubject(NamedTuple):
    """One row: an operator whose work is known."""

    experiment: str
    number: int
    detail: OperatorDetail
    work: ProductWork | None
    roofs: Roofs | None

    @property
    def placed(self) -> RooflinePoint | None:
        """Against the device's peaks; None where none were measured."""
        return self.detail.placed(self.roofs)

    @property
    def counted_bytes(self) -> int | None:
        """What its products on SME read and write, packed sides as often as they are read."""
        work = self.work
        return work.left_bytes + work.right_bytes + work.output_bytes if work else None


def _worked(insight: ExperimentInsight) -> Iterator[WorkSubject]:
    uses = uses_by_operator(insight)
    for subject in _operators(insight):
        is_placed = subject.detail.placed(insight.roofs) is not None
        if is_placed or subject.detail.macs_per_byte is not None:
            work = add_work(uses.get(id(subject.detail.evidence), ()))
            yield WorkSubject(*subject, work, insight.roofs)


def _of_placed(getter: Callable[[RooflinePoint], Value]) -> Callable[[Any], Value]:
    return lambda subject: getter(subject.placed) if subject.placed else None


_OF_OPERATORS: Final = {column.name: column for column in OPERATORS.columns}
INTENSITY: Final = Table(
    "intensity",
    (
        *(_OF_OPERATORS[name] for name in ("experiment", "number", "name", "label", "category", "class")),
        _OF_OPERATORS["macs"],
        replace(_OF_OPERATORS["moved_bytes"], title="bytes", visibility="page"),
        Column("macs_per_byte", "float64", "MACs/B", basis="per call", title="MACs per byte",
               of=lambda s: s.detail.macs_per_byte, says="macs ÷ moved bytes, of the export's shapes"),
        Column("counted_bytes", "Int64", "bytes", title="bytes, counted", visibility="page",
               of=lambda s: s.counted_bytes, says="what its products on SME moved, as counted: both "
               "packed sides, the right one once for each row of tiles, and the output"),
        Column("counted_macs_per_byte", "float64", "MACs/B", title="MACs per byte, counted", visibility="page",
               of=lambda s: s.work.macs / s.counted_bytes if s.counted_bytes else None,
               says="MACs on SME ÷ those bytes"),
        _OF_OPERATORS["gflops"], _OF_OPERATORS["gigabytes_per_s"], _OF_OPERATORS["rate_limit"],
        Column("bound", "string", title="bound by", is_timed=True, of=_of_placed(lambda p: p.bound),
               says="compute, memory or overhead: the largest of the lower bounds that its "
               "operations, its bytes and any operator take"),
        Column("distance", "float64", "ratio", basis="per call", is_timed=True, of=_of_placed(lambda p: p.distance),
               says="how many times that bound it takes"),
        Column("of_roof", "float64", "share", basis="per call", title="of the roof", is_timed=True,
               of=_of_placed(lambda p: p.of_roof),
               says="what its operations and bytes take at the peaks, by its median"),
        Column("compute_peak", "float64", "GFLOP/s", basis="per device", is_timed=True, visibility="page",
               of=_of_placed(lambda p: p.peak.high if p.peak else None), title="peak of its type",
               says="of products of its type, as `calibrate --peaks` found"),
        Column("bandwidth_peak", "float64", "GB/s", basis="per device", is_timed=True, visibility="page",
               of=_of_placed(lambda p: p.stream.high), title="peak of its size",
               says="of streams of its size or more"),
        Column("is_above_roof", "boolean", title="above the roof", is_timed=True, visibility="data",
               of=_of_placed(lambda p: p.is_above),
               says="whether it is faster than its roof by more than noise, so that its work or "
               "the peaks are not what they are taken for"),
    ),
    title="Work against bytes",
    by="macs",
    from_each="insight",
    rows_of=_worked,
    says="one row per experiment and operator whose bytes are known, with its multiply-accumulates "
    "or with the device's peaks",
    basis="per inference",
)  # fmt: skip

TIMELINE: Final = Table(
    "timeline",
    (
        Column("event", "Int64", says="place in the file"),
        Column("event_block", "string", says="such as `Execute`"),
        Column(
            "execution",
            "Int64",
            says="number of the inference in the file, from 0; none at load time",
        ),
        Column("name", "string", says="of the operator or kernel"),
        Column("delegated", "boolean", says="inside a delegate"),
        Column("backend", "string", says="whose delegate it is, where that is known"),
        Column("instruction_id", "Int64", basis="position", says="instruction of the program"),
        Column("start_ns", "Int64", "ns", is_timed=True, says="as in the file"),
        Column("end_ns", "Int64", "ns", is_timed=True, says="as in the file"),
        Column("duration_ns", "Int64", "ns", is_timed=True, says="wraps of the clock undone"),
        Column("start_is_synthetic", "boolean", says="laid end to end, not measured"),
    ),
    says="one row per profile event, in file order",
)
EVENTS: Final = Table(
    "events",
    (
        Column("event_block", "string", of=lambda e: e.block, says="such as `Execute`"),
        Column("name", "string", of=lambda e: e.name, says="of the operator or kernel"),
        Column("delegated", "boolean", of=lambda e: e.is_delegated, says="inside a delegate"),
        Column("container", "boolean", of=lambda e: e.is_container, says="holds others' time"),
        Column("backend", "string", of=lambda e: e.backend, says="whose delegate it is in"),
        Column(
            "instruction_id",
            "Int64",
            basis="position",
            of=lambda e: e.instruction_id,
            says="of the program",
        ),
        Column(
            "operators",
            "string",
            of=lambda e: ", ".join(e.operators) or None,
            says="the graph's operators that it computes",
        ),
        Column(
            "debug_handles",
            "string",
            of=lambda e: ", ".join(map(str, e.debug_handles)) or None,
            says="of these operators, as the ETRecord has them",
        ),
        Column(
            "modules",
            "string",
            of=lambda e: ", ".join(filter(None, e.modules)) or None,
            says="the model's modules that they are of",
        ),
        Column("source", "string", of=lambda e: e.source, says="the model's own line, `file:line`"),
        Column("count", "Int64", "count", of=lambda e: e.count, says="how often it was logged"),
        *(
            Column(f"{name}_ns", "float64", "ns", is_timed=True, of=getter, says=says)
            for name, says, getter in (
                ("p10", "10th percentile", lambda e: e.percentile_ns(10)),
                ("p50", "median", lambda e: e.percentile_ns(50)),
                ("p90", "90th percentile", lambda e: e.percentile_ns(90)),
                ("mean", "mean", lambda e: e.mean_ns),
                ("minimum", "least", lambda e: e.percentile_ns(0)),
                ("maximum", "most", lambda e: e.percentile_ns(100)),
            )
        ),
    ),
    says="one row per kind of event of an event block",
)
