"""A report's tables: all of them for programs, and in which sections people read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.analysis.outlook import predict_sme2
from etprof.base.units import count_of, format_ratio, format_share
from etprof.tables import comparisons, findings, measurement, operators
from etprof.tables.table import Section, Table
from etprof.tables.verdicts import badge_of, describe_comparison

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etprof.analysis.assessment import Assessment
    from etprof.analysis.compare.comparison import Comparison
    from etprof.analysis.split.rollup import Key

DECLARED: Final[dict[str, Table]] = {
    table.name: table
    for table in (
        operators.OPERATORS, operators.CATEGORIES, *operators.ROLLUPS.values(),
        comparisons.COMPARISONS, comparisons.OPERATOR_CHANGES, comparisons.CATEGORY_CHANGES,
        comparisons.CLASS_CHANGES, comparisons.WATERFALL, comparisons.LEDGER,
        comparisons.BOTTLENECKS, comparisons.VALIDITY, comparisons.OUTPUTS,
        measurement.LATENCIES, measurement.SAMPLES, measurement.TRACER_COSTS, measurement.THREADS,
        findings.FINDINGS, findings.WHY_NOT, findings.REFERENCE,
    )
}  # fmt: skip
"""Every table of a report by its name."""
_WATERFALL_STEPS: Final = 14
_ROLLUP_ROWS: Final = 8
_TITLES: Final[tuple[Key, ...]] = ("source", "module", "microkernel")
_WORTH: Final = (
    "Worth: what an inference would gain if they sped up as the operators of this run did that "
    "took SME2."
)
_GRADES: Final = (
    "Grade A: calls of the microkernel were counted in this run. B: the operator's type "
    "stands for SME in the mode in force. Microkernel, work and rate "
    "are of"
)


def report_tables(assessment: Assessment) -> dict[str, Table]:
    """Returns every table of a run by the name of its file; times that mean nothing are missing."""
    run, insights, found = assessment.run, assessment.insight.experiments, assessment.comparisons
    timed = run.is_timed
    return {
        "operators": operators.operator_table(insights, is_timed=timed),
        "categories": operators.category_table(run.experiments, is_timed=timed),
        "modules": operators.rollup_table(insights, "module", is_timed=timed),
        "source_lines": operators.rollup_table(insights, "source", is_timed=timed),
        "microkernels": operators.rollup_table(insights, "microkernel", is_timed=timed),
        "comparisons": comparisons.COMPARISONS.of(found, is_timed=timed),
        "operator_changes": comparisons.operator_changes(found, is_timed=timed),
        "costs": comparisons.cost_table(found, is_timed=timed),
        "bottlenecks": comparisons.bottleneck_table(found, is_timed=timed),
        "conditions": comparisons.condition_table(found, is_timed=timed),
        "outputs": comparisons.output_table(found),
        "latencies": measurement.latency_table(run.experiments, is_timed=timed),
        "tracer_costs": measurement.tracer_table(assessment.tracer_costs, is_timed=timed),
        "threads": measurement.thread_table(run.experiments, is_timed=timed),
        "samples": measurement.sample_table(run),
        "findings": findings.finding_table(
            (each for entry in assessment.findings for each in entry.findings), is_timed=timed
        ),
        "why_not_sme2": findings.why_not_table(assessment.findings, is_timed=timed),
    }


def report_sections(assessment: Assessment) -> list[Section]:
    """Returns what people read of a run, in the order of the page; empty parts are left out."""
    run, comparison = assessment.run, assessment.primary_comparison
    timed, primary = run.is_timed, assessment.primary
    tables = report_tables(assessment)
    name = primary.experiment.name
    sections: list[Section] = []
    if len(assessment.comparisons) > 1:
        sections.append(Section("comparisons", "All comparisons", (tables["comparisons"],)))
    sections += [
        Section("latencies", "Latency without event tracer", (tables["latencies"],)),
        Section("threads", "Threads", (tables["threads"],)),
        _time_section(assessment),
        Section(
            "tracer", "What the instruments cost", (tables["tracer_costs"],),
            says="Shares and bars were recorded with ExecuTorch's event tracer, latencies "
            "without. Take shares from the bars and times from the latency.",
        ),
    ]  # fmt: skip
    if comparison is not None:
        sections += _comparison_parts(comparison)
    sections += _outlook(assessment)
    sections.append(_operator_section(assessment))
    rollups = [
        operators.rollup_table([primary], by, is_timed=timed).without_missing(by)
        for by in (_TITLES if timed else ())
    ]
    sections.append(Section(
        "rollups", "What the operators come from",
        tuple(table.first(_ROLLUP_ROWS) for table in rollups if table.rows),
    ))  # fmt: skip
    why_not = findings.why_not_table([assessment.findings_of(name)], is_timed=timed)
    worth = _WORTH if timed else ""
    sections.append(Section("whynot", "Why not SME2?", (why_not,), says=worth))
    sections += measurement.generation_sections(run.experiments, is_timed=timed)
    return [section for section in sections if _says_something(section)]


def comparison_sections(comparison: Comparison) -> list[Section]:
    """Returns what people read of one comparison."""
    tokens = f"Generated: {comparison.tokens}." if comparison.tokens is not None else ""
    timed = comparison.times_are_meaningful
    sections = [Section("time", "", (comparisons.class_changes(comparison),))]
    sections += _comparison_parts(comparison)
    if not timed:
        sections.append(Section(
            "structure", "", (comparisons.operator_changes([comparison], is_timed=False),)
        ))  # fmt: skip
    sections.append(Section("tokens", "", lines=(tokens,) if tokens else ()))
    return [section for section in sections if _says_something(section)]


def comparison_words(comparison: Comparison) -> tuple[str, str]:
    """Returns a comparison's headline and the style of its verdict."""
    style = comparisons.VERDICT_STYLES.get(badge_of(comparison), "yellow")
    return describe_comparison(comparison), style if comparison.validity.is_valid else ""


