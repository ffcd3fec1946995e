"""What SME2 could do on a CPU that has it: from the export's prediction and the times measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etprof.analysis.insight import ExperimentInsight


@dataclass(frozen=True)
class Outlook:
    """The part of a run without SME that its delegates have SME2 kernels for."""

    operators: int
    unknown: int
    """Operators of which the export could not tell."""
    share: float
    """Fraction of `Method::execute` on this CPU; another CPU's may differ."""
    backends: str
    """The delegates that have them."""
    packed_types: tuple[str, ...]
    """What their names will say once SME2 is used."""
    ceiling: float | None
    """Speed-up if they took no time at all; None when they are everything."""


def predict_sme2(insight: ExperimentInsight) -> Outlook | None:
    """Returns the outlook of a timed experiment with SME off; None without a prediction."""
    predictions = [
        (detail.row, detail.row.times.share, detail.attribution.prediction)
        for detail in insight.details
        if detail.row.times and detail.attribution and detail.attribution.prediction
    ]
    if insight.experiment.sme != "off" or not predictions:
        return None
    hopeful = [(share, found) for _, share, found in predictions if found.sme2]
    share = sum(share for share, _ in hopeful)
    backends = " and ".join(dict.fromkeys(row.backend.title for row, _, _ in predictions))
    types = dict.fromkeys(found.packed_type for _, found in hopeful if found.packed_type)
    return Outlook(
        len(hopeful),
        sum(found.sme2 is None for _, _, found in predictions),
        share,
        backends,
        tuple(types),
        1 / (1 - share) if share < 1 else None,
    )
