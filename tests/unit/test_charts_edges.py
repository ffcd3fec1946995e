"""Charts stand where their figures say: positions, lengths, ticks and labels worked out by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from etprof.run.directory import BlockMetrics
from etprof.tables.table import Column, Table
from etprof.views import charts
from tests.known_runs import Experiment, Op, Run, analyze

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.analysis.run_analysis import ExperimentAnalysis

UNITS = {
    "latency_ns": "ns", "sme_share": "share", "snr_db": "dB", "size_bytes": "bytes",
    "sme2_share": "share",
}  # fmt: skip
NUMBERS = {
    *UNITS, "parent", "depth", "mean_ns", "baseline_ns", "candidate_ns", "delta_ns", "median_ns",
    "at_most", "macs", "gflops", "macs_per_byte", "compute_peak", "bandwidth_peak", "of_roof",
}  # fmt: skip


def table_of(name: str, columns: str, *rows: tuple[Any, ...], **changes: Any) -> Table:  # noqa: ANN401
    """A table of columns that have the units of a report's."""
    declared = tuple(
        Column(column, "float64" if column in NUMBERS else "string", UNITS.get(column, ""))
        for column in columns.split()
    )
    return Table(name, declared, rows=tuple(rows), **changes)


def block(number: int, latency_ns: list[int], warmup_ns: list[int] | None = None) -> BlockMetrics:
    """What one launch measured."""
    return BlockMetrics.model_validate({
        "block": number, "load": {"program_ns": 1, "method_ns": 1}, "memory": {},
        "latency_ns": latency_ns, "warmup_latency_ns": warmup_ns or [],
    })  # fmt: skip


def experiment(name: str, *blocks: BlockMetrics, median: float | None = None) -> Any:  # noqa: ANN401
    """What the chart of latencies reads of an experiment."""
    latency = SimpleNamespace(steady=SimpleNamespace(median=median)) if median else None
    return SimpleNamespace(name=name, metrics=SimpleNamespace(blocks=blocks), latency=latency)


@pytest.mark.parametrize(
    ("value", "share"), [(10, 0.0), (100, 0.5), (1000, 1.0), (1, -0.5), (1e4, 1.5), (0, -5.0)]
)
def test_a_power_of_ten_is_half_of_an_axis_of_two_decades(value: float, share: float) -> None:
    assert charts._LogScale(10, 1000).share(value) == pytest.approx(share)


def test_an_axis_has_both_ends_and_the_geometric_middle() -> None:
    assert charts._LogScale(10, 1000).ticks() == ["10.0 ns", "100 ns", "1.00 µs"]
    # A clock that stood still: one nanosecond, and one per cent more.
    still = charts._LogScale(0, 0)
    assert (still.low, still.high) == (1.0, 1.01)
    assert (charts._LogScale(100, 100).low, charts._LogScale(100, 100).high) == (100, 101)
    assert charts._LogScale(100, 102).high == 102


@pytest.mark.parametrize(
    ("values", "end"),
    [
        # Median 105, absolute deviations 5 5 15 15 25 and a large one: 105 + 10 * 15 is the limit.
        ([80, 90, 100, 110, 120, 255], 255),
        ([80, 90, 100, 110, 120, 256], 120),
        # No spread: a tenth above the median.
        ([100, 100, 100, 110], 110),
        ([100, 100, 100, 111], 100),
        # Two of 41 may be left out, three may not.
        ([100] * 39 + [200] * 2, 100),
        ([100] * 38 + [200] * 3, 200),
    ],
)
def test_an_axis_ends_at_the_largest_value_that_is_not_far_off(
    values: list[float], end: float
) -> None:
    assert charts._upper_end([values]) == end
    assert charts._upper_end([[1.0], values, [2.0]]) == end


def test_a_row_has_the_colour_of_its_group() -> None:
    groups = table_of("x", "group mean_ns", ("Convolution", 1), ("Overhead", 1), ("all", 1))
    assert charts.row_colours(groups) == ["c0", "c5", ""]
    classes = table_of(
        "x", "label category class",
        ("a", "GEMM", "linear"), ("b", "Elementwise", None), ("c", "Data Movement", "layout"),
    )  # fmt: skip
    assert charts.row_colours(classes) == ["c1", "", "c2"]
    assert charts.row_colours(table_of("x", "label category", ("a", "GEMM"))) == [""]


