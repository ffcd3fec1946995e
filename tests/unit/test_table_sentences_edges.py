"""Tables and the sentences beside them, at their edges: small changes that went unnoticed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from etprof.analysis.assessment import assess_run
from etprof.analysis.exact_facts import ExactFacts
from etprof.analysis.findings.finding import Finding, Refusal
from etprof.run.accuracy import Verdict
from etprof.run.optimization import Trial
from etprof.statistics.order_statistics import Interval
from etprof.tables import (
    alternatives,
    brief,
    comparisons,
    findings,
    kernels,
    measurement,
    numerics,
    operators,
    optimize,
    report,
    verdicts,
)
from etprof.tables.table import Column, Section, Table
from tests.known_runs import analyze, on_off_run

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.analysis.assessment import Assessment

COSTS = Table(
    "costs",
    (
        Column("code", "string", visibility="data"),
        Column("name", "string"),
        Column("mode", "string", visibility="several"),
        Column("ns", "float64", "ns", adds_up=True),
        Column("rate", "float64"),
        Column("label", "string", repeats="name", visibility="page"),
    ),
    rows=(
        ("x", "a", "off", 1.0, 5.0, "a"), ("y", "b", "off", -4.0, None, None),
        ("z", "c", "off", 2.0, 7.0, "c"), ("w", "a", "off", None, 9.0, "a"),
    ),
    by="ns",
)  # fmt: skip


def fake(**fields: Any) -> Any:  # noqa: ANN401
    """Something with these members."""
    return SimpleNamespace(**fields)


@pytest.fixture(scope="module")
def assessment(tmp_path_factory: pytest.TempPathFactory) -> Assessment:
    """SME2 makes a model of 900 µs about three times faster."""
    return assess_run(analyze(tmp_path_factory.mktemp("run") / "r", on_off_run()))


# ---- tables


def test_the_rows_that_matter_most_stay_and_the_rest_is_one() -> None:
    assert [row[0] for row in COSTS.sorted().rows] == ["y", "z", "x", "w"]
    largest = COSTS.largest(2)
    assert [row[0] for row in largest.rows] == ["y", "z", None]
    # It has the sum of what adds up alone, under the first text that people read.
    assert largest.rows[-1] == (None, "2 others", None, 1.0, None, None)
    assert COSTS.largest(4) is COSTS
    assert COSTS.largest(3).rows[-1] == (None, "1 other", None, None, None, None)
    assert COSTS.with_total("sum").rows[-1] == (None, "sum", None, -1.0, None, None)
    assert replace(COSTS, rows=()).with_total("sum").rows == ()
    unordered = replace(COSTS, by="")
    assert unordered.largest(1) is unordered
    assert unordered.sorted() is unordered
    assert [row[0] for row in COSTS.first(2).rows] == ["x", "y"]
    assert [row[0] for row in COSTS.without_missing("rate").rows] == ["x", "z", "w"]


def test_people_see_the_columns_that_tell_something() -> None:
    assert COSTS.visible_in("data").names == COSTS.names
    # All rows have one mode, and the label is the name wherever there is one.
    assert COSTS.visible_in("page").names == ["name", "ns", "rate"]
    mixed = replace(COSTS, rows=(*COSTS.rows, ("v", "d", "sme2", None, None, "e")))
    assert mixed.visible_in("page").names == ["name", "mode", "ns", "rate", "label"]
    assert mixed.visible_in("everywhere").names == ["name", "mode", "ns", "rate"]
    assert mixed.visible_in("everywhere").rows[0] == ("a", "off", 1.0, 5.0)
    empty = replace(COSTS, rows=(("x", None, None, None, None, None),))
    assert empty.visible_in("page").names == []
    assert (empty.has_values("ns"), COSTS.has_values("ns")) == (False, True)
    assert replace(COSTS, rows=()).has_values("ns")


def test_a_matrix_has_a_row_for_each_name_and_sums_what_shares_a_cell() -> None:
    matrix = COSTS.pivot("name", "code", "ns", "rate")
    assert matrix.name == "costs_by_code"
    assert (matrix.names[:4], len(matrix.names)) == (["name", "ns_x", "rate_x", "ns_y"], 9)
    assert [column.heading for column in matrix.columns[:3]] == ["name", "x", "rate x"]
    assert matrix.rows[0] == ("a", 1.0, 5.0, None, None, None, None, None, 9.0)
    assert len(matrix.rows) == 3
    joined = COSTS.pivot(("mode", "code"), "mode", "rate", join=max)
    assert joined.names == ["mode", "code", "rate_off"]
    assert joined.columns[1].visibility == "everywhere"
    assert COSTS.pivot("mode", "name", "rate").rows == (("off", 14.0, None, 7.0),)
    assert COSTS.pivot("mode", "name", "rate", join=max).rows == (("off", 9.0, None, 7.0),)


def test_a_title_is_of_its_column_alone() -> None:
    titled = COSTS.titled(name="operator").with_interval_titled("ns", "between launches")
    assert [column.heading for column in titled.columns[:3]] == ["code", "operator", "mode"]
    assert titled.columns[3].interval_title == "between launches"
    assert titled.columns[4].interval_title == "95 % interval"
    assert COSTS.basis_of(COSTS.columns[0]) == ""
    assert replace(COSTS, basis="per load").basis_of(COSTS.columns[3]) == "per load"


# ---- several runs


def test_twelve_modules_are_shown_and_the_others_counted() -> None:
    columns = (Column("module", "string"), Column("a", "float64"))
    table = Table("m", columns, tuple((f"m{at}", float(at)) for at in range(12)))
    assert alternatives._largest(table).note == ""
    larger = replace(table, rows=(*table.rows, ("m12", 12.0)))
    shown = alternatives._largest(larger)
    assert (len(shown.rows), shown.rows[0][0], shown.note) == (12, "m12", "1 other module left out")


def runs(*medians: float | None, kinds: str = "", wrong: bool = False) -> tuple[Any, Any]:
    """Runs of these latencies, none of which beats another unless it is `wrong`."""
    made = [
        fake(name=f"r{at}", peer_group=kinds[at : at + 1],
             latency=None if median is None else fake(median=median))
        for at, median in enumerate(medians)
    ]  # fmt: skip
    return made, [fake(run=run, is_unbeaten=not wrong) for run in made]


def test_which_run_to_take_is_said_where_that_can_be() -> None:
    text = alternatives._lead(*runs(2e6, 1e6, 3e6))
    assert text == (
        "r0, r1 and r2 are unbeaten by these figures: no other run is better in one thing and worse "
        "in none; r1 has the lowest latency, 1.00 ms."
    )
    assert alternatives._lead(*runs(2e6, None)).endswith("and worse in none.")
    assert alternatives._lead(*runs(1e6)).startswith("r0 is at least as good")
    assert alternatives._lead(*runs(1e6, 1e6, wrong=True)).startswith("No run can be taken")
    assert alternatives._lead(*runs(1e6, 1e6, kinds="ab")).startswith("These runs are of several")
    assert alternatives._note(runs(None, None)[0]).startswith("none of these runs was timed")
    assert alternatives._note(runs(None, 1e6)[0]).startswith("separate runs also differ")


# ---- findings


def finding(**fields: Any) -> Finding:  # noqa: ANN401
    usual = {"title": "t", "severity": "high", "summary": "s.", "action": "", "rule": "F1"}
    return Finding(**(usual | fields))


@pytest.mark.parametrize(
    ("replaced", "total", "reach"),
    [
        (10, 10, ""), (1, 10, "the command replaces 1 of 10 operators"),
        (0, 10, "rewrites replace 0 of 10 operators"), (9, 91, "rewrites replace 9 of 91 operators"),
        (9, 90, "the command replaces 9 of 90 operators"), (None, 10, ""), (0, 0, ""),
    ],
)  # fmt: skip
def test_what_a_command_leaves_as_it_is_is_said(
    replaced: int | None, total: int, reach: str
) -> None:
    lead = finding(operators=total, replaced_operators=replaced)
    assert findings.FindingGroup(lead).reach == reach
    # Where the worst of them did not count, the next one did.
    assert findings.FindingGroup(finding(), (lead,)).reach == reach


def test_a_command_that_reaches_few_is_no_advice_where_the_rest_is_explained() -> None:
    command = "`etprof export net --rewrite plain_views` replaces 1 of these 20 operators"
    few = finding(action=command, operators=20, replaced_operators=1)
    assert findings.FindingGroup(few).action == "etprof export net --rewrite plain_views"
    refused = replace(few, refusals=(Refusal("gru", "`gru` has no operator"),))
    assert findings.FindingGroup(refused).action == (
        "No rewrite of etprof helps the others: `gru` has no operator"
    )
    exact = finding(inexact_rewrites=("a", "b"), operators=4, replaced_operators=2)
    assert findings.FindingGroup(exact).reach == (
        "the command replaces 2 of 4 operators; a and b can cost accuracy: `optimize` measures how "
        "much, and decides"
    )


def test_a_gain_is_told_with_its_ends_and_its_share() -> None:
    interval = Interval(100_000.0, 200_000.0, 0.95)
    gained = finding(gain_ns=150_000.0, interval=interval, latency_ns=1e6)
    assert findings.brief_gain(gained) == "predicted gain 100 … 200 µs, 10 … 20 % of the latency"
    shared = replace(gained, shares_with=("F2", "F5"), together_ns=300_000.0)
    assert findings.gain_text(shared) == (
        "(predicted gain 100 … 200 µs more, 10 … 20 % of the latency; together with F2, F5 300 µs)"
    )
    nothing = replace(shared, gain_ns=0.0)
    assert findings.gain_text(nothing) == "(nothing to gain beyond F2, F5: 300 µs together)"
    assert findings.brief_gain(replace(gained, interval=None)) == "about 150 µs to gain"
    measured = replace(gained, claims={-1: 0.5})
    assert findings.brief_gain(measured) == "150 µs to gain"
    small = replace(gained, latency_ns=1e7 + 1)
    assert findings.brief_gain(small) == "predicted gain 100 … 200 µs, below 2 %: not worth it"
    # As much as the margin is worth it.
    assert "of the latency" in findings.brief_gain(replace(gained, latency_ns=1e7))
    assert (findings.gain_text(finding()), findings.brief_gain(finding())) == ("", "")


def test_findings_of_one_command_are_one_and_name_their_like() -> None:
    command = "`etprof export net --rewrite plain_views` replaces it"
    rows = [
        finding(rule="F2", action=command), finding(rule="F7", action="see F2"),
        finding(rule="F5", action="use less"), finding(rule="F1", action=command),
        finding(rule="F3", action="use less"),
    ]  # fmt: skip
    groups = findings.group_findings(rows)
    assert [(group.lead.rule, [also.rule for also in group.others]) for group in groups] == [
        ("F2", ["F7", "F1"]), ("F5", []), ("F3", []),
    ]  # fmt: skip
    point, *_ = brief._points(groups, ())
    assert (point.text, point.findings) == ("F2 t (also causes F7, F1)", 3)
    names = [f"o{at}" for at in range(6)]
    assert findings._names(names[:4]) == "o0, o1, o2, o3"
    assert findings._names(names[:5]) == "o0, o1, o2, o3 and 1 other"
    assert findings._names(names) == "o0, o1, o2, o3 and 2 others"
    assert findings._some_of(1, 1) == "1 operator"
    assert findings._some_of(1, 2) == "1 of 2 operators"


@pytest.mark.parametrize(
    ("macs", "rewrites", "are_small", "reason"),
    [
        (10, (), False, "1.0 % of the work without an SME2 kernel"),
        (9, (), False, None),
        (9, ("r",), False, "1 of 2 operators outside the delegate"),
        (9, ("r",), True, None),
        (500, ("r",), False,
         "1 of 2 operators outside the delegate and 50.0 % of the work without an SME2 kernel"),
    ],
)  # fmt: skip
def test_a_search_is_suggested_from_one_per_cent_of_the_work(
    macs: int, rewrites: tuple[str, ...], *, are_small: bool, reason: str | None
) -> None:
    node = fake(macs=macs, sme2_rewrites=("r",))
    idle = fake(macs=400, sme2_rewrites=())
    places = ((None, 1, rewrites, 0), (None, 1, (), 0), (None, None, ("r",), 0), (0, 2, (), 1000))
    members = ("delegate", "instruction", "rewrites", "macs")
    every = [fake(**dict(zip(members, values, strict=True))) for values in places]
    program = fake(
        exported=fake(rewrites=(), model_words=["net"], precision="fp16"),
        report=fake(operators=every, delegates=[fake(nodes=[node, idle])]),
    )
    text = findings._search_for(program, ("--target", "android"), are_gains_small=are_small)
    command = "`etprof optimize net --dtype fp16 --target android`"
    assert text == (reason and f"{reason}: {command} tries what changes that")


# ---- answers


def test_a_bar_has_four_parts_at_most() -> None:
    def bar(*shares: float) -> list[tuple[str, float]]:
        rows = [{"class": f"c{at}", "share": share} for at, share in enumerate(shares)]
        table = fake(of_each=lambda _: fake(records=lambda: rows))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(operators, "CATEGORIES", table)
            return [(part.label, part.share) for part in brief._classes(fake())]

    assert bar(0.25, 0.5, 0.125, 0.125) == [("c1", 0.5), ("c0", 0.25), ("c2", 0.125), ("c3", 0.125)]
    assert bar(0.25, 0.5, 0.125, 0.0625, 0.0625) == [
        ("c1", 0.5), ("c0", 0.25), ("c2", 0.125), ("2 other classes", 0.125),
    ]  # fmt: skip


def test_the_three_worst_have_a_point_and_doubts_of_the_figures_always(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = [finding(rule=f"F{at}", action=f"do {at}") for at in range(4)]
    rows[0] = replace(rows[0], action="`etprof export a`")
    rows[1] = replace(rows[1], action="")
    small = Interval(0.0, 1.0, 0.95)
    rows[2] = replace(rows[2], gain_ns=1.0, interval=small, latency_ns=1000.0)
    noise = finding(rule="F13", action="close programs", summary="Launches vary. Intervals do.")
    like = replace(rows[0], rule="F8")  # by the same command
    monkeypatch.setattr(findings, "shown_findings", lambda _: [*rows, noise, like])
    groups = brief._top_groups(fake())  # what can be acted on first, what is too small last
    assert [group.lead.rule for group in groups] == ["F0", "F3", "F13"]
    assert brief.further_findings(fake()) == 2
    points = list(brief._points(groups, ["Next: do 3"]))
    assert [point.action for point in points] == ["etprof export a", "", "close programs"]
    assert points[2].text == "F13 t: launches vary"


def test_the_answer_of_a_comparison_names_what_changed_most(assessment: Assessment) -> None:
    (comparison,) = assessment.comparisons
    answer = brief.brief_comparison(comparison)
    # 400 to 100, 300 to 60 and 100 to 25 µs.
    assert [point.text.rpartition(", ")[2] for point in answer.points] == [
        "−300 µs per inference", "−240 µs per inference", "−75.0 µs per inference",
    ]  # fmt: skip
    assert answer.bar_title == "Where SME2 spends its time"
    assert sum(part.share for part in answer.bar) == pytest.approx(1.0)
    assert answer.headlines[0].text.startswith("known, fp16, 1 thread, SME off → SME2: ")
    assert brief.brief_of(assessment).bar == answer.bar


# ---- what changed


def test_a_waterfall_stands_between_its_totals(assessment: Assessment) -> None:
    (comparison,) = assessment.comparisons
    assert comparison.times is not None
    waterfall = comparison.times.waterfall
    assert waterfall is not None
    table = comparisons.waterfall_between_totals(comparison, waterfall, 2)
    rows = table.records()
    assert [row["kind"] for row in rows] == ["total", "operator", "operator", "operator", "total"]
    first, last = rows[0], rows[-1]
    # Operators, 4 µs for each of two delegate calls, 2 µs of execution and 1 µs of dispatch.
    ends = ("label", "baseline_ns", "candidate_ns")
    assert [first[name] for name in ends] == ["SME off", 901_000.0, None]
    assert [last[name] for name in ends] == ["SME2", None, 291_000.0]
    assert [row["delta_ns"] for row in rows[1:3]] == [-300_000.0, -240_000.0]
    # All that is left: -75 of the last product, and 5 of a packing.
    assert rows[3]["delta_ns"] == pytest.approx(-70_000)
    headings = {column.name: column.heading for column in table.columns}
    assert (headings["baseline_ns"], headings["candidate_ns"]) == ("SME off", "SME2")


def test_changes_are_told_beyond_their_tolerance() -> None:
    def change(before: dict[str, Any], now: dict[str, Any]) -> str:
        facts = [ExactFacts(**fields) for fields in (before, now)]
        return comparisons.describe_structure(fake(facts=facts))

    assert change({"program_bytes": 1000}, {"program_bytes": 1010}) == ""
    assert change({"program_bytes": 1000}, {"program_bytes": 989}) == "program 1000 B → 989 B"
    assert change({"delegate_calls": 1}, {"delegate_calls": 2, "operators_outside": 5}) == (
        "delegate calls 1 → 2"
    )
    assert change({"output_db": 60.0}, {"output_db": 57.0}) == ""


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"reason": "no reference"}, "no reference"),
        ({"answer": "failed", "equal_share": 0.5}, ""),
        ({"question": "text", "equal_share": 0.5}, ""),
        ({"equal_share": 0.75, "least_equal_share": 0.5},
         "25.0 % of its whole numbers differ; at most 50.0 % may"),
        ({"equal_share": 1.0}, "no error: the outputs are equal"),
        ({"snr_db": 60.0}, ""),
    ],
)  # fmt: skip
def test_a_verdict_says_why_or_that_there_is_no_error(fields: dict[str, Any], reason: str) -> None:
    usual = {"question": "precision", "answer": "passed"}
    assert comparisons._reason(Verdict.model_validate(usual | fields)) == reason


# ---- verdicts


def effect(**fields: Any) -> Any:  # noqa: ANN401
    usual = {
        "speed_up": 2.0, "half_width": 0.1, "interval": Interval(1.9, 2.1, 0.95), "p_value": 0.01,
        "pairs": 10, "rests_on": "", "verdict": "faster", "margin": 0.02,
    }  # fmt: skip
    return fake(**(usual | fields))


def test_a_speedup_is_told_with_its_interval_and_of_what_it_is() -> None:
    assert verdicts.format_speed_up(effect()) == "2.00× (95 % interval in this run 1.90× … 2.10×)"
    assert (
        verdicts.format_speed_up(effect(rests_on="3 runs")) == "2.00× (99 % interval 1.90× … 2.10×)"
    )
    assert (
        verdicts.format_speed_up(effect(p_value=None)) == "2.00× (1.90× … 2.10× between launches)"
    )
    without = effect(interval=None, half_width=None)
    assert verdicts.format_speed_up(without) == "2.00× (no interval from 10 pairs)"
    assert verdicts.format_speed_up(effect(interval=None, half_width=None, pairs=0)) == "2.00×"
    titles = [verdicts.interval_title(effect(rests_on="r", p_value=p)) for p in (None, 0.01)]
    assert titles == ["between launches", "99 % interval"]
    even = effect(verdict="no difference", rests_on="3 runs")
    assert verdicts.describe_effect(even).startswith("no difference within 2.0 %: 3 runs, speedup ")
    assert verdicts._test_of(effect()) == "10 pairs of process launches, signed-rank p = 0.01"


@pytest.mark.parametrize(
    ("baseline", "candidate", "is_said"),
    [(190.0, 100.0, False), (189.0, 100.0, True), (210.0, 100.0, False), (211.0, 100.0, True)],
)
def test_a_ratio_of_medians_outside_the_interval_is_explained(
    baseline: float, candidate: float, *, is_said: bool
) -> None:
    comparison = fake(latency=effect(), steady=fake(baseline=baseline, candidate=candidate))
    assert bool(verdicts._bridge(comparison)) == is_said
    comparison.latency = effect(rests_on="3 runs")
    assert verdicts._bridge(comparison) == ""


def test_the_one_thing_that_differs_is_named() -> None:
    def changed(*sides: tuple[str, int]) -> str:
        before, after = (fake(experiment=fake(sme=sme, threads=count)) for sme, count in sides)
        return verdicts._what_changed(
            fake(baseline=before, candidate=after, short_names=("old", "new"))
        )

    assert changed(("off", 1), ("sme2", 1)) == "With SME2"
    assert changed(("off", 1), ("off", 4)) == "With 4 threads"
    assert changed(("off", 1), ("sme2", 4)) == "In new"
    assert changed(("off", 1), ("off", 1)) == "In new"


def test_wrong_outputs_are_alarmed_with_as_many_reasons_as_asked_for() -> None:
    def run(*locations: str) -> Any:  # noqa: ANN401
        wrong = [
            Verdict(question="lowering", answer="failed", where=where, reason=f"reason {at}")
            for at, where in enumerate(locations)
        ]
        return fake(wrong=wrong, experiments=[fake(name="a"), fake(name="b")])

    text = "lowering is not faithful: reason"
    assert verdicts.alarm_of(run()) is None
    assert (
        verdicts.alarm_of(run("a", "b")) == f"Do not use these results: a: {text} 0; b: {text} 1."
    )
    assert verdicts.alarm_of(run("a", "b", "b"), most_reasons=1) == (
        f"Do not use these results: a: {text} 0; and 2 more reasons."
    )
    assert verdicts.alarm_of(run("a", "a"), most_reasons=2) == (
        f"a is excluded; the other results are valid. a: {text} 0; a: {text} 1."
    )


def test_what_is_known_of_an_interval_is_said() -> None:
    def text(**fields: Any) -> str:  # noqa: ANN401
        usual = {"interval": Interval(1e6, 2e6, 0.95), "median": 1.5e6, "doubt": "", "assumes": ""}
        return verdicts._describe_interval(fake(**(usual | fields)))

    assert text() == "95 % interval of the median in this run 1.00 … 2.00 ms"
    assert text(assumes="if so").endswith("ms, if so")
    assert text(doubt="few").endswith("with less than 95 % confidence: few")
    assert text(interval=None, doubt="few") == "the median has no confidence interval: few"


def test_facts_are_named_by_where_they_are() -> None:
    nested = {"a": {"b": 1, "c": [{"d": None}, {"d": "x"}]}, "e": [], "f": [1, 2], "g": {}}
    assert list(verdicts.flatten("m", nested)) == [
        ("m.a.b", "1"), ("m.a.c[0].d", None), ("m.a.c[1].d", "x"), ("m.e", "[]"),
        ("m.f", "[1, 2]"), ("m.g", "{}"),
    ]  # fmt: skip


def test_a_run_alone_has_its_latency_and_four_figures(tmp_path: Path) -> None:
    (first, _) = on_off_run().experiments
    alone = assess_run(analyze(tmp_path / "r", replace(on_off_run(), experiments=[first])))
    head = verdicts.head_of(alone)
    # The middle of 900, 901 and 902 µs.
    assert (head.figure, head.badge) == ("901 µs", "no comparison")
    assert head.text == "known, fp16, 1 thread: median latency 901 µs"
    assert head.plain == "No baseline: one configuration was measured."
    tiles = verdicts.tiles_of(alone)
    assert [(tile.label, tile.value) for tile in tiles] == [
        ("Median inference", "901 µs"), ("99th percentile", "911 µs"),
        ("First inference", "2.70 ms"), ("Peak memory", "2.0 MiB"),
    ]  # fmt: skip
    assert tiles[0].caption == "90 samples"
    assert tiles[1].caption == "minimum 891 µs"


# ---- kernels, tokens, searches and whole reports


def test_the_three_functions_with_most_instructions_are_named() -> None:
    assert kernels.largest({"a": 1, "b": 5, "c": 3, "d": 4}) == [("b", 5), ("d", 4), ("c", 3)]
    assert kernels._without_types("Convolution (NHWC, F16) IGEMM #1") == "Convolution IGEMM #1"
    use = fake(name="kai_run_matmul_x")
    assert kernels._computing(fake(compute_kernels=[use, use])) == "matmul_x\nmatmul_x"
    assert kernels._computing(fake(compute_kernels=[])) == "no KleidiAI microkernel"
    assert kernels._computing(None) is None


@pytest.mark.parametrize(
    ("tokens", "at_once", "text"),
    [
        ([1, 2, 3], 3, "3 prompt tokens (3 at once by p), 2 new tokens"),
        ([1, 2, 3], 2, "3 prompt tokens (2 at once by p, 1 one by one by d), 2 new tokens"),
        ([1], 0, "1 prompt token (1 one by one by d), 2 new tokens"),
    ],
)
def test_how_a_prompt_was_read_is_said(tokens: list[int], at_once: int, text: str) -> None:
    generated = fake(
        prompt_tokens=tokens, prefilled_tokens=at_once, tokens=[5, 6], prefill_method="p",
        decode_method="d", text=None, prompt=None,
    )  # fmt: skip
    assert measurement._prompt_text(generated) == text
    assert measurement._generated_text(generated) == "5 6"
    generated.tokens = list(range(24))
    assert measurement._generated_text(generated).endswith(" 22 23")
    generated.tokens = list(range(25))
    assert measurement._generated_text(generated).endswith(" 22 23 …")
    spread = measurement._spread_text(fake(tokens=60, tokens_of_a_launch=29))
    assert spread == (
        "60 tokens after the first, 29 in a launch; a 99th percentile needs 299; tokens a second are "
        "1 ÷ their mean latency"
    )


def test_launches_stand_with_the_share_that_was_as_fast() -> None:
    latency = fake(steady=fake(block_medians=(30.0, 10.0, 20.0, 40.0)))
    blocks = [fake(block=number) for number in range(4)]
    rows = list(measurement._launches(fake(name="e", latency=latency, metrics=fake(blocks=blocks))))
    assert rows == [
        ("e", 1, 10.0, 0.25), ("e", 2, 20.0, 0.5), ("e", 0, 30.0, 0.75), ("e", 3, 40.0, 1.0),
    ]  # fmt: skip
    assert list(measurement._launches(fake(name="e", latency=None, metrics=None))) == []


def test_a_search_says_which_figures_its_rewrites_changed() -> None:
    before = Trial(rewrites=(), macs=100, macs_without_sme2=80, outside=5, delegate_calls=3,
                   transposes=4, size_bytes=2048)  # fmt: skip
    after = before.model_copy(
        update={"macs": 120, "macs_without_sme2": 40, "outside": 2, "transposes": None}
    )
    assert list(optimize._changes(before, after)) == [
        "MACs on SME2 (predicted) 20.0 % → 60.0 %", "operators outside the delegate 5 → 2",
    ]  # fmt: skip
    chosen = Trial(rewrites=("a", "b"), exclusions=("a=x", "a=y"), number=4)
    assert list(optimize._choices(chosen)) == ["a (not in x and y)", "b"]
    search = fake(best=fake(number=4))
    names = [optimize._name(search, trial) for trial in (before, chosen, Trial(rewrites=("a",)))]
    assert names == ["as it is", "with rewrites", "trial 1"]
    counts = {"a": 0, "b": None, "c": 1}
    tried: Any = [fake(rewrite=name, operators=n, changes="c") for name, n in counts.items()]
    table = optimize.candidates_table(tried)
    assert [row[0] for row in table.rows] == ["b", "c"]
    assert table.note == "nothing to change for a"


def test_how_far_acceleration_can_go_is_said_in_figures() -> None:
    panel = fake(accelerated_operators=2, accelerated_share=0.75, accelerated_speed_up=5.0,
                 achieved=2.5, ceiling=4.0)  # fmt: skip
    assert report._amdahl_sentence(panel) == (
        "2 operators with 75.0 % of the baseline's time changed to SME, and became 5.00× as fast "
        "together. The whole inference became 2.50× as fast with tracer; if those operators took no "
        "time at all it would be 4.00×."
    )
    panel.accelerated_operators = 0
    assert report._amdahl_sentence(panel).startswith("No operator is known")
    anchors = ("validity", "outputs", "icicle", "facts", "rollups", "tracer")
    ordered = report._in_order([Section(anchor, "") for anchor in anchors])
    assert [(section.anchor, section.is_folded) for section in ordered] == [
        ("rollups", False), ("icicle", False), ("facts", False), ("validity", False),
        ("outputs", True), ("tracer", True),
    ]  # fmt: skip


def test_numeric_sections_have_their_anchors_and_titles() -> None:
    gaps = fake(modes=(), rows=(), checks={}, prevented=(), passes=1, model="net", precision="fp16",
                method="forward", platform="linux")  # fmt: skip
    assert [(section.anchor, section.title) for section in numerics.sections(gaps)] == [
        ("first", "Where it parts"), ("ranked", "By own error"), ("graph", "In the graph's order"),
    ]  # fmt: skip


def test_a_report_has_its_sections_in_their_order(assessment: Assessment) -> None:
    page, terminal = (report.report_sections(assessment, medium) for medium in ("page", "terminal"))
    shown = [(section.anchor, section.title, len(section.tables[0].rows)) for section in page]
    assert shown == [
        ("rollups", "Where the time goes by module", 2), ("time", "Where an inference's time goes", 10),
        ("icicle", "Inside an inference", 15), ("categories", "Categories of all experiments", 6),
        ("operators", "Operators", 7), ("whynot", "Why not SME2?", 1), ("waterfall", "Waterfall", 9),
        ("latencies", "Latency of timing launches", 10), ("accuracy", "Are the outputs right?", 2),
        ("validity", "Measurement quality", 9), ("launches", "Latency distribution", 20),
        ("tracer", "Profiling overhead", 2), ("amdahl", "How far it can go", 6),
        ("ledger", "From start to steady state", 7),
    ]  # fmt: skip
    of_pages = {"rollups", "icicle", "categories", "validity", "launches"}
    assert {name for name, *_ in shown} - {section.anchor for section in terminal} == of_pages
    split = [section for section in terminal if section.anchor == "split"]
    assert [section.title for section in split] == [
        f"Operators of android_{m}" for m in ("off", "sme2")
    ]
    (comparison,) = assessment.comparisons
    compared = [(s.anchor, len(s.tables[0].rows)) for s in report.comparison_sections(comparison)]
    assert compared == [("facts", 2), ("time", 9), *((a, n) for a, _, n in shown if a in {
        "waterfall", "amdahl", "ledger"})]  # fmt: skip
