"""Invariants of what is shown: I1, one fact has one number in every view; I2, untimed means none.

A row of a table that people see must be a row of the table that programs read, formatted by
`format_value`; what is left out for people stands in the declarations (`Column.visibility`), or here.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
import statistics
import sys
from dataclasses import replace
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Final

import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from etprof.analysis.assessment import Assessment, assess_run
from etprof.analysis.run_analysis import analyze_run
from etprof.base.process import run_command
from etprof.base.units import format_range, format_value
from etprof.cli import run_command_line
from etprof.run.load import Run as LoadedRun
from etprof.tables.operators import EVENTS, TIMELINE
from etprof.tables.report import DECLARED, report_sections, report_tables
from etprof.views import formats
from etprof.views.cells import shown_columns, shown_rows
from etprof.views.documents import assessment_document
from etprof.views.files import build_frame, encode_csv, encode_parquet
from etprof.views.formats.html import render_html
from etprof.views.markdown import escape, render_markdown
from etprof.views.terminal import terminal_table
from tests.json_numbers import undeclared
from tests.known_runs import OFF_OPS, Experiment, Op, Run, analyze, on_off_run, write_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from etprof.tables.table import Table, Visibility

NO_TABLE_FOR_PEOPLE: Final = {
    "samples": "drawn, a dot each",
    "findings": "a card or paragraph each",
    "operator_changes": "the operators' table has both sides",
    "category_changes": "its classes are shown, and the categories are drawn",
    "categories": "of a run without comparison",
    "reference": "beside a reference alone",
    "outputs": "where outputs were kept",
    "kernels": "where kernels were counted",
    "kernel_calls": "likewise",
    "kernel_uses": "hundreds of rows, for programs",
    "work": "where kernels were counted, vector lengths side by side",
    "threads": "with several thread counts",
    "icicle": "of a run without comparison",
    "icicle_changes": "drawn, a box each",
    "intensity": "with an export's description",
    "split": "on terminals: pages have the operators' table, which can be searched",
    "source_lines": "with an export's description",
    "modules": "with an export's description",
}
"""Tables of the on/off run that people have in another form, or that are empty there."""


def thread_sweep() -> Run:
    return Run([
        Experiment(f"{sme}_t{n}", OFF_OPS, sme=sme, threads=n,
                   latency_us=[100 / n + i % 3 for i in range(10)])
        for sme in ("off", "sme2")
        for n in (1, 2)
    ])  # fmt: skip


RUNS: Final = {
    "on_off": on_off_run(),
    "threads": thread_sweep(),
    "one": Run([Experiment("e", [*OFF_OPS, Op("=1|*[x]* #7", 9)])]),
    "untimed": replace(on_off_run(), platform="emulator", meaningful=False),
}


@pytest.fixture(scope="module", params=RUNS)
def assessment(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Assessment:
    folder = tmp_path_factory.mktemp("runs")
    return assess_run(analyze(folder / request.param, RUNS[request.param]))


class Tables(HTMLParser):
    """The texts of all tables of a page: headings, then rows."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tables: list[list[list[str]]] = []
        self.cell: list[str] | None = None
        self.bars = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in {"td", "th"}:
            self.cell = []
            self.bars = dict(attrs).get("class") == "track"
        elif tag == "code" and self.cell:
            self.cell.append(", ")

    def handle_endtag(self, tag: str) -> None:
        if tag in {"td", "th"} and self.cell is not None:
            text = "".join(self.cell)
            if not self.bars and text != "Bar":
                self.tables[-1][-1].append(text)
            self.cell = None

    def handle_data(self, data: str) -> None:
        if self.cell is not None:
            self.cell.append(data.strip("\n"))


def texts(table: Table, place: Visibility) -> list[list[str]]:
    """Headings and rows as people should read them."""
    rows = [[cell.text for cell in row] for row in shown_rows(table, place)]
    return [[shown.heading for shown in shown_columns(table, place)], *rows]