@pytest.fixture(scope="module")
def experiments(tmp_path_factory: pytest.TempPathFactory) -> tuple[ExperimentAnalysis, ...]:
    """200 µs, 300 µs and 400 µs; the second has a mean outside, whose call takes 1 µs more."""
    conv, gemm = "Convolution (NHWC, F32) IGEMM #1", "Fully Connected (NC, F32) GEMM #1"
    runs = [
        Experiment("fast", [Op(conv, 20), Op(gemm, 180)]),
        Experiment("mixed", [Op(conv, 263), Op("native_call_mean.out", 36, 1)]),
        Experiment("slow", [Op(conv, 300), Op(gemm, 100)]),
    ]
    return tuple(analyze(tmp_path_factory.mktemp("runs") / "r", Run(runs)).experiments)


def test_stacks_share_one_scale_and_narrow_parts_have_no_text(
    experiments: tuple[ExperimentAnalysis, ...],
) -> None:
    view = charts.category_stacks(experiments)
    assert view is not None
    bars = [
        (bar["name"], bar["total"], [(p["colour"], p["width"], p["text"]) for p in bar["parts"]])
        for bar in view["bars"]
    ]
    assert [(entry["name"], entry["colour"]) for entry in view["legend"]] == [
        ("Convolution", "c0"), ("GEMM", "c1"), ("Other", "c4"), ("Overhead", "c5"),
    ]  # fmt: skip
    assert bars == [
        # 20 µs are a twentieth of the longest bar: no room for `10.0 %`.
        ("fast", "200 µs", [("c0", "5.000", ""), ("c1", "45.000", "90.0 %")]),
        # 9 % of the longest bar are room enough.
        (
            "mixed",
            "300 µs",
            [("c0", "65.750", "87.7 %"), ("c4", "9.000", "12.0 %"), ("c5", "0.250", "")],
        ),
        ("slow", "400 µs", [("c0", "75.000", "75.0 %"), ("c1", "25.000", "25.0 %")]),
    ]
    assert view["bars"][0]["parts"][0]["title"] == "Convolution: 20.0 µs, 10.0 %"


def test_a_timeline_is_laid_end_to_end_on_the_scale_of_the_longest(
    experiments: tuple[ExperimentAnalysis, ...],
) -> None:
    lines = charts.timelines(experiments)
    drawn = [
        (line["total"], [(bar["x"], bar["width"], bar["outside"]) for bar in line["bars"]])
        for line in lines
    ]
    assert drawn == [
        ("200 µs", [("0.00", "50.00", False), ("50.00", "450.00", False)]),
        (
            "300 µs",
            [("0.00", "657.50", False), ("657.50", "90.00", True), ("747.50", "2.50", False)],
        ),
        ("400 µs", [("0.00", "750.00", False), ("750.00", "250.00", False)]),
    ]
    bar = lines[1]["bars"][1]
    assert bar["title"] == "native_call_mean.out: 36.0 µs, 12.0 %"
    assert [bar["colour"] for bar in lines[0]["bars"]] == ["c0", "c1"]
    assert charts.timelines([]) == []
    assert charts.category_stacks([]) is None


def test_a_step_begins_where_the_last_one_ended() -> None:
    assert charts.step_bars(100, [-30, 20, 0], 90) == [
        ("0", "100.000", "total"),
        ("70.000", "30.000", "saved"),
        ("70.000", "20.000", "added"),
        ("90.000", "0.000", "same"),
        ("0", "90.000", "total"),
    ]
    # A step that leads above both totals is as long as the track.
    assert charts.step_bars(50, [50, -20], 80)[1:3] == [
        ("50.000", "50.000", "added"), ("80.000", "20.000", "saved"),
    ]  # fmt: skip
    assert [bar.width for bar in charts.step_bars(0, [], 0)] == ["0.000", "0.000"]
    assert charts.step_bars(0.4, [], 0.2)[1].width == "50.000"


