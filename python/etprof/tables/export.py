"""The tables of an export: what came out, what is not delegated and why."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from etprof.analysis.findings.commands import rewritten_export
from etprof.base.text import join_names
from etprof.base.units import (
    MISSING,
    count_of,
    format_count,
    format_number,
    format_share,
    format_size,
    format_value,
)
from etprof.run.accuracy import format_differing
from etprof.tables.brief import AnswerLine, AnswerPoint, BarPart
from etprof.tables.quality import ANSWER_STYLES
from etprof.tables.table import Column, Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from etprof.run.accuracy import TextQuality
    from etprof.run.delegation import (
        DelegationReport,
        GraphOperator,
        MemoryPlan,
        MethodReport,
        ProgramSize,
        SourceLine,
    )
    from etprof.run.program import BundleCheck, ExportCheck, ExportManifest, MethodFiles

UNDELEGATED: Final = Table(
    "undelegated",
    (
        Column("operator", "string", says="ATen's name of the operator"),
        Column(
            "count",
            "Int64",
            unit="count",
            dropped_first=1,
            says="How many of them stay out for this reason",
        ),
        Column("reason", "string", says="Why the partitioner left them out"),
    ),
    says="Operators outside the delegate by kind and reason.",
)
REWRITES: Final = Table(
    "rewrites",
    (
        Column("rewrite", "string", of=lambda rewrite: str(rewrite.name), says="Its name"),
        Column("operators", "Int64", unit="count", of=lambda rewrite: rewrite.operators,
               says="Operators of the traced graphs that it replaced; missing for the lowering's"),
    ),
    title="rewrites",
    says="A rewrite that the program was made with.",
)  # fmt: skip


def rewrites_of(manifest: ExportManifest) -> Table:
    """Returns a row for each rewrite that changed something, and which modules they left as they are."""
    excluded = manifest.options.get("rewrite_exclusions")
    texts = [str(text) for text in excluded] if isinstance(excluded, list) else []
    return REWRITES.of(manifest.rewrites, note=f"but for {join_names(texts)}" if texts else "")


SCOPES: Final = Table(
    "scopes",
    (
        Column("scope", "string", of=lambda scope: str(scope.scope),
               says="Which part of the model, and its precision"),
        Column("operators", "Int64", unit="count", of=lambda scope: scope.operators,
               says="Operators of the traced graphs that it decided on"),
        Column("quantized", "Int64", unit="count", title="on integers",
               of=lambda scope: scope.quantized,
               says="How many of them compute on integers; missing where nothing in the program does"),
    ),
    title="parts in another precision",
    says="A part of the model that was asked for in another precision.",
)  # fmt: skip
UNDELEGATED_NODES: Final = Table(
    "undelegated_nodes",
    (
        Column("operator", "string", says="ATen's name of the operator"),
        Column("module", "string", dropped_first=2, says="The module it was traced in"),
        Column("source", "string", dropped_first=1, says="The line of the model's own code"),
        Column("reason", "string", says="Why the partitioner left it out"),
    ),
    says="Every operator outside the delegate.",
)


OPERATOR_KINDS: Final = Table(
    "operator_kinds",
    (
        Column("operator", "string", says="ATen's name of the operator; the last row adds up"),
        Column("inside", "Int64", unit="count", says="How many of them a delegate computes"),
        Column("outside", "Int64", unit="count", says="How many ExecuTorch's own kernels compute"),
        Column("total", "Int64", unit="count", says="Both"),
    ),
    title="operators by kind",
    says="Operators by kind, inside and outside the delegates; views that cost nothing and what "
    "quantises inside a delegate left out.",
    basis="per program",
)


def kinds_table(report: DelegationReport) -> Table:
    """Returns how many operators of each kind are inside and outside, over all methods.

    They add up to the summaries' figures: what quantises inside a delegate is folded into others.
    """
    every = list(report.methods.values())
    inside = Counter(
        operator.operator for method in every for operator in method.operators
        if operator.delegate is not None and not operator.is_quantization
    )  # fmt: skip
    outside = Counter(operator.operator for method in every for operator in _outside(method))
    counted = (inside + outside).most_common()
    rows = [(kind, inside[kind], outside[kind]) for kind, _ in counted]
    rows.append(("Total", inside.total(), outside.total()))
    return OPERATOR_KINDS.of(
        {"operator": kind, "inside": within, "outside": without, "total": within + without}
        for kind, within, without in rows
    )


def summary_table(manifest: ExportManifest, report: DelegationReport) -> Table:
    """Returns one column per method and one row per figure."""
    columns = (
        Column("figure", "string", title=""),
        *(Column(name, "string", title=name) for name in report.methods),
    )
    figures = [_figures(method, manifest.methods[name]) for name, method in report.methods.items()]
    titles = [title for title in figures[0] if any(figure[title] is not None for figure in figures)]
    rows = tuple((title, *(figure[title] for figure in figures)) for title in titles)
    return Table("export", columns, rows, note="" if report.size is None else _size(report.size))


def headline(manifest: ExportManifest, report: DelegationReport) -> str:
    """Says of the method that runs what is delegated, and the SNR of its outputs."""
    name = manifest.method if manifest.method in report.methods else next(iter(report.methods))
    check = manifest.methods[name].check
    clauses = [f"{manifest.model} {manifest.precision} for {manifest.backend}"]
    if summary := report.methods[name].summary:
        clauses.append(
            f"{count_of(summary.delegated_operators, 'operator')} in "
            f"{count_of(summary.delegate_calls, 'delegate call')}, "
            f"{format_count(summary.undelegated_operators)} outside"
        )
    if check is not None:
        clauses.append(_likeness(check))
    other_methods = len(report.methods) - 1
    return "; ".join(clauses) + (
        f" ({name}; {count_of(other_methods, 'other method')})" if other_methods else ""
    )


def tell_fallbacks(manifest: ExportManifest) -> tuple[str, ...]:
    """Says which operators the runtime refuses inside the delegate, so that they are outside."""
    return tuple(
        f"Outside, for {manifest.backend} refuses it: {fallback.name}: {fallback.reason}"
        for fallback in manifest.fallbacks
    )


def possible_rewrites(
    manifest: ExportManifest, report: DelegationReport
) -> tuple[AnswerPoint, ...]:
    """Says how many operators outside the delegate rewrites would replace, and with which command."""
    outside = [operator for method in report.methods.values() for operator in _outside(method)]
    replaceable = [operator for operator in outside if operator.rewrites]
    if not replaceable:
        return ()
    names = {name for operator in replaceable for name in operator.rewrites}
    share = f"{len(replaceable)} of the {count_of(len(outside), 'operator')} outside"
    return (AnswerPoint(f"Rewrites replace {share}", rewritten_export(manifest, names)),)


def share_of_work(report: DelegationReport) -> tuple[BarPart, ...]:
    """Returns the multiply-accumulates of the first method as parts; nothing where unknown."""
    summary = next(iter(report.methods.values())).summary
    sme2 = None if summary is None else summary.predicted_sme2_macs_share
    delegated = None if summary is None else summary.delegated_macs_share
    if sme2 is None or delegated is None:
        return ()
    segments = (
        BarPart("SME2 kernel (predicted)", sme2),
        BarPart("delegate without it", max(delegated - sme2, 0.0)),
        BarPart("outside", 1 - max(delegated, sme2)),
    )
    return tuple(segment for segment in segments if segment.share > 0)


def _figures(method: MethodReport, files: MethodFiles) -> dict[str, str | None]:
    """Returns a method's figures by their titles; None for what was not asked."""
    summary, check = method.summary, files.check
    counted = (
        {}
        if summary is None
        else {
            "delegate calls": format_count(summary.delegate_calls),
            "operators in the delegate": format_count(summary.delegated_operators),
            "operators outside": format_count(summary.undelegated_operators),
            "multiply-accumulates": format_count(summary.macs),
            "  of them in the delegate": format_share(summary.delegated_macs_share),
            "  with an SME2 kernel (predicted)": format_share(summary.predicted_sme2_macs_share),
            "graphs and weights of delegates": _delegated_bytes(method),
        }
    )
    bundle = None if check is None else check.bundle
    return {
        **counted,
        "in float32 for accuracy": _named_counts(files.widened),
        "constants at the type's limit": _named_counts(files.clamped),
        "planned memory": _plan(method.memory),
        "SNR against eager fp32": _distance(check),
        "further inputs": _further_inputs(check),
        "bundled test case": None if bundle is None else _bundle(bundle),
    }


