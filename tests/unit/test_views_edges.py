"""What people read: cells, columns that fit a width, brief answers, pages; JSON, HUD records."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, get_args

import pytest
from rich.console import Console

from etprof.run.delegation import MethodReport
from etprof.run.directory import BlockMetrics
from etprof.tables.brief import AnswerLine, AnswerPoint, BarPart, Brief, FullOutputLine
from etprof.tables.table import Basis, Column, Section, Table
from etprof.views import brief, cells, files, fitting, markdown, partitions, terminal
from etprof.views.formats import format_names, html, hud
from etprof.views.json_figures import DOCUMENTS, json_unit

if TYPE_CHECKING:
    from collections.abc import Sequence

UNITS = {
    "%", "1", "1/s", "10⁹/s", "GB/s", "GFLOP/s", "`unit`", "bits", "bytes", "code", "count", "dB",
    "kHz", "ln ratio", "ms", "nats", "ns", "p", "ratio", "s", "seed", "share", "token id",
    "version", "°C",
}  # fmt: skip
UNIT_OF_ENDING = {
    "ns": {"ns"}, "ms": {"ms"}, "bytes": {"bytes"}, "bits": {"bits"}, "db": {"dB"},
    "share": {"share"}, "khz": {"kHz"}, "c": {"°C"}, "nats": {"nats"}, "percent": {"%"},
    "s": {"s", "GB/s"},
}  # fmt: skip


@pytest.mark.parametrize("command", DOCUMENTS)
def test_a_figure_has_a_path_a_unit_and_a_basis_in_this_order(command: str) -> None:
    bases = set(get_args(Basis)) - {""}
    for figure in DOCUMENTS[command]:
        assert re.fullmatch(r"[a-z0-9_*.\[\]]+", figure.path), figure
        assert figure.path not in UNITS - {"p", "seed"}, figure
        assert figure.unit in UNITS, figure
        assert figure.basis in bases, figure
        name = figure.path.rpartition(".")[2].removesuffix("[]")
        ending = name.rpartition("_")[2] if "_" in name else ""
        assert figure.unit in UNIT_OF_ENDING.get(ending, UNITS), figure
        assert figure.says not in (bases | UNITS) - {"1", "per inference"}, figure


def test_a_unit_is_written_as_programs_read_it() -> None:
    def unit(name: str, unit_of_column: str) -> str:
        return json_unit(Column(name, "float64", unit_of_column))

    assert unit("gflops", "@rate_limit") == "GFLOP/s"
    assert unit("gigabytes_per_s", "@rate_limit") == "GB/s"
    assert [unit("x", text) for text in ("scientific", "±ns", "@unit", "ns")] == [
        "1", "ns", "`unit`", "ns",
    ]  # fmt: skip


def number(name: str, unit: str = "", **more: Any) -> Column:  # noqa: ANN401
    """A column of figures."""
    return Column(name, "float64", unit, **more)


def texts_of(table: Table) -> list[list[str]]:
    """What a terminal has of each row."""
    return [[cell.text for cell in row] for row in cells.shown_rows(table, "everywhere")]


ENDS = tuple(number(name, visibility="data") for name in ("low", "high"))


def test_what_is_below_its_step_is_at_most_the_step_and_has_no_interval() -> None:
    columns = (
        Column("name", "string"), number("mean", "ns", bounds=("low", "high"), step="step"), *ENDS,
        number("step", "ns", visibility="data"),
    )  # fmt: skip
    rows = (
        ("above", 100.0, 90.0, 110.0, 99.0), ("on it", 100.0, 90.0, 110.0, 100.0),
        ("below", 50.0, 40.0, 60.0, 100.0), ("stepless", 50.0, 40.0, 60.0, None),
        ("open", 50.0, None, 60.0, None),
    )  # fmt: skip
    table = Table("x", columns, rows)
    assert [row[1:] for row in texts_of(table)] == [
        ["100 ns", "90.0 … 110 ns"], ["100 ns", "90.0 … 110 ns"], ["≤ 100 ns", "–"],
        ["50.0 ns", "40.0 … 60.0 ns"], ["50.0 ns", "–"],
    ]  # fmt: skip
    assert cells.shown_rows(table, "everywhere")[2][1].value == 50.0
    values, intervals = cells.shown_columns(table, "everywhere")[1:]
    assert (values.dropped_first, intervals.dropped_first) == (0, 1)
    later = cells.ShownColumn(number("x", dropped_first=3), "x", is_interval=True)
    assert later.dropped_first == 7


def test_a_speedup_is_as_fine_as_half_of_its_interval_is_wide() -> None:
    columns = (Column("name", "string"), number("speed", "ratio", bounds=("low", "high")), *ENDS)
    rows = (("fine", 5.52, 4.91, 6.13), ("wide", 15.52, 3.52, 27.52), ("bare", 5.52, None, 6.13))
    assert [row[1:] for row in texts_of(Table("x", columns, rows))] == [
        ["5.52×", "4.91× … 6.13×"], ["16×", "4× … 28×"], ["5.52×", "–"],
    ]  # fmt: skip


def test_what_another_column_says_already_is_not_repeated() -> None:
    columns = (
        Column("name", "string", styles={"b": "red"}), Column("label", "string", repeats="name"),
        Column("of", "string", empty="none at all"), number("size", "@kind"),
        Column("kind", "string", visibility="data"),
    )  # fmt: skip
    rows = (
        ("a", "a", "", 2048.0, "bytes"),
        ("b", "c", None, 7.5, "1/s"),
        ("c", None, "x", 3.0, None),
    )
    table = Table("x", columns, rows)
    assert texts_of(table) == [
        ["a", "", "none at all", "2.0 KiB"], ["b", "c", "", "7.50 /s"], ["c", "", "x", "3.00"],
    ]  # fmt: skip
    assert [row[0].style for row in cells.shown_rows(table, "everywhere")] == ["", "red", ""]


def shown(name: str, dtype: Any = "string", **more: Any) -> cells.ShownColumn:  # noqa: ANN401
    """A column under its own name."""
    column = Column(name, dtype, **more)
    return cells.ShownColumn(column, column.heading)


THREE = [shown("name"), shown("ns", "float64"), shown("note")]
ROWS = [["alpha beta", "12.5", "one two three four five"], ["x", "3", "y"]]


@pytest.mark.parametrize(
    ("room", "widths"),
    [
        # 10 and 4 cells, and a text of 23 in 16 at least; three cells between columns.
        (36, {0: 10, 1: 4, 2: 16}), (40, {0: 10, 1: 4, 2: 20}), (60, {0: 10, 1: 4, 2: 23}),
        (35, {0: 10, 1: 4}), (17, {0: 10, 1: 4}), (16, {0: 10}), (10, {0: 10}), (5, {0: 5}),
    ],
)  # fmt: skip
def test_the_last_column_goes_where_there_is_no_room(room: int, widths: dict[int, int]) -> None:
    assert fitting.fit(THREE, ROWS, room, gap=3, may_drop=True) == widths
    whole = fitting.fit(THREE, ROWS, room, gap=3, may_drop=False)
    assert whole == (widths if len(widths) == 3 else None)


def test_a_column_that_is_declared_so_goes_first() -> None:
    columns = [shown("name", dropped_first=1), shown("ns", "float64"), shown("note")]
    assert fitting.fit(columns, ROWS, 30, gap=3, may_drop=True) == {1: 4, 2: 23}


def test_heads_and_long_names_need_their_room_and_paths_are_whole_at_first() -> None:
    names = [["a" * 20, "1", "in/a/folder/with/net.py"], ["b " * 15, "2", "x"]]
    columns = [shown("n"), shown("latency ns", "float64"), shown("path", is_whole=True)]
    widths = fitting.fit(columns, names, 56, gap=3, may_drop=False)
    # A name of 20 stays whole; `latency` has 7; the path 23.
    assert widths == {0: 20, 1: 7, 2: 23}
    assert fitting.fit(columns, names, 55, gap=3, may_drop=False) is None
    # Where columns may go, a path is folded to 16 before one does.
    assert fitting.fit(columns, names, 49, gap=3, may_drop=True) == {0: 20, 1: 7, 2: 16}
    assert fitting._longest_name(["a" * 30 + " b", "c/" + "d" * 40]) == 24
    assert fitting._longest_name(["ab abc", "in/folder"]) == 3
    assert fitting._longest_name([]) == 0


@pytest.mark.parametrize(
    ("spare", "widths"),
    [(4, {0: 12, 1: 12}), (10, {0: 13, 1: 17}), (99, {0: 13, 1: 30}), (0, {0: 10, 1: 10}), (1, {0: 10, 1: 11})],
)  # fmt: skip
def test_room_goes_to_what_needs_least_and_is_shared(spare: int, widths: dict[int, int]) -> None:
    assert fitting._widened({0: 10, 1: 10}, {0: 13, 1: 30}, spare) == widths


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (9, ["one three", "seventeen", "a"]), (11, ["one three", "seventeen a"]),
        (8, ["one", "three", "seventeen", "a"]), (13, ["one three", "seventeen a"]),
        (21, ["one three seventeen a"]), (20, ["one three seventeen", "a"]),
    ],
)  # fmt: skip
def test_a_line_holds_the_words_that_fit_with_a_blank_between(width: int, lines: list[str]) -> None:
    assert fitting.fold("one three seventeen a", width) == lines
    assert fitting.fold("", width) == [""]


@pytest.mark.parametrize(
    ("width", "lines"),
    [
        (31, ["see (`etprof run x.toml`), then"]), (22, ["see", "(`etprof run x.toml`),", "then"]),
        (18, ["see", "etprof run x.toml", "then"]),
        (16, ["see", "etprof run \\", "x.toml", "then"]),
    ],
)  # fmt: skip
def test_a_command_in_a_sentence_stands_apart_only_where_no_line_holds_it(
    width: int, lines: list[str]
) -> None:
    assert fitting.fold("see (`etprof run x.toml`), then", width) == lines


def page(width: int) -> brief._TerminalPage:
    """A terminal that has all signs."""
    return brief._TerminalPage(width, in_ascii=False)


def lines_of(styled: Sequence[Any]) -> list[str]:
    """The texts of lines."""
    return [line.plain for line in styled]


@pytest.mark.parametrize(
    ("width", "shares", "sizes"),
    [
        (20, (0.5, 0.3, 0.2), (10, 6, 4)), (20, (1 / 3, 1 / 3, 1 / 3), (7, 6, 7)),
        (60, (0.5, 0.25, 0.25), (30, 15, 15)), (100, (0.5, 0.25, 0.25), (30, 15, 15)),
        (10, (0.75, 0.04), (8, 0)),
    ],
)  # fmt: skip
def test_a_bar_is_as_long_as_the_terminal_up_to_sixty(
    width: int, shares: tuple[float, ...], sizes: tuple[int, ...]
) -> None:
    parts = [BarPart(name, share) for name, share in zip("abc", shares, strict=False)]
    title, bar, *_ = lines_of(page(width).bar("Where", parts))
    assert title == "Where:"
    assert bar == "".join(sign * size for sign, size in zip("█▓▒", sizes, strict=False))


def test_a_bar_says_what_its_signs_mean_as_many_as_fit_a_line() -> None:
    parts = [BarPart("a", 0.5), BarPart("b", 0.3), BarPart("3 others", 0.2)]
    assert lines_of(page(22).bar("Where", parts))[2:] == ["█ a 50.0 %  ▓ b 30.0 %", "▒ 3 others"]
    assert lines_of(page(21).bar("Where", parts))[2:] == ["█ a 50.0 %", "▓ b 30.0 %", "▒ 3 others"]
    assert lines_of(page(22).bar("Where", parts[:1]))[2:] == ["█ a 50.0 %"]
    assert page(22).bar("Where", []) == []


TIMES = Table(
    "x",
    (Column("name", "string"), number("ns")),
    (("a", 1.0), ("b", 22.5), ("c", 3.0)),
    title="Times",
)


@pytest.mark.parametrize(
    ("room", "lines", "left_out"),
    [
        (5, ["Times", "name    ns", "a     1.00", "b     22.5", "c     3.00"], 0),
        (4, ["Times", "name    ns", "a     1.00", "b     22.5"], 1),
        (3, ["Times", "name    ns", "a     1.00"], 2),
        # A head with no row below it says nothing.
        (2, [], 3), (0, [], 3),
    ],
)  # fmt: skip
def test_a_table_has_the_rows_that_fit(room: int, lines: list[str], left_out: int) -> None:
    rows, left = page(40)._rows(TIMES, room)
    assert (lines_of(rows), left) == (lines, left_out)
    assert page(40)._rows(None, 9) == ([], 0)


def test_points_rows_and_lines_share_the_room() -> None:
    answer = Brief(
        points=(AnswerPoint("first", "etprof mend a"), AnswerPoint("second", "look")),
        table=TIMES, lines=("one", AnswerLine("two"), "three"),
    )  # fmt: skip
    everything = [
        "first", "   etprof mend a", "second", "   look", "Times", "name    ns", "a     1.00",
        "b     22.5", "c     3.00", "one", "two", "three",
    ]  # fmt: skip
    listed = {room: page(40).listed(answer, room) for room in (12, 11, 9, 8, 6)}
    assert {room: (len(lines), left) for room, (lines, left) in listed.items()} == {
        # In six lines no row fits below the table's head, so two of three lines stand there.
        12: (12, 0), 11: (11, 1), 9: (9, 3), 8: (8, 4), 6: (6, 4),
    }  # fmt: skip
    assert lines_of(listed[12][0]) == everything
    assert lines_of(listed[11][0]) == everything[:11]
    assert page(40).count_points(answer, 4) == 2
    assert page(40).count_points(answer, 3) == 1
    # What to do takes two lines; the worst finding is named in one.
    assert (page(40).count_points(answer, 1), page(40).count_points(answer, 0)) == (1, 0)
    assert page(40).has_room_for_first(answer, 2)
    assert not page(40).has_room_for_first(answer, 1)
    assert page(40).has_room_for_first(Brief(), 0)


def printed(answer: Brief, width: int = 40) -> list[str]:
    """The lines of an answer."""
    console = Console(width=width, file=io.StringIO())
    console.print(brief.render_brief(answer))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]


def test_an_answer_of_fifteen_lines_is_whole_and_of_sixteen_counts_what_is_left_out() -> None:
    def answer(count: int) -> Brief:
        return Brief((AnswerLine("head"),), lines=tuple(f"line {n}" for n in range(count)))

    assert printed(answer(14)) == ["head", *(f"line {n}" for n in range(14))]
    assert printed(answer(15)) == ["head", *(f"line {n}" for n in range(13)), "2 more: --full"]
    more = Brief((AnswerLine("head"),), lines=("one",), details=("later",))
    assert printed(more) == ["head", "one", "more: --full"]


def test_the_last_line_counts_the_findings_that_have_no_room() -> None:
    points = tuple(AnswerPoint(f"finding {n}", f"etprof mend {n}", findings=2) for n in range(9))
    answer = Brief(
        (AnswerLine("head"),), points=points, further_findings=3,
        ends=(FullOutputLine("etprof x --full"),),
    )  # fmt: skip
    lines = printed(answer, 80)
    # Six of nine points fit 13 lines; three of two findings each, and three of no point.
    assert lines[0] == "head"
    assert lines[1:-1] == [t for n in range(6) for t in (f"finding {n}", f"   etprof mend {n}")]
    assert lines[-1] == "All of it, with 9 more findings: etprof x --full"


@pytest.mark.parametrize(
    ("share", "length"),
    [(0.26, 3), (0.24, 2), (1.0, 10), (1.5, 10), (-1.0, 0), (None, 0), ("x", 0), (0.0, 0)],
)
def test_a_whole_is_ten_signs(share: float | str | None, length: int) -> None:
    assert terminal._bar(share) == "█" * length


SHARES = Table(
    "x", (Column("name", "string"), number("share", "share", has_bar=True)),
    (("alpha", 0.5), ("beta", 0.25)), title="Parts", note="of all",
)  # fmt: skip


def terminal_lines(*renderables: Any, width: int) -> list[str]:  # noqa: ANN401
    """What a terminal shows."""
    console = Console(width=width, file=io.StringIO())
    console.print(*renderables, sep="\n", crop=False)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined,no-any-return]


@pytest.mark.parametrize(("width", "bars"), [(31, [5, 2]), (30, []), (80, [5, 2])])
def test_a_bar_is_drawn_where_ten_signs_have_room(width: int, bars: list[int]) -> None:
    lines = terminal_lines(terminal.terminal_table(SHARES), width=width)
    assert (lines[0].strip(), lines[-1].strip()) == ("Parts", "of all")
    assert [line.count("█") for line in lines if "█" in line] == bars
    assert any(re.search(r"alpha\W+50\.0 %", line) for line in lines)


def test_what_has_no_room_is_named_and_a_path_stands_below() -> None:
    columns = (
        Column("name", "string"),
        number("nanoseconds"),
        Column("path", "string", is_whole=True),
    )
    table = Table("x", columns, (("alpha", 1.0, "in/a/rather/long/folder/net.py"),))
    lines = terminal_lines(terminal.terminal_table(table), width=24)
    assert "in/a/rather/long/folder/net.py" in lines
    assert not any("Left out" in line for line in lines)
    narrow = " ".join(terminal_lines(terminal.terminal_table(table), width=18))
    assert "Left out at this width: nanoseconds" in narrow


@pytest.mark.parametrize(
    ("count", "cuts_all", "rows", "note"),
    [
        (5, True, 3, "2 more rows; leave --top out for all"), (4, True, 4, ""), (3, True, 3, ""),
        (5, False, 5, ""),
    ],
)  # fmt: skip
def test_a_table_that_nothing_orders_is_cut_where_that_is_asked_for(
    count: int, cuts_all: bool, rows: int, note: str
) -> None:
    table = Table("x", (Column("name", "string"),), tuple((f"row{n}",) for n in range(count)))
    section = Section("a", "A", (table,), lead="lead", lines=("end",))
    first, *_ = terminal.terminal_sections([section], top=3, cuts_all=cuts_all)
    assert isinstance(first, terminal.TerminalTable)
    assert (len(first.table.rows), first.table.note) == (rows, note)


def test_an_ordered_table_has_its_largest_rows_and_one_for_the_rest() -> None:
    columns = (Column("name", "string"), number("ns", adds_up=True))
    table = Table("x", columns, tuple((f"r{n}", float(n)) for n in range(6)), by="ns")
    (first,) = terminal.terminal_sections([Section("a", "A", (table,))], top=3, cuts_all=True)
    assert isinstance(first, terminal.TerminalTable)
    assert first.table.rows == (("r5", 5.0), ("r4", 4.0), ("r3", 3.0), ("3 others", 3.0))


def test_a_phone_shows_names_and_times_and_a_page_what_is_for_everyone() -> None:
    columns = [
        shown("label"), shown("mean_ns", "float64"), shown("macs", "float64"),
        shown("is_sme", "boolean"), shown("path", visibility="page"),
        cells.ShownColumn(number("mean_ns"), "95 %", is_interval=True),
    ]  # fmt: skip
    assert html._levels(columns, 0) == [0, 0, 1, 2, 2, 2]
    assert html._levels(columns, 2) == [1, 0, 0, 2, 2, 2]
    # What was proven is hidden beside a column that is seen; without one it is shown.
    proven = [shown("label", visibility="page"), shown("kernels", visibility="page")]
    assert html._levels([*proven, shown("x")], 0) == [0, 2, 1]
    assert html._levels(proven, 0) == [0, 1]


def test_findings_have_anchors_and_rows_of_runs_lead_to_their_run() -> None:
    assert html._anchors(["F1", "F2", "F1", "F1"]) == ["F1", "F2", "F1-2", "F1-3"]
    columns = (number("number"), Column("class", "string"))
    runs, operators, others = (Table(name, columns) for name in ("runs", "operators", "x"))
    assert html._operator_of(runs, (3, "c"))["href"] == "#r2"
    assert html._operator_of(runs, (None, "c"))["href"] == "#r0"
    nothing = {"number": None, "class": None, "href": None}
    assert html._operator_of(operators, (3, "c")) == {"number": 3, "class": "c", "href": None}
    assert html._operator_of(others, (3, "c")) == nothing
    assert html._operator_of(Table("operators", columns[1:]), ("c",)) == nothing


def test_a_page_breaks_words_above_twenty_signs_and_marks_the_total() -> None:
    columns = (number("ns"), Column("name", "string"), Column("note", "string"))
    rows = ((1.0, "a" * 20, "b" * 21), (2.0, "Method::execute", "c " * 30))
    view = html._table_view(Table("x", columns, rows, title="Times"), "Times")
    assert view["long_columns"] == [False, False, True]
    assert (view["title"], view["name"], view["row_header"]) == ("", "Times", 1)
    assert [row["is_total"] for row in view["rows"]] == [False, True]
    assert (view["has_bars"], [row["bar"] for row in view["rows"]]) == (False, [None, None])
    named = html._table_view(Table("x", columns[:1], ((1.0,),), title="Other"), "Times")
    assert (named["title"], named["name"], named["row_header"]) == ("Other", "Other", 0)
    drawn = html._table_view(SHARES, "")
    assert [row["bar"].width for row in drawn["rows"]] == ["50.000", "25.000"]


@pytest.mark.parametrize(
    ("anchor", "rows", "is_sortable"),
    [("operators", (("a",),), True), ("operators", (), False), ("times", (("a",),), False)],
)
def test_operators_alone_are_sorted_on_a_page(
    anchor: str, rows: tuple[tuple[str], ...], is_sortable: bool
) -> None:
    table = Table("x", (Column("name", "string"),), rows)
    drawn = Table("y", table.columns, (("z",),), is_drawn=True)
    view = html._section_view(Section(anchor, "T", (table, drawn)))
    assert (view["is_sortable"], len(view["tables"])) == (is_sortable, len(rows))


def test_twenty_files_of_a_run_are_named() -> None:
    names = {f"f{n:02}" for n in range(21)}
    assert markdown._listed(names - {"f20"}) == ", ".join(f"f{n:02}" for n in range(20))
    assert markdown._listed(names).endswith("f18, f19, and 1 more")


@pytest.mark.parametrize(
    ("text", "cell"),
    [("=1", "'=1"), ("+1", "'+1"), ("-x", "'-x"), ("@a", "'@a"), ("a=1", "a=1"), (-1, -1), (None, None)],
)  # fmt: skip
def test_no_spreadsheet_runs_a_name(text: str | float | None, cell: str | float | None) -> None:
    assert files.safe_cell(text) == cell


def test_the_ninth_delegate_call_has_the_colour_of_the_first() -> None:
    report = MethodReport.model_validate({
        "operators": [
            {"name": f"n{call}", "operator": "aten.add", "inputs": [], "delegate": call}
            for call in range(9)
        ],
        "delegates": [{"name": "d", "backend": "B", "instruction": i, "nodes": []} for i in range(2)],
    })  # fmt: skip
    members = list(partitions.partitions(report).values())
    assert len({member.colour for member in members[:8]}) == 8
    assert members[8].colour == members[0].colour
    groups = [member.group for member in members[:3]]
    assert groups == ["delegate 0 (B)", "delegate 1 (B)", "delegate 2"]


def block(number: int, **figures: Any) -> BlockMetrics:  # noqa: ANN401
    """A launch that took 2 ms and 4 ms."""
    return BlockMetrics.model_validate({
        "block": number, "load": {"program_ns": 500_000, "method_ns": 1_000_000}, "memory": {},
        "latency_ns": [2_000_000, 4_000_000], "warmup_latency_ns": [], **figures,
    })  # fmt: skip


def test_the_dashboard_has_milliseconds_and_megabytes() -> None:
    memory = {"peak_rss_bytes": 3_000_000, "rss_after_load_bytes": 2_000_000, "pss_bytes": 500_000}
    blocks = [block(0, first_inference_ns=7_000_000, memory=memory), block(1)]
    metrics: Any = SimpleNamespace(blocks=blocks)
    assert hud.hud_metrics(metrics) == {
        "model_load_time(ms)": [1.5, 1.5],
        "first_inference_latency(ms)": [7.0],
        "avg_inference_latency(ms)": [2.0, 4.0, 2.0, 4.0],
        "trimmean_inference_latency(ms)": [3.0],
        "load_status": [1.0],
        "peak_load_mem_usage(mb)": [2.0],
        "peak_inference_mem_usage(mb)": [3.0],
        "ram_pss_usage(mb)": [0.5],
    }


def test_a_language_model_has_the_names_of_its_own_app() -> None:
    speed = {
        "time_to_first_token_ns": [9_000_000], "prefill_tokens_per_second": [100.0],
        "decode_tokens_per_second": [41.5, 42.5], "token_latency_ns": [1, 2],
    }  # fmt: skip
    metrics: Any = SimpleNamespace(blocks=[block(0, generation=speed), block(1)])
    assert hud._llm_metrics(metrics) == {
        "llm_model_load_time(ms)": [1.5],
        "generate_time(ms)": [2.0, 4.0],
        "token_per_sec": [41.5, 42.5],
        "time_to_first_token(ms)": [9.0],
    }


def test_what_the_dashboard_is_not_told_is_unknown() -> None:
    record = hud.hud_record(hud.HudSubject("e", pins={"executorch": None}), "m", (1.0, 2.0))
    assert record == {
        "benchmark": {
            "name": "etprof", "mode": "inference", "dtype": "unknown",
            "extra_info": {"experiment": "e", "sme": "None", "threads": "None"},
        },
        "model": {
            "name": "unknown", "type": "OSS model", "backend": "unknown", "origins": ["pytorch"],
            "extra_info": {"sha256": "unknown"},
        },
        "metric": {
            "name": "m", "benchmark_values": [1.0, 2.0], "target_value": 0.0, "extra_info": {},
        },
        "runners": [{
            "name": "unknown", "type": "unknown", "cpu_info": "unknown", "cpu_count": 0,
            "extra_info": {},
        }],
        "dependencies": {"executorch": {"version": "unknown", "extra_info": {}}},
    }  # fmt: skip


def test_formats_for_people_come_first_and_the_others_by_name() -> None:
    names = format_names()
    assert names[:2] == ("html", "md")
    assert list(names[2:]) == sorted(names[2:])
    assert "model-explorer" in names


@pytest.mark.parametrize(("lines", "has_bar"), [(4, True), (6, False)])
def test_a_bar_stands_beside_two_findings_or_gives_way(lines: int, has_bar: bool) -> None:
    """Of fourteen lines it takes three, and one is for the count of what is left out."""
    points = tuple(AnswerPoint("\n".join([f"finding {n}", *"a" * (lines - 1)])) for n in range(3))
    shown_lines = printed(
        Brief((AnswerLine("head"),), (BarPart("a", 1.0),), "Where", points=points)
    )
    assert ("Where:" in shown_lines) == has_bar
    assert sum(line.startswith("finding") for line in shown_lines) == 2


def test_the_whole_answer_has_everything_in_its_order() -> None:
    answer = Brief(
        (AnswerLine("head", "bold"),), table=TIMES, lines=("one", AnswerLine("two")),
        details=("detail",), ends=("end",),
    )  # fmt: skip
    lines = terminal_lines(*brief.render_full(answer), width=40)
    texts = [line for line in lines if line.isalpha()]
    assert texts == ["head", "Times", "one", "two", "detail", "end"]


@pytest.mark.parametrize(
    ("executions", "more"), [(8, ", 8 of them in the per-operator breakdown"), (9, "")]
)
def test_an_experiment_says_how_many_inferences_were_recorded(executions: int, more: str) -> None:
    split = SimpleNamespace(executions=executions, left_out=SimpleNamespace(recorded=9))
    subject: Any = SimpleNamespace(name="on", sme=None, threads=2, split=split)
    assert terminal._describe(subject) == f"on: 2 threads, 9 inferences recorded{more}"