def test_a_waterfall_has_its_totals_in_its_first_and_last_row() -> None:
    table = table_of(
        "waterfall", "step baseline_ns candidate_ns delta_ns",
        ("before", 200, None, 7), ("a", 1, 1, -50), ("b", 1, 1, None), ("after", None, 150, 7),
    )  # fmt: skip
    assert charts.bars_of(table) == [
        ("0", "100.000", "total"),
        ("75.000", "25.000", "saved"),
        ("75.000", "0.000", "same"),
        ("0", "75.000", "total"),
    ]
    assert charts.bars_of(table_of("waterfall", "step baseline_ns")) is None


@pytest.mark.parametrize(
    ("name", "unit", "widths"),
    [
        ("categories", "share", ["10.000", "0.000", "50.000"]),
        # Of many operators none is near the whole: the largest is as long as the track.
        ("operators", "share", ["20.000", "0.000", "100.000"]),
        ("categories", "ns", ["20.000", "0.000", "100.000"]),
    ],
)
def test_bars_of_shares_are_of_the_whole_but_for_operators(
    name: str, unit: str, widths: list[str]
) -> None:
    column = Column("share", "float64", unit, has_bar=True)
    table = Table(name, (Column("label", "string"), column), (("a", 0.1), ("b", None), ("c", 0.5)))
    bars = charts.bars_of(table)
    assert bars is not None
    assert [bar.width for bar in bars] == widths
    assert {(bar.offset, bar.colour) for bar in bars} == {("0", "total")}
    empty = Table(name, table.columns, (("a", None), ("b", None)))
    assert charts.bars_of(empty) is None
    assert charts.bars_of(table_of(name, "label mean_ns", ("a", 1))) is None


def test_no_bar_is_longer_than_its_track_or_shorter_than_nothing() -> None:
    widths = [bar.width for bar in charts.plain_bars([50, -1, 300], 200)]
    assert widths == ["25.000", "0.000", "100.000"]
    assert [bar.width for bar in charts.plain_bars([1, 4])] == ["25.000", "100.000"]
    assert [bar.width for bar in charts.plain_bars([0.0])] == ["0.000"]
    assert [bar.width for bar in charts.plain_bars([0.25], 0.0)] == ["100.000"]
    assert charts.plain_bars([]) == []


PROGRAMS = "program precision sme2_share snr_db size_bytes front"


def test_programs_stand_by_coverage_and_likeness_and_are_as_large_as_their_area() -> None:
    view = charts.dots_of(
        table_of(
            "programs", PROGRAMS,
            ("p1", "fp32", 0.0, 60.0, 400.0, False), ("p2", "fp16", 0.5, 40.0, 100.0, True),
            ("p3", "fp16", 1.0, 50.0, None, True), ("p4", "int8", None, 30.0, 900.0, True),
        )
    )  # fmt: skip
    assert view is not None
    assert [(d["x"], d["y"], d["r"], d["colour"]) for d in view["dots"]] == [
        (40.0, 40.0, 25.0, "c0"), (500.0, 280.0, 15.0, "c1"), (960.0, 160.0, 5.0, "c1"),
    ]  # fmt: skip
    assert [d["is_on_front"] for d in view["dots"]] == [False, True, True]
    assert (view["top"], view["bottom"]) == ("60.0 dB", "40.0 dB")
    assert view["legend"] == [
        {"name": "fp32", "colour": "c0"}, {"name": "fp16", "colour": "c1"},
    ]  # fmt: skip
    assert view["dots"][1]["title"] == "fp16, p2: 50.0 % on SME2, 40.0 dB, 100 B"