def _named_counts(counts: Mapping[str, int]) -> str | None:
    """Returns how many operators of which kind; None for none."""
    return ", ".join(count_of(number, kind) for kind, number in counts.items()) or None


def _plan(memory: MemoryPlan | None) -> str:
    sizes = () if memory is None else memory.arena_bytes
    planned = " + ".join(map(format_size, sizes)) or MISSING
    if memory is None or not sizes or memory.unshared_bytes is None:
        return planned
    peak_size, unshared_size = (
        format_size(memory.peak_live_bytes),
        format_size(memory.unshared_bytes),
    )
    return f"{planned} ({peak_size} live at once; {unshared_size} without reuse)"


def _delegated_bytes(method: MethodReport) -> str | None:
    """Returns what the delegates' graphs take, and the weights they read; None without any."""
    graphs = [
        delegate.blob_bytes for delegate in method.delegates if delegate.blob_bytes is not None
    ]
    weights = [
        delegate.weight_bytes for delegate in method.delegates if delegate.weight_bytes is not None
    ]
    if not graphs:
        return None
    weights_size = format_size(sum(weights)) if len(weights) == len(method.delegates) else MISSING
    return f"{format_size(sum(graphs))} + {weights_size}"


def _likeness(check: ExportCheck) -> str:
    """Says how near the outputs are to the float32 model's."""
    ratios = [output.snr_db for output in check.outputs if output.snr_db is not None]
    if ratios:
        return f"SNR against eager fp32 {_distance(check)}"
    return f"outputs against eager fp32: {_distance(check)}"


