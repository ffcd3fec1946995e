"""What Model Explorer is told of a program and of its runs: nodes, their facts, groups."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etprof.analysis.assessment import assess_run
from etprof.analysis.run_analysis import analyze_run
from etprof.base.errors import InputFileError, UsageError
from etprof.base.units import format_count, format_duration, format_share
from etprof.importing.bare_etdump import load_source
from etprof.run.delegation import find_method_report, read_delegation
from etprof.run.manifest import MANIFEST
from etprof.views.partitions import OUTSIDE, delegate_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from etprof.analysis.assessment import Assessment
    from etprof.analysis.insight import ExperimentInsight, OperatorDetail
    from etprof.run.delegation import GraphOperator, MethodReport

COLOURS: Final = {
    "proven": "#1a9850", "named": "#a6d96a", "excluded": "#d73027", "unknown": "#bdbdbd",
}  # fmt: skip
"""Of the answers whether an operator runs on SME."""


def read_methods(program: Path) -> Mapping[str, MethodReport]:
    """Returns the report of each method of a `.pte`; raises InputFileError where none is beside."""
    report_path = program.with_name(f"{program.name}.delegation.json")
    if not report_path.is_file():
        msg = f"{report_path} does not exist, and says what is in the program; `etprof export` writes it"
        raise InputFileError(msg)
    return read_delegation(report_path).methods


def find_run(path: Path) -> Path:
    """Returns the run directory in which a file stands, or `path` if it is one itself."""
    absolute = path.absolute()
    for folder in (absolute, *absolute.parents[:2]):
        if (folder / MANIFEST).is_file():
            return folder
    raise UsageError(f"{path} stands in no run directory; open an ETDump of a run, or name one")


def read_run(folder: Path) -> tuple[Assessment, MethodReport]:
    """Reads a run and what its program is made of."""
    assessment = assess_run(analyze_run(load_source(folder)))
    report = find_method_report(folder, assessment.run.manifest)
    if report is None:
        msg = f"{folder} does not say what its program is made of: export the model by etprof"
        raise InputFileError(msg)
    return assessment, report


def details_by_node(insight: ExperimentInsight) -> dict[str, list[OperatorDetail]]:
    """Returns what ran for each node of the graph; what was fused is at each of its nodes."""
    details_of: dict[str, list[OperatorDetail]] = {}
    for detail in insight.details:
        for name in detail.attribution.graph_operators if detail.attribution else ():
            details_of.setdefault(name, []).append(detail)
    return details_of


def facts_of(report: MethodReport, operator: GraphOperator) -> Iterator[tuple[str, str]]:
    """Yields what the export says of an operator."""
    yield "delegate", delegate_of(report, operator)
    if operator.reason:
        yield "why not delegated", operator.reason
    if operator.origin.module_path:
        yield "module", operator.origin.module_path
    if operator.origin.source:
        yield "source", f"{operator.origin.source} {operator.origin.source.code}".strip()
    if operator.macs:
        yield "multiply-accumulates", format_count(operator.macs)


def measured_fact(detail: OperatorDetail) -> str:
    """Says of an operator of the ETDump how long it took, and whether it ran on SME."""
    facts, times = [], detail.row.times
    if times is not None:
        facts.append(f"{format_duration(times.mean_ns)} ({format_share(times.share)})")
    if detail.evidence.could_use_sme2:
        facts.append(f"SME {detail.evidence.route.answer}")
    if detail.kernel_hint:
        facts.append(detail.kernel_hint)
    if detail.why_not_sme2:
        facts.append(detail.why_not_sme2.text)
    return ", ".join(facts)


def delegate_times(insight: ExperimentInsight, report: MethodReport) -> dict[str, str]:
    """Sums the operators of each delegate call, and of what stands outside, for people."""
    calls = {delegate.instruction: number for number, delegate in enumerate(report.delegates)}
    total_ns: defaultdict[str, float] = defaultdict(float)
    for detail in insight.details:
        if detail.row.times is None:
            return {}
        number = calls.get(detail.row.instruction_id) if detail.row.is_delegated else None
        delegate_name = (
            OUTSIDE if number is None else f"delegate {number} ({report.delegates[number].backend})"
        )
        total_ns[delegate_name] += detail.row.times.mean_ns
    return {delegate_name: format_duration(sum_ns) for delegate_name, sum_ns in total_ns.items()}


def sme_routes(insight: ExperimentInsight) -> dict[str, str]:
    """Returns of each convolution and matrix product whether it runs on SME, by node."""
    return {
        name: detail.evidence.route.answer
        for name, details in details_by_node(insight).items()
        for detail in details
        if detail.evidence.could_use_sme2
    }