def test_programs_alike_stand_on_one_line_and_six_colours_are_taken_in_turns() -> None:
    rows = [(f"p{n}", f"x{n}", n / 7, 50.5, 0.0, True) for n in range(7)]
    view = charts.dots_of(table_of("programs", PROGRAMS, *rows))
    assert view is not None
    assert (view["top"], view["bottom"]) == ("50.5 dB", "")
    assert {d["y"] for d in view["dots"]} == {280.0}
    assert {d["r"] for d in view["dots"]} == {5.0}
    assert [d["colour"] for d in view["dots"]] == ["c0", "c1", "c2", "c3", "c4", "c5", "c0"]
    # A third of a decimal is kept to one place.
    assert [d["x"] for d in view["dots"]][:2] == [40.0, 171.4]
    assert charts.dots_of(table_of("programs", PROGRAMS, ("p", "x", 0.5, None, 1.0, True))) is None
    assert charts.dots_of(table_of("other", PROGRAMS, *rows)) is None
    reach = [("a", "x", 0.1, 20.0, 1.0, True), ("b", "x", 0.1, 20.5, 1.0, True)]
    near = charts.dots_of(table_of("programs", PROGRAMS, *reach))
    assert near is not None
    assert [d["y"] for d in near["dots"]] == [280.0, 40.0]


FRONT = "number run kind is_unbeaten latency_ns sme_share snr_db size_bytes"


def test_runs_are_named_with_their_figures_and_sizes_have_two_decimals() -> None:
    rows = [
        (1, "slow", "k0", False, 4e6, 0.5, 60.0, 400.0),
        (2, "fast", "k1", True, 1e6, 0.25, 30.0, 50.0),
        *((n, f"r{n}", f"k{n - 1}", False, 2e6, 0.1, 20.0, 0.0) for n in range(3, 8)),
    ]
    view = charts.front_of(table_of("front", FRONT, *rows))
    assert view is not None
    dots = view["dots"]
    # 1.6 + 1.4 √(50 / 400) = 2.0950; nothing is 1.6.
    assert [dot["size"] for dot in dots[:3]] == [3.0, 2.09, 1.6]
    assert [dot["bottom"] for dot in dots[:3]] == ["100.000", "25.000", "0.000"]
    assert [dot["colour"] for dot in dots] == ["c0", "c1", "c2", "c3", "c4", "c5", "c0"]
    assert [entry["colour"] for entry in view["legend"]] == [dot["colour"] for dot in dots]
    assert dots[1]["title"] == "fast, latency ns 1.00 ms, snr db 30.0 dB, size bytes 50 B"
    assert view["across"] == ["latency ns", "0 ns", "4.00 ms"]
    assert view["up"] == ["snr db", "20.0 dB", "60.0 dB"]
    assert view["left_out"] == 0
    assert charts.front_of(table_of("runs", FRONT, *rows)) is None


def test_without_times_and_likeness_the_axes_are_work_on_sme_and_size() -> None:
    rows = [
        (1, "a", "k", True, None, 0.5, None, 400.0),
        (2, "b", "k", True, None, 1.0, None, 100.0),
        (3, "c", "k", True, None, None, None, 100.0),
        (4, "d", "k", True, None, 0.5, None, None),
    ]
    view = charts.front_of(table_of("front", FRONT, *rows))
    assert view is not None
    assert view["across"] == ["sme share", "0.0 %", "100.0 %"]
    # Above stands the smaller: from the largest at the bottom to nothing at the top.
    assert view["up"] == ["size bytes", "400 B", "0 B"]
    assert [(float(d["left"]), float(d["bottom"])) for d in view["dots"]] == [
        (50.0, 0.0), (100.0, 75.0),
    ]  # fmt: skip
    assert view["left_out"] == 2
    alone = charts.front_of(table_of("front", FRONT, (1, "a", "k", True, 0.0, 0.5, 20.0, 0.0)))
    assert alone is not None
    (dot,) = alone["dots"]
    # One run alone stands in the middle; a clock that stood still is at the left.
    assert (dot["left"], dot["bottom"], dot["size"]) == ("0.000", "50", 1.6)
    assert (
        charts.front_of(table_of("front", FRONT, (1, "a", "k", True, 5.0, 1, None, None))) is None
    )