def shown_tables(assessment: Assessment) -> Iterator[Table]:
    for section in report_sections(assessment):
        yield from (table for table in section.tables if table.rows and not table.is_drawn)


def test_files_hold_the_declared_values(assessment: Assessment) -> None:
    """I1: CSV, JSON, Parquet and frames have the same rows; every column is in each."""
    for name, table in report_tables(assessment).items():
        declared = [column.name for column in table.columns]
        found = list(csv.reader(io.StringIO(encode_csv(table))))
        assert found[0] == declared, name
        written = [["" if v is None else str(v) for v in row] for row in table.rows]
        assert [[cell.removeprefix("'=") for cell in row] for row in found[1:]] == [
            [cell.removeprefix("=") for cell in row] for row in written
        ], name
        stored = pyarrow.parquet.read_table(io.BytesIO(encode_parquet(table)))
        assert stored.column_names == declared
        assert stored.to_pylist() == table.records(), name
        frame = build_frame(table)
        assert {c: str(d) for c, d in frame.dtypes.items()} == {
            column.name: column.dtype for column in DECLARED[table.name].columns
        }
        values = frame.astype(object).where(frame.notna(), None).to_numpy().tolist()
        assert values == [list(row) for row in table.rows], name


def test_people_read_the_same_numbers(assessment: Assessment) -> None:
    """I1, T12: each cell is the formatted value of the row that programs read."""
    data = report_tables(assessment)
    seen = 0
    for table in shown_tables(assessment):
        source = next((each for each in data.values() if each.name == table.name), None)
        if source is None or table.name in {"operators", "waterfall"}:
            source = table
        records = source.records()
        rows = shown_rows(table, "page")
        for record, row in zip(table.records(), rows, strict=True):
            if record not in records:
                assert "Method::execute" in record.values(), "only a sum is no row of programs"
                continue
            for shown, cell in zip(shown_columns(table, "page"), row, strict=True):
                column = shown.column
                unit = column.unit
                if unit.startswith("@"):
                    unit = str(record[unit[1:]] or "")
                wanted = format_value(unit, record[column.name])
                if shown.is_interval and column.bounds:
                    wanted = format_range(unit, *(record[end] for end in column.bounds))  # type: ignore[arg-type]
                assert cell.text in {wanted, wanted.replace("–", "")}, (table.name, column.name)
                seen += 1
    assert seen > 5


def test_operators_side_by_side_are_the_changes(assessment: Assessment) -> None:
    """I1: the operators that people see have the times of `operator_changes` and `operators`."""
    if assessment.primary_comparison is None:
        pytest.skip("one experiment")
    (section,) = (s for s in report_sections(assessment) if s.anchor == "operators")
    name = assessment.primary_comparison.name
    changes = [
        record
        for record in report_tables(assessment)["operator_changes"].records()
        if record["comparison"] == name
    ]
    # Pages have the slowest first, with the number of each in the program's order.
    shown = sorted(section.tables[0].records(), key=lambda record: int(record["number"] or 0))
    assert len(shown) == len(changes) > 0
    for record, change in zip(shown, changes, strict=True):
        assert record["label"] in {change["candidate_label"], change["baseline_label"]}
        for column in ("delta_ns", "speed_up", "category", "class"):
            assert record[column] == change[column]
        assert record["candidate_ns"] in {change["candidate_ns"], None}


