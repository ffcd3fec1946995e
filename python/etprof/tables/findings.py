"""What the rules say of a run, and why operators missed SME2."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from etprof.analysis.findings.commands import command_in, has_placeholder
from etprof.base.text import QUOTED_COMMAND, command_line, join_names, kept_flags
from etprof.base.units import (
    count_of,
    format_prediction,
    format_share,
    format_share_range,
    format_value,
)
from etprof.statistics.effect import DEFAULT_MARGIN
from etprof.tables.table import Column, Table, estimate
from etprof.targets.registry import LOCAL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.analysis.assessment import Assessment
    from etprof.analysis.findings.finding import Finding
    from etprof.analysis.findings.rules import ExperimentFindings
    from etprof.run.program import LoadedProgram

_SHOWN_NAMES: Final = 4
_OF_A_SEARCH: Final = dict.fromkeys(("--target", "--serial", "--threads", "--blocks"), 1)
"""No runner: a run directory may be a stranger's, and names what the command would start."""
_FEW: Final = 0.1
"""Share of the operators below which a command is not what a finding is mended by."""
_WORTH_A_SEARCH: Final = 0.01
"""Share of the work."""
SEVERITY_STYLES: Final = {"high": "red", "medium": "yellow", "note": "cyan", "good": "green"}

FINDINGS: Final = Table(
    "findings",
    (
        Column("experiment", "string", of=lambda f: f.experiment, says="experiment of the run"),
        Column("rule", "string", of=lambda f: f.rule, says="such as F5"),
        Column("severity", "string", of=lambda f: f.severity, styles=SEVERITY_STYLES,
               says="high, medium, note or good"),
        Column("title", "string", of=lambda f: f.title, says="what was found"),
        Column("summary", "string", of=lambda f: f.summary, says="with its figures"),
        Column("time_ns", "float64", "ns", title="time", is_timed=True, of=lambda f: f.time_ns,
               says="what it is about takes of an inference"),
        *estimate("gain_ns", "ns", lambda f: f, lambda f: f.gain_ns, title="gain",
                  says="what its command gains, as predicted, beside what the findings above it gain; "
                  "of F11, F14 and F14b as measured; missing where nobody knows it",
                  interval="the 95 % interval of the prediction"),
        Column("together_ns", "float64", "ns", title="together", is_timed=True,
               of=lambda f: f.together_ns,
               says="what it gains with the findings above it that gain the same time"),
        Column("shares_with", "string", of=lambda f: ", ".join(f.shares_with) or None,
               says="rules of these"),
        Column("action", "string", of=lambda f: f.advice, says="what to do"),
        Column("evidence", "string", says="figures behind it",
               of=lambda f: "; ".join(f"{row.label}: {row.text}" for row in f.evidence)),
        Column("ruled_out", "string", of=lambda f: "; ".join(f.ruled_out) or None,
               says="what it is not, by data of this run"),
        Column("guide", "string", of=lambda f: f.guide, says="where the rule is explained"),
    ),
    title="Findings",
    from_each="findings",
    rows_of=lambda s: s.findings,
    says="one row per finding, worst first in each experiment",
    basis="per inference",
)  # fmt: skip
WHY_NOT: Final = Table(
    "why_not_sme2",
    (
        Column("experiment", "string", of=lambda s: s[0], visibility="several",
               says="experiment of the run"),
        Column("code", "string", of=lambda s: s[1].code, visibility="data", says="short name"),
        Column("reason", "string", of=lambda s: s[1].reason, says="why no SME2 kernel ran"),
        Column("known_from", "string", of=lambda s: s[1].source, visibility="page",
               says="file or fact that says so"),
        Column("operators", "Int64", "count", basis="per program", of=lambda s: len(s[1].operators), says="how many"),
        Column("mean_ns", "float64", "ns", title="time", is_timed=True, of=lambda s: s[1].mean_ns,
               says="of these operators"),
        Column("gain_ns", "float64", "ns", title="worth", is_timed=True, of=lambda s: s[1].gain_ns,
               says="gain if they sped up as this run's operators did that took SME2, beside what "
               "findings gain"),
        Column("labels", "string", title="which",
               of=lambda s: _names([d.name for d in s[1].operators]), says="their names"),
    ),
    title="Why not SME2?",
    from_each="findings",
    rows_of=lambda s: ((s.experiment, group) for group in s.why_not_sme2),
    says="one row per experiment and reason",
    basis="per inference",
)  # fmt: skip
REFERENCE: Final = Table(
    "reference",
    (
        Column("experiment", "string", of=lambda s: s[0], visibility="several",
               says="experiment of the run"),
        Column("question", "string", of=lambda s: s[1].question, says="one of the guide's"),
        Column("share", "float64", "share", title="here", is_timed=True, dropped_first=1, of=lambda s: s[1].share,
               says="of `Method::execute`"),
        Column("reference_share", "float64", "share", title="reference", is_timed=True, dropped_first=1,
               of=lambda s: s[1].reference_share, says="the same of the reference model"),
        Column("answer", "string", of=lambda s: s[1].answer, says="in words"),
    ),
    title="Beside the reference model",
    from_each="findings",
    rows_of=lambda s: ((s.experiment, answer) for answer in s.reference_answers),
    says="one row per experiment and question of the findings guide",
    basis="per inference",
)  # fmt: skip