def test_boxes_stand_in_their_parents_and_are_as_wide_as_both_sides() -> None:
    table = table_of(
        "icicle_changes", "name group parent depth baseline_ns candidate_ns",
        ("net", "", None, 0, 1000.0, 500.0), ("conv", "Convolution", 0, 1, 600.26, 100.0),
        ("gemm", "GEMM", 0, 1, 100.0, 125.0), ("bias", "Elementwise", 2, 2, None, 25.04),
    )  # fmt: skip
    view = charts.icicle_of(table)
    assert view is not None
    root = view["root"]
    assert view["depth"] == 3
    assert view["sides"] == [("baseline ns", "100.000"), ("candidate ns", "50.000")]
    assert root["weights"] == [1000.0, 500.0, 750.0]
    assert root["texts"] == ["1.00 µs", "500 ns", "−500 ns"]
    conv, gemm = root["inside"]
    (bias,) = gemm["inside"]
    assert (conv["weights"], conv["colour"]) == ([600.3, 100.0, 350.1], "c0")
    assert (bias["weights"], bias["colour"]) == ([0.0, 25.0, 12.5], "c3")
    changes = [box["change"] for box in (root, conv, gemm, bias)]
    assert changes == ["saved3", "saved3", "added2", "added3"]
    assert (root["colour"], conv["inside"]) == ("", [])


def test_boxes_of_one_side_have_no_name_and_need_no_time() -> None:
    columns = "name group parent depth mean_ns"
    view = charts.icicle_of(table_of("icicle", columns, ("net", "", None, 0, 0.0)))
    assert view is not None
    assert view["sides"] == [("", "0.000")]
    assert (view["depth"], view["root"]["weights"]) == (1, [0.0, 0.0])
    half = charts.icicle_of(table_of("icicle", columns, ("net", "", None, 0, 0.4)))
    assert half is not None
    assert half["sides"] == [("", "100.000")]
    assert charts.icicle_of(table_of("icicle", columns)) is None
    assert charts.icicle_of(table_of("operators", columns, ("net", "", None, 0, 1.0))) is None


@pytest.mark.parametrize(
    ("before", "after", "shade"),
    [
        (100, 95.1, "same0"), (95, 100, "added1"), (100, 95, "saved1"), (81, 100, "added1"),
        (80, 100, "added2"), (51, 100, "added2"), (50, 100, "added3"), (100, 50, "saved3"),
        (0, 0.1, "added3"), (0, 0, "same0"), (0.25, 0.5, "added3"), (0.5, 0.475, "saved1"),
    ],
)  # fmt: skip
def test_a_shade_is_deeper_from_a_twentieth_a_fifth_and_a_half_on(
    before: float, after: float, shade: str
) -> None:
    assert charts._change_shade(before, after) == shade


LAUNCHES = "experiment median_ns at_most"


def test_a_distribution_rises_at_each_launch_and_ends_at_the_right() -> None:
    rows = [("off", 100.0, 0.5), ("off", 200.0, 1.0), ("on", 100.0, 0.25), ("on", 150.0, 0.75)]
    view = charts.steps_of(table_of("launches", LAUNCHES, *rows))
    assert view is not None
    # From 99 to 202 ns: ln(100/99) / ln(202/99) = 0.0141, ln(150/99) / … = 0.5826, 200: 0.9860.
    assert [line["path"] for line in view["lines"]] == [
        "M0 200.0H14.1V100.0H986.0V0.0H1000.0",
        "M0 200.0H14.1V150.0H582.6V50.0H1000.0",
    ]
    assert [(line["name"], line["colour"], line["count"]) for line in view["lines"]] == [
        ("off", "c0", 2), ("on", "c1", 2),
    ]  # fmt: skip
    assert view["ticks"] == ["99.0 ns", "141 ns", "202 ns"]
    assert view["beyond"] == 0


def test_a_launch_far_off_is_counted_and_a_seventh_line_has_the_first_colour() -> None:
    rows = [(f"e{n}", 100.0, share) for n in range(7) for share in (0.25, 0.5, 0.75)]
    view = charts.steps_of(table_of("launches", LAUNCHES, *rows, ("e6", 5000.0, 1.0)))
    assert view is not None
    assert view["beyond"] == 1
    assert view["ticks"][2] == "101 ns"
    assert [line["colour"] for line in view["lines"]] == ["c0", "c1", "c2", "c3", "c4", "c5", "c0"]
    assert view["lines"][6]["count"] == 4
    # ln(100/99) / ln(101/99) = 0.5025: the far launch is not drawn.
    assert view["lines"][6]["path"] == "M0 200.0H502.5V150.0H502.5V100.0H502.5V50.0H1000.0"
    still = charts.steps_of(table_of("launches", LAUNCHES, ("e", None, None)))
    assert still is not None
    assert still["lines"][0]["path"].endswith("V200.0H1000.0")
    assert charts.steps_of(table_of("runs", LAUNCHES, *rows)) is None