def test_html_markdown_and_terminals_show_these_cells(assessment: Assessment) -> None:
    """I1: nothing is formatted again on the way to a page or a terminal of any width."""
    pages = Tables(render_html([assessment])).tables
    lines = render_markdown([assessment]).split("\n")
    for table in shown_tables(assessment):
        expected = texts(table, "page")
        clean = [[cell.replace("\N{ZERO WIDTH SPACE}", "") for cell in row] for row in expected]
        assert clean in [
            [[cell.replace("\N{ZERO WIDTH SPACE}", "") for cell in row] for row in page]
            for page in pages
        ], table.name
        for row in texts(table.largest(20), "page"):
            assert f"| {' | '.join(map(escape, row))} |" in lines, table.name
        for width in (60, 80, 200):
            console = Console(width=width, file=io.StringIO())
            console.print(terminal_table(table))
            printed = console.file.getvalue()  # type: ignore[attr-defined]
            found = re.sub(r"[\s│┃]", "", printed)
            left_out = re.search(r"^Left out at this width: ((?:.+\n)+)", printed, re.MULTILINE)
            # U3-4: columns that have no room are named, and stand in a wider terminal.
            dropped = " ".join(left_out[1].split()).split(", ") if left_out else []
            assert width < 200 or not dropped
            for cells in shown_rows(table, "everywhere"):
                for shown, cell in zip(shown_columns(table, "everywhere"), cells, strict=True):
                    if shown.heading in dropped:
                        continue
                    figure = re.sub(r"\s", "", cell.text)
                    assert figure in found or not shown.column.is_number, (width, cell)


def test_every_declared_table_reaches_people(tmp_path: Path) -> None:
    """I1: a table, and each of its columns that knows something, is on the page, or has a reason."""
    assessment = assess_run(analyze(tmp_path / "r", on_off_run()))
    on_page = {table.name: table for table in shown_tables(assessment)}
    # Several comparisons, two programs, language models and emulators have tables of their own.
    elsewhere = {
        "comparisons",
        "structure",
        "token_latencies",
        "generation",
        "generation_kernels",
        "instructions",
    }
    assert set(DECLARED) - set(on_page) - elsewhere == set(NO_TABLE_FOR_PEOPLE)
    for table in on_page.values():
        missing = {c.name for c in table.columns} - {
            c.name for c in table.visible_in("page").columns
        }
        for name in missing:
            column = next(column for column in table.columns if column.name == name)
            values = {record[name] for record in table.records()}
            repeated = (
                {record[column.repeats] for record in table.records()} if column.repeats else ()
            )
            told = column.visibility == "data" or values == {None} or values <= {None, *repeated}
            assert told or (column.visibility == "several" and len(values - {None}) == 1), (
                table.name,
                name,
            )


TIMED_KEYS: Final = {
    column.name
    for table in (*DECLARED.values(), TIMELINE, EVENTS)
    for column in table.columns
    if column.is_timed
} - {"baseline", "candidate", "verdict", "median", "rate_limit"}
"""Those whose name alone says a time: the others mean something else in other documents."""
A_TIME: Final = re.compile(r"[0-9.]+ (ns|µs|ms|s|GFLOP/s|GB/s)\b|[0-9.]+×(?! [0-9])")


def timed_values(value: object, path: str = "") -> list[str]:
    """Paths of all figures of a document that a clock had a part in."""
    if isinstance(value, dict):
        return [
            found
            for key, each in value.items()
            for found in timed_values(each, f"{path}.{key}")
            if key != "times_are_meaningful"
        ]
    if isinstance(value, list):
        return [found for each in value for found in timed_values(each, path)]
    key = path.rpartition(".")[2]
    is_time = key in TIMED_KEYS or key.endswith(("_ns", "_ms", "_per_s"))
    return [path] if is_time and value is not None else []


