"""F21 to F24: work that is exact and that another shape, or another cut of the graph, would spare.

None needs a clock: two ask counted calls, the third the bytes that the export's graph states.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from etprof.analysis.findings.causes import (
    NEEDLESS_WORK,
    command_for,
    find_remedy,
    rewrites_behind,
)
from etprof.analysis.findings.coverage import (
    describe_joins,
    is_worth,
    joinable_layers,
    sme_uses,
)
from etprof.analysis.findings.finding import (
    SHOWN_ROWS,
    EvidenceRow,
    Finding,
    Subject,
    rule,
    slowest_first,
)
from etprof.analysis.split.work import packing_bytes
from etprof.backends.backend import MATMUL
from etprof.base.text import join_names, layer_or_label
from etprof.base.units import (
    count_of,
    format_count,
    format_ratio,
    format_share,
    format_size,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.analysis.insight import OperatorDetail
    from etprof.analysis.split.evidence import ModeEvidence, OperatorEvidence
    from etprof.analysis.split.work import TileUse
    from etprof.run.delegation import GraphOperator, MethodReport

_RIGHT: Final = "kai_run_rhs_"
_WORD_BITS: Final = 32
_SEVERAL: Final = 2
_MOVES: Final = 2
"""Of a vector that is packed: it is loaded and stored."""


@dataclass(frozen=True)
class _PackedOperator:
    """An operator whose products read a packed left side."""

    uses: tuple[TileUse, ...]

    @property
    def first(self) -> TileUse:
        """The use that names and sizes are shown of."""
        return self.uses[0]

    @property
    def moves(self) -> int:
        """Vectors that packing loads and stores at least: those that it writes, twice."""
        bits = 8 * max(use.work.left_bytes for use in self.uses)
        return _MOVES * bits // (self.first.svl_bits or 1)

    @property
    def products(self) -> int:
        """Outer products of two vectors: a step has one for each square of accumulators."""
        side = (self.first.svl_bits or 0) // _WORD_BITS
        return sum(
            use.work.steps * use.tile.rows * use.tile.columns // side**2 for use in self.uses
        )


def _packed(uses: Sequence[TileUse]) -> list[_PackedOperator]:
    """Those whose tiles are whole squares of vectors: products of several rows."""
    uses_by_operator: dict[int, list[TileUse]] = {}
    for use in uses:
        side = (use.svl_bits or 0) // _WORD_BITS
        is_square = side and not use.tile.rows % side and not use.tile.columns % side
        if is_square and use.tile.packs_left and use.work.left_bytes:
            uses_by_operator.setdefault(id(use.operator), []).append(use)
    return [_PackedOperator(tuple(operator_uses)) for operator_uses in uses_by_operator.values()]


@rule("F21", "packing that costs as much as the product", sme_uses, is_timed=False)
def find_expensive_packing(subject: Subject, uses: list[TileUse]) -> Finding | None:
    """Packing moves as many vectors as the product multiplies: each is read for one tile alone."""
    expensive = [
        operator
        for operator in _packed(uses)
        if operator.products
        and operator.moves >= subject.thresholds.packing_ratio * operator.products
    ]
    details = _details_of(subject, [operator.first.operator for operator in expensive])
    if not details or not is_worth(subject, details, uses):
        return None
    moves, products = (
        sum(getattr(operator, of) for operator in expensive) for of in ("moves", "products")
    )
    columns = max(operator.first.tile.columns for operator in expensive)
    return Finding(
        title="Packing costs as much as the product",
        severity="note",
        summary=(
            f"{count_of(len(details), 'operator')} on {subject.insight.sme_unit}: to pack the left-hand operands, at least "
            f"{format_count(moves)} vectors are loaded and stored for {format_count(products)} "
            f"outer products, at a vector length of {expensive[0].first.svl_bits} bits."
        ),
        action=_packing_action(subject, details, columns),
        evidence=tuple(
            EvidenceRow(
                subject.name_of(operator.first.operator),
                f"{format_count(operator.moves)} vectors moved, {format_count(operator.products)} outer "
                f"products ({format_ratio(operator.moves / operator.products)}); "
                f"tiles of {operator.first.tile.rows} x {operator.first.tile.columns}",
            )
            for operator in expensive[:SHOWN_ROWS]
        ),
    )


def _packing_action(subject: Subject, details: list[OperatorDetail], columns: int) -> str:
    """Advises to join layers where another one reads the same input, and to compare in any case."""
    where = "" if subject.is_timed else "on a device, "
    compare = f"{where}compare the latency with SME off"
    joinable = joinable_layers(subject, details)
    if not joinable:
        return compare
    return (
        f"join layers that read the same input, {describe_joins(joinable)}: each packed row serves "
        f"{columns} columns, so twice the outputs halve the packing; {compare}"
    )


def _details_of(subject: Subject, operators: Sequence[OperatorEvidence]) -> list[OperatorDetail]:
    evidence_ids = {id(operator) for operator in operators}
    return slowest_first(d for d in subject.details if id(d.evidence) in evidence_ids)


def _counted(subject: Subject) -> ModeEvidence | None:
    """Counted calls with the sizes of what is packed in an inference, or of the products."""
    counted = subject.insight.experiment.counted
    kernels = (k for o in counted.operators for k in o.kernels) if counted else iter(())
    return counted if any(kernel.by_sizes for kernel in kernels) else None


@rule("F22", "weights packed in every inference", _counted, is_timed=False)
def find_repacked_weights(subject: Subject, counted: ModeEvidence) -> Finding | None:
    """A layer packs its right side while it runs; a product of two values of the model has to."""
    written = {
        id(operator): (operator, right)
        for operator in counted.operators
        if operator.parsed_name.operator_class != MATMUL
        and (right := _right_bytes(counted, operator))
    }
    details = _details_of(subject, [operator for operator, _ in written.values()])
    packed_bytes = sum(
        packing_bytes(kernel, counted.svl_bits) or 0
        for operator in counted.operators
        for kernel in operator.kernels
        if kernel.is_packing
    )
    total = sum(right for _, right in written.values())
    least_share = subject.thresholds.least_share
    is_small = (
        not subject.reaches(details, least_share)
        if subject.is_timed
        else total < least_share * packed_bytes
    )
    if not details or is_small:
        return None
    return Finding(
        title="Weights are packed in every inference",
        severity="medium",
        summary=(
            f"{count_of(len(details), 'layer')} packed {format_size(total)} of packed right sides "
            f"in each inference, {format_share(total / packed_bytes)} of what all packing writes."
        ),
        action=(
            "make their weights constants of the program, so that they are packed once while it is "
            "loaded: parameters or buffers of a module, no inputs, and no values that are computed "
            "from others; without `force_non_static_weights_for_f32_linear`"
        ),
        evidence=tuple(
            EvidenceRow(subject.name_of(operator), f"{format_size(right)} in each inference")
            for operator, right in sorted(written.values(), key=lambda e: -e[1])[:SHOWN_ROWS]
        ),
        ruled_out=("packing while the program is loaded: these calls are of an inference",),
    )


def _right_bytes(counted: ModeEvidence, operator: OperatorEvidence) -> int:
    """What it packs of its right side in an inference; 0 where that is not known."""
    right = (k for k in operator.kernels if k.is_packing and k.name.startswith(_RIGHT))
    return sum(packing_bytes(kernel, counted.svl_bits) or 0 for kernel in right)


def _several_delegates(subject: Subject) -> MethodReport | None:
    """The export's description, where it says who reads whom and has several delegate calls."""
    report = subject.insight.experiment.program.report
    if report is None or len(report.delegates) < _SEVERAL or not report.has_data_flow:
        return None
    return report if any(operator.output_bytes for operator in report.operators) else None