INTENSITY = (
    "number name category class macs gflops macs_per_byte compute_peak bandwidth_peak of_roof bound"
)


def test_operators_stand_on_decades_below_a_roof_of_each_stream() -> None:
    view = charts.roofline_of(
        table_of(
            "intensity", INTENSITY,
            (1, "a", "GEMM", "linear", 5, 10.0, 10.0, 1000.0, 1.0, None, ""),
            (2, "b", "Convolution", "convolution", 5, 10**2.5, 1000.0, 1000.0, 10.0, 0.25, "memory"),
            (3, "c", "GEMM", "linear", 5, None, 100.0, None, None, None, ""),
        )
    )  # fmt: skip
    assert view is not None
    assert view["columns"] == [(60.0, "10.0"), (366.7, "100"), (673.3, "1000"), (980.0, "10000")]
    assert view["rows"] == [(290.0, "10.0"), (200.0, "100"), (110.0, "1000"), (20.0, "10000")]
    assert [(d["x"], d["y"], d["number"], d["colour"]) for d in view["dots"]] == [
        (60.0, 290.0, 1, "c1"), (673.3, 155.0, 2, "c0"),
    ]  # fmt: skip
    assert [d["title"] for d in view["dots"]] == [
        "a: 10.0 MACs per byte, 10.0 GFLOP/s",
        "b: 1000 MACs per byte, 316 GFLOP/s, 25.0 % of its roof (memory)",
    ]
    # 1000 GFLOP/s are reached at 500 MACs a byte of 1 GB/s, at 50 of 10 GB/s.
    assert [(roof["title"], roof["path"]) for roof in view["roofs"]] == [
        ("1000 GFLOP/s, 1.00 GB/s", "M60.0 262.9L581.0 110.0L980.0 110.0"),
        ("1000 GFLOP/s, 10.0 GB/s", "M60.0 172.9L274.4 110.0L980.0 110.0"),
    ]
    assert view["height"] == "GFLOP/s"


@pytest.mark.parametrize(
    ("rate", "path"),
    [
        # From below at 100 MACs a byte, up to the corner at the right end.
        (0.05, "M366.7 290.0L980.0 110.0L980.0 110.0"),
        # A corner at 100 000 MACs a byte is outside; the slope ends at 100 GFLOP/s.
        (0.005, "M673.3 290.0L980.0 200.0"),
        # A corner at the left end or before it leaves the level line alone.
        (50.0, "M60.0 110.0L980.0 110.0"),
        (500.0, "M60.0 110.0L980.0 110.0"),
    ],
)
def test_a_roof_is_cut_at_the_edges_of_the_chart(rate: float, path: str) -> None:
    line = charts._roof_line(1000.0, rate, (1, 4), (1, 4))
    assert line is not None
    assert line["path"] == path
    assert charts._roof_line(1000.0, 0.00005, (1, 4), (1, 4)) is None


@pytest.mark.parametrize(
    ("exponent", "text"),
    [(4, "10000"), (5, "10⁵"), (-5, "10⁻⁵"), (-2, "0.0100"), (0, "1.00"), (12, "10¹²")],
)
def test_a_large_power_of_ten_has_an_exponent(exponent: int, text: str) -> None:
    assert charts._power_of_ten(exponent) == text


def test_the_least_figure_of_a_table_is_shaded_most_and_the_largest_not() -> None:
    rows = (("a", 10, 30.0, None), ("b", 20, 25.0, 10))
    table = table_of("x", "name mean_ns macs gflops", *rows, is_shaded=True)
    assert charts.shades_of(table) == [[None, 100.0, 0, None], [None, 40, 20, 100.0]]
    plain = table_of("x", "name mean_ns macs gflops", *rows)
    assert charts.shades_of(plain) == [[None] * 4, [None] * 4]
    half = table_of("x", "mean_ns macs gflops", (0.2, 0.3, 0.4), is_shaded=True)
    assert charts.shades_of(half) == [[100.0, 40, 0]]
    assert charts.shades_of(table_of("x", "name", ("a",), is_shaded=True)) == [[None]]