def test_untimed_means_no_number_in_any_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """I2, T8: `analyze` and every format, walked file by file, and both terminals."""
    folder = write_run(tmp_path / "r", RUNS["untimed"])
    before = set(folder.rglob("*"))
    assert run_command_line(["analyze", str(folder), "--full"]) == 0
    terminal = capsys.readouterr().out
    assert (
        run_command_line(["report", str(folder), "--format", ",".join(formats.format_names())]) == 0
    )
    off, on = f"{folder}:android_off", f"{folder}:android_sme2"
    assert run_command_line(["compare", off, on, "--full"]) == 0
    terminal += capsys.readouterr().out
    assert not A_TIME.search(terminal)
    written = {path for path in folder.rglob("*") if path.is_file()} - before
    kinds = {path.suffix for path in written}
    assert kinds == {".csv", ".html", ".json", ".md", ".parquet", ".perfetto-trace"}
    tables = {
        f"report_{n}": t
        for n, t in report_tables(assess_run(analyze_run(LoadedRun.load(folder)))).items()
    }
    for path in written:
        if path.suffix == ".csv":
            with path.open() as stream:
                rows = list(csv.DictReader(stream))
            name = "timeline" if path.stem.endswith("_timeline") else path.stem
            columns = {"timeline": TIMELINE, **tables}.get(name, DECLARED["operators"]).columns
            timed = {column.name for column in columns if column.is_timed}
            assert {row.get(name) or None for row in rows for name in timed} <= {None}, path
        elif path.suffix == ".parquet":
            timed = {column.name for column in tables[path.stem].columns if column.is_timed}
            rows = pyarrow.parquet.read_table(path).to_pylist()
            assert {row[name] for row in rows for name in timed} <= {None}, path
        elif path.suffix == ".json":
            assert timed_values(json.loads(path.read_text())) == [], path
        elif path.suffix in {".html", ".md"}:
            text = re.sub(r"<style>.*?</style>", "", path.read_text(), flags=re.DOTALL)
            assert not A_TIME.search(text), path
    trace = json.loads((folder / "report_chrome_trace.json").read_text())
    lengths = {event["dur"] for event in trace["traceEvents"] if "dur" in event}
    assert lengths
    assert all(float(length).is_integer() for length in lengths), "steps, no times"


def test_untimed_events_have_no_durations(tmp_path: Path) -> None:
    """I2, T8: nor has the API."""
    import etprof

    run = etprof.load_run(write_run(tmp_path / "r", RUNS["untimed"]))
    assert run.find_total_for_module("") is None
    frames = [block.to_frame() for block in run.event_blocks()]
    assert sum(map(len, frames)) > 0
    timed = [column.name for column in EVENTS.columns if column.is_timed]
    assert all(frame[timed].isna().all(axis=None) for frame in frames)
    assert all(frame["count"].gt(0).all() for frame in frames)


TOY_COLUMN: Final = """
import importlib.util, sys
name = "etprof.tables.operators"
spec = importlib.util.find_spec(name)
source = open(spec.origin).read()
line = 'DETAIL_COLUMNS: Final = (\\n    Column("toy", "Int64", "count", of=lambda s: 4242, says="a toy"),'
assert source.count("DETAIL_COLUMNS: Final = (") == 1
module = importlib.util.module_from_spec(spec)
sys.modules[name] = module
exec(compile(source.replace("DETAIL_COLUMNS: Final = (", line), spec.origin, "exec"), module.__dict__)
from etprof.cli import run_command_line
run_command_line(["analyze", sys.argv[1], "--full"])
run_command_line(["report", sys.argv[1], "--format", "html,md,json,csv,parquet"])
import etprof
print("frame", etprof.load_run(sys.argv[1]).operators()["toy"].tolist())
"""


@pytest.mark.slow
def test_a_new_column_is_one_line_of_one_file(tmp_path: Path) -> None:
    """T16: its declaration alone puts it into every view."""
    folder = write_run(tmp_path / "r", on_off_run())
    completed = run_command(
        [sys.executable, "-c", TOY_COLUMN, str(folder)], environment={"COLUMNS": "250"}
    )
    assert completed.exit_code == 0, completed.stderr
    assert "4,242" in completed.stdout, "the terminal"
    assert "frame [4242, 4242" in completed.stdout
    assert ">4,242</td>" in (folder / "report.html").read_text()
    assert "| 4,242 |" in (folder / "report.md").read_text()
    assert ",4242," in (folder / "report_operators.csv").read_text()
    document = json.loads((folder / "report.json").read_text())
    assert document["experiments"]["android_off"]["operators"][0]["toy"] == 4242
    stored = pyarrow.parquet.read_table(folder / "report_operators.parquet")
    assert set(stored["toy"].to_pylist()) == {4242}


