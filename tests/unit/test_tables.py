"""A table is declared once, and every view of it holds the same facts."""

from __future__ import annotations

import csv
import importlib
import io
import json
import pkgutil
from dataclasses import replace

import pandas as pd
import pytest
from rich.console import Console

import etprof.tables
from etprof.base.units import format_range, format_value
from etprof.tables.kernels import KERNELS
from etprof.tables.table import Column, Table
from etprof.views.cells import shown_columns, shown_rows
from etprof.views.files import build_frame, encode_csv, encode_parquet, json_records
from etprof.views.markdown import markdown_table
from etprof.views.terminal import terminal_table

TOY = Table(
    "toys",
    (
        Column("name", "string", says="what it is called"),
        Column(
            "mean_ns", "float64", "ns", is_timed=True, title="mean", bounds=("low_ns", "high_ns")
        ),
        Column("low_ns", "float64", "ns", is_timed=True, visibility="data"),
        Column("high_ns", "float64", "ns", is_timed=True, visibility="data"),
        Column("calls", "Int64", "count"),
        Column("peak", "float64", "@unit"),
        Column("unit", "string", visibility="data"),
        Column("module", "string", visibility="page"),
    ),
    title="Toys",
)
REASONS = {"reason", "why", "why_not_sme2", "problem", "way_out", "answer"}
"""Columns that say why, or what to do."""
SUBJECTS: list[dict[str, object]] = [
    {"name": "=1+1", "mean_ns": 1500.0, "low_ns": 1400.0, "high_ns": 1600.0, "calls": 3,
     "peak": 2048.0, "unit": "bytes", "module": "blocks.0"},
    {"name": "[red]", "mean_ns": None, "low_ns": None, "high_ns": None, "calls": 12_345,
     "peak": 7.5, "unit": "1/s", "module": None},
]  # fmt: skip


def test_people_see_formatted_values_with_their_intervals() -> None:
    table = TOY.of(SUBJECTS)
    headings = [column.heading for column in shown_columns(table, "everywhere")]
    assert headings == ["name", "mean", "95 % interval", "calls", "peak"]
    first, second = ([cell.text for cell in row] for row in shown_rows(table, "everywhere"))
    assert first[1:] == ["1.50 µs", "1.40 … 1.60 µs", "3", format_value("bytes", 2048)]
    assert second == ["[red]", "–", "–", "12,345", "7.50 /s"]
    assert shown_columns(table, "page")[-1].heading == "module"


def test_an_untimed_table_has_no_time_anywhere() -> None:
    """T8: what is no time stays, every time is missing, and people see no such column."""
    without = {"mean_ns": None, "low_ns": None, "high_ns": None}
    table = TOY.of(subject | without for subject in SUBJECTS)
    assert [column.heading for column in shown_columns(table, "page")] == [
        "name", "calls", "peak", "module",
    ]  # fmt: skip
    for record in json_records(table):
        assert {record[name] for name in ("mean_ns", "low_ns", "high_ns")} == {None}
        assert record["calls"]
    assert "1500" not in encode_csv(table)


@pytest.mark.parametrize("count", [0, 2])
def test_files_have_all_columns_even_without_rows(count: int) -> None:
    """U5: an empty table is a header."""
    table = TOY.of(SUBJECTS[:count])
    names = [column.name for column in TOY.columns]
    lines = list(csv.reader(io.StringIO(encode_csv(table))))
    assert lines[0] == names
    assert len(lines) == 1 + count
    frame = build_frame(table)
    assert list(frame) == names
    assert [str(kind) for kind in frame.dtypes] == [column.dtype for column in TOY.columns]
    stored = pd.read_parquet(io.BytesIO(encode_parquet(table)))
    assert list(stored) == names
    assert json.loads(json.dumps(json_records(table))) == SUBJECTS[:count]


def test_names_do_nothing_in_any_view() -> None:
    table = TOY.of(SUBJECTS)
    assert "'=1+1" in encode_csv(table)
    assert r"\[red\]" in "\n".join(markdown_table(table))
    console = Console(width=120, file=io.StringIO())
    with console.capture() as shown:
        console.print(terminal_table(table))
    assert "[red]" in shown.get()


def test_ranges_are_in_the_unit_of_their_value() -> None:
    assert format_range("ns", 1400, 1600) == "1.40 … 1.60 µs"
    assert format_range("ratio", 1.5, 2) == "1.50× … 2.00×"
    assert format_range("ratio", None, 2) == "–"


def declared_tables() -> dict[str, Table]:
    """Every table of the tables' modules, and those of the history that a terminal shows."""
    modules = [
        f"etprof.tables.{found.name}" for found in pkgutil.iter_modules(etprof.tables.__path__)
    ]
    return {
        f"{name}.{attribute}": value
        for name in (*modules, "etprof.history.tables")
        for attribute, value in vars(importlib.import_module(name)).items()
        if isinstance(value, Table)
    }


@pytest.mark.parametrize("name", declared_tables())
def test_a_reason_outlives_every_figure(name: str) -> None:
    """At 80 columns "why not SME2" was left out before `grade` and `off`."""
    table = declared_tables()[name]
    columns = shown_columns(table, "everywhere")
    order = sorted(
        range(len(columns)), key=lambda at: (columns[at].dropped_first, at), reverse=True
    )
    dropped = [columns[at].column for at in order]
    for index, column in enumerate(dropped):
        if column.name in REASONS:
            later = [other.name for other in dropped[index:] if other.is_number]
            assert not later, f"{column.name} goes before {', '.join(later)}"


def test_a_bar_says_what_it_shows_where_its_figures_have_no_room() -> None:
    """A bar without a head stood beside the modules."""
    shares = Table(
        "shares",
        (
            Column("name", "string", of=lambda s: s[0], says="name"),
            Column("share", "float64", "share", has_bar=True, dropped_first=1, of=lambda s: s[1],
                   says="of it all"),
        ),
        from_each="row", says="one row each",
    )  # fmt: skip

    def heads(width: int) -> list[str]:
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(terminal_table(shares.of([("conv", 0.5)])))
        return [head.strip() for head in console.export_text().splitlines()[1].split("┃")]

    assert [head for head in heads(80) if head] == ["name", "share"]


def test_why_not_sme2_stays_at_80_columns() -> None:
    row = {
        "name": "stages.0.depthwise (model.py:25)", "label": "Convolution (NHWC) DWConv #1",
        "types": "PF16", "types_off": "F16", "grade": "A", "calls": "1,024",
        "kernels": "matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa",
        "why_not_sme2": "accumulation type",
    }  # fmt: skip
    values = tuple(row.get(column.name) for column in KERNELS.columns)
    for width in (60, 80):
        console = Console(width=width, record=True, file=io.StringIO())
        console.print(terminal_table(replace(KERNELS, rows=(values,))))
        text = console.export_text()
        assert "accumulation" in text
    assert "Left out at this width: label, off" in text
