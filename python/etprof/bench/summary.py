"""The summary of a matrix: one row per experiment, as a table, as JSON and as Markdown."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from etprof.base.units import count_of, format_ratio
from etprof.bench.prompt_lengths import conclude, pair_lengths, prompt_length_table
from etprof.bench.rows import LLM_METRICS
from etprof.tables.quality import quality_columns
from etprof.tables.table import Column, Table
from etprof.views.markdown import escape, markdown_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.bench.combinations import SkippedCombination
    from etprof.bench.rows import BenchRow
    from etprof.bench.session import StoredUnit
    from etprof.statistics.effect import Effect

SCHEMA_VERSION: Final = 1


def _effect_text(effect: Effect | None) -> str | None:
    if effect is None:
        return None
    return f"{format_ratio(effect.speed_up, effect.half_width)} ({effect.verdict})"


def summary_document(
    name: str,
    rows: Sequence[BenchRow],
    stored_units: Sequence[StoredUnit],
    left_out: Sequence[SkippedCombination],
) -> dict[str, Any]:
    """Returns the summary for machines."""
    return {
        "schema_version": SCHEMA_VERSION,
        "name": name,
        "rows": [row.document() for row in rows],
        "language_models": speed_table(rows).records(),
        "prompt_lengths": prompt_length_table(rows).records(),
        "sme2_pays": conclude(pair_lengths(rows)),
        "problems": _problems(stored_units),
        "left_out": [
            {"what": combination.text, "why": combination.reason} for combination in left_out
        ],
    }


def _problems(stored_units: Sequence[StoredUnit]) -> list[str]:
    return [f"{unit.outcome.unit.text}: {e}" for unit in stored_units for e in unit.outcome.errors]


def summary_table(name: str, rows: Sequence[BenchRow]) -> Table:
    """Returns the summary for people; what all rows have in common is in the title."""
    table = SUMMARY.of(rows)
    common = [
        str(column[0]) for column in list(zip(*table.rows, strict=True))[:4] if len({*column}) == 1
    ]
    failed = sum(row.failure is not None for row in rows)
    counted = f"{count_of(len(rows), 'experiment')}, {failed} failed"
    return replace(table, title=f"{name}: {counted}" + (f"; {', '.join(common)}" if common else ""))


def render_markdown(
    name: str,
    rows: Sequence[BenchRow],
    stored_units: Sequence[StoredUnit],
    left_out: Sequence[SkippedCombination],
) -> str:
    """Returns the summary for a pull request."""
    table = summary_table(name, rows)
    lines = [f"# {escape(table.title)}", "", *markdown_table(table)]
    speed = speed_table(rows)
    if speed.rows:
        lines += [f"## {escape(speed.title)}", "", *markdown_table(speed), ""]
    lengths = prompt_length_table(rows)
    if lengths.rows:
        lines += [f"## {escape(lengths.title)}", "", *markdown_table(lengths), ""]
        lines += [
            f"- {escape(conclusion['says'])}" for conclusion in conclude(pair_lengths(rows))
        ] + [""]
    problems = _problems(stored_units)
    if problems:
        lines += ["## What failed", "", *(f"- {escape(problem)}" for problem in problems), ""]
    if left_out:
        lines += ["## Left out", ""]
        lines += [
            f"- {escape(combination.text)}: {escape(combination.reason)}"
            for combination in left_out
        ]
        lines.append("")
    return "\n".join(lines)


@dataclass(frozen=True)
class Speed:
    """How fast an experiment reads its prompt, or adds tokens to it."""

    row: BenchRow
    metric: str
    test: str


def speed_table(rows: Sequence[BenchRow]) -> Table:
    """Returns two rows for each experiment that generated: of the prompt, and of new tokens."""
    speeds = [Speed(row, name, test) for row in rows for name, test in _tests(row)]
    return LANGUAGE_MODELS.of([speed for speed in speeds if speed.row.metric(speed.metric)])


def _tests(row: BenchRow) -> tuple[tuple[str, str], ...]:
    """Names metrics as llama-bench does: pp is the prompt's, tg that of new tokens after it."""
    generation = row.outcome.unit.model.generation
    if generation is None:
        return ()
    length = row.outcome.unit.model.prompt_length
    depth = "" if length is None else f" @ d{length}"
    names = (f"pp{length or ''}", f"tg{generation.new_tokens}{depth}")
    return tuple(zip(LLM_METRICS, names, strict=True))


def _of_row(column: Column) -> Column:
    return replace(column, of=lambda speed: column.value_of(speed.row))


def _speed_end(end: str) -> Column:
    return Column(
        end,
        "float64",
        "1/s",
        is_timed=True,
        visibility="data",
        of=lambda speed: speed.row.value(speed.metric, end),
    )


def _time(name: str, metric: str, **options: Any) -> Column:  # noqa: ANN401 - Column's own
    return Column(name, "float64", "ns", is_timed=True, of=lambda row: row.value(metric), **options)


SUMMARY: Final = Table(
    "bench",
    (
        Column(
            "device", "string", visibility="several", of=lambda row: row.outcome.unit.device.name
        ),
        Column(
            "model", "string", visibility="several", of=lambda row: row.outcome.unit.model.label
        ),
        Column(
            "precision", "string", visibility="several", of=lambda row: row.outcome.unit.precision
        ),
        Column("backend", "string", visibility="several", of=lambda row: row.outcome.unit.backend),
        Column(
            "SME",
            "string",
            of=lambda row: row.run.sme_mode if row.run else ",".join(row.outcome.unit.sme),
        ),
        Column(
            "threads",
            "string",
            of=lambda row: ",".join(
                map(str, [row.run.threads] if row.run else row.outcome.unit.threads)
            ),
        ),
        _time("latency", "latency_ns", bounds=("low", "high")),
        Column(
            "low",
            "float64",
            "ns",
            is_timed=True,
            visibility="data",
            of=lambda row: row.value("latency_ns", "low"),
        ),
        Column(
            "high",
            "float64",
            "ns",
            is_timed=True,
            visibility="data",
            of=lambda row: row.value("latency_ns", "high"),
        ),
        _time("load", "load_ns", dropped_first=1),
        _time("first", "first_inference_ns", dropped_first=1),
        Column(
            "peak", "Int64", "bytes", of=lambda row: row.value("peak_rss_bytes"), dropped_first=1
        ),
        Column("SME2 speedup", "string", of=lambda row: _effect_text(row.effect)),
        Column("remark", "string", title="", of=lambda row: row.remark or None),
    ),
)
"""One row per experiment; times of emulated runs are missing, row by row."""

LANGUAGE_MODELS: Final = Table(
    "language_models",
    (
        replace(SUMMARY.columns[0], of=lambda speed: speed.row.outcome.unit.device.name),
        replace(SUMMARY.columns[1], of=lambda speed: speed.row.outcome.unit.model.name),
        *map(_of_row, SUMMARY.columns[2:6]),
        Column("test", "string", of=lambda speed: speed.test),
        Column(
            "tokens_per_second",
            "float64",
            "1/s",
            is_timed=True,
            title="tokens/s",
            bounds=("low", "high"),
            of=lambda speed: speed.row.value(speed.metric),
        ),
        _speed_end("low"),
        _speed_end("high"),
        Column("peak", "Int64", "bytes", of=lambda speed: speed.row.value("peak_rss_bytes")),
        *quality_columns(lambda speed: speed.row.quality),
    ),
    title="Language models: tokens a second, with intervals between launches",
)
"""Two rows per experiment that generated, and none of emulated ones."""
