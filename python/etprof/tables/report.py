"""A report's tables: all of them for programs, and in which sections people read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from etprof.analysis.outlook import predict_sme2
from etprof.analysis.split.evidence import GRADES
from etprof.base.errors import UsageError
from etprof.base.text import join_names
from etprof.base.units import count_of, format_duration, format_ratio, format_share
from etprof.tables import (
    comparisons,
    findings,
    kernels,
    measurement,
    operators,
    quality,
    verdicts,
)
from etprof.tables.table import Section, Table

if TYPE_CHECKING:
    from etprof.analysis.assessment import Assessment
    from etprof.analysis.compare.amdahl import AmdahlPanel
    from etprof.analysis.compare.comparison import ComparedTimes, Comparison
    from etprof.analysis.run_analysis import ExperimentAnalysis
    from etprof.analysis.split.rollup import Key
    from etprof.tables.findings import FindingGroup
    from etprof.tables.verdicts import Headline, VerdictTile

Medium = Literal["page", "terminal"]
DECLARED: Final[dict[str, Table]] = {
    table.name: table
    for table in (
        operators.OPERATORS, operators.SPLIT, operators.CATEGORIES, *operators.ROLLUPS.values(),
        operators.ICICLE, comparisons.ICICLE_CHANGES, operators.INTENSITY, measurement.LAUNCHES,
        comparisons.COMPARISONS, comparisons.STRUCTURE, comparisons.OPERATOR_CHANGES, comparisons.CATEGORY_CHANGES,
        comparisons.CLASS_CHANGES, comparisons.WATERFALL, comparisons.LEDGER,
        comparisons.BOTTLENECKS, comparisons.VALIDITY, comparisons.OUTPUTS, comparisons.ACCURACY,
        measurement.LATENCIES, measurement.SAMPLES, measurement.TRACER_COSTS, measurement.THREADS,
        measurement.TOKEN_LATENCIES, quality.GENERATION,
        kernels.KERNELS, kernels.PHASES, kernels.MODES, kernels.USES, kernels.WORK,
        kernels.INSTRUCTIONS,
        findings.FINDINGS, findings.WHY_NOT, findings.REFERENCE,
    )
}  # fmt: skip
"""Every table of a report by its name."""
_WHOLE: Final = "Method::execute"
_ONE_TOTAL: Final = 0.02
"""Share by which two totals may differ without a word: what counts as no difference."""
_WATERFALL_STEPS: Final = 14
_ROLLUP_ROWS: Final = 8
_WHERE: Final = ("rollups", "time", "icicle", "categories")
"""Sections that say where the time goes, in the order in which people read them."""
_EVIDENCE: Final = (
    "comparisons", "facts", "operators", "split", "kernels", "whynot", "outlook", "waterfall", "generation",
    "threads", "latencies", "accuracy", "validity",
)  # fmt: skip
"""Those that prove it."""
_LINKED: Final = ("rollups", "time", "operators", "kernels", "latencies")
"""Those that a page links at its top, beside findings, the rest and the glossary."""
_TITLES: Final[tuple[Key, ...]] = ("module", "source", "microkernel")
_WORTH: Final = (
    "Worth: what an inference would gain if they sped up as the operators of this run did that "
    "took SME2."
)


_PARTS: Final[Mapping[str, Callable[[Assessment], Iterable[object]]]] = {
    "run": lambda assessment: [assessment.run],
    "experiment": lambda assessment: assessment.run.experiments,
    "experiments": lambda assessment: [assessment.run.experiments],
    "insight": lambda assessment: assessment.insight.experiments,
    "comparison": lambda assessment: assessment.comparisons,
    "findings": lambda assessment: assessment.findings,
    "cost": lambda assessment: assessment.tracer_costs,
    "output": lambda assessment: assessment.outputs,
    "verdict": lambda assessment: assessment.run.verdicts,
    "counted": lambda assessment: [assessment.run.counted],
    "instructions": lambda assessment: [assessment.run.instruction_evidence],
    "phases": lambda assessment: [(assessment.run.counted_in_prefill, assessment.run.counted)],
}
"""Of what a table has rows, by its declaration."""


def report_table(assessment: Assessment, name: str) -> Table:
    """Returns one table of a run; raises UsageError for a name that no table has."""
    if name not in DECLARED:
        msg = f"there is no table {name!r}; there are {', '.join(DECLARED)}"
        raise UsageError(msg)
    table = DECLARED[name]
    return table.of_each(_PARTS[table.from_each](assessment))


def report_tables(assessment: Assessment) -> dict[str, Table]:
    """Returns every table of a run by its name."""
    return {name: report_table(assessment, name) for name in DECLARED}


@dataclass(frozen=True)
class Report:
    """What people read of a run, in whatever form."""

    title: str
    subject: str
    head: Headline
    alarm: str | None
    """What is wrong with the outputs."""
    warning: str | None
    """Why its times are not representative."""
    tiles: list[VerdictTile]
    doubt: str
    """Why findings are withheld; empty where none are."""
    findings: tuple[FindingGroup, ...]
    silent: list[str]
    """Checks that found nothing."""
    reference: str
    answers: Table
    """Beside the reference model; without rows where there is none."""
    sections: list[Section]
    notes: list[str]
    facts: Table
    """Everything that the manifest says."""

    @property
    def links(self) -> list[Section]:
        """The sections that the top of a page leads to: few, so that they are read."""
        return [section for section in self.sections if section.anchor in _LINKED]


def report_of(assessment: Assessment, medium: Medium = "page") -> Report:
    """Returns what people read there."""
    primary = assessment.primary_findings
    return Report(
        title=assessment.run.name,
        subject=verdicts.describe_subject(assessment),
        head=verdicts.head_of(assessment),
        alarm=verdicts.alarm_of(assessment.run),
        warning=verdicts.platform_warning(assessment),
        tiles=verdicts.tiles_of(assessment),
        doubt=verdicts.describe_doubt(assessment),
        findings=findings.group_findings(findings.shown_findings(assessment)),
        silent=verdicts.silent_rules(assessment),
        reference=verdicts.reference_name(assessment.reference),
        answers=findings.REFERENCE.of_each([primary]),
        sections=report_sections(assessment, medium),
        notes=verdicts.notes_of(assessment),
        facts=verdicts.provenance_table(assessment),
    )


def report_sections(assessment: Assessment, medium: Medium = "page") -> list[Section]:
    """Returns what people read of a run there, in order; empty parts are left out."""
    comparison = assessment.primary_comparison

    def table(name: str) -> Table:
        return report_table(assessment, name)

    sections: list[Section] = []
    accuracy = table("accuracy")
    sections.append(Section("accuracy", accuracy.title, (accuracy,)))
    if len(assessment.comparisons) > 1:
        sections.append(Section("comparisons", "All comparisons", (table("comparisons"),)))
    sections += [
        Section("latencies", "Latency of timing launches", (table("latencies"),)),
        Section(
            "launches", "Latency distribution", (_of_both_sides(assessment, table("launches")),),
            says="Empirical CDF of launch medians; further left is faster.", visibility="page",
        ),
        Section("threads", "Threads", measurement.thread_tables(assessment.run.experiments)),
        *_time_sections(assessment),
        Section(
            "tracer", "Profiling overhead", (table("tracer_costs"),),
            says="Shares and bars were recorded with ExecuTorch's event tracer, latencies "
            "without. Take shares from the bars and times from the latency.",
        ),
    ]  # fmt: skip
    if comparison is not None:
        sections += _comparison_parts(comparison)
    if comparison is not None and comparison.is_of_two_programs:
        structure = comparisons.STRUCTURE.of_each([comparison])
        sections.append(Section("facts", structure.title, (structure,)))
    if assessment.is_split:
        sections += [
            *_sme2_prediction(assessment),
            _operator_section(assessment, medium),
            _icicle_section(assessment),
            *_split_sections(assessment),
            _rollup_section(assessment, medium),
            _intensity_section(assessment),
            _why_not_section(assessment),
        ]
    sections += [
        kernels.kernel_section(
            assessment.run.counted,
            assessment.run.counted_in_prefill,
            assessment.run.prefilled_tokens,
        ),
        *kernels.work_sections(assessment.run.counted, assessment.run.instruction_evidence),
        Section("outputs", "What was computed", (table("outputs"),)),
        *_generation_sections(assessment),
    ]
    return _in_order(section for section in sections if _is_read(section, medium))


def _in_order(sections: Iterable[Section]) -> list[Section]:
    """Puts where the time goes first, then what proves it; all else is folded."""
    ranks = {anchor: rank for rank, anchor in enumerate((*_WHERE, *_EVIDENCE))}
    ordered = sorted(sections, key=lambda section: ranks.get(section.anchor, len(ranks)))
    return [replace(section, is_folded=section.anchor not in ranks) for section in ordered]


def _generation_sections(assessment: Assessment) -> Iterator[Section]:
    table = report_table(assessment, "generation")
    yield Section("generation", table.title, (table,))
    yield from measurement.generation_sections(assessment.run.experiments)
    compared = [c for c in assessment.comparisons if c.tokens is not None]
    lines = tuple(f"{c.short_name}: {c.tokens}" for c in compared)
    yield Section("tokens", "What was generated", lines=lines)


def comparison_sections(comparison: Comparison) -> list[Section]:
    """Returns what people read of one comparison."""
    tokens = f"Generated: {comparison.tokens}." if comparison.tokens is not None else ""
    classes = comparisons.CLASS_CHANGES.of_each([comparison])
    warning = verdicts.describe_recorded(_sides(comparison))
    table = comparisons.sides_named(classes, comparison)
    structure = comparisons.STRUCTURE.of_each([comparison])
    sections = [Section("facts", "", (structure,)), Section("time", "", (table,), lead=warning)]
    sections += _comparison_parts(comparison)
    if comparison.times is None:
        sections.append(Section(
            "structure", "", (comparisons.OPERATOR_CHANGES.of_each([comparison]),)
        ))  # fmt: skip
    outputs = comparisons.OUTPUTS.of(comparison.outputs)
    sections.append(Section("outputs", "What was computed", (outputs,)))
    sections.append(Section("tokens", "", lines=(tokens,) if tokens else ()))
    return [section for section in sections if _is_read(section, "terminal")]


def comparison_headline(comparison: Comparison) -> tuple[str, str]:
    """Returns a comparison's headline and the style of its verdict."""
    style = comparisons.VERDICT_STYLES.get(verdicts.badge_of(comparison), "yellow")
    is_valid = comparison.times is not None and comparison.times.validity.is_valid
    return verdicts.describe_comparison(comparison), style if is_valid else ""


