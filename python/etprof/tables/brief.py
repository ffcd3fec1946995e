"""What a command answers by default: a sentence, a bar, what matters most, and where the rest is."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING, Final, NamedTuple

from etprof.analysis.compare.comparison import EMULATED, TWO_MODELS
from etprof.analysis.findings.measurement import NOISE
from etprof.analysis.run_analysis import doubt_note
from etprof.base.units import count_of, format_value
from etprof.tables import comparisons, findings, operators, verdicts
from etprof.tables.report import comparison_headline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from etprof.analysis.assessment import Assessment
    from etprof.analysis.compare.comparison import Comparison
    from etprof.analysis.insight import ExperimentInsight
    from etprof.analysis.run_analysis import ExperimentAnalysis
    from etprof.tables.findings import FindingGroup
    from etprof.tables.table import Table

_MOST_POINTS: Final = 3
_MOST_PAIRS: Final = 4
"""Declared pairs beside the first that always have a line; more have one where there is room."""
_MOST_PARTS: Final = 4
_MOST_REASONS: Final = 2
"""Why outputs are wrong: as many sentences as leave room for what to do about it."""


class AnswerLine(NamedTuple):
    """A sentence, and rich's style of it."""

    text: str
    style: str = ""


class UnbrokenLine(str):
    """A text with a path in it, which people copy and programs read: it stands on one line."""

    __slots__ = ()


class FullOutputLine(str):
    """Names the command that prints all; the page that has the answer counts what it leaves out."""

    __slots__ = ()

    def counting(self, findings: int) -> str:
        """Returns the line with the number of findings that the answer leaves out."""
        note = f", with {count_of(findings, 'more finding')}" if findings else ""
        return f"All of it{note}: {self}"


class BarPart(NamedTuple):
    """A part of the bar."""

    label: str
    share: float


class AnswerPoint(NamedTuple):
    """What was found, and what to do about it."""

    text: str
    action: str = ""
    style: str = ""
    findings: int = 1
    """That it tells of."""


@dataclass(frozen=True)
class Brief:
    """An answer that fits a screen, and what `--full` adds to it."""

    headlines: tuple[AnswerLine, ...] = ()
    """The verdict and its reliability."""
    bar: tuple[BarPart, ...] = ()
    bar_title: str = ""
    points: tuple[AnswerPoint, ...] = ()
    further_findings: int = 0
    """That no point tells of."""
    table: Table | None = None
    lines: tuple[str | AnswerLine, ...] = ()
    """Each for itself; as many as fit."""
    ends: tuple[str, ...] = ()
    """Where the rest is, and what comes next."""
    details: tuple[Table | str, ...] = ()
    """What only `--full` prints."""


def next_step_line(command: str) -> str:
    """Returns the line that says what to do next."""
    return f"Next: {command}"


def listed(
    table: Table | None,
    *,
    missing: str = "",
    ends: Iterable[str] = (),
    lines: Iterable[str] = (),
    details: Iterable[Table | str] = (),
) -> Brief:
    """Returns a table as an answer; `missing` is said where it has no rows."""
    is_empty = table is None or not table.rows
    headlines = (AnswerLine(missing),) if is_empty and missing else ()
    return Brief(
        headlines, table=table, lines=tuple(lines), ends=tuple(ends), details=tuple(details)
    )


