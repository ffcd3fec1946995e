"""What a rule looks at and what it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from etprof.base.units import count_of, format_duration, format_share

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from etprof.analysis.compare.comparison import Comparison
    from etprof.analysis.findings.thresholds import Thresholds
    from etprof.analysis.insight import ExperimentInsight, OperatorDetail, RunInsight
    from etprof.analysis.split.operators import OperatorRow, OverheadRow
    from etprof.run.manifest import Manifest

Severity = Literal["high", "medium", "note", "good"]
SHOWN_ROWS = 6


@dataclass(frozen=True)
class EvidenceRow:
    """One figure behind a finding."""

    label: str
    text: str


@dataclass(frozen=True)
class Finding:
    """One answer of one rule."""

    rule: str
    """Such as F1."""
    title: str
    severity: Severity
    experiment: str
    summary: str
    evidence: tuple[EvidenceRow, ...]
    gain_ns: float | None
    """At most this much of an inference could be gained; None when nothing can be said."""
    action: str
    ruled_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Subject:
    """One experiment with everything that rules may ask about."""

    run: RunInsight
    insight: ExperimentInsight
    provenance: Manifest | None
    thresholds: Thresholds
    comparison: Comparison | None = None
    """With SME off as the baseline and this experiment as the candidate."""
    thread_comparisons: tuple[Comparison, ...] = ()
    """With fewer threads as the baseline, of this experiment's mode."""
    reference: ExperimentInsight | None = None
    reference_name: str = ""
    """The reference's model, or its experiment where the model is not known."""
    precision_rivals: tuple[Comparison, ...] = ()
    """The same model at another precision as the baseline, this experiment as the candidate."""

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.insight.experiment.name

    @property
    def details(self) -> tuple[OperatorDetail, ...]:
        """The operators in program order."""
        return self.insight.details

    @property
    def total_ns(self) -> float:
        """An inference without interruptions."""
        return self.insight.typical_total_ns

    def weigh(self, details: Sequence[OperatorDetail]) -> str:
        """Says what these operators take, such as `10.4 µs an inference, 19.4 %`."""
        share = format_share(self.share_of(details))
        return f"{format_duration(sum_ns(details))} an inference, {share}"

    def show(
        self, details: Sequence[OperatorDetail], count: int = SHOWN_ROWS
    ) -> tuple[EvidenceRow, ...]:
        """Shows the first `count` operators and how many more; no time where those mean nothing."""
        timed = self.run.run.is_timed
        rows = [
            EvidenceRow(detail.row.label, _figures(detail, with_times=timed))
            for detail in details[:count]
        ]
        if rest := details[count:]:
            time = format_duration(sum_ns(rest)) if timed else "not shown"
            rows.append(EvidenceRow(count_of(len(rest), "other"), time))
        return tuple(rows)

    def share_in_reference(self, category: str) -> float | None:
        """Share of a category's operators in the reference model; None without a reference."""
        if self.reference is None:
            return None
        return self.reference.typical_share(
            d for d in self.reference.details if d.row.operator_class.category == category
        )

    def share_of(self, details: Iterable[OperatorDetail]) -> float:
        """Share of these operators in an inference without interruptions."""
        return self.insight.typical_share(details)

    def select(self, chosen: Callable[[OperatorDetail], bool]) -> list[OperatorDetail]:
        """Returns the operators for which `chosen` holds, the slowest first."""
        return sorted(filter(chosen, self.details), key=lambda detail: -detail.typical_ns)

    def in_class(self, *finer: str) -> list[OperatorDetail]:
        """Returns the operators of these finer classes, the slowest first."""
        return self.select(lambda detail: detail.row.operator_class.finer in finer)

    def in_category(self, *categories: str) -> list[OperatorDetail]:
        """Returns the operators of these categories, the slowest first."""
        return self.select(lambda detail: detail.row.operator_class.category in categories)


def sum_ns(details: Iterable[OperatorDetail]) -> float:
    """Typical time per inference of all `details`; interruptions are no property of a model."""
    return sum(detail.typical_ns for detail in details)


def _figures(detail: OperatorDetail, *, with_times: bool) -> str:
    words = [format_duration(detail.typical_ns)] if with_times else []
    if detail.is_interrupted and with_times:
        words.append(f"mean {format_duration(detail.row.mean_ns)} with interruptions")
    words.append("delegated" if detail.row.is_delegated else "not delegated")
    if detail.module_path:
        words.append(f"module {detail.module_path}")
    if detail.source:
        words.append(detail.source)
    return ", ".join(words)


def overhead_evidence(rows: Iterable[OverheadRow | OperatorRow]) -> tuple[EvidenceRow, ...]:
    """Shows rows that are no operators."""
    return tuple(
        EvidenceRow(row.label, f"{format_duration(row.mean_ns)}, {format_share(row.share)}")
        for row in rows
    )


def describe_reasons(details: Iterable[OperatorDetail]) -> str:
    """Quotes why the export left these operators out of the delegate; empty when unknown."""
    reasons = dict.fromkeys(
        f"{detail.row.base}: {detail.attribution.reason}"
        for detail in details
        if detail.attribution and detail.attribution.reason
    )
    return "; ".join(list(reasons)[:4])
