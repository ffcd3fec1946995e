"""What the event tracer costs, in words for every report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from etprof.base.units import format_duration, format_ratio
from etprof.report.tables import bordered_table
from etprof.report.verdicts import format_speed_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.analysis.split.tracer_cost import TracerCost
    from etprof.base.plain_table import PlainTable

COLUMNS: Final = ("Experiment", "Cost of", "Without", "With", "With ÷ without")


def tracer_rows(costs: Sequence[TracerCost]) -> list[tuple[str, ...]]:
    """Returns a row of text for each cost, under `COLUMNS`."""
    return [
        (
            cost.experiment,
            cost.kind,
            format_duration(cost.without_ns),
            format_duration(cost.with_ns),
            format_speed_up(cost.effect) if cost.effect else format_ratio(cost.ratio),
        )
        for cost in costs
    ]


def tracer_view(costs: Sequence[TracerCost]) -> dict[str, Any] | None:
    """Returns the same for the HTML report; None where nothing is known."""
    return {"columns": COLUMNS, "rows": tracer_rows(costs)} if costs else None


def render_tracer_costs(costs: Sequence[TracerCost]) -> PlainTable:
    """Returns the table for terminals."""
    table = bordered_table("What the event tracer costs (medians of an inference)", *COLUMNS)
    table.columns[1].justify = "left"
    for row in tracer_rows(costs):
        table.add_row(*row)
    return table