def _is_read(section: Section, medium: Medium) -> bool:
    """Whether a part says something, and does so there."""
    has_rows = any(table.rows for table in section.tables)
    return section.visibility in {"everywhere", medium} and (has_rows or bool(section.lines))


def _time_sections(assessment: Assessment) -> Iterator[Section]:
    """Where the time goes: of both sides of the primary comparison, and of every experiment."""
    comparison, run = assessment.primary_comparison, assessment.run
    table = categories = report_table(assessment, "categories")
    if comparison is not None:
        table = comparisons.sides_named(comparisons.CLASS_CHANGES.of_each([comparison]), comparison)
    if comparison is not None or len(run.experiments) == 1:
        table = table.with_total(_WHOLE)
    yield Section(
        "time", "Where an inference's time goes", (table,),
        lead=verdicts.describe_recorded(run.experiments),
        says="Means with event tracer, all bars on one scale. A share can grow while its time "
        "shrinks.",
        lines=tuple(_totals_apart(assessment)),
    )  # fmt: skip
    if len(run.experiments) > 1:
        matrix = categories.pivot("group", "experiment", "mean_ns", "share").with_total(_WHOLE)
        title = "Categories of all experiments"
        yield Section("categories", title, (replace(matrix, title=title),), visibility="page")


def _totals_apart(assessment: Assessment) -> Iterator[str]:
    """Says why the whole of a split is not the latency that was timed, where they differ."""
    for experiment in assessment.run.experiments:
        latency, times = experiment.latency, experiment.split.times
        if latency is None or times is None or abs(experiment.distance) <= _ONE_TOTAL:
            continue
        yield (
            f"{experiment.name}: {format_duration(latency.steady.median)} is the median latency, "
            f"timed without instruments; {format_duration(times.execute.mean_ns)} is the mean with "
            "the event tracer, which the rows add up to."
        )