def brief_of(assessment: Assessment, *, ends: Iterable[str] = ()) -> Brief:
    """Returns the verdict with its reliability, the bar, and the findings that matter most."""
    head, alarm = (
        verdicts.head_of(assessment),
        verdicts.alarm_of(assessment.run, most_reasons=_MOST_REASONS),
    )
    comparison, warning = assessment.primary_comparison, verdicts.platform_warning(assessment)
    style = comparisons.VERDICT_STYLES.get(head.badge, "") if not head.caution else ""
    headlines = [AnswerLine(head.sentence, style)]
    if alarm:
        headlines.insert(0, AnswerLine(f"WRONG OUTPUTS. {alarm}", "bold red"))
    if head.caution:
        headlines.append(AnswerLine(head.caution, "yellow"))
    elif comparison is None and head.detail:
        headlines.append(AnswerLine(head.detail_sentence))
    if warning:
        headlines.append(AnswerLine(f"Not representative. {warning}", "yellow"))
    doubt = verdicts.describe_doubt(assessment)
    if doubt:
        headlines.append(AnswerLine(doubt, "yellow"))
    pairs = list(_further_pairs(assessment))
    headlines += pairs[:_MOST_PAIRS]
    notes = verdicts.notes_of(assessment)
    # The headlines have said so.
    said = {EMULATED if warning else "", _doubt_note(assessment)}
    different_models = [note for note in notes if note.startswith(TWO_MODELS)]
    headlines += [
        AnswerLine(
            f"{note[0].upper()}{note[1:]}: each is held against its own eager model.", "yellow"
        )
        for note in different_models
    ]
    notes = [note for note in notes if note not in {*said, *different_models}]
    ends = tuple(ends)
    groups = _top_groups(assessment)
    if not groups and not doubt:
        headlines.append(AnswerLine(f"No findings{_candidate_of(assessment)}."))
    bar_title, bar = _bar_of(assessment)
    return Brief(
        tuple(headlines), bar, bar_title, points=tuple(_points(groups, ends)),
        further_findings=further_findings(assessment),
        lines=(*pairs[_MOST_PAIRS:], *_notes(notes)), ends=ends,
    )  # fmt: skip


def _doubt_note(assessment: Assessment) -> str:
    """Returns the note on the primary breakdown's doubt; empty where there is none."""
    experiment = assessment.primary.experiment if assessment.is_split else None
    if experiment is None or experiment.agreement is None:
        return ""
    return doubt_note(experiment.name, experiment.agreement)


def _further_pairs(assessment: Assessment) -> Iterator[AnswerLine]:
    """Yields the verdicts of the other pairs that the run's config names."""
    if not assessment.are_pairs_declared:
        return
    for comparison in assessment.comparisons:
        if comparison is not assessment.primary_comparison:
            yield AnswerLine(*comparison_headline(comparison))


def _candidate_of(assessment: Assessment) -> str:
    """Says which of several programs findings are about; nothing of one program."""
    comparison = assessment.primary_comparison
    if comparison is None:
        return ""
    sides = (comparison.baseline, comparison.candidate)
    if len({side.experiment.program.name for side in sides}) == 1:
        return ""
    return f" in {comparison.short_names[1]}, the candidate"


def further_findings(assessment: Assessment) -> int:
    """Returns how many findings have no point of their own, and are in none as one of its cause."""
    shown = sum(1 + len(group.others) for group in _top_groups(assessment))
    return len(findings.shown_findings(assessment)) - shown


def brief_comparison(comparison: Comparison, *, ends: Iterable[str] = ()) -> Brief:
    """Returns the verdict, the candidate's bar, and the steps that changed most."""
    headlines = [AnswerLine(*comparison_headline(comparison))]
    plain = verdicts.describe_plainly(comparison)
    headlines += [AnswerLine(plain)] if plain else []
    caution = verdicts.caution_of(comparison)
    headlines += [AnswerLine(caution, "yellow")] if caution else []
    structure = comparisons.describe_structure(comparison)
    if structure:
        headlines.append(AnswerLine(f"In structure: {structure}."))
    elif comparison.times is None:
        headlines.append(AnswerLine("Nothing changed in structure."))
    candidate = comparison.candidate.experiment
    bar = () if candidate.is_in_doubt else _classes(candidate)
    return Brief(
        tuple(headlines), bar, f"Where {comparison.short_names[1]} spends its time" if bar else "",
        points=tuple(_steps(comparison)), lines=tuple(_notes(comparison.notes)),
        ends=tuple(ends),
    )  # fmt: skip


def brief_comparisons(compared: Sequence[Comparison], *, ends: Iterable[str] = ()) -> Brief:
    """Returns the verdicts of several comparisons, and what changed in structure in each."""
    table = comparisons.COMPARISONS.of_each(compared)
    lines = []
    for comparison, row in zip(compared, table.records(), strict=True):
        structure = comparisons.describe_structure(comparison) or "nothing changed in structure"
        lines.append(f"{row['mode'] or row['sides']}: {structure}")
    is_emulated = all(comparison.times is None for comparison in compared)
    lines += [f"Note: {EMULATED}"] if is_emulated else []
    return listed(table, lines=lines, ends=ends)


def _notes(notes: Iterable[str]) -> Iterator[AnswerLine]:
    """Yields what is missing, and what stands against taking figures at face value."""
    return (AnswerLine(f"Note: {note}", "yellow") for note in notes)