def _distance(check: ExportCheck | None) -> str:
    """Returns the worst output's signal-to-noise ratio, and whether the precision explains it.

    Without a ratio it says what there is in its place.
    """
    outputs = () if check is None else check.outputs
    if check is None or not outputs:
        return "none to compare"
    note = "" if check.passed else f", expected at least {format_value('dB', check.minimum_snr_db)}"
    if ratios := [output.snr_db for output in outputs if output.snr_db is not None]:
        return f"{format_value('dB', min(ratios))}{note}"
    if any(output.degenerate for output in outputs):
        return "not scored"
    equal_share = min((o.equal_share for o in outputs if o.equal_share is not None), default=1.0)
    if equal_share == 1:
        return "equal"
    return f"{format_differing(equal_share)} of the whole numbers differ"


def _further_inputs(check: ExportCheck | None) -> str | None:
    """Says on how many inputs beside the example the program is right, and the worst of them."""
    judged = [row for row in check.further_inputs if row.answer != "unknown"] if check else []
    if not judged:
        return None
    right = sum(row.answer == "passed" for row in judged)
    ratios = [(row.snr_db_converted, row.inputs) for row in judged]
    scored = [(ratio, name) for ratio, name in ratios if ratio is not None]
    worst = min(scored, default=None)
    text = f"right on {right} of {len(judged)}"
    return text if worst is None else f"{text}; worst: {worst[1]}, {format_value('dB', worst[0])}"


def _bundle(check: BundleCheck) -> str:
    """Returns what ExecuTorch's own runtime said of the bundled program."""
    if check.passed:
        return f"verified by ExecuTorch to ±{format_value('p', check.absolute_tolerance)}"
    verdict = "not verified" if check.passed is None else "differs"
    return f"{verdict}: {check.problem}"


def _size(size: ProgramSize) -> str:
    section_bytes = {
        "program": size.program_bytes,
        "delegate": size.delegate_bytes,
        "constant": size.constant_bytes,
        "padding": size.padding_bytes,
        "external": size.external_bytes,
    }
    split = ", ".join(
        f"{section} {format_size(byte_count)}"
        for section, byte_count in section_bytes.items()
        if byte_count
    )
    weights = size.external_weight_bytes
    weights_note = "" if weights is None else f" ({format_size(weights)} of it weights)"
    return f"{format_size(size.total_bytes)}: {split}{weights_note}"


def undelegated_tables(report: DelegationReport, *, explain: bool) -> Iterator[Table]:
    """Yields what is outside the delegates of each method: by reason, or node by node."""
    for name, method in report.methods.items():
        outside = _outside(method)
        counts = Counter((node.operator, node.reason or "") for node in outside)
        rows = (
            [
                {
                    "operator": node.operator,
                    "module": node.origin.module_path or node.origin.module_type,
                    "source": _source(node.origin.source),
                    "reason": node.reason,
                }
                for node in outside
            ]
            if explain
            else [
                {"operator": operator, "count": count, "reason": reason}
                for (operator, reason), count in counts.most_common()
            ]
        )
        declared = UNDELEGATED_NODES if explain else UNDELEGATED
        if rows:
            yield declared.of(rows, title=f"not delegated in {name}")


def _outside(method: MethodReport) -> list[GraphOperator]:
    """Returns the operators that run outside the delegates; views that cost nothing do not."""
    return [
        operator
        for operator in method.operators
        if operator.delegate is None and operator.instruction is not None
    ]


def _source(source: SourceLine | None) -> str:
    if source is None:
        return MISSING
    return f"{source}  {source.code}"


def quality_lines(quality: TextQuality | None) -> Iterator[AnswerLine]:
    """Yields a sentence on an export's program; none where it read no text."""
    if quality is None:
        return
    ratio, same = quality.perplexity_ratio, quality.same_tokens
    figures = f"perplexity {format_number(quality.perplexity)}"
    if ratio is not None:
        figures += f", {format_number(ratio)} times float32's"
    if same is not None:
        figures += f"; {same} of {count_of(quality.new_tokens, 'new token')} as float32's"
    why = f" ({quality.verdict.reason})" if quality.verdict.answer == "unknown" else ""
    yield AnswerLine(
        f"Text, {count_of(quality.tokens, 'token')}: {figures}; {quality.verdict.answer}{why}",
        ANSWER_STYLES[quality.verdict.answer] if quality.verdict.answer != "passed" else "",
    )