@dataclass(frozen=True)
class FindingGroup:
    """Findings of one cause: the same command mends them."""

    lead: Finding
    """The worst."""
    others: tuple[Finding, ...] = ()
    """What further rules saw of it."""

    @property
    def action(self) -> str:
        """Its command, or in words what to do; no command that is not worth it."""
        if self.lead.is_below_margin or (self.reaches_few and self.lead.explanation):
            return self.lead.explanation
        return command_in(self.lead.action) or self.lead.advice

    @property
    def _replaced(self) -> tuple[int, int] | None:
        """How many operators its command replaces, and of how many; None where nobody counted."""
        counts = (
            (finding.replaced_operators, finding.operators)
            for finding in (self.lead, *self.others)
            if finding.operators and finding.replaced_operators is not None
        )
        return next(counts, None)

    @property
    def reaches_few(self) -> bool:
        """Whether its command leaves most of what was found as it is."""
        replaced = self._replaced
        return replaced is not None and replaced[0] < _FEW * replaced[1]

    @property
    def reach(self) -> str:
        """Says what its command does not reach and may cost; empty where it reaches all."""
        texts = [self.lead.caveat]
        count, total = self._replaced or (0, 0)
        if count != total:
            of_what = "rewrites replace" if self.reaches_few else "the command replaces"
            texts.insert(0, f"{of_what} {count} of {total} operators")
        return "" if self.lead.is_below_margin else "; ".join(filter(None, texts))


def group_findings(ranked_findings: Sequence[Finding]) -> tuple[FindingGroup, ...]:
    """Puts findings whose first command is the same under the worst of them; the others stay alone.

    One that only refers to another, as to its refusals, is under that.
    """
    by_command: dict[object, list[Finding]] = {}
    key_of: dict[str, object] = {}
    for finding in ranked_findings:
        named = finding.action.removeprefix("see ")
        key = command_in(finding.action) or key_of.get(named) or id(finding)
        key_of[finding.rule] = key
        by_command.setdefault(key, []).append(finding)
    return tuple(FindingGroup(first, tuple(others)) for first, *others in by_command.values())


def gain_text(finding: Finding) -> str:
    """Says what an inference gains, in brackets; nothing where that is not known."""
    gain = brief_gain(finding)
    if not gain or not finding.shares_with:
        return f"({gain})" if gain else ""
    other_rules, combined_gain = (
        ", ".join(finding.shares_with),
        format_value("ns", finding.together_ns),
    )
    if finding.gain_ns == 0:
        return f"({gain}: {combined_gain} together)"
    return f"({gain}; together with {other_rules} {combined_gain})"


def brief_gain(finding: Finding) -> str:
    """Says the same without what it shares with others."""
    if finding.gain_ns is None:
        return ""
    if finding.gain_ns == 0 and finding.shares_with:
        return f"nothing to gain beyond {', '.join(finding.shares_with)}"
    more = " more" if finding.shares_with else ""
    if finding.is_gain_measured or finding.interval is None:
        about = "" if finding.is_gain_measured else "about "
        gain = format_value("ns", finding.gain_ns)
        return f"{about}{gain}{more} to gain{_too_small(finding)}"
    low_ns, high_ns = finding.interval.low, finding.interval.high
    predicted = format_prediction(low_ns, high_ns)
    share = _too_small(finding)
    if not share and finding.latency_ns:
        # A share holds on a machine that is slower or busier than this one was.
        ends = (end_ns / finding.latency_ns for end_ns in (low_ns, high_ns))
        share = f", {format_share_range(*ends)} of the latency"
    return f"predicted gain {predicted}{more}{share}"


