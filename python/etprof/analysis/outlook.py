"""What SME2 could do on a CPU that has it: from the export's prediction and the times measured."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING

from etprof.analysis.roofline import Roofs
from etprof.base.text import join_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.analysis.insight import ExperimentInsight, OperatorDetail
    from etprof.analysis.roofline import RooflinePoint
    from etprof.run.peaks import Peaks


@dataclass(frozen=True)
class SpeedBound:
    """The most that SME2 can change on a device whose peaks with SME2 are known.

    Each operator with an SME2 kernel takes what its operations and bytes take at the peaks, and
    never more than it took; all others take what they took.
    """

    device: str
    low: float
    """Speedup at the lower ends of the peaks."""
    high: float
    """At their upper ends; an operator of which bytes or times are not known takes no time."""
    unplaced: int
    """Those operators."""


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
    """Speedup if they took no time at all; None when they are everything."""
    bound: SpeedBound | None = None
    """None where nobody measured what the device can do with SME2."""


def predict_sme2(insight: ExperimentInsight, peaks: Peaks | None = None) -> Outlook | None:
    """Returns the outlook of a timed experiment with SME off; None without a prediction."""
    predictions = [
        (detail, detail.row.times.share, detail.attribution.prediction)
        for detail in insight.details
        if detail.row.times and detail.attribution and detail.attribution.prediction
    ]
    if insight.experiment.sme != "off" or not predictions:
        return None
    eligible = [
        (detail, share, prediction) for detail, share, prediction in predictions if prediction.sme2
    ]
    share = fsum(share for _, share, _ in eligible)
    titles = (detail.row.backend.title for detail, _, _ in predictions)
    backends = join_names(dict.fromkeys(titles))
    types = dict.fromkeys(
        prediction.packed_type for _, _, prediction in eligible if prediction.packed_type
    )
    roofs = Roofs.of(peaks, "sme2", insight.experiment.threads)
    bound = None
    if peaks is not None and roofs is not None:
        bound = _bound([(detail, share) for detail, share, _ in eligible], roofs, peaks.device)
    return Outlook(
        len(eligible),
        sum(prediction.sme2 is None for _, _, prediction in predictions),
        share,
        backends,
        tuple(types),
        1 / (1 - share) if share < 1 else None,
        bound,
    )


def _bound(
    eligible: Sequence[tuple[OperatorDetail, float]], roofs: Roofs, device: str
) -> SpeedBound | None:
    """Bounds the speedup by the roofs; None where nothing would be left of the inference."""
    points = [(share, detail.placed(roofs)) for detail, share in eligible]
    remaining_share = 1 - fsum(share for share, _ in points)
    low, high = (
        remaining_share
        + fsum(share * _share_at_peaks(point, at_best=at_best) for share, point in points)
        for at_best in (False, True)
    )
    unplaced = sum(point is None for _, point in points)
    return SpeedBound(device, 1 / low, 1 / high, unplaced) if min(low, high) > 0 else None


def _share_at_peaks(point: RooflinePoint | None, *, at_best: bool) -> float:
    """Of what an operator took, the part that it takes at the peaks' upper or lower ends."""
    if point is None:
        return 0.0 if at_best else 1.0
    compute, memory, peak, stream = point.compute_ns, point.memory_ns, point.peak, point.stream
    if not at_best:
        memory *= stream.high / stream.low
        if compute is not None and peak is not None:
            compute *= peak.high / peak.low
    return min(1.0, max(compute or 0.0, memory, point.overhead_ns) / point.median_ns)
