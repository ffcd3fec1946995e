"""The tables of a report: one name each, and what every experiment is made of (B-D13, B-D14)."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pytest
from rich.console import Console

import etprof
from etprof.analysis.assessment import Assessment, assess_run
from etprof.api import COLUMNS
from etprof.base.errors import UsageError
from etprof.cli import run_command_line
from etprof.tables.alternatives import TOGETHER
from etprof.tables.machine import CHECKS
from etprof.tables.operators import MODULES, OPERATORS, SPLIT
from etprof.tables.report import DECLARED, report_sections, report_table, report_tables
from etprof.tables.table import Column, Table
from etprof.views.cells import shown_rows
from etprof.views.charts import shades_of
from etprof.views.files import encode_parquet
from etprof.views.terminal import render_report
from tests.known_runs import OFF_OPS, Experiment, Op, Run, analyze, on_off_run, write_run
from tests.unit.test_findings import one
from tests.unit.test_findings_hold import described, traced

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from etprof.tables.table import Section

UNKNOWN = Op("Frobnicate (NC, F32) #1", 3)


def assess(folder: Path, run: Run) -> Assessment:
    return assess_run(analyze(folder, run))


def sections(
    assessment: Assessment, anchor: str, place: Literal["page", "terminal"] = "page"
) -> list[Section]:
    return [each for each in report_sections(assessment, place) if each.anchor == anchor]


def untimed(run: Run) -> Run:
    return replace(run, platform="emulator", meaningful=False)


def test_costs_are_headed_with_the_sides_names(tmp_path: Path) -> None:
    """Finding 14: "baseline" and "candidate", where the tables beside it have their names."""
    (section,) = sections(assess(tmp_path / "r", on_off_run()), "ledger")
    headings = [
        column.heading for table in section.tables for column in table.visible_in("page").columns
    ]
    assert {"SME off", "SME2"} <= set(headings)
    assert not {"baseline", "candidate"} & set(headings)


@pytest.mark.parametrize("change", [lambda run: run, untimed], ids=["timed", "untimed"])
def test_unknown_operators_are_named_everywhere(
    tmp_path: Path, change: Callable[[Run], Run]
) -> None:
    """B-D13a: also where no time is known, and so no table of categories."""
    run = change(Run([Experiment("e", [*OFF_OPS, UNKNOWN])]))
    assessment = assess(tmp_path / "r", run)
    places: tuple[Literal["page", "terminal"], ...] = ("page", "terminal")
    for place in places:
        lines = [line for each in report_sections(assessment, place) for line in each.lines]
        assert [line for line in lines if UNKNOWN.label in line], place


def test_lines_are_read_without_rows(tmp_path: Path) -> None:
    """B-D13a: a section with a table that is empty still has what must be said."""
    run = untimed(Run([Experiment("e", [*OFF_OPS, UNKNOWN])]))
    found = sections(assess(tmp_path / "r", run), "split", "terminal")
    assert [UNKNOWN.label in " ".join(each.lines) for each in found] == [True]


def test_all_comparisons_have_both_latencies(tmp_path: Path) -> None:
    """B-D13b: verdicts stand beside the medians that they are of."""
    table = report_table(assess(tmp_path / "r", on_off_run()), "comparisons")
    (row,) = table.records()
    latencies = {
        record["experiment"]: record["median"]
        for record in report_table(assess(tmp_path / "l", on_off_run()), "latencies").records()
        if str(record["quantity"]).startswith("Inference")
    }
    assert row["baseline_ns"] == latencies["android_off"]
    assert row["candidate_ns"] == latencies["android_sme2"]
    assert {c.visibility for c in table.columns if c.name.endswith("ate_ns")} == {"everywhere"}


def test_a_verdicts_figures_are_the_truth(tmp_path: Path) -> None:
    """Mutants 49 and 50: 1 - p stood in tables, and intervals whose ends were one."""
    (row,) = report_table(assess(tmp_path / "r", on_off_run()), "comparisons").records()
    # Ten pairs of one sign: two of 2**10 patterns are as extreme.
    assert row["p_value"] == pytest.approx(2 / 1024)
    low, middle, high = (float(row[f"speed_up{end}"] or 0) for end in ("_low", "", "_high"))
    assert 900 / 303 <= low < middle < high <= 902 / 300


def test_terminals_show_what_each_experiment_is_made_of(tmp_path: Path) -> None:
    """B-D13c: classes, operators with median, and overheads, of all experiments."""
    run = on_off_run()
    overhead = [replace(each, delegate_overhead_us=7) for each in run.experiments]
    assessment = assess(tmp_path / "r", replace(run, experiments=overhead))
    found = sections(assessment, "split", "terminal")
    assert not sections(assessment, "split")
    assert len(found) == len(run.experiments) == 2
    for section, experiment in zip(found, assessment.run.experiments, strict=True):
        classes, split = section.tables
        assert classes.names == DECLARED["categories"].names
        assert split.names == SPLIT.names
        rows = split.records()
        assert {row["experiment"] for row in rows} == {experiment.name}
        assert sum(float(row["share"] or 0) for row in rows) == pytest.approx(1.0)
        calls = len({op.instruction for op in OFF_OPS if op.is_delegated})
        overheads = [row for row in rows if row["where"] == "overhead"]
        known = {row["label"]: row["mean_ns"] for row in overheads}
        rounded = 1000.0 * sum(row["where"] == "delegate" for row in rows)
        assert known["Rounding of operators' times"] == rounded
        assert known["Delegate overhead"] == 7000.0 * calls - rounded
        assert {row["median_ns"] for row in overheads} == {None}
        assert all(row["median_ns"] for row in rows if row["where"] == "delegate")
        seen = {column.name for column in split.visible_in("everywhere").columns}
        assert seen >= {"name", "where", "calls_per_inference", "median_ns", "mean_ns", "share"}
    console = Console(width=200, file=io.StringIO())
    console.print(render_report(assessment, top=12))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert [shown.count(table.title) for each in found for table in each.tables] == [1] * 4


def test_untimed_terminals_count_calls_an_inference(tmp_path: Path) -> None:
    """B-D13d: of the executions in the split, not of all of the file."""
    twice = [*OFF_OPS, OFF_OPS[0]]
    assessment = assess(tmp_path / "r", untimed(Run([Experiment("e", twice, executions=5)])))
    ((section,),) = [sections(assessment, "split", "terminal")]
    (split,) = section.tables
    calls = {row["label"]: row["calls_per_inference"] for row in split.records()}
    assert calls == {op.label: 2.0 if op is OFF_OPS[0] else 1.0 for op in OFF_OPS}
    assert "calls_per_inference" in {c.name for c in split.visible_in("everywhere").columns}
    assert {row["where"] for row in split.records()} <= {"delegate", "portable"}


def test_categories_of_all_experiments_are_a_table(tmp_path: Path) -> None:
    """B-D13e: the figures of the bars, a column for each experiment."""
    assessment = assess(tmp_path / "r", on_off_run())
    ((section,),) = [sections(assessment, "categories")]
    (matrix,) = section.tables
    names = [each.name for each in assessment.run.experiments]
    assert matrix.names == ["group", *(f"{v}_{n}" for n in names for v in ("mean_ns", "share"))]
    *groups, total = matrix.records()
    long = report_table(assessment, "categories").records()
    for row in groups:
        for name in names:
            wanted = sum(float(r["mean_ns"] or 0) for r in long
                         if (r["group"], r["experiment"]) == (row["group"], name))  # fmt: skip
            assert float(row[f"mean_ns_{name}"] or 0) == pytest.approx(wanted)
    assert total["group"] == "Method::execute"
    assert [total[f"share_{name}"] for name in names] == pytest.approx([1.0, 1.0])


def test_threads_are_a_shaded_matrix(tmp_path: Path) -> None:
    """B-D13e: mode by threads; the fastest point is the darkest."""
    sweep = Run([
        Experiment(f"{sme}_t{n}", OFF_OPS, sme=sme, threads=n,
                   latency_us=[(100 if sme == "off" else 40) / n + i % 3 for i in range(10)])
        for sme in ("off", "sme2") for n in (1, 2)
    ])  # fmt: skip
    assessment = assess(tmp_path / "r", sweep)
    ((section,),) = [sections(assessment, "threads")]
    matrix, listed = section.tables
    assert matrix.is_shaded
    assert [column.heading for column in matrix.columns] == ["SME", "1 thread", "2 threads"]
    points = {(r["sme"], r["threads"]): r["median_ns"] for r in listed.records()}
    assert {(r["sme"], n): r[f"median_ns_{n}"] for r in matrix.records() for n in (1, 2)} == points
    assert [[s == 100 for s in row] for row in shades_of(matrix)] == [
        [False, False, False], [False, False, True],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("table", "column"), [(OPERATORS, "module_path"), (MODULES, "module")], ids=["row", "rollup"]
)
def test_the_root_module_has_a_name(table: Table, column: str) -> None:
    """B-D13f: people read one; programs keep the path, which is empty and not missing."""
    (declared,) = (each for each in table.columns if each.name == column)
    assert declared.empty == "(the model itself)"
    one = Table("t", (Column(column, "string", empty=declared.empty),))
    filled = one.of([{column: ""}, {column: None}, {column: "a.b"}])
    assert [row[0].text for row in shown_rows(filled, "page")] == [declared.empty, "", "a.b"]
    assert [record[column] for record in filled.records()] == ["", None, "a.b"]


def test_a_table_has_one_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """B-D14: in declarations, `COLUMNS`, `Run.table`, files and Parquet's metadata."""
    import pyarrow.parquet

    folder = write_run(tmp_path / "r", on_off_run())
    run = etprof.load_run(folder)
    tables = report_tables(run.assessment)
    assert list(tables) == list(DECLARED) == [name for name in COLUMNS if name not in TOGETHER]
    assert [table.name for table in tables.values()] == list(tables)
    for name, table in tables.items():
        assert {c: str(d) for c, d in run.table(name).dtypes.items()} == COLUMNS[name]
        stored = pyarrow.parquet.read_schema(io.BytesIO(encode_parquet(table)))
        assert stored.metadata[b"etprof_table"].decode() == name
    assert run_command_line(["report", str(folder), "--format", "csv,parquet"]) == 0
    capsys.readouterr()
    for ending in ("csv", "parquet"):
        found = {p.stem.removeprefix("report_") for p in folder.glob(f"report_*.{ending}")}
        assert found == set(DECLARED)


