"""F19 and F20: what keeps products off SME2 that another export, or other shapes, would not.

Neither needs a clock: one asks the export's predictions, the other counted calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.analysis.findings.causes import command_for
from etprof.analysis.findings.finding import EvidenceRow, Finding, Subject, rule, slowest_first
from etprof.analysis.split.work import TileUse, tile_share, tile_uses
from etprof.backends.kernel_names import round_up
from etprof.base.records import SME_ON
from etprof.base.text import layer_or_label
from etprof.base.units import count_of, first_texts, format_count, format_share

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from etprof.analysis.insight import OperatorDetail
    from etprof.run.delegation import DelegateNode, GraphOperator, MethodReport

_EXPORTS: tuple[str, ...] = ("fp32", "fp16", "int8")
_CONSTANTS: Final = ("p_", "b_", "c_")
"""How the names of parameters, buffers and constants begin in a graph of `torch.export`."""


def _predictions(subject: Subject) -> MethodReport | None:
    """The export's description, where it says what other precisions would give."""
    report = subject.insight.experiment.program.report
    return report if report and _products(report) else None


def _products(report: MethodReport) -> list[DelegateNode]:
    nodes = (node for delegate in report.delegates for node in delegate.nodes)
    return [node for node in nodes if node.sme2_precisions is not None]


@rule("F19", "another export puts more on SME2", _predictions, is_timed=False)
def find_better_export(subject: Subject, report: MethodReport) -> Finding | None:
    """Another precision, or a rewrite, has SME2 kernels for operators that have none as they are."""
    products = _products(report)
    now = [node for node in products if node.prediction and node.prediction.sme2]
    without = [node for node in products if node.prediction and node.prediction.sme2 is False]
    rewritten = [node for node in without if node.sme2_rewrites]
    by_precision = {
        name: [node for node in products if name in (node.sme2_precisions or ())]
        for name in _EXPORTS
        if name != subject.insight.experiment.program.precision
    }
    better = {
        name: nodes
        for name, nodes in by_precision.items()
        if _is_more(subject, nodes, now, products)
    }
    if not better and not _is_more(subject, [*now, *rewritten], now, products):
        return None
    names = dict.fromkeys(name for node in rewritten for name in node.sme2_rewrites)
    command = command_for(subject, (), also=tuple(names))
    of = f"of {count_of(len(products), 'product')}"
    rows = [EvidenceRow("as it is", f"{len(now)} {of}, {_work(now, products)}")]
    if rewritten:
        both = [*now, *rewritten]
        rows.append(EvidenceRow(f"--rewrite {','.join(names)}", _gained(both, now, products)))
    rows += [
        EvidenceRow(f"--dtype {name}", _gained(nodes, now, products))
        for name, nodes in better.items()
    ]
    additional = max([*map(len, better.values()), len(now) + len(rewritten)]) - len(now)
    steps = [command] if command else []
    steps += [f"`--dtype {name}`" for name in better]
    return Finding(
        title="More operators could use SME2",
        severity="medium",
        summary=(
            f"{len(now)} {of}, with {_work(now, products)}, have an SME2 kernel as the model is "
            f"exported; up to {additional} more would have one, according to {_source(subject)}."
        ),
        evidence=tuple(rows),
        action=(
            f"export with {' or '.join(steps)}, and compare outputs and times: coverage is "
            "predicted, speed is not"
        ),
    )


def _is_more(
    subject: Subject,
    alternative: Sequence[DelegateNode],
    now: Sequence[DelegateNode],
    products: Sequence[DelegateNode],
) -> bool:
    """Whether it is more operators, and a share of the work that is worth saying."""
    gained = _macs(alternative) - _macs(now)
    return len(alternative) > len(now) and gained >= subject.thresholds.least_share * _macs(
        products
    )


def _macs(nodes: Sequence[DelegateNode]) -> int:
    return sum(node.macs or 0 for node in nodes)


def _work(nodes: Sequence[DelegateNode], products: Sequence[DelegateNode]) -> str:
    total_macs = _macs(products)
    return (
        f"{format_share(_macs(nodes) / total_macs)} of their work"
        if total_macs
        else "work not known"
    )


def _gained(
    alternative: Sequence[DelegateNode],
    now: Sequence[DelegateNode],
    products: Sequence[DelegateNode],
) -> str:
    return f"{len(alternative) - len(now):+d}: {len(alternative)}, {_work(alternative, products)}"


def _source(subject: Subject) -> str:
    """What the prediction rests on, with its version."""
    backend = subject.details[0].row.backend if subject.details else None
    for detail in subject.details:
        if detail.row.is_delegated:
            backend = detail.row.backend
    return (backend.describe_source() if backend else None) or "the export's tables"


def sme_uses(subject: Subject) -> list[TileUse] | None:
    """Products on SME with their sizes, where calls were counted with SME in force."""
    counted = subject.insight.experiment.counted
    if counted is None or counted.mode_in_force not in SME_ON:
        return None
    return list(tile_uses({counted.mode_in_force: counted}))


