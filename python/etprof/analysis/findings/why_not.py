"""Why not SME2? Per operator the reason, and what SME2 would be worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from etprof.analysis.findings.finding import Subject, sum_ns

if TYPE_CHECKING:
    from etprof.analysis.insight import OperatorDetail


@dataclass(frozen=True)
class WhyNotGroup:
    """Operators without SME2 for one reason."""

    code: str
    reason: str
    source: str
    operators: tuple[OperatorDetail, ...]
    mean_ns: float
    gain_ns: float | None
    """Gain if they sped up as the accelerated operators of this run did; None when none did."""


def explain_missing_sme2(subject: Subject) -> tuple[WhyNotGroup, ...]:
    """Groups the convolutions and products without SME2 by reason, the most time first.

    With SME off there is only one reason, which is no news.
    """
    found: dict[tuple[str, str, str], list[OperatorDetail]] = {}
    for detail in subject.details:
        reason = detail.why_not_sme2
        if reason is not None and subject.insight.experiment.sme != "off":
            found.setdefault((reason.code, reason.text, reason.source), []).append(detail)
    factor = _accelerated_speed_up(subject)
    groups = [
        WhyNotGroup(
            code,
            text,
            source,
            tuple(sorted(details, key=lambda detail: -detail.typical_ns)),
            sum_ns(details),
            sum_ns(details) * (1 - 1 / factor) if factor and factor > 1 else None,
        )
        for (code, text, source), details in found.items()
    ]
    return tuple(sorted(groups, key=lambda group: -group.mean_ns))


def _accelerated_speed_up(subject: Subject) -> float | None:
    """How much faster the operators became that did take SME2, in this very run."""
    if subject.comparison is None or not subject.comparison.times_are_meaningful:
        return None
    return subject.comparison.amdahl.accelerated_speed_up
