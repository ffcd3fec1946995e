"""Adds operators up by what they have in common: module, source line or microkernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from etprof.analysis.split.operators import add_parts
from etprof.analysis.split.work import add_work, tile_uses

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from etprof.analysis.insight import ExperimentInsight, OperatorDetail
    from etprof.analysis.split.operators import PartTimes
    from etprof.analysis.split.work import ProductWork, TileUse

Key = Literal["module", "source", "microkernel"]

_KEYS: Final[dict[Key, Callable[[OperatorDetail], str | None]]] = {
    "module": lambda detail: detail.module_path,
    "source": lambda detail: detail.source,
    "microkernel": lambda detail: detail.kernel_hint,
}


@dataclass(frozen=True)
class RollupRow:
    """Everything with one value of the key; None is what has no value."""

    key: str | None
    operators: int
    times: PartTimes | None
    """Shares are of `Method::execute`; overheads have no key and are not here."""
    macs: int
    """As the export's shapes say."""
    work: ProductWork | None
    """What its products on SME do, as counted; None without any."""


def roll_up(insight: ExperimentInsight, by: Key) -> tuple[RollupRow, ...]:
    """Groups the operators of one experiment, the most time first."""
    uses = uses_by_operator(insight)
    groups: dict[str | None, list[OperatorDetail]] = {}
    for detail in insight.details:
        groups.setdefault(_KEYS[by](detail), []).append(detail)
    rows = [_row(key, details, uses) for key, details in groups.items()]
    return tuple(sorted(rows, key=lambda row: -row.times.mean_ns if row.times else 0.0))


def uses_by_operator(insight: ExperimentInsight) -> dict[int, list[TileUse]]:
    """The counted products by the identity of their operator's evidence."""
    counted = insight.experiment.counted
    uses: dict[int, list[TileUse]] = {}
    for use in tile_uses({counted.mode_in_force: counted}) if counted else ():
        uses.setdefault(id(use.operator), []).append(use)
    return uses


def _row(
    key: str | None, details: list[OperatorDetail], uses: Mapping[int, list[TileUse]]
) -> RollupRow:
    return RollupRow(
        key,
        len(details),
        add_parts([detail.row.times for detail in details]),
        sum((d.attribution.macs or 0) if d.attribution else 0 for d in details),
        add_work(use for d in details for use in uses.get(id(d.evidence), ())),
    )