def test_an_unknown_table_names_those_that_are(tmp_path: Path) -> None:
    """B-D14: the way out of a wrong name is the list of names."""
    run = etprof.load_run(write_run(tmp_path / "r", on_off_run()))
    with pytest.raises(UsageError) as raised:
        run.table("source")
    assert all(name in str(raised.value) for name in DECLARED)


def test_validate_prints_the_rows_of_its_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A-cut 7: people and programs are told from one declared table."""
    monkeypatch.setenv("COLUMNS", "1000")  # where no path is too long for its column
    folder = write_run(tmp_path / "r", on_off_run())
    code = run_command_line(["validate", str(folder), "--json"])
    found = json.loads(capsys.readouterr().out)["findings"]
    assert found
    assert [set(row) for row in found] == [set(CHECKS.names)] * len(found)
    assert run_command_line(["validate", str(folder)]) == code
    shown = re.sub(r"[\s│]", "", capsys.readouterr().out)
    assert all(re.sub(r"\s", "", row[name]) in shown for row in found for name in row)


def test_modules_beyond_the_first_are_summed(tmp_path: Path) -> None:
    """The table stopped after eight modules, as if there were no more."""
    ops = [Op(f"native_call_op{i}.out", 100 - i, i) for i in range(12)]
    operators = [
        traced(f"o{i}", f"op{i}.out", f"aten.op{i}.default", instruction=i,
               origin={"module_path": f"layer{i}"})
        for i in range(12)
    ]  # fmt: skip
    run = described(one(ops), operators)
    assessment = assess(tmp_path / "r", run)
    (section,) = sections(assessment, "rollups", "terminal")
    rows = section.tables[0].records()
    assert [row["module"] for row in rows] == [*(f"layer{i}" for i in range(8)), "4 others"]
    every = MODULES.of_each([assessment.primary]).records()
    assert len(every) == 12
    shown, whole = (sum(float(row["share"] or 0) for row in table) for table in (rows, every))
    assert shown == pytest.approx(whole)


def test_as_many_rows_as_asked_for_are_shown_of_tables_without_an_order(tmp_path: Path) -> None:
    """`--top 3` changed nothing in 1 130 lines of an emulator's run."""
    assessment = assess(tmp_path / "r", untimed(on_off_run()))
    texts = []
    for cuts_all in (False, True):
        stream = io.StringIO()
        console = Console(file=stream, width=200)
        console.print(render_report(assessment, top=2, cuts_all=cuts_all))
        texts.append(stream.getvalue())
    assert "leave --top out" not in texts[0]
    assert re.search(r"\d more rows; leave --top out for all", texts[1])
    assert len(texts[1]) < len(texts[0])