def test_a_new_format_is_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """T16: a module beside the others is offered, checked and written."""
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "toy_words.py").write_text(
        "from etprof.views.formats import Format\n"
        'FORMAT = Format(of_run=lambda run: {"report.toy": f"toy of {run.run.name}"})\n'
    )
    monkeypatch.setattr(formats, "__path__", [*formats.__path__, str(tmp_path / "more")])
    folder = write_run(tmp_path / "r", on_off_run())
    assert run_command_line(["report", str(folder), "--format", "toy-words"]) == 0
    assert (folder / "report.toy").read_text() == "toy of known"
    with pytest.raises(SystemExit):
        run_command_line(["report", "--help"])
    assert "toy-words" in capsys.readouterr().out


def test_the_summary_has_the_figures_of_the_raw_samples(assessment: Assessment) -> None:
    """R152: where docs/measuring.md sends those who want medians; metrics.json has samples alone."""
    document = assessment_document(assessment)
    found = document["experiments"]
    assert found
    for name, measured in assessment.run.timed.items():
        samples = [each for block in measured.blocks for each in block.latency_ns]
        if not document["times_are_meaningful"]:
            assert found[name].get("latency") is None
            continue
        told = found[name]["latency"]["samples"]
        figures = (told["median"], told["minimum"], told["maximum"])
        assert figures == (statistics.median(samples), min(samples), max(samples))


def test_the_summary_has_the_same_operators(assessment: Assessment) -> None:
    """I1: the JSON document is made of the same records."""
    found = assessment_document(assessment)["experiments"]
    rows = [row for each in found.values() for row in each["operators"]]
    wanted = [
        {k: v for k, v in record.items() if k not in {"experiment", "total_ns"}}
        for record in report_tables(assessment)["operators"].records()
    ]
    assert rows == wanted


@pytest.mark.slow
@given(
    times=st.lists(st.integers(1, 9000), min_size=len(OFF_OPS), max_size=len(OFF_OPS)),
    last=st.lists(st.integers(1, 9000), min_size=len(OFF_OPS), max_size=len(OFF_OPS)),
)
@settings(deadline=None, max_examples=20)
def test_two_emulations_of_one_program_give_the_same_tables(
    times: list[int], last: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """B-D9: an execution that took long under emulation was no part of `calls`, `executions`."""
    run = RUNS["untimed"]
    other = [
        replace(
            entry,
            ops=[replace(op, us=us) for op, us in zip(entry.ops, itertools.cycle(times))],
            last_ops=[replace(op, us=us) for op, us in zip(entry.ops, itertools.cycle(last))],
        )
        for entry in run.experiments
    ]
    found = [
        assess_run(analyze(tmp_path_factory.mktemp("e") / "r", replace(run, experiments=each)))
        for each in (run.experiments, other)
    ]
    one, two = ({n: t.rows for n, t in report_tables(each).items()} for each in found)
    assert one == two
    assert found[0].notes == found[1].notes
    documents = [json.dumps(assessment_document(each)) for each in found]
    sources = [json.dumps(str(each.run.source))[1:-1] for each in found]
    assert documents[0].replace(sources[0], "") == documents[1].replace(sources[1], "")


@pytest.mark.parametrize("known", [thread_sweep(), on_off_run()], ids=["threads", "on_off"])
def test_numbers_of_a_document_are_declared(tmp_path: Path, known: Run) -> None:
    """U3-5: unit and basis of each."""
    document = json.loads(
        json.dumps(assessment_document(assess_run(analyze(tmp_path / "run", known))))
    )
    assert undeclared("analyze", document) == []