@rule("F20", "products too small for SME2", sme_uses, is_timed=False)
def find_small_products(subject: Subject, uses: list[TileUse]) -> Finding | None:
    """Products whose rows and columns fill little of the tiles that SME2 computes whole."""
    limits = subject.thresholds
    small = [use for use in uses if (tile_share([use]) or 1.0) < limits.tile_share]
    small_ids = {id(use.operator) for use in small}
    details = slowest_first(d for d in subject.details if id(d.evidence) in small_ids)
    if not details or not is_worth(subject, details, uses):
        return None
    rows = [
        EvidenceRow(
            subject.name_of(use.operator),
            f"{_sizes(use)}; tiles of {use.tile.rows} x {use.tile.columns}, "
            f"{format_share(tile_share([use]))} of them used; {_waste(use)}",
        )
        for use in small[:6]
    ]
    bits = next((f" of {use.svl_bits} bits" for use in small if use.svl_bits), "")
    return Finding(
        title="Products too small for SME2",
        severity="note",
        summary=(
            f"{count_of(len(details), 'product')} of {count_of(len({id(u.operator) for u in uses}), 'operator')}"
            f" on SME2 use less than {format_share(limits.tile_share)} of their tiles at a vector "
            f"length{bits}: the rest is computed and thrown away."
        ),
        evidence=tuple(rows),
        action=(
            f"give them more rows, such as a larger batch{_columns(subject, details)}; measure them "
            "with SME off too"
        ),
    )


def _columns(subject: Subject, details: list[OperatorDetail]) -> str:
    """Advises more columns where layers can be joined for them."""
    joinable = joinable_layers(subject, details)
    return f", or more columns: join {describe_joins(joinable)}" if joinable else ""


def joinable_layers(subject: Subject, details: Sequence[OperatorDetail]) -> dict[str, list[str]]:
    """Returns the other products that read the same input, by the layer; none where nobody says.

    Two such layers can be one with the outputs of both.
    """
    report = subject.insight.experiment.program.report
    if report is None:
        return {}
    by_name = {operator.name: operator for operator in report.operators}
    readers: dict[str, list[GraphOperator]] = {}
    for operator in filter(lambda operator: operator.macs, report.operators):
        for source in _sources(operator, by_name):
            readers.setdefault(source, []).append(operator)
    joinable: dict[str, list[str]] = {}
    for detail in details:
        behind = detail.attribution.behind if detail.attribution else ()
        for product in filter(lambda operator: operator.macs, behind):
            rivals = [
                layer_or_label(rival.origin.location, rival.name)
                for source in _sources(product, by_name)
                for rival in readers[source]
                if rival is not product and rival.operator == product.operator
            ]
            if rivals:
                joinable[detail.name] = list(dict.fromkeys(rivals))
    return joinable


def _sources(operator: GraphOperator, by_name: Mapping[str, GraphOperator]) -> set[str]:
    """Returns what an operator reads of the model's values, behind steps of quantisation."""
    sources = set()
    for name in operator.inputs:
        source = name
        while (producer := by_name.get(source)) and producer.is_quantization and producer.inputs:
            source = producer.inputs[0]
        if not source.startswith(_CONSTANTS):
            sources.add(source)
    return sources


def describe_joins(joinable: Mapping[str, Sequence[str]]) -> str:
    """Says which layers can be joined with which."""
    texts = [
        f"{layer} with {', '.join(first_texts(rivals, 3))}" for layer, rivals in joinable.items()
    ]
    return "; ".join(first_texts(texts, 3))


def is_worth(subject: Subject, details: list[OperatorDetail], uses: list[TileUse]) -> bool:
    """By time where there is some, else by what all tiles compute."""
    least_share = subject.thresholds.least_share
    if subject.is_timed:
        return subject.reaches(details, least_share)
    evidence_ids = {id(detail.evidence) for detail in details}
    computed = sum(use.computed for use in uses)
    return (
        sum(use.computed for use in uses if id(use.operator) in evidence_ids)
        >= least_share * computed
    )


def _waste(use: TileUse) -> str:
    """The work that nobody needs, and the sizes that would fill the same tiles."""
    (m, n, *_), _ = max(use.kernel.by_sizes, key=lambda item: item[1])
    work, tile = use.work, use.tile
    return (
        f"{format_count(work.macs)} of {format_count(work.computed)} multiply-accumulates needed; "
        f"m {round_up(m, tile.rows)}, n {round_up(n, tile.columns)} would fill them"
    )


def _sizes(use: TileUse) -> str:
    """The sizes of most of its calls."""
    sizes, _ = max(use.kernel.by_sizes, key=lambda item: item[1])
    return ", ".join(f"{name} {size}" for name, size in zip("mnk", sizes, strict=False))