def _split_sections(assessment: Assessment) -> Iterator[Section]:
    """What each experiment's inference is made of; pages have tables that can be searched."""
    experiments = assessment.run.experiments
    for experiment in experiments:
        table = operators.SPLIT.of_each([experiment])
        title = f"Operators of {experiment.name}" if len(experiments) > 1 else "Operators"
        tables = [replace(table, title=title)]
        if assessment.primary_comparison is not None:
            classes = operators.CATEGORIES.of_each([experiment]).with_total(_WHOLE)
            tables.insert(
                0, replace(classes, title=f"Where an inference's time goes, {experiment.name}")
            )
        lines = _unknown_line(experiment.split.unknown_names)
        warning = verdicts.describe_recorded([experiment])
        yield Section(
            "split",
            tables[-1].title,
            tuple(tables),
            lead=warning,
            lines=lines,
            visibility="terminal",
        )


def _unknown_line(names: Iterable[str]) -> tuple[str, ...]:
    unknown = ", ".join(sorted(set(names)))
    return (f"Not in the category table: {unknown}",) if unknown else ()


def _rollup_section(assessment: Assessment, medium: Medium) -> Section:
    """What the primary experiment's operators come from, the most time first.

    Terminals have the modules alone.
    """
    primary, keys = assessment.primary, _TITLES if medium == "page" else _TITLES[:1]
    rollups = [
        operators.ROLLUPS[by].of_each([primary]).without_missing(by)
        for by in (keys if primary.experiment.split.times else ())
    ]
    comparison = assessment.primary_comparison
    of = f" of {comparison.short_names[1]}" if comparison else ""
    tables = tuple(
        replace(table.largest(_ROLLUP_ROWS), title=f"{table.title}{of}")
        for table in rollups
        if table.rows
    )
    warning = verdicts.describe_recorded([primary.experiment])
    return Section("rollups", "Where the time goes by module", tables, lead=warning)