def _too_small(finding: Finding) -> str:
    """Says that a gain is less than what counts as no difference; empty where it is more."""
    margin = round(100 * DEFAULT_MARGIN)
    return f", below {margin} %: not worth it" if finding.is_below_margin else ""


def best_suggestion(assessment: Assessment) -> str | None:
    """Says what is worth doing next; None where nothing is.

    A program of whose operators its export says that a rewrite would replace them comes first:
    that takes a command.
    Else it is the finding that would gain most, or without times the first that asks for anything.
    """
    program = assessment.primary.experiment.program if assessment.is_split else None
    every = shown_findings(assessment)
    too_small = {command_in(finding.action) for finding in every if finding.is_below_margin}
    if program is not None:
        flags = _targeted(assessment)
        suggestion = _search_for(program, flags, are_gains_small=bool(too_small))
        if suggestion is not None:
            return suggestion
    # What was just run, or what has a word to replace, is no next step.
    actionable = [
        finding
        for finding in every
        if finding.severity in {"high", "medium"}
        and finding.advice
        and command_in(finding.action) not in too_small
        and _is_new(finding, assessment)
    ]
    best = max(actionable, key=lambda finding: finding.gain_ns or 0.0, default=None)
    return None if best is None else f"{best.title}: {best.advice}"


def _is_new(finding: Finding, assessment: Assessment) -> bool:
    """Whether its commands can be pasted and are not the one that made this run."""
    manifest = assessment.run.manifest
    made_by = shlex.join(("etprof", *manifest.command[1:])) if manifest else ""
    commands = QUOTED_COMMAND.findall(finding.action)
    return not any(has_placeholder(command) or command == made_by for command in commands)


def _targeted(assessment: Assessment) -> tuple[str, ...]:
    """Returns the target of the run, and how it was measured there, as a search takes it.

    Nothing of a run on this machine: the search predicts, and no flag of a measurement changes that.
    """
    manifest = assessment.run.manifest
    command = manifest.command if manifest else ()
    target = kept_flags(command, {"--target": 1})
    if target in {(), ("--target", LOCAL)}:
        return ()
    return kept_flags(command, _OF_A_SEARCH)


def _search_for(
    program: LoadedProgram, flags: tuple[str, ...], *, are_gains_small: bool
) -> str | None:
    """Returns the search for rewrites, of a program made without any that its export knows of.

    None for operators outside the delegate whose rewrites gain less than what counts.
    """
    exported, report = program.exported, program.report
    if exported is None or report is None or exported.rewrites:
        return None
    outside = [o for o in report.operators if o.delegate is None and o.instruction is not None]
    with_rewrite = [operator for operator in outside if operator.rewrites]
    nodes = [node for delegate in report.delegates for node in delegate.nodes]
    work = sum(node.macs or 0 for node in nodes if node.sme2_rewrites)
    share = work / sum(operator.macs or 0 for operator in report.operators) if work else 0.0
    gaps = [
        f"{_some_of(len(with_rewrite), len(outside))} outside the delegate"
        if with_rewrite and not are_gains_small
        else "",
        f"{format_share(share)} of the work without an SME2 kernel"
        if share >= _WORTH_A_SEARCH
        else "",
    ]
    if not any(gaps):
        return None
    reason = join_names(filter(None, gaps))
    command = command_line("optimize", *exported.model_words, "--dtype", exported.precision, *flags)
    return f"{reason}: `{command}` tries what changes that"


def _some_of(count: int, total: int) -> str:
    return count_of(count, "operator") if count == total else f"{count} of {total} operators"


def shown_findings(assessment: Assessment) -> list[Finding]:
    """The primary experiment's findings, then what only others of the same program have.

    What only another program has, such as the one before a change, is in `FINDINGS`: no advice.
    """
    findings = list(assessment.primary_findings.findings)
    rules = {finding.rule for finding in findings}
    for experiment_findings in assessment.findings if assessment.is_split else ():
        if (
            _program_of(assessment, experiment_findings)
            != assessment.primary.experiment.program.name
        ):
            continue
        findings += [
            finding for finding in experiment_findings.findings if finding.rule not in rules
        ]
        rules |= {finding.rule for finding in experiment_findings.findings}
    return findings


def _program_of(assessment: Assessment, experiment_findings: ExperimentFindings) -> str:
    return assessment.insight.of(experiment_findings.experiment).experiment.program.name


def _names(labels: list[str]) -> str:
    omitted_count = len(labels) - _SHOWN_NAMES
    return ", ".join(labels[:_SHOWN_NAMES]) + (
        f" and {count_of(omitted_count, 'other')}" if omitted_count > 0 else ""
    )