def test_a_launch_has_its_warm_up_at_the_left_and_then_its_samples() -> None:
    scale = charts._LogScale(10, 1000)
    blocks = [block(0, [10, 1000, 100], [10, 1000]), block(4, [100])]
    assert charts._sample_blocks(blocks, scale) == [
        {
            "number": 1, "x": "0.0", "median": "100.0", "end": "475.0",
            # 15 % of 500 units; then 75 % from 18 % on.
            "warmup": "M0.0 200.0h0M37.5 0.0h0",
            "steady": "M90.0 200.0h0M215.0 0.0h0M340.0 100.0h0",
        },
        {
            "number": 5, "x": "500.0", "median": "100.0", "end": "975.0", "warmup": "",
            "steady": "M590.0 100.0h0",
        },
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("count", "drawn"), [(149, 149), (150, 150), (299, 299), (300, 150), (451, 151)]
)
def test_many_samples_are_thinned_evenly(count: int, drawn: int) -> None:
    path = charts._dots([100] * count, 0.0, 1000.0, charts._LogScale(10, 1000))
    starts = [float(dot.partition(" ")[0]) for dot in path.split("M")[1:]]
    assert len(starts) == drawn
    assert starts == pytest.approx([1000 * n / drawn for n in range(drawn)], abs=0.051)


def test_a_sample_beyond_the_scale_sticks_to_its_edge() -> None:
    scale = charts._LogScale(10, 1000)
    heights = [charts._height(value, scale) for value in (0, 1, 10, 100, 1000, 1e6)]
    assert heights == pytest.approx([200, 200, 200, 100, 0, 0])


def test_latencies_have_an_axis_from_below_the_least_to_above_the_largest() -> None:
    warmups = [500, 600, 1020, 1021, 550]
    runs = [experiment("off", block(0, [100, 1000], warmups), median=550.0), experiment("none")]
    view = charts.latency_chart(runs)
    assert view is not None
    # 98 to 1020 ns; the middle of the logarithms is √(98 * 1020).
    assert view["ticks"] == ["98.0 ns", "316 ns", "1.02 µs"]
    assert (view["count"], view["beyond"]) == ("2", 1)
    assert [(p["name"], p["median"], len(p["blocks"])) for p in view["panels"]] == [
        ("off", "550 ns", 1)
    ]
    assert charts.latency_chart([experiment("none")]) is None


@pytest.mark.parametrize(
    ("blocks", "highest"),
    [
        # A launch far off is inside the axis, and so is the median of the warm-up.
        ([*(block(n, [100]) for n in range(20)), block(20, [9000])], "9.18 µs"),
        ([block(0, [100], [2000, 3000, 90])], "2.04 µs"),
        ([block(0, [100], [90])], "102 ns"),
        ([block(0, [100, 100, 100, 111])], "102 ns"),
    ],
)
def test_the_axis_of_latencies_ends_above_every_median(
    blocks: list[BlockMetrics], highest: str
) -> None:
    view = charts.latency_chart([experiment("off", *blocks)])
    assert view is not None
    assert view["ticks"][0] == "98.0 ns"
    assert view["ticks"][2] == highest
    assert view["panels"][0]["median"] == ""


def test_a_clock_that_stood_still_has_nothing_to_draw(tmp_path: Path) -> None:
    idle = Experiment("still", [Op("Convolution (NHWC, F32) IGEMM #1", 0)], latency_us=[1.0])
    still = analyze(tmp_path / "r", Run([idle])).experiments
    stacks = charts.category_stacks(still)
    assert stacks is not None
    assert [(bar["total"], bar["parts"]) for bar in stacks["bars"]] == [("0 ns", [])]
    assert [(line["total"], line["bars"]) for line in charts.timelines(still)] == [("0 ns", [])]