def _of_both_sides(assessment: Assessment, table: Table) -> Table:
    """Keeps the primary comparison's experiments, the baseline first."""
    comparison = assessment.primary_comparison
    if comparison is None:
        return table
    names = [side.experiment.name for side in (comparison.baseline, comparison.candidate)]
    index = table.names.index("experiment")
    return replace(table, rows=tuple(r for name in names for r in table.rows if r[index] == name))


def _experiments_shown(assessment: Assessment) -> list[ExperimentAnalysis]:
    """Returns the experiments of the primary comparison, else the primary one."""
    comparison = assessment.primary_comparison
    return [assessment.primary.experiment] if comparison is None else _sides(comparison)


def _sides(comparison: Comparison) -> list[ExperimentAnalysis]:
    return [side.experiment for side in (comparison.baseline, comparison.candidate)]


def _icicle_section(assessment: Assessment) -> Section:
    """An inference of the one experiment, or of both sides of the primary comparison."""
    comparison = assessment.primary_comparison
    if comparison is None:
        table = operators.ICICLE.of_each([assessment.primary])
    else:
        table = comparisons.ICICLE_CHANGES.of_each([comparison])
        table = comparisons.sides_named(table, comparison)
    says = (
        "A box is as wide as its mean time, and holds what runs inside it: modules, their operators, "
        "and the microkernels of these. Follow a module's link to see it alone, an operator's to see "
        "what is known of it."
    )
    warning = verdicts.describe_recorded(_experiments_shown(assessment))
    return Section(
        "icicle", "Inside an inference", (table,), lead=warning, says=says, visibility="page"
    )


def _intensity_section(assessment: Assessment) -> Section:
    """Work against bytes, below the device's peaks where these were measured."""
    table = operators.INTENSITY.of_each([assessment.primary]).sorted()
    height = "faster" if assessment.run.is_timed else "more work"
    says = (
        f"Further right is more work for each byte, higher is {height}. An operator far to the "
        "left is likelier to wait for memory than for a faster microkernel. "
        f"{_roof_note(assessment, table)}"
    )
    return Section(
        "intensity", "Work against bytes (roofline)", (table,),
        lead=verdicts.describe_recorded([assessment.primary.experiment]), says=says,
        visibility="page",
    )  # fmt: skip


def _roof_note(assessment: Assessment, table: Table) -> str:
    """Says what the lines are, or why there are none; names what lies above them."""
    if not assessment.run.is_timed:
        return "Times of this target mean nothing, so the device's limits are not drawn."
    if assessment.primary.roofs is None:
        return (
            "The device's limits are not drawn: no peaks were measured for it in this SME mode at "
            "these threads; `etprof calibrate --peaks` does."
        )
    above = [str(row["name"]) for row in table.records() if row["is_above_roof"]]
    text = (
        "Lines are the most that products and streams of copies reached on this device: level by "
        "type, sloping by size. None of them is a promise that an operator can get there."
    )
    if above:
        text += (
            f" Faster than its line by more than noise: {', '.join(above)}. Its work, its bytes or "
            "the peaks are not what they are taken for."
        )
    return text


def _why_not_section(assessment: Assessment) -> Section:
    primary = assessment.primary.experiment
    table = findings.WHY_NOT.of_each([assessment.findings_of(primary.name)])
    says = _WORTH if primary.split.times else ""
    return Section("whynot", "Why not SME2?", (table,), says=says)


def _comparison_parts(comparison: Comparison) -> Iterator[Section]:
    if comparison.times is not None:
        yield from _timed_parts(comparison, comparison.times)


