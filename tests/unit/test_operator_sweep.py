"""The table of `docs/numerics.md` is what `benchmarks/operator_sweep.py` writes, and its verdicts hold."""

from __future__ import annotations

import importlib
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from etprof.analysis import numeric_gap

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "numerics.md"
ROUNDED_DB = 0.5
"""Figures are whole numbers."""
STEPS_DB = 61.0
"""What several roundings in a row explain, at least, in fp16."""
FIGURE = re.compile(r"(?:(sme2|sme1|off) )?(\*\*)?(-?\d+|equal)(?:\*\*)?")
WORDS = {"–", "float32", "fails"}


@pytest.fixture
def sweep(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("operator_sweep")


def between(sweep: ModuleType) -> list[str]:
    _, first, rest = PAGE.read_text(encoding="utf-8").partition(f"\n{sweep.MARKS[0]}\n")
    found, last, _ = rest.partition(f"\n{sweep.MARKS[1]}\n")
    assert first, "the first mark is there"
    assert last, "the last mark is there"
    return found.strip().splitlines()


def rows(sweep: ModuleType) -> list[dict[str, str]]:
    lines = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in between(sweep)
        if line.startswith("|")
    ]
    heads, _, *cells = lines
    assert heads[:3] == ["operator", "models", "sums"]
    return [dict(zip(heads, each, strict=True)) for each in cells]


def figures(cell: str) -> list[tuple[str | None, bool, float | None]]:
    """Returns the mode, whether it is bold, and dB (None where equal) of each figure of a cell."""
    found = [FIGURE.fullmatch(part) for part in cell.split(" · ")]
    assert all(found), cell
    return [
        (each[1], each[2] is not None, None if each[3] == "equal" else float(each[3]))
        for each in found
        if each
    ]


def test_the_columns_are_the_scripts_in_their_order(sweep: ModuleType) -> None:
    columns = list(rows(sweep)[0])[3:]
    assert columns == [each for each in sweep.USUAL if each in columns]
    assert {"fp32", sweep.AS_IS, "fp16", "int8"} <= set(columns)


def test_every_operator_exists_and_stands_once(sweep: ModuleType) -> None:
    names = [row["operator"] for row in rows(sweep)]
    assert names == sorted(set(names))
    assert len(names) > 40
    assert [name for name in names if not hasattr(torch.ops.aten, name.partition(",")[0])] == []


def test_a_figure_is_bold_where_it_is_below_its_floor(sweep: ModuleType) -> None:
    compared = 0
    for row in rows(sweep):
        summed = 1.0 if row["sums"] == "–" else float(row["sums"])
        half = numeric_gap._HALF_FLOOR_DB - 10 * math.log10(summed)
        floors = {
            "fp32": numeric_gap._FLOAT_FLOOR_DB,
            "fp16": min(numeric_gap._HALF_ROUNDING_DB, half),
            "int8": numeric_gap._INTEGER_FLOOR_DB,
            "8da4w": numeric_gap._DYNAMIC_FLOOR_DB,
        }
        for precision in list(row)[3:]:
            if row[precision] in WORDS:
                continue
            floor = floors[precision.removesuffix(" as is")]
            for _, is_bold, db in figures(row[precision]):
                compared += 1
                where = (row["operator"], precision)
                if is_bold:
                    assert db is not None, where
                    assert db < floor + ROUNDED_DB, where
                else:
                    least = min(floor, STEPS_DB) if precision.startswith("fp16") else floor
                    assert db is None or db >= least - ROUNDED_DB, where
    assert compared > 100


def test_the_words_below_name_the_bold_operators(sweep: ModuleType) -> None:
    for precision in list(rows(sweep)[0])[3:]:
        bad = [row["operator"] for row in rows(sweep) if "**" in row[precision]]
        told = f"- More error than {precision} explains: {', '.join(bad) or 'none'}."
        assert told in between(sweep)
    failed = {(r["operator"], p) for r in rows(sweep) for p in list(r)[3:] if r[p] == "fails"}
    for operator, precision in failed:
        assert any(
            line.startswith(f"- {operator} fails in {precision}: ") for line in between(sweep)
        )
