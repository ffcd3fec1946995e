"""The summary of a matrix: one row per experiment, as a table, as JSON and as Markdown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group
from rich.text import Text

from etprof.base.plain_table import PlainTable
from etprof.base.units import (
    MISSING,
    count_of,
    format_duration,
    format_interval,
    format_ratio,
    format_value,
)
from etprof.statistics.effect import estimate_effect
from etprof.views.markdown import escape

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from etprof.bench.combinations import LeftOut
    from etprof.bench.execution import Outcome
    from etprof.bench.session import Kept
    from etprof.history.schema import Metric, Run
    from etprof.statistics.effect import Effect

SCHEMA_VERSION: Final = 1
_COLUMNS: Final = (
    "device", "model", "precision", "backend", "SME", "threads",
    "latency", "95 % interval", "load", "first", "peak", "SME2 speed-up", "",
)  # fmt: skip
_AXES: Final = range(4)
_NUMBERS: Final = range(5, 12)
_METRIC_FACTS: Final = ("unit", "higher_is_better", "value", "low", "high", "count")
_LLM_METRICS: Final = ("prefill_tokens_per_second", "decode_tokens_per_second")


@dataclass(frozen=True)
class Row:
    """One experiment, or a unit of which nothing is known but why."""

    outcome: Outcome
    run: Run | None
    effect: Effect | None
    """SME2 against off at the same thread count; on the row with SME2 only."""

    @property
    def failure(self) -> str | None:
        """Why there are no figures, or not all."""
        if self.run is not None:
            return self.run.failure
        return self.outcome.errors[0] if self.outcome.errors else None

    def metric(self, name: str) -> Metric | None:
        """A metric; None where there is none, and for emulated times."""
        if self.run is None or not self.run.representative:
            return None
        return next((metric for metric in self.run.metrics if metric.name == name), None)

    @property
    def cells(self) -> tuple[str, ...]:
        """The row for people, in the order of the columns."""
        unit, run = self.outcome.unit, self.run
        latency = self.metric("latency_ns")
        return (
            unit.device.name,
            unit.model.label,
            unit.precision,
            unit.backend,
            run.sme_mode if run else ",".join(unit.sme) or MISSING,
            str(run.threads if run else ",".join(map(str, unit.threads))),
            format_duration(latency.value) if latency else MISSING,
            format_interval(latency.low, latency.high) if latency else MISSING,
            *(self._value(name) for name in ("load_ns", "first_inference_ns", "peak_rss_bytes")),
            _effect_text(self.effect),
            self._remark(),
        )

    def _value(self, name: str) -> str:
        metric = self.metric(name)
        return format_value(metric.unit, metric.value) if metric else MISSING

    def _remark(self) -> str:
        if self.failure is not None:
            return f"failed: {self.failure}"
        if self.run is not None and not self.run.representative:
            return "emulated: kernels, no times"
        rates = [self._value(name) for name in _LLM_METRICS]
        return "" if rates == [MISSING] * 2 else f"prefill {rates[0]}, decode {rates[1]}"

    def document(self) -> dict[str, Any]:
        """The row for machines."""
        unit, run = self.outcome.unit, self.run
        return {
            "device": unit.device.name,
            "model": unit.model.name,
            "precision": unit.precision,
            "backend": unit.backend,
            "method": run.method if run else unit.model.method,
            "sme": run.sme_mode if run else None,
            "threads": run.threads if run else None,
            "status": run.status if run else "failed",
            "failure": self.failure,
            "representative": run.representative if run else None,
            "metrics": {
                metric.name: {name: getattr(metric, name) for name in _METRIC_FACTS}
                for metric in (run.metrics if run else ())
            },
            "sme2_speed_up": self.effect.speed_up if self.effect else None,
            "sme2_verdict": self.effect.verdict if self.effect else None,
            "run": run.run_name if run else None,
            "worker": self.outcome.worker or None,
            "duration_s": round(self.outcome.duration_s, 3),
        }


def make_rows(kept: Sequence[Kept]) -> list[Row]:
    """Returns the rows of all units, in their order."""
    rows: list[Row] = []
    for entry in kept:
        runs = entry.runs
        rows += [Row(entry.outcome, run, _effect_of(run, runs)) for run in runs]
        if not runs:
            rows.append(Row(entry.outcome, None, None))
    return rows


def _effect_of(run: Run, runs: Sequence[Run]) -> Effect | None:
    """Compares a run with SME2 with the one without, block by block as they alternated."""
    if run.sme_mode != "sme2" or not run.representative:
        return None
    for other in runs:
        if (other.sme_mode, other.threads) == ("off", run.threads):
            sides = [
                next((m.samples for m in side.metrics if m.name == "latency_ns"), ())
                for side in (other, run)
            ]
            equal = len(sides[0]) == len(sides[1]) > 0
            return estimate_effect(*sides) if equal else None
    return None


def _effect_text(effect: Effect | None) -> str:
    return MISSING if effect is None else f"{format_ratio(effect.speed_up)} ({effect.verdict})"


def summary_document(
    name: str, rows: Sequence[Row], kept: Sequence[Kept], left_out: Sequence[LeftOut]
) -> dict[str, Any]:
    """Returns the summary for machines."""
    return {
        "schema_version": SCHEMA_VERSION,
        "name": name,
        "rows": [row.document() for row in rows],
        "problems": _problems(kept),
        "left_out": [{"what": each.text, "why": each.reason} for each in left_out],
    }


def _problems(kept: Sequence[Kept]) -> list[str]:
    return [f"{entry.outcome.unit.text}: {e}" for entry in kept for e in entry.outcome.errors]


def render_table(name: str, rows: Sequence[Row]) -> Group:
    """Returns the summary for a terminal."""
    shown = _shown_columns(rows)
    table = PlainTable(box=None, pad_edge=False)
    for index in shown:
        table.add_column(_COLUMNS[index], justify="right" if index in _NUMBERS else "left")
    for row in rows:
        style = "red" if row.failure is not None else ""
        table.add_row(*(Text(row.cells[index]) for index in shown), style=style)
    return Group(Text(_title(name, rows), style="bold"), table)


def render_markdown(
    name: str, rows: Sequence[Row], kept: Sequence[Kept], left_out: Sequence[LeftOut]
) -> str:
    """Returns the summary for a pull request."""
    shown = _shown_columns(rows)
    lines = [
        f"# {escape(_title(name, rows))}",
        "",
        _line(_COLUMNS[index] for index in shown),
        _line("---" for _ in shown),
        *(_line(escape(row.cells[index]) for index in shown) for row in rows),
        "",
    ]
    problems = _problems(kept)
    if problems:
        lines += ["## What failed", "", *(f"- {escape(problem)}" for problem in problems), ""]
    if left_out:
        lines += ["## Left out", ""]
        lines += [f"- {escape(each.text)}: {escape(each.reason)}" for each in left_out]
        lines.append("")
    return "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _title(name: str, rows: Sequence[Row]) -> str:
    """Says what all rows have in common, and how many there are."""
    common = [rows[0].cells[index] for index in _common_axes(rows)]
    failed = sum(row.failure is not None for row in rows)
    counted = f"{count_of(len(rows), 'experiment')}, {failed} failed"
    return f"{name}: {counted}" + (f"; {', '.join(common)}" if common else "")


def _common_axes(rows: Sequence[Row]) -> list[int]:
    """Returns the columns before SME that have one value: they stand in the title."""
    return [i for i in _AXES if len(rows) > 1 and len({row.cells[i] for row in rows}) == 1]


def _shown_columns(rows: Sequence[Row]) -> list[int]:
    """Returns the columns that tell rows apart or say something."""
    common = _common_axes(rows)
    return [
        i
        for i in range(len(_COLUMNS))
        if (
            i not in common
            if i in _AXES
            else any(row.cells[i] not in {MISSING, ""} for row in rows)
        )
    ]