def _timed_parts(comparison: Comparison, times: ComparedTimes) -> Iterator[Section]:
    if times.waterfall is not None:
        closes = abs(times.waterfall.residual_ns) < 1.0
        sums = "" if closes else ", but they do not close: please report this as a defect"
        table = comparisons.waterfall_between_totals(comparison, times.waterfall, _WATERFALL_STEPS)
        yield Section(
            "waterfall", "Waterfall", (table,),
            says=f"Every step is one operator's difference; together they are the whole "
            f"difference{sums}. Totals are means of recorded inferences, which take longer than timed "
            "ones.",
        )  # fmt: skip
    if times.amdahl is not None:
        bottlenecks = comparisons.BOTTLENECKS.of_each([comparison])
        lead = _amdahl_sentence(times.amdahl)
        yield Section("amdahl", "How far it can go", (bottlenecks,), lead=lead)
    ledger = comparisons.sides_named(comparisons.LEDGER.of_each([comparison]), comparison)
    if comparison.latency is not None:
        title = verdicts.interval_title(comparison.latency)
        ledger = ledger.with_interval_titled("speed_up", title)
    yield Section(
        "ledger", "From start to steady state", (ledger,),
        says="A speedup is the median of the ratios of paired launches, not the ratio of the two "
        "medians beside it.",
    )  # fmt: skip
    conditions = comparisons.VALIDITY.of_each([comparison])
    yield Section("validity", "Measurement quality", (conditions,), visibility="page")


def _amdahl_sentence(panel: AmdahlPanel) -> str:
    """Says how far this acceleration could go."""
    if panel.accelerated_operators == 0:
        return "No operator is known to have changed to SME between these two experiments."
    return (
        f"{count_of(panel.accelerated_operators, 'operator')} with "
        f"{format_share(panel.accelerated_share)} of the baseline's time changed to SME, "
        f"and became {format_ratio(panel.accelerated_speed_up)} as fast "
        f"together. The whole inference became {format_ratio(panel.achieved)} as fast with tracer; "
        f"if those operators took no time at all it would be {format_ratio(panel.ceiling)}."
    )


def _sme2_prediction(assessment: Assessment) -> Iterator[Section]:
    """What SME2 could do for this model, where no experiment had it."""
    run = assessment.run
    if any(e.sme != "off" for e in run.experiments):
        return
    prediction = predict_sme2(assessment.primary, run.loaded.peaks)
    if prediction is not None:
        types = join_names(prediction.packed_types)
        types_note = f" (with SME2 their labels say {types})" if types else ""
        text = (
            "No experiment here had SME. On a CPU with SME2, "
            f"{prediction.backends} has kernels for "
            f"{count_of(prediction.operators, 'operator')} of this program{types_note}."
        )
        if not assessment.primary.experiment.is_in_doubt:
            text += (
                f" They take {format_share(prediction.share)} of an inference on this CPU: if they "
                f"took no time at all, the whole would be {format_ratio(prediction.ceiling)} as fast. "
                "That is a ceiling, not a forecast."
            )
        if prediction.unknown:
            text += f" Of {count_of(prediction.unknown, 'operator')} more it is not known."
        bound = prediction.bound
        if bound is not None and not assessment.primary.experiment.is_in_doubt:
            text += (
                f" By the peaks of {bound.device} SME2 makes it {format_ratio(bound.low)} to "
                f"{format_ratio(bound.high)} as fast at most: if each of these operators were as "
                "fast as the largest products and streams, all others stayed as they are, and "
                "packing cost nothing."
            )
            if bound.unplaced:
                text += (
                    f" {count_of(bound.unplaced, 'operator')} of unknown bytes may take no time."
                )
        yield Section("outlook", "What SME2 could do", lines=(text,))


def _operator_section(assessment: Assessment, medium: Medium) -> Section:
    """The primary comparison's operators side by side, or those of the one experiment.

    Terminals have the operators of each experiment beside.
    """
    comparison, primary = assessment.primary_comparison, assessment.primary
    if comparison is None:
        table = operators.OPERATORS.of_each([primary])
    else:
        details = {id(d.row): d for e in assessment.insight.experiments for d in e.details}
        table = comparisons.compared_operators(comparison, details)
    counted = any(detail.kernel_hint for detail in primary.details)
    grades = " ".join(f"Grade {grade}: {says}." for grade, says in GRADES.items())
    of = f"Microkernel, work and rate are of {primary.experiment.name}."
    unknown = [
        name for experiment in assessment.run.experiments for name in experiment.split.unknown_names
    ]
    return Section(
        "operators", "Operators", (table.sorted() if medium == "page" else table,),
        lead=verdicts.describe_recorded(_experiments_shown(assessment)),
        # Terminals do not have the columns that it explains.
        says=f"{grades} {of}" if counted and medium == "page" else "",
        lines=_unknown_line(unknown) if medium == "page" else (),
        visibility="everywhere" if comparison is not None and assessment.run.is_timed else "page",
    )  # fmt: skip
