"""Figures, places, limits and orders of the dashboard's pages, worked out by hand."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from etprof.dashboard import judging, parts
from etprof.dashboard.addresses import (
    ExportedLinks,
    ServedLinks,
    file_name,
    file_word,
    make_address,
    matches_search,
    pages,
)
from etprof.dashboard.chart import Line, Scale, sparkline, trend_chart
from etprof.dashboard.queries import (
    Series,
    TrendPoint,
    differ_in_sme_only,
)
from etprof.dashboard.views import compare, models, overview, run, sides, trend
from etprof.dashboard.visit import Catalogue, Visit, metric_key
from etprof.history import tables
from etprof.history.check import CheckedMetric, CheckRequest, CheckResult, title_of
from etprof.history.gate import Judgement
from etprof.history.ingest import metric_of
from etprof.history.schema import Metric, Run
from etprof.history.trend import LevelChange, StepInDoubt
from etprof.statistics.change_points import ChangePoint
from tests.run_rows import START, later, row_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def point(
    number: int,
    value: float | None,
    *,
    hour: float = 0.0,
    **facts: Any,  # noqa: ANN401
) -> TrendPoint:
    """A run of a trend."""
    usual = {"commit": None, "branch": None, "low": None, "high": None}
    moment = START + timedelta(hours=hour)
    return TrendPoint(run_id=number, measured_at=moment, value=value, **{**usual, **facts})


def line_of(
    *points: TrendPoint, name: str = "SME off", changes: Sequence[ChangePoint] = ()
) -> Line:
    """A line of the chart."""
    return Line(name, "off", points, changes)


def test_an_axis_leaves_a_twentieth_of_its_reach_on_both_sides() -> None:
    ends = line_of(point(1, 200.0, low=100.0, high=250.0), point(2, 300.0))
    scale = Scale([ends], "time")
    assert (scale.low, scale.high) == (90, 310)
    assert [scale.y(value) for value in (310.0, 200.0, 90.0)] == pytest.approx([0, 138, 276])


@pytest.mark.parametrize(
    ("values", "low", "high"),
    [
        ((0.0, 100.0), 0.0, 105.0),  # nothing is shown below zero
        ((-10.0, 10.0), -11.0, 11.0),
        ((8.0, 8.0), 7.6, 8.4),
        ((0.0, 0.0), 0.0, 0.05),
        ((-4.0, -4.0), -4.2, -3.8),
    ],
)
def test_an_axis_has_a_reach_whatever_the_values(
    values: tuple[float, float], low: float, high: float
) -> None:
    scale = Scale([line_of(*(point(i, v) for i, v in enumerate(values)))], "time")
    assert (scale.low, scale.high) == pytest.approx((low, high))


def test_runs_lie_by_time_or_one_after_the_other() -> None:
    runs = [point(1, 5.0), point(2, None, hour=6, failure="x"), point(3, 5.0, hour=24)]
    by_time, by_commit = (Scale([line_of(*runs)], axis) for axis in ("time", "commits"))
    assert [by_time.x(moment) for moment in runs] == [0, 250, 1000]
    assert [by_commit.x(moment) for moment in runs] == [0, 500, 1000]
    alone = Scale([line_of(runs[0])], "time")
    assert (alone.time(runs[0]), alone.order(runs[0])) == (500, 500)


def test_a_chart_has_its_edges_and_its_lines_in_figures() -> None:
    runs = (
        point(1, 200.0, low=150.0, high=250.0, commit="0123456789abcdef", branch="main"),
        point(2, 300.0, hour=12),
        point(3, None, hour=18, failure="out of memory"),
        point(4, 100.0, hour=24),
    )
    change = ChangePoint(start=2, earliest=1, latest=2, probability=0.99)
    view = trend_chart([line_of(point(9, None)), line_of(*runs, changes=[change])], "ns", "commits")
    assert view is not None
    ends = {name: view[name] for name in ("width", "height", "floor", "half", "drawn", "total")}
    assert ends == {
        "width": "1000", "height": "300", "floor": "276", "half": "138", "drawn": 3, "total": 3,
    }  # fmt: skip
    assert (view["top"], view["middle"], view["bottom"]) == ("310 ns", "200 ns", "90.0 ns")
    assert (view["first"], view["last"]) == ("2026-09-01 03:00 UTC", "2026-09-02 03:00 UTC")
    assert view["has_failures"] is True
    (drawn,) = view["lines"]
    assert (drawn["style"], drawn["name"], drawn["sme"]) == ("line0", "SME off", "off")
    assert drawn["path"] == "M0.0 138.0L333.3 12.5L1000.0 263.5"
    assert [mark["x"] for mark in drawn["changes"]] == ["1000.0"]
    assert [mark["x"] for mark in drawn["changes"][0]["band"]] == ["333.3", "1000.0"]
    first, second, _ = drawn["points"]
    assert first["whisker"] == "M0 -62.7V62.7"
    assert second["whisker"] == "M0 0.0V0.0"
    assert first["title"] == (
        "SME off, 2026-09-01 03:00 UTC, commit 0123456789, main: 200 ns (150 … 250 ns)"
    )
    assert second["title"] == "SME off, 2026-09-01 15:00 UTC: 300 ns"
    assert (second["time"], second["order"], second["run_id"]) == ("500.0", "333.3", 2)
    (failure,) = drawn["failures"]
    assert failure["title"] == "SME off, 2026-09-01 21:00 UTC: failed, out of memory"
    assert trend_chart([line_of(point(9, None))], "ns", "time") is None


@pytest.mark.parametrize(("lines", "runs", "drawn"), [(2, 251, 500), (1, 500, 500), (30, 21, 600)])
def test_lines_share_five_hundred_points_and_have_twenty_at_least(
    lines: int, runs: int, drawn: int
) -> None:
    many = line_of(*(point(i, 100.0 + i % 7, hour=i) for i in range(runs)))
    view = trend_chart([many] * lines, "ns", "time")
    assert view is not None
    assert (view["drawn"], view["total"]) == (drawn, lines * runs)
    assert view["has_failures"] is False
    assert [entry["style"] for entry in view["lines"][:6]] == [
        f"line{i % 4}" for i in range(min(lines, 6))
    ]


def test_a_new_level_is_drawn_on_a_thinned_line_and_of_failures_the_newest() -> None:
    values = [point(i, 100.0, hour=i) for i in range(40)]
    failures = [point(100 + i, None, hour=50 + i, failure="x") for i in range(30)]
    starts = {15, 16, 17, 18}  # more of a stretch than every second point
    changes = [ChangePoint(start=i, earliest=i, latest=i, probability=1.0) for i in starts]
    thinned = line_of(*values, *failures, changes=changes)
    view = trend_chart([thinned] * 25, "ns", "time")
    assert view is not None
    drawn = view["lines"][0]
    assert starts < {mark["run_id"] for mark in drawn["points"]} < set(range(40))
    assert [mark["run_id"] for mark in drawn["failures"]] == list(range(110, 130))


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ([1.0, 2.0, 3.0], "M0 66L150 36L300 6"),
        ([4.0, 2.0], "M0 6L300 66"),
        ([5.0, 5.0], "M0 66L300 66"),
        ([0.0, 10.0, 5.0, 10.0], "M0 66L100 6L200 36L300 6"),
        ([1.0], None),
        ([], None),
    ],
)
def test_a_sparkline_rises_from_the_foot_of_its_box(values: list[float], path: str | None) -> None:
    assert sparkline(values) == path


def test_pages_of_the_menu_come_first() -> None:
    assert list(pages()) == [
        "overview", "models", "failures", "compare", "report", "run", "sides", "trend",
    ]  # fmt: skip


def test_an_address_has_no_defaults_and_nothing_unknown() -> None:
    values = {"metric": "latency_ns", "branch": "a\nb", "model": "a\0b", "who": "me", "page": "2"}
    address = make_address("overview", {**values, "device": "b", "threads": ""})
    assert address.values == {"branch": "a\\nb", "page": "2", "device": "b"}
    assert (address["metric"], address["model"], address.part) == ("latency_ns", "", 2)
    assert address.filters == {"device": "b"}
    assert address.without_filters().values == {"branch": "a\\nb"}


@pytest.mark.parametrize(
    ("value", "word"),
    [
        ("", "all"),
        ("fp32", "fp32"),
        ("a" * 48, "a" * 48),
        # With a digest, so that no other text has the same word.
        ("all", "all."),
        ("A b//ç", "A_b_."),
    ],
)
def test_a_file_word_is_the_name_where_that_is_plain(value: str, word: str) -> None:
    digest = hashlib.sha256(value.encode()).hexdigest()[:10]
    assert file_word(value) == (f"{word}{digest}" if word.endswith(".") else word)


def test_a_long_file_word_is_cut_at_32() -> None:
    assert [len(file_word("b" * length)) for length in (48, 49, 200)] == [48, 43, 43]


def test_every_word_is_looked_for_in_any_spelling() -> None:
    facts = {"model": "MobileNet", "device": "Phone A"}
    looked_for = ["mobile PHONE", "net phone", "mobile tablet", ""]
    assert [matches_search(text, facts) for text in looked_for] == [True, True, False, True]


def test_served_links_name_runs_by_their_keys() -> None:
    links = ServedLinks(lambda number: f"key{number}")
    address = make_address("compare", {"baseline": "3", "candidate": "x4"})
    assert links.href(address) == "compare?baseline=key3&candidate=x4"
    assert links.href(make_address("overview", {})) == "overview"
    assert links.pattern(address) == "compare"


def test_exported_links_are_files_with_their_filters_as_a_query() -> None:
    links = ExportedLinks(lambda address: address["model"] != "secret")
    sides_of = make_address("sides", {"model": "net", "device": "Phone A"})
    assert links.href(sides_of) == "sides-net-precision-latency_ns.html?device=Phone+A"
    assert links.href(make_address("sides", {"model": "secret"})) is None
    assert links.href(make_address("overview", {})) == "overview-latency_ns-all.html"
    assert {name: address.values for name, address in links.pages.items()} == {
        "sides-net-precision-latency_ns.html": {"model": "net"},
        "overview-latency_ns-all.html": {},
    }
    assert links.pattern(sides_of) == "sides-{model}-{by}-{metric}.html"
    assert file_name(make_address("failures", {"model": "net"})) == "failures.html"


def visit_of(
    view: str, values: Mapping[str, str], *, is_exported: bool = False, catalogue: object = None
) -> Visit:
    links = ExportedLinks(lambda _: True) if is_exported else ServedLinks()
    return Visit(make_address(view, values), links, cast("Catalogue", catalogue))


@pytest.mark.parametrize(
    ("rows", "page", "first", "last", "neighbours"),
    [
        (0, "1", 1, 0, (None, None)),
        (50, "1", 1, 50, (None, None)),
        (51, "1", 1, 50, (None, "2")),
        (101, "2", 51, 100, ("1", "3")),
        (101, "3", 101, 101, ("2", None)),
        (100, "9", 51, 100, ("1", None)),
    ],
)
def test_a_list_is_shown_fifty_rows_at_a_time(
    rows: int, page: str, first: int, last: int, neighbours: tuple[str | None, str | None]
) -> None:
    visit = visit_of("failures", {"page": page, "model": "net"})
    visible, pager = parts.paginate(visit, range(1, rows + 1), "run")
    assert list(visible) == list(range(first, last + 1))
    assert (pager["first"], pager["last"], pager["shown"]) == (first, last, last - first + 1)
    assert (pager["total"], pager["words"]) == (rows, "1 run" if rows == 1 else f"{rows} runs")
    assert [pager[side] and pager[side]["page"] for side in ("earlier", "later")] == [*neighbours]
    assert {pager[side]["model"] for side in ("earlier", "later") if pager[side]} <= {"net"}


def test_an_exported_page_has_the_whole_list() -> None:
    visit = visit_of("failures", {"page": "2"}, is_exported=True)
    visible, pager = parts.paginate(visit, range(120), "run")
    assert (len(visible), pager["later"], pager["earlier"]) == (120, None, None)


def test_a_form_offers_what_rows_have_and_what_is_chosen() -> None:
    visit = visit_of("overview", {"branch": "main", "device": "gone", "find": "x"})
    rows = [{"device": "b", "threads": ""}, {"device": "a", "threads": "2"}, {"device": "b"}]
    form = parts.filter_form(visit, rows, metric=["latency_ns", "load_ns"])
    fields = {
        field["name"]: (field["label"], field["value"], [o["value"] for o in field["options"]])
        for field in form["fields"]
    }
    assert fields == {
        "metric": ("Metric", "latency_ns", ["latency_ns", "load_ns"]),
        "find": ("Search", "x", []),
        "model": ("Model", "", [""]),
        "device": ("Device", "gone", ["", "a", "b", "gone"]),
        "precision": ("Precision", "", [""]),
        "backend": ("Backend", "", [""]),
        "threads": ("Threads", "", ["", "2"]),
    }
    assert [field.get("is_subject") for field in form["fields"]] == [True, None, *[False] * 5]
    metric = form["fields"][0]
    assert [option["label"] for option in metric["options"]] == ["Inference, median", "Load"]
    assert form["fields"][3]["options"][0]["label"] == "any"
    assert form["hidden"] == [{"name": "branch", "value": "main", "word": "main"}]
    assert (form["reset"].values, form["is_filtered"]) == ({"branch": "main"}, True)
    assert parts.filter_form(visit_of("overview", {}), [])["is_filtered"] is False


def test_sme_modes_stand_from_nothing_to_everything() -> None:
    modes = ["later", "sme2", "off", "sme1", "auto"]
    assert sorted(modes, key=parts.sme_key) == ["off", "auto", "sme1", "sme2", "later"]


def test_a_row_passes_filters_that_it_knows_nothing_of() -> None:
    facts = {"model": "net", "threads": "2"}
    filters = [{"model": "net"}, {"threads": "1"}, {"branch": "x"}, {"find": "NET"}, {"find": "z"}]
    assert [parts.passes(facts, chosen) for chosen in filters] == [True, False, True, True, False]


def test_a_variant_is_named_without_what_is_unknown() -> None:
    runs = row_of("a", threads=2, variant="CPUs 4,5"), row_of("b", threads=None, precision=None)
    assert parts.config_label(runs[0]) == "Phone · fp32 · xnnpack · forward · 2 threads · CPUs 4,5"
    assert parts.variant_label(runs[1], "method") == "xnnpack"
    assert parts.facts_of(runs[1]) == {
        "model": "net", "device": "Phone", "precision": "", "backend": "xnnpack", "threads": "",
        "sme": "off", "branch": "main",
    }  # fmt: skip


JUDGED = Judgement("regression", 0.25, 0.0, 1.0, 0.05, "why")


@pytest.mark.parametrize(
    ("higher", "speed_up", "interval"),
    [(False, "0.80×", "0.50× … 1.00×"), (True, "1.25×", "1.00× … 2.00×")],
)
def test_a_speed_up_is_the_inverse_of_a_times_change(
    higher: bool, speed_up: str, interval: str
) -> None:
    metric = cast("Metric", SimpleNamespace(higher_is_better=higher))
    view = judging._speed_up(JUDGED, metric)
    assert (view["speed_up"], view["speed_up_interval"]) == (speed_up, interval)
    bare = judging._speed_up(Judgement("unchanged", 1.0, None, None, 0.05, ""), metric)
    assert bare == {"speed_up": "2.00×" if higher else "0.500×", "speed_up_interval": ""}
    # Half of the interval is 0.09, of which two digits are three decimals.
    ends = (-0.59, -0.5, -0.41) if higher else (1 / 0.59 - 1, 1.0, 1 / 0.41 - 1)
    wide = Judgement("inconclusive", ends[1], ends[0], ends[2], 0.05, "")
    assert judging._speed_up(wide, metric)["speed_up"] == "0.500×"
    none = Judgement("inconclusive", None, None, None, 0.05, "")
    assert judging._speed_up(none, metric) == {}
    assert judging._interval_text(JUDGED) == "0.0 % … +100.0 %"
    assert judging._interval_text(none) == ""


def test_metrics_stand_with_the_headline_first_and_unknown_ones_last() -> None:
    names = ["zz", "aa", "load_ns", "latency_ns"]
    assert sorted(names, key=metric_key) == ["latency_ns", "load_ns", "aa", "zz"]


def test_two_runs_differ_in_sme_alone_by_revision_else_by_origin() -> None:
    same, unknown, else_where = (
        row_of("a", revision="1" * 16), row_of("b", run_name="r"), row_of("c", run_name="s"),
    )  # fmt: skip
    assert differ_in_sme_only(same, row_of("d", revision="1" * 16))
    assert not differ_in_sme_only(same, row_of("d", revision="2" * 16))
    assert not differ_in_sme_only(same, unknown)
    assert not differ_in_sme_only(unknown, same)
    assert differ_in_sme_only(unknown, row_of("d", run_name="r"))
    assert not differ_in_sme_only(unknown, else_where)
    assert not differ_in_sme_only(unknown, row_of("d", run_name="r", **later(1)))


def sample_metric(*samples: float) -> Metric:
    facts = {**metric_of("latency_ns", samples or [1.0]), "samples": samples}
    return Metric(**facts)


def test_blocks_are_dots_on_a_line_with_a_margin() -> None:
    strip = run._strip(sample_metric(100.0, 300.0, 150.0))
    assert strip == {
        "dots": ["20.0", "980.0", "260.0"], "low": "100 ns", "high": "300 ns", "count": 3,
    }  # fmt: skip
    level = run._strip(sample_metric(7.0, 7.0))
    assert level is not None
    assert level["dots"] == ["20.0", "20.0"]
    assert run._strip(sample_metric(7.0)) is None


def test_files_of_a_run_are_named_with_what_is_known_of_them() -> None:
    files = {"b": {"size_bytes": 2048, "sha256": "ab"}, "a": {"sha256": "cd"}, "c": 3}
    stored = cast("Run", SimpleNamespace(artefacts=files))
    assert run._artefacts(stored) == [("a", "cd"), ("b", "2.0 KiB · ab"), ("c", "")]


def test_a_waterfall_leads_from_one_sum_to_the_other() -> None:
    before = row_of("a", categories={"GEMM": 600.0, "Copy": 100.0, "Gone": 50.0})
    after = row_of("b", categories={"GEMM": 400.0, "Copy": 150.0, "New": 50.0})
    rows = compare._waterfall(before, after)
    assert rows is not None
    assert [(row["label"], row["value"], row["sides"]) for row in rows] == [
        ("Baseline", "750 ns", "all categories"),
        ("GEMM", "−200 ns", "600 ns → 400 ns"),
        ("Copy", "+50.0 ns", "100 ns → 150 ns"),
        ("Gone", "−50.0 ns", "50.0 ns → –"),
        ("New", "+50.0 ns", "– → 50.0 ns"),
        ("Candidate", "600 ns", "all categories"),
    ]
    assert compare._waterfall(before, row_of("c")) is None
    assert compare._waterfall(row_of("c"), before) is None


def test_a_change_of_level_is_told_by_the_medians_before_and_after() -> None:
    values = [100.0, 110.0, 300.0, 200.0, 200.0, 50.0, 60.0]
    runs = [point(10 + i, v, hour=i, commit=f"{i}" * 40) for i, v in enumerate(values)]
    runs.insert(3, point(99, None, hour=2.5, failure="x"))
    changes = [
        ChangePoint(start=2, earliest=1, latest=3, probability=0.995),
        ChangePoint(start=5, earliest=5, latest=5, probability=0.96),
    ]
    rises, falls = trend._changes("off", line_of(*runs, changes=changes), "latency_ns")
    assert (rises["levels"], rises["text"]) == ("105 ns → 200 ns", "+90.5 %")
    assert (falls["levels"], falls["text"]) == ("200 ns → 55.0 ns", "−72.5 %")
    assert [(row["word"], row["colour"]) for row in (rises, falls)] == [
        ("regression", "worse"),
        ("improvement", "better"),
    ]
    assert (rises["probability"], falls["probability"]) == ("99.5 %", "96.0 %")
    assert rises["since"] == "2026-09-01 04:00 UTC … 2026-09-01 06:00 UTC"
    assert falls["since"] == "2026-09-01 08:00 UTC"
    assert (rises["commits"], falls["commits"]) == (
        "0000000000 … 3333333333",
        "4444444444 … 5555555555",
    )
    assert [rises["compare"][side] for side in ("baseline", "candidate")] == ["10", "13"]
    assert (rises["point"].run_id, rises["after"], rises["sme"]) == (12, 200, "off")
    rates = trend._changes("off", line_of(*runs, changes=changes), "decode_tokens_per_second")
    assert [row["word"] for row in rates] == ["improvement", "regression"]
    unknown = trend._changes("off", line_of(*runs, changes=changes), "of_tomorrow")
    assert [row["word"] for row in unknown] == ["regression", "improvement"]


def test_the_ten_newest_changes_of_level_are_shown() -> None:
    runs = [point(i, 100.0 + 50 * (i % 2), hour=i) for i in range(12)]
    changes = [ChangePoint(start=i, earliest=i, latest=i, probability=1) for i in range(1, 12)]
    rows = trend._changes("off", line_of(*runs, changes=changes), "latency_ns")
    assert [row["point"].run_id for row in rows] == list(range(2, 12))


def series_of(number: int, **facts: Any) -> Series:  # noqa: ANN401
    """A line of the lists, whose newest run has this number."""
    row = row_of(f"series {number}", **facts)
    row.id = number
    return Series(row, number)


def test_the_reference_of_columns_comes_first_and_rows_stand_by_what_they_share() -> None:
    ways = [("int8", 1, "sme2"), ("fp32", 1, "sme2"), ("bf16", 2, "off"), ("fp32", 1, "off")]
    every = [
        series_of(number, precision=precision, threads=threads, sme_mode=mode)
        for number, (precision, threads, mode) in enumerate(ways)
    ]
    assert sides._columns(every, "precision") == ["fp32", "bf16", "int8"]
    rows = sides._rows(every, "precision")
    assert [{name: entry.run.id for name, entry in row.items()} for row in rows] == [
        {"fp32": 3}, {"int8": 0, "fp32": 1}, {"bf16": 2},
    ]  # fmt: skip
    others = [series_of(i, backend=name) for i, name in enumerate(("xnnpack", "a", "portable"))]
    assert sides._columns(others, "backend") == ["portable", "a", "xnnpack"]


def test_models_of_a_configuration_stand_with_the_smallest_value_first() -> None:
    every = [
        series_of(i, model=f"m{i}", threads=1 + (i == 3), sme_mode="sme2", experiment="on")
        for i in range(4)
    ]
    first, second = models._group_by_config(every)
    assert [entry.run.model for entry in first + second] == ["m0", "m1", "m2", "m3"]
    values = {0: sample_metric(400.0), 2: sample_metric(100.0)}
    group = models._group(first, values)
    assert group["name"] == "Phone · fp32 · xnnpack · forward · 1 thread · SME2"
    assert [row["series"].run.model for row in group["rows"]] == ["m2", "m0"]
    lengths = [float(row["bar"].width) for row in group["rows"]]
    assert lengths == [25.0, 100.0]


def test_regressions_stand_with_the_largest_first() -> None:
    every = {f"m{i}": {"off": series_of(i, model=f"m{i}")} for i in range(1, 5)}
    sizes = {1: (0.1, "worse"), 2: (-0.4, "worse"), 3: (0.9, "same"), 4: (0.2, "worse")}
    references = {
        number: judging.Reference({"size": size, "colour": colour}, 0, number)
        for number, (size, colour) in sizes.items()
    }
    worse = overview._worse(every.values(), references)
    assert [entry.series.run.id for entry in worse] == [2, 4, 1]


def test_a_group_says_why_sme2_is_not_held_against_off() -> None:
    alike: dict[str, Any] = {"run_name": "r", "run_path": "/r"}
    off, on = row_of("a", **alike), row_of("b", sme_mode="sme2", **alike)
    emulated = row_of("c", sme_mode="sme2", device_kind="emulator", representative=False)
    for number, row in enumerate((off, on, emulated), start=1):
        row.id = number

    def why(first: Run | None, second: Run | None, *valued: int) -> str:
        values = dict.fromkeys(valued, sample_metric(1.0))
        loaded = SimpleNamespace(values=values)
        return overview._why_not_compared(first, second, cast("overview.OverviewData", loaded))

    assert why(off, on, 1, 2) == ""
    assert why(None, None) == "no run with SME off or SME2"
    assert why(off, None) == "no run with SME2"
    assert why(None, on) == "no run with SME off"
    assert why(off, emulated, 1, 3) == "not representative: times mean nothing"
    assert why(off, on, 1) == why(off, on, 2) == "not measured on both sides"
    elsewhere = row_of("d", sme_mode="sme2", run_name="s")
    elsewhere.id = 4
    assert why(off, elsewhere, 1, 4) == "the newest runs differ in more than SME"


def test_a_run_is_titled_by_what_tells_it_apart() -> None:
    row = row_of("a", sme_mode="sme2", threads=2, variant="CPUs 4")
    assert title_of(row) == "net, fp32, xnnpack, SME2, 2 threads, CPUs 4"
    assert title_of(row_of("b", method="decode", threads=None)) == (
        "net, fp32, xnnpack, decode, SME off"
    )


@pytest.mark.parametrize(
    ("facts", "outcome"),
    [
        ({}, "2.00 ms"),
        ({"wrong_outputs": "by 2 dB"}, "wrong outputs"),
        ({"device_kind": "emulator"}, "emulated"),
        ({"latency": None}, "failed"),
        ({"metrics": []}, "–"),
    ],
)
def test_a_run_is_listed_with_its_latency_or_why_it_has_none(
    facts: dict[str, Any], outcome: str
) -> None:
    row = row_of("a", **facts)
    assert tables._outcome(row) == outcome
    row.git_commit = "0123456789abcdef"
    assert tables.format_commit(row) == "0123456789"
    row.git_dirty = True
    assert tables.format_commit(row) == "0123456789+"
    row.git_commit = None
    assert tables.format_commit(row) == "–"
    assert tables.format_moment(START) == "2026-09-01 03:00 UTC"


@pytest.mark.parametrize(
    ("outcomes", "allowed", "code"),
    [
        ((), False, 9), ((), True, 0), (("unchanged", "inconclusive", "improvement"), False, 0),
        (("changed",), False, 0), (("drift",), False, 1), (("failed",), True, 1),
    ],
)  # fmt: skip
def test_a_check_fails_for_what_is_worse_alone(
    outcomes: tuple[Any, ...], allowed: bool, code: int
) -> None:
    entries = tuple(CheckedMetric(outcome, row_of("a"), (), "") for outcome in outcomes)
    request = CheckRequest("window:7", allows_first_run=allowed)
    assert CheckResult(request, entries, ()).exit_code == code


def changed_at(number: int, before: float, after: float, **facts: Any) -> LevelChange:  # noqa: ANN401
    row = row_of(f"change {number}", **facts)
    return LevelChange(row, row, row, 0.99, before, after, "ns", higher_is_better=False)


def test_a_level_is_worse_on_the_wrong_side() -> None:
    rise = changed_at(1, 100.0, 125.0)
    assert (rise.change, rise.is_worse) == (0.25, True)
    assert not changed_at(2, 125.0, 100.0).is_worse
    assert not replace(rise, higher_is_better=True).is_worse
    assert replace(rise, after=50.0, higher_is_better=True).is_worse
    doubt = StepInDoubt(rise.run, 7, 0.125)
    assert doubt.text == "7 runs cannot tell a step of +12.5 % from a drift"