def _top_groups(assessment: Assessment) -> tuple[FindingGroup, ...]:
    """Returns the worst findings that each ask for something else.

    First what can be acted on; last what is not worth it.
    """
    groups = list(findings.group_findings(findings.shown_findings(assessment)))
    groups.sort(key=lambda group: (group.lead.is_below_margin, not group.action))
    # How far figures can be relied on is never the one that has no room.
    doubts = [group for group in groups[_MOST_POINTS:] if group.lead.rule == NOISE]
    return (*groups[: _MOST_POINTS - len(doubts)], *doubts)


def _points(groups: Iterable[FindingGroup], ends: Sequence[str]) -> Iterator[AnswerPoint]:
    """Yields a point for each group; a command that `ends` has as the next step is not said twice."""
    for group in groups:
        lead, gain = group.lead, findings.brief_gain(group.lead)
        other_rules = ", ".join(finding.rule for finding in group.others)
        details = "; ".join(filter(None, (gain, group.reach)))
        if lead.rule == NOISE:
            details = lead.summary.partition(". ")[0]
            details = f"{details[:1].lower()}{details[1:]}"
        text = f"{lead.rule} {lead.title}" + (
            f" (also causes {other_rules})" if other_rules else ""
        )
        text += f": {details}" if details else ""
        style = findings.SEVERITY_STYLES[lead.severity]
        action = "" if next_step_line(group.action) in ends else group.action
        yield AnswerPoint(text, action, style, findings=1 + len(group.others))


def _steps(comparison: Comparison) -> Iterator[AnswerPoint]:
    """Yields the operators that became most faster or slower; without times those that changed."""
    rows = comparisons.OPERATOR_CHANGES.of_each([comparison]).sorted().records()
    changed = [row for row in rows if row["baseline_label"] != row["candidate_label"]]
    for row in (changed if comparison.times is None else rows)[:_MOST_POINTS]:
        before, after, name = row["baseline_label"], row["candidate_label"], row["name"]
        label, change = after or before, f"{before or 'nothing'} → {after or 'nothing'}"
        layer = "" if name in {label, change} else f"{name}: "
        if comparison.times is None:
            yield AnswerPoint(f"{layer}{change}")
        else:
            difference = format_value("±ns", row["delta_ns"])
            yield AnswerPoint(f"{layer}{label}, {difference} per inference")


def _bar_of(assessment: Assessment) -> tuple[str, tuple[BarPart, ...]]:
    """Returns where the primary experiment spends its time; without times its SME routes.

    Nothing of a breakdown that is not to be relied on: `--full` has it, with a warning.
    """
    if not assessment.is_split:
        return "", ()
    primary = assessment.primary
    if primary.experiment.is_in_doubt:
        return "", ()
    segments = _classes(primary.experiment)
    if segments:
        comparison = assessment.primary_comparison
        name = comparison.short_names[1] if comparison else "an inference"
        return f"Where {name} spends its time", segments
    segments = _routes(primary)
    return (f"Convolutions and products on {primary.sme_unit}" if segments else ""), segments


def _classes(experiment: ExperimentAnalysis) -> tuple[BarPart, ...]:
    """Returns the classes that take most of an inference, and the rest as one."""
    rows = operators.CATEGORIES.of_each([experiment]).records()
    shares = [
        BarPart(str(row["class"] or row["group"]), float(row["share"]))
        for row in rows
        if isinstance(row["share"], float | int)
    ]
    shares.sort(key=lambda segment: -segment.share)
    remainder = shares[_MOST_PARTS - 1 :]
    if len(remainder) < 2:
        return tuple(shares)
    label = count_of(len(remainder), "other class", "other classes")
    return (
        *shares[: _MOST_PARTS - 1],
        BarPart(label, fsum(segment.share for segment in remainder)),
    )


def _routes(insight: ExperimentInsight) -> tuple[BarPart, ...]:
    """Returns how many convolutions and products took which way, as shares of all."""
    counts = verdicts.route_counts(insight)
    unit = insight.sme_unit
    labels = {
        "proven": f"ran on {unit} (calls counted)",
        "named": f"named for {unit} by type",
        "excluded": f"not on {unit}",
        "unknown": "not known",
    }
    return tuple(
        BarPart(f"{counts[key]} {label}", counts[key] / counts.total())
        for key, label in labels.items()
        if counts[key]
    )