def _says_something(section: Section) -> bool:
    return any(table.rows for table in section.tables) or bool(section.lines and not section.tables)


def _time_section(assessment: Assessment) -> Section:
    """Where the time goes: of both sides of the primary comparison, else of every experiment."""
    comparison, run = assessment.primary_comparison, assessment.run
    if comparison is not None:
        table = comparisons.class_changes(comparison).with_total("Method::execute")
    else:
        table = operators.category_table(run.experiments, is_timed=run.is_timed)
        table = table.with_total("Method::execute") if len(run.experiments) == 1 else table
    unknown = sorted({name for e in run.experiments for name in e.split.unknown_names})
    lines = (f"Not in the category table: {', '.join(unknown)}",) if unknown else ()
    return Section(
        "time", "Where an inference's time goes", (table,), lines=lines,
        says="Means with event tracer, all bars on one scale. A share can grow while its time "
        "shrinks.",
    )  # fmt: skip


def _comparison_parts(comparison: Comparison) -> Iterator[Section]:
    timed = comparison.times_are_meaningful
    closes = abs(comparison.waterfall.residual_ns) < 1.0
    sums = "" if closes else ", but they do not close: please report this as a defect"
    waterfall = comparisons.waterfall_between_totals(comparison, _WATERFALL_STEPS)
    yield Section(
        "waterfall", "From one total to the other", (waterfall,),
        says=f"Every step is one operator's difference; together they are the whole "
        f"difference{sums}.",
    )  # fmt: skip
    bottlenecks = comparisons.bottleneck_table([comparison], is_timed=timed)
    says = _amdahl_sentence(comparison) if timed else ""
    yield Section("amdahl", "How far it can go", (bottlenecks,), says=says)
    ledger = comparisons.cost_table([comparison], is_timed=timed)
    yield Section("ledger", "From start to steady state", (ledger,))
    conditions = comparisons.condition_table([comparison], is_timed=timed)
    yield Section("validity", "May this be believed?", (conditions,))
    yield Section("outputs", "What was computed", (comparisons.output_table([comparison]),))


def _amdahl_sentence(comparison: Comparison) -> str:
    """Says how far this acceleration could go."""
    panel = comparison.amdahl
    if panel.accelerated_operators == 0:
        return "No operator is known to have changed to SME between these two experiments."
    return (
        f"{count_of(panel.accelerated_operators, 'operator')} with "
        f"{format_share(panel.accelerated_share)} of the baseline's time changed to SME, "
        f"and became {format_ratio(panel.accelerated_speed_up)} as fast "
        f"together. The whole inference became {format_ratio(panel.achieved)} as fast with tracer; "
        f"if those operators took no time at all it would be {format_ratio(panel.ceiling)}."
    )


def _outlook(assessment: Assessment) -> Iterator[Section]:
    """What SME2 could do for this model, where no experiment had it."""
    run = assessment.run
    if not run.is_timed or any(e.sme not in {None, "off"} for e in run.experiments):
        return
    found = predict_sme2(assessment.primary)
    if found is not None:
        types = " and ".join(found.packed_types)
        told = f" (type {types} in their names)" if types else ""
        text = (
            "No experiment here had SME. On a CPU with SME2, "
            f"{found.backends} has kernels for "
            f"{count_of(found.operators, 'operator')} of this program{told}. They take "
            f"{format_share(found.share)} of an inference on this CPU: if they took no time at "
            f"all, the whole would be {format_ratio(found.ceiling)} as fast. That is a ceiling, "
            "not a forecast."
        )
        yield Section("outlook", "What SME2 could do", lines=(text,))


def _operator_section(assessment: Assessment) -> Section:
    """The primary comparison's operators side by side, or those of the one experiment."""
    comparison, primary = assessment.primary_comparison, assessment.primary
    if comparison is None:
        timed = assessment.run.is_timed
        table = operators.operator_table([primary], is_timed=timed)
    else:
        details = {id(d.row): d for e in assessment.insight.experiments for d in e.details}
        table = comparisons.compared_operators(comparison, details)
    counted = any(detail.kernel_hint for detail in primary.details)
    says = f"{_GRADES} {primary.experiment.name}." if counted else ""
    return Section("operators", "Operators", (table,), says=says)
