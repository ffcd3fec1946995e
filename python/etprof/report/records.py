"""The report's tables as plain records: what CSV, Parquet, JSON and the Python API all show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.analysis.split.operators import class_totals_ns
from etprof.analysis.split.rollup import roll_up
from etprof.report.verdicts import badge_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etprof.analysis.assessment import Assessment
    from etprof.analysis.compare.comparison import Comparison
    from etprof.analysis.insight import OperatorDetail
    from etprof.analysis.split.operators import OperatorRow
    from etprof.analysis.split.rollup import Key
    from etprof.run.directory import BlockMetrics

Value = str | int | float | bool | None
Table = list[dict[str, Value]]
_TIMED_COLUMNS: Final = ("_ns", "share", "gflops", "_per_s", "speed_up", "_low", "_high", "ceiling")


def report_tables(assessment: Assessment) -> dict[str, Table]:
    """Returns all tables of a run by name; times that mean nothing are left out."""
    changes = [record for entry in assessment.comparisons for record in operator_changes(entry)]
    comparisons = [comparison_record(entry) for entry in assessment.comparisons]
    if not assessment.run.times_are_meaningful:
        changes, comparisons = without_times(changes), without_times(comparisons)
    return {
        "operators": operator_table(assessment),
        "categories": category_table(assessment),
        "modules": rollup_table(assessment, "module"),
        "source_lines": rollup_table(assessment, "source"),
        "microkernels": rollup_table(assessment, "microkernel"),
        "comparisons": comparisons,
        "operator_changes": changes,
        "tracer_costs": tracer_table(assessment),
        "samples": sample_table(assessment),
        "findings": finding_table(assessment),
    }


def operator_table(assessment: Assessment) -> Table:
    """Returns one record per experiment and operator."""
    table: Table = [
        {"experiment": entry.experiment.name, **operator_record(detail)}
        for entry in assessment.insight.experiments
        for detail in entry.details
    ]
    return table if assessment.run.times_are_meaningful else without_times(table)


def without_times(table: Table) -> Table:
    """Blanks every column that a clock had a part in."""
    return [
        {name: None if name.endswith(_TIMED_COLUMNS) else value for name, value in record.items()}
        for record in table
    ]


def operator_record(detail: OperatorDetail) -> dict[str, Value]:
    """Returns one operator with its times, microkernel, work and origin."""
    found = detail.attribution
    origin = found.origin if found else None
    why_not = detail.why_not_sme2
    return {
        **operator_fields(detail.row),
        "kernel_hint": detail.kernel_hint,
        "kernel_grade": detail.evidence.grade,
        "kernel_level": detail.evidence.level,
        "kernel_source": "counted calls" if detail.kernels else "operator name",
        "kernel_calls": sum(kernel.calls for kernel in detail.kernels) if detail.kernels else None,
        "why_not_sme2": why_not.text if why_not else None,
        "shape": "x".join(map(str, found.shape)) if found and found.shape else None,
        "macs": found.macs if found else None,
        "moved_bytes": found.moved_bytes if found else None,
        "gflops": detail.gflops,
        "gigabytes_per_s": detail.gigabytes_per_s,
        "module_path": origin.module_path if origin else None,
        "module_type": origin.module_type if origin else None,
        "module_certainty": found.certainty if found else None,
        "modules": ", ".join(filter(None, found.modules)) or None if found else None,
        "source": detail.source,
        "graph_operators": " ".join(found.graph_operators) if found else None,
        "not_delegated_because": found.reason if found else None,
    }


def operator_fields(row: OperatorRow) -> dict[str, Value]:
    """Returns what the ETDump alone says of an operator."""
    return {
        "label": row.label,
        "operator": row.base,
        "category": row.operator_class.category,
        "class": row.operator_class.finer,
        "delegated": row.is_delegated,
        "instruction_id": row.instruction_id,
        "data_types": " ".join(row.data_types) or None,
        "microkernel_type": row.microkernel_type,
        "executions": row.executions,
        "calls": row.calls,
        "mean_ns": row.mean_ns,
        "median_ns": row.median_ns,
        "median_low_ns": row.median_interval[0] if row.median_interval else None,
        "median_high_ns": row.median_interval[1] if row.median_interval else None,
        "minimum_ns": row.minimum_ns,
        "maximum_ns": row.maximum_ns,
        "standard_deviation_ns": row.standard_deviation_ns,
        "total_ns": row.total_ns,
        "share": row.share,
    }


def rollup_table(assessment: Assessment, by: Key) -> Table:
    """Returns one record per experiment and module, source line or microkernel."""
    table: Table = [
        {
            "experiment": entry.experiment.name,
            by: row.key,
            "operators": row.operators,
            "mean_ns": row.mean_ns,
            "share": row.share,
            "macs": row.macs,
        }
        for entry in assessment.insight.experiments
        for row in roll_up(entry, by)
    ]
    return table if assessment.run.times_are_meaningful else without_times(table)


def category_table(assessment: Assessment) -> Table:
    """Returns one record per experiment and finer class; shares add up to one."""
    if not assessment.run.times_are_meaningful:
        return []
    return [
        {
            "experiment": experiment.name,
            "category": entry.category,
            "class": entry.finer,
            "mean_ns": total / experiment.split.executions,
            "share": total / experiment.split.execute_total_ns,
        }
        for experiment in assessment.run.experiments
        if experiment.split.execute_total_ns
        for entry, total in class_totals_ns(experiment.split).items()
    ]


def comparison_record(comparison: Comparison) -> dict[str, Value]:
    """Returns one comparison with its verdict."""
    effect = comparison.latency
    interval = effect.interval if effect else None
    return {
        "comparison": comparison.name,
        "verdict": badge_of(comparison),
        "speed_up": effect.speed_up if effect else None,
        "speed_up_low": interval.low if interval else None,
        "speed_up_high": interval.high if interval else None,
        "p_value": effect.p_value if effect else None,
        "pairs": effect.pairs if effect else None,
        "accelerated_share": comparison.amdahl.accelerated_share,
        "ceiling": comparison.amdahl.ceiling,
    }


def operator_changes(comparison: Comparison) -> Table:
    """Returns one record per aligned operator of one comparison."""
    return [
        {
            "comparison": comparison.name,
            "baseline_label": entry.aligned.baseline.label if entry.aligned.baseline else None,
            "candidate_label": entry.aligned.candidate.label if entry.aligned.candidate else None,
            "match": entry.aligned.match,
            "category": entry.aligned.row.operator_class.category,
            "class": entry.aligned.row.operator_class.finer,
            "baseline_ns": entry.change.baseline_ns,
            "candidate_ns": entry.change.candidate_ns,
            "delta_ns": entry.change.delta_ns,
            "speed_up": entry.change.speed_up,
            "speed_up_low": entry.interval[0] if entry.interval else None,
            "speed_up_high": entry.interval[1] if entry.interval else None,
            "baseline_share": entry.change.baseline_share,
            "candidate_share": entry.change.candidate_share,
        }
        for entry in comparison.operators
    ]


def category_changes(comparison: Comparison) -> Table:
    """Returns one record per headline category of one comparison."""
    return [
        {
            "category": name,
            "baseline_ns": change.baseline_ns,
            "candidate_ns": change.candidate_ns,
            "delta_ns": change.delta_ns,
            "speed_up": change.speed_up,
            "baseline_share": change.baseline_share,
            "candidate_share": change.candidate_share,
        }
        for name, change in comparison.categories.items()
    ]


def waterfall_table(comparison: Comparison) -> Table:
    """Returns one record per step of the waterfall."""
    return [
        {
            "label": step.label,
            "kind": step.kind,
            "baseline_ns": step.baseline_ns,
            "candidate_ns": step.candidate_ns,
            "delta_ns": step.delta_ns,
        }
        for step in comparison.waterfall.steps
    ]


def tracer_table(assessment: Assessment) -> Table:
    """Returns one record per cost of the event tracer; empty where times mean nothing."""
    return [
        {
            "experiment": cost.experiment,
            "kind": cost.kind,
            "without_ns": cost.without_ns,
            "with_ns": cost.with_ns,
            "ratio": cost.effect.speed_up if cost.effect else cost.ratio,
            "ratio_low": cost.effect.interval.low if cost.effect and cost.effect.interval else None,
            "ratio_high": cost.effect.interval.high
            if cost.effect and cost.effect.interval
            else None,
        }
        for cost in assessment.tracer_costs
    ]


def sample_table(assessment: Assessment) -> Table:
    """Returns every raw latency without tracer, one record each, in the order of measuring.

    Experiments without an operator split are there too, after the others.
    """
    run = assessment.run
    split = [each.name for each in run.experiments if each.name in run.timed]
    names = dict.fromkeys([*split, *run.timed]) if run.times_are_meaningful else {}
    return [
        record
        for name in names
        for block in run.timed[name].blocks
        for record in _samples(name, block)
    ]


def _samples(experiment: str, block: BlockMetrics) -> Iterator[dict[str, Value]]:
    phases = {
        "first": [block.first_inference_ns],
        "warmup": block.warmup_latency_ns,
        "steady": block.latency_ns,
    }
    for phase, latencies in phases.items():
        for index, latency in enumerate(latencies):
            yield {
                "experiment": experiment,
                "block": block.block,
                "phase": phase,
                "index": index,
                "latency_ns": latency,
            }


def finding_table(assessment: Assessment) -> Table:
    """Returns one record per finding, worst first."""
    return [
        {
            "experiment": finding.experiment,
            "rule": finding.rule,
            "severity": finding.severity,
            "title": finding.title,
            "summary": finding.summary,
            "gain_ns": finding.gain_ns,
            "action": finding.action,
            "evidence": "; ".join(f"{row.label}: {row.text}" for row in finding.evidence),
            "ruled_out": "; ".join(finding.ruled_out) or None,
        }
        for entry in assessment.findings
        for finding in entry.findings
    ]
