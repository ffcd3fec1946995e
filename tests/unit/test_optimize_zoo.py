"""The table of `docs/optimize.md` is what `benchmarks/optimize_zoo.py` writes, and its rows hold."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from etprof.run.accuracy import find_floors

if TYPE_CHECKING:
    from types import ModuleType

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "optimize.md"


@pytest.fixture
def zoo(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("optimize_zoo")


def ends(row: Any, column: int) -> tuple[str, str]:  # noqa: ANN401 - the script's Row
    """The two sides of a cell, as numbers are written: `86 → 1`."""
    before, _, after = row.cells[column].partition(" → ")
    return before, after


def test_the_page_s_table_is_what_the_script_writes(zoo: ModuleType) -> None:
    text = PAGE.read_text(encoding="utf-8")
    rows = zoo.read_rows(text)
    between = text.partition(zoo.MARKS[0])[2].partition(zoo.MARKS[1])[0]
    assert between.strip().splitlines() == zoo.render(rows)
    assert all(len(row.cells) == len(zoo.COLUMNS) for row in rows.values())
    known = {zoo.NO_PROGRAM, zoo.PREDICTED, zoo.COUNTED, zoo.TIMED}
    assert {row.evidence for row in rows.values()} <= known


def test_the_zoo_and_ten_more_architectures_are_there_in_each_precision(zoo: ModuleType) -> None:
    """Models that need a package which no registry has are told as left out, on the page too."""
    text = PAGE.read_text(encoding="utf-8")
    sources = {p.parent.name: p.read_text() for p in (ROOT / "models").glob("*/model.py")}
    left_out = {name for name, source in sources.items() if '"git+https://' in source}
    wanted = {(m, p) for m in (*sources.keys() - left_out, *zoo.OTHERS) for p in zoo.PRECISIONS}
    wanted |= set(zoo.AS_LIBRARIES.items())
    assert len(zoo.OTHERS) >= 10
    assert len(zoo.AS_LIBRARIES) >= 11
    assert set(zoo.read_rows(text)) == wanted
    assert all(f"`{name}`" in text for name in left_out)


def test_no_row_is_below_its_floor_or_over_its_loss(zoo: ModuleType) -> None:
    for row in zoo.read_rows(PAGE.read_text(encoding="utf-8")).values():
        if row.evidence == zoo.NO_PROGRAM:
            assert row.cells[-1] not in {"", "reached"}, row.key
            continue
        floors = find_floors(row.key[1])
        assert floors is not None
        assert row.worst_db is not None
        assert row.worst_db >= floors.snr_db, row.key
        before = float(ends(row, zoo.COLUMNS.index("SNR against eager fp32"))[0])
        assert before - row.worst_db <= zoo.MOST_LOST_DB + 0.05, row.key


def test_rows_with_a_goal_are_as_far_as_they_say(zoo: ModuleType) -> None:
    rows = zoo.read_rows(PAGE.read_text(encoding="utf-8"))
    for key, goal in zoo.GOALS.items():
        share, calls, outside = (ends(rows[key], place)[1] for place in (2, 3, 4))
        reached = (
            float(share.removesuffix(" %")) >= 100 * goal.sme2_share
            and (goal.delegate_calls is None or int(calls) <= goal.delegate_calls)
            and (goal.outside is None or int(outside) <= goal.outside)
        )
        assert reached == (rows[key].cells[-1] == "reached"), key


def row_of(zoo: ModuleType, model: str, evidence: str, goal: str = "reached") -> Any:  # noqa: ANN401
    cells = [model, "fp16", *("1 → 1",) * (len(zoo.COLUMNS) - 4), evidence, goal]
    return zoo.Row(tuple(cells))


def test_rows_are_added_in_several_calls_and_the_others_stay(
    zoo: ModuleType, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{zoo.MARKS[0]}\n{zoo.MARKS[1]}\n\nafter\n")
    zoo.add_row(page, row_of(zoo, "a", zoo.PREDICTED))
    zoo.add_row(page, row_of(zoo, "b", zoo.NO_PROGRAM, r"refused: x \| y"))
    zoo.add_row(page, row_of(zoo, "a", "counted: 9 → 17 SME2 calls"))
    rows = zoo.read_rows(page.read_text())
    assert [(row.key[0], row.evidence) for row in rows.values()] == [
        ("a", zoo.COUNTED), ("b", zoo.NO_PROGRAM),
    ]  # fmt: skip
    assert rows["b", "fp16"].cells[-1] == r"refused: x \| y"
    assert page.read_text().startswith("before\n\n")
    assert page.read_text().endswith("\n\nafter\n")
    assert "2 rows: 1 counted; 1 without a program (`b fp16`)." in page.read_text()


@pytest.mark.parametrize(
    "table", ["| other |\n|---|\n| a |", "| model | precision |\n|---|---|\n| a | fp16 |"]
)
def test_a_table_of_other_columns_is_not_mixed_with(
    zoo: ModuleType, tmp_path: Path, table: str
) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{zoo.MARKS[0]}\n{table}\n{zoo.MARKS[1]}\n")
    with pytest.raises(SystemExit, match="has other columns; take it out"):
        zoo.add_row(page, row_of(zoo, "a", zoo.PREDICTED))
    assert table in page.read_text()