@rule("F23", "much data crosses delegate boundaries", _several_delegates, is_timed=False)
def find_boundary_traffic(subject: Subject, report: MethodReport) -> Finding | None:
    """Results that leave a delegate, or come to it from outside, are written to planned memory."""
    crossing = _crossing(report)
    total = sum(operator.output_bytes or 0 for operator in report.operators)
    size = sum(operator.output_bytes or 0 for operator in crossing)
    if size < subject.thresholds.boundary_share * total:
        return None
    outside = [detail for detail in subject.details if not detail.row.is_delegated]
    remedy = find_remedy(subject, outside)
    return Finding(
        title="Much data crosses delegate boundaries",
        severity="note",
        summary=(
            f"{format_size(size)} of results, {format_share(size / total)} of all that operators "
            f"write, enter or leave one of {len(report.delegates)} delegate calls: each is written "
            "whole to memory and read again, and nothing is fused across."
        ),
        action=(
            "have the operators between the delegate calls delegated, the largest boundaries first"
            f"{f' ({remedy.command})' if remedy.command else ''}; by bytes of the export's shapes, "
            "which say nothing of time"
        ),
        evidence=tuple(
            EvidenceRow(
                layer_or_label(operator.origin.location, operator.name),
                f"{format_size(operator.output_bytes or 0)}, "
                + (
                    "to a delegate"
                    if operator.delegate is None
                    else f"from delegate {operator.delegate}"
                )
                + (f", {operator.name}" if operator.origin.location else ""),
            )
            for operator in crossing[:SHOWN_ROWS]
        ),
        **remedy.fields,
    )


def _crossing(report: MethodReport) -> list[GraphOperator]:
    """Operators whose results cross, each once, the largest first; the method's results too.

    A delegated one crosses where it has more readers than in its own delegate; one outside where a
    delegated one reads it.
    """
    by_name = {operator.name: operator for operator in report.operators}
    within, entering = Counter[str](), set[str]()
    for reader in report.operators:
        for name in reader.inputs if reader.delegate is not None else ():
            source = by_name.get(name)
            if source and source.delegate == reader.delegate:
                within[name] += 1
            elif source and source.delegate is None:
                entering.add(name)
    crossing = [
        operator
        for operator in report.operators
        if operator.name in entering
        or (operator.delegate is not None and (operator.readers or 0) > within[operator.name])
    ]
    return sorted(crossing, key=lambda operator: -(operator.output_bytes or 0))


@rule("F24", "needless work", reads_operators=True)
def find_needless_work(subject: Subject) -> Finding | None:
    """What is computed twice, or computed and then cut away, takes time that nobody needs."""
    needless = {
        name: subject.select(lambda detail, name=name: name in rewrites_behind(detail))  # type: ignore[misc]
        for name in NEEDLESS_WORK
    }
    details = [detail for members in needless.values() for detail in members]
    if not details or not subject.reaches(details, subject.thresholds.least_share):
        return None
    names = [name for name, members in needless.items() if members]
    command = command_for(subject, (), also=names)
    computed = join_names(
        NEEDLESS_WORK[name].format(count_of(len(needless[name]), "operator")) for name in names
    )
    lines = dict.fromkeys(detail.source for detail in details if detail.source)
    at = f" (at {', '.join(list(lines)[:SHOWN_ROWS])})" if lines else ""
    return Finding(
        "Needless work",
        "high" if subject.reaches(details, 2 * subject.thresholds.least_share) else "medium",
        f"{computed}: {subject.weigh(details)}.",
        f"{command} leaves it out; or change the model{at}",
        *subject.cost(details),
    )
