"""Verdicts, limits, orders and words of a history, worked out by hand or by scipy."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from scipy import stats

from etprof.history import gate, ingest, run_spread, selection, tables
from etprof.history.check import OUTCOMES, CheckedMetric, CheckRequest, CheckResult, raise_alarms
from etprof.history.exact.judging import compare_facts, compare_work, standing_run
from etprof.history.gate import Gate, Judgement, MetricComparison, judge_all
from etprof.history.schema import Alarm, Metric, Run
from etprof.history.trend import find_changes, standing_regressions
from etprof.run.manifest import Experiment, LaunchRecord
from etprof.statistics.order_statistics import Interval
from etprof.statistics.runs import ASSUMED, Drift
from etprof.statistics.states import TwoStates
from etprof.statistics.two_samples import GroupDifference, Spread
from tests.known_history import pin
from tests.run_rows import START, add, later, row_of

if TYPE_CHECKING:
    from etprof.history.gate import Verdict
    from etprof.history.store import Store
    from etprof.run.directory import ExperimentMetrics
    from etprof.run.manifest import Manifest


def metric_row(value: float = 110.0, *, rises: bool = False, unit: str = "ns") -> Metric:
    name = "decode_tokens_per_second" if rises else "latency_ns"
    return Metric(
        name=name, unit=unit, higher_is_better=rises, value=value, samples=(value,) * 3, count=3
    )


def compared(
    change: float = 0.1,
    *,
    reach: float = 0.04,
    p: float = 0.01,
    rises: bool = False,
    **how: Any,  # noqa: ANN401
) -> MetricComparison:
    """A candidate that is `change` in log units from a baseline of 100, with 9 degrees of freedom."""
    interval = Interval(change - reach, change + reach, 0.95)
    difference = GroupDifference(change, interval, p, Spread(0.02, 9))
    candidate = metric_row(100 * math.exp(change), rises=rises)
    facts = {"difference": difference, "threshold": 0.05, **how}
    return MetricComparison(candidate, (metric_row(100.0),), 100.0, **facts)


@pytest.mark.parametrize(
    ("change", "p", "rises", "verdict"),
    [
        (0.1, 0.01, False, "regression"),
        (-0.1, 0.01, False, "improvement"),
        (0.1, 0.01, True, "improvement"),
        (-0.1, 0.01, True, "regression"),
        (0.1, 0.06, False, "inconclusive"),
        (0.04, 0.01, False, "inconclusive"),  # it may be beyond the threshold
        (0.005, 0.01, False, "unchanged"),
        (-0.005, 0.6, False, "unchanged"),
        (-0.02, 0.6, False, "inconclusive"),
    ],
)
def test_a_change_is_one_beyond_chance_and_beyond_the_threshold(
    change: float, p: float, rises: bool, verdict: str
) -> None:
    (judged,) = judge_all([compared(change, p=p, rises=rises)])
    assert (judged.verdict, judged.threshold, judged.p_value) == (verdict, 0.05, p)
    assert judged.change == pytest.approx(math.exp(change) - 1)
    ends = math.exp(change - 0.04) - 1, math.exp(change + 0.04) - 1
    assert (judged.low, judged.high) == pytest.approx(ends)


def test_a_change_of_just_the_threshold_is_none() -> None:
    limit = math.expm1(0.1)
    (judged,) = judge_all([compared(0.1, reach=0.0, threshold=limit)])
    assert (judged.verdict, judged.reason) == (
        "unchanged",
        "the whole interval lies within ±10.5171 %",
    )
    (downwards,) = judge_all([compared(-0.1, reach=0.0, threshold=-math.expm1(-0.1))])
    assert downwards.verdict == "unchanged"
    (just_real,) = judge_all([compared(0.1, p=1 - 0.95)])
    assert just_real.verdict == "regression"


@pytest.mark.parametrize(("rises", "family"), [(False, 1), (False, 4), (True, 4)])
def test_what_would_be_seen_is_what_four_of_five_such_checks_find(rises: bool, family: int) -> None:
    (judged,) = judge_all([compared(0.1, p=0.01, rises=rises)], family)
    assert judged.p_value == pytest.approx(0.01 * family)
    error = 0.04 / stats.t.ppf(0.975, 9)
    beyond_chance = stats.t.ppf(1 - 0.025 / family, 9) * error
    rise = max(beyond_chance, math.log(1.05)) + stats.t.ppf(0.8, 9) * error
    smallest = math.exp(-rise if rises else rise) - 1
    assert judged.smallest == pytest.approx(smallest, rel=1e-6)


def test_comparisons_that_are_made_together_are_judged_together() -> None:
    exact = MetricComparison(metric_row(100.0), (), 100.0, 0.01)
    judged = judge_all([compared(p=0.02), exact, compared(p=0.03), compared(p=0.5)])
    assert [j.p_value for j in judged] == [pytest.approx(0.06), None, pytest.approx(0.06), 0.5]
    assert [j.verdict for j in judged] == [
        "inconclusive", "unchanged", "inconclusive", "inconclusive",
    ]  # fmt: skip
    assert judge_all([], 7) == []


@pytest.mark.parametrize(
    ("value", "verdict", "finding"),
    [
        (100.0, "unchanged", "the same"),
        (101.0, "unchanged", "another value, within 2 %"),
        (103.0, "regression", "another value, beyond 2 %"),
        (97.0, "improvement", "another value, beyond 2 %"),
    ],
)
def test_what_never_varied_is_compared_exactly(value: float, verdict: str, finding: str) -> None:
    comparison = MetricComparison(metric_row(value), (), 100.0, 0.02)
    (judged,) = judge_all([comparison])
    change = value / 100 - 1
    assert (judged.verdict, judged.reason) == (verdict, f"exact, for it never varied: {finding}")
    assert (judged.low, judged.change, judged.high) == (change, change, change)
    assert (judged.smallest, judged.p_value) == (0.02, None)
    (rate,) = judge_all([replace(comparison, candidate=metric_row(90.0, rises=True))])
    assert rate.verdict == "regression"
    (none,) = judge_all([replace(comparison, problem="a value is zero")])
    assert (none.verdict, none.change, none.reason) == ("inconclusive", None, "a value is zero")


def test_an_exact_value_of_just_its_threshold_is_unchanged() -> None:
    (judged,) = judge_all([MetricComparison(metric_row(125.0), (), 100.0, 0.25)])
    assert judged.verdict == "unchanged"


DRIFT = Drift(11, math.log(100), GroupDifference(0.2, Interval(0.1, 0.3, 0.95), 0.001,
              Spread(0.02, 9)), is_steady=True)  # fmt: skip


def test_a_drift_is_told_by_the_run_and_ends_where_its_line_ends() -> None:
    creeping = compared(0.2, p=0.001, drift=DRIFT)
    assert creeping.after == pytest.approx(100 * math.exp(0.2))
    (judged,) = judge_all([creeping])
    assert (judged.verdict, judged.is_drift) == ("drift", True)
    # Ten steps of 2 % in log units.
    assert judged.reason == "+2.0 % a run over the last 11 commits"
    (step,) = judge_all([replace(creeping, drift=replace(DRIFT, is_steady=False))])
    assert step.verdict == "inconclusive"
    (better,) = judge_all([compared(-0.2, p=0.001, drift=DRIFT)])
    assert (better.verdict, better.is_drift) == ("inconclusive", False)


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ({"p": 0.2}, "beyond 5 %, but not beyond chance"),
        ({"change": 0.04, "p": 0.2}, "not beyond 5 %, but not beyond chance"),
        ({"change": 0.04}, "not beyond 5 %, and beyond chance"),
        ({}, "beyond 5 % and beyond chance"),
        ({"together": 3, "runs_before": 3},
         "3 series of the device became worse together, as in a new state; the next run tells"),
        ({"p": 0.2, "lone_share": 0.125},
         "12.5 % of the device's runs may stand out as far; the next run tells"),
        ({"p": 0.2, "lone_share": 0.125, "states": "two"},
         "as far as the other state; two states: two"),
        ({"states": "two"}, "beyond 5 % and beyond chance; two states: two"),
    ],
)  # fmt: skip
def test_a_verdict_says_why_it_is_no_other(how: dict[str, Any], reason: str) -> None:
    (judged,) = judge_all([compared(**how)])
    if how.get("together"):
        judged = gate._judge(
            compared(**how), cast("GroupDifference", compared().difference), 0.01, 0.95
        )
        assert judged.p_value == pytest.approx(1 / 5)
    assert judged.reason == reason


def test_too_few_runs_are_said_to_be_too_few() -> None:
    difference = GroupDifference(0.1, Interval(-0.1, 0.3, 0.95), 0.3, ASSUMED)
    (judged,) = judge_all([compared(difference=difference)])
    assert judged.reason == "too few runs to know how much they differ (1 run in the baseline)"


def test_a_standing_regression_stays_one_until_it_is_clearly_back() -> None:
    standing = compared(0.0, p=0.9, is_standing=True, departed=(7, 8))
    (judged,) = judge_all([standing])
    assert (judged.verdict, judged.reason) == (
        "regression",
        "worse since #7, and not clearly back",
    )
    accepted = judged.as_accepted()
    assert (accepted.verdict, accepted.reason) == (
        "changed",
        "accepted, though worse: worse since #7, and not clearly back",
    )
    assert judge_all([compared(-0.1)])[0].as_accepted().verdict == "improvement"


def test_most_series_of_a_device_are_one_cause_and_half_of_them_are_not() -> None:
    worse, level = compared(group="d"), compared(0.0, p=0.9, group="d")
    for series, together in (
        ([worse, worse, level], [2, 2, 0]),
        ([worse, worse, level, level], [0] * 4),
        ([worse, worse], [0, 0]),
        ([worse, worse, worse, replace(worse, group=None)], [3, 3, 3, 0]),
        ([compared(p=0.06, group="d")] * 3, [0] * 3),
        ([compared(-0.1, group="d")] * 3, [0] * 3),
        ([compared(0.04, group="d")] * 3, [0] * 3),
    ):
        marked = gate._mark_common_causes(series)
        assert [comparison.together for comparison in marked] == together


def test_states_are_told_by_the_upper_one() -> None:
    states = TwoStates((0, 1, 2), (3,), 0.0, math.log(1.25), 0.0)
    assert gate.describe_states(states) == "1 of 4 runs are in a state that is +25.0 %"


def point_of(number: int, commit: str | None, value: float = 0.0) -> run_spread.SeriesPoint:
    return run_spread.SeriesPoint(number, START, (commit, False), value)


def level_of(*points: run_spread.SeriesPoint, **how: Any) -> run_spread.BaselineLevel:  # noqa: ANN401
    facts = {"members": tuple(range(len(points))), "worse": 1, "threshold": 0.125, **how}
    return run_spread.BaselineLevel(points, spread=Spread(0.01, 5), **facts)


def test_a_window_has_the_newest_runs_of_a_level_and_a_branch_those_of_its_newest_commit() -> None:
    points = [point_of(10 + i, commit) for i, commit in enumerate("abbcc")]
    level = level_of(*points, members=(0, 1, 2, 4))
    assert gate._ids_of_level("window:2", level) == [14, 12]
    assert gate._ids_of_level("window:9", level) == [14, 12, 11, 10]
    assert gate._ids_of_level("branch:main", level) == [14]
    assert gate._ids_of_level("branch:main", level_of(*points[:3])) == [12, 11]
    assert gate._ids_of_level("branch:main", level_of()) == []


@pytest.mark.parametrize(
    ("worse", "value", "members", "beyond"),
    [
        (1, 0.55, (0, 1), False),  # in the worse state: held against the better one
        (1, 0.65, (2,), True),  # worse than both
        (1, 0.625, (0, 1), False),  # by the threshold alone
        (-1, -0.2, (0, 1), True),
        (-1, 0.55, (2,), False),
    ],
)
def test_of_two_states_a_run_is_held_against_the_better_one_unless_it_is_beyond_both(
    worse: int, value: float, members: tuple[int, ...], beyond: bool
) -> None:
    states = TwoStates((0, 1), (2,), 0.0, 0.5, 0.0)
    points = [point_of(i, None, log) for i, log in enumerate((0.0, 0.0, 0.5))]
    level = level_of(*points, worse=worse, states=states, state_spread=Spread(0.02, 1))
    judged = level.of_state(value)
    assert (judged.members, judged.is_of_worse_state) == (members, beyond)
    assert judged.spread == Spread(0.02, 1)
    assert level_of(*points).of_state(value) == level_of(*points)


def test_a_run_of_the_worse_state_has_the_chance_of_that_state() -> None:
    states = TwoStates((0, 1), (2,), 0.0, 0.5, 0.0)
    points = [point_of(i, None, log) for i, log in enumerate((0.0, 0.0, 0.5))]
    level = level_of(*points, states=states, state_spread=Spread(0.02, 1))
    # One of three runs was in it: two fifths, by the rule of succession.
    assert level.of_state(0.5).state_chance == pytest.approx(2 / 5)
    assert level.of_state(0.1).state_chance == 0
    constant = [level_of(*(point_of(i, None, v) for i, v in enumerate(logs))).is_constant
                for logs in ((0.1, 0.1), (0.1, 0.2), ())]  # fmt: skip
    assert constant == [True, False, True]


def test_a_commit_is_no_baseline_of_itself_and_an_unknown_one_is_of_anything() -> None:
    stored, unknown = row_of("a", git_commit="c" * 40), row_of("b", git_commit=None)
    sources = [("c" * 40, False), ("c" * 40, True), (None, None)]
    assert [run_spread.may_be_baseline(stored, source) for source in sources] == [False, True, True]
    assert run_spread.may_be_baseline(unknown, (None, False))


def test_runs_of_two_series_are_held_against_each_other_by_what_both_vary(store: Store) -> None:
    first, second = add(store, row_of("a", 1e6), row_of("b", 2e6, precision="int8"))
    with store.session() as session:
        one, two = (session.get_one(Run, number) for number in (first, second))
        comparison = Gate(session).compare_runs(one, two, "latency_ns")
        assert comparison is not None
        difference = comparison.difference
        assert difference is not None
        assert difference.change == pytest.approx(math.log(2))
        # 10 % is assumed of both sides, and each has one run.
        reach = 1.959964 * 0.1 * math.sqrt(2)
        assert difference.interval.high - difference.change == pytest.approx(reach, rel=1e-3)
        assert Gate(session).compare_runs(one, two, "load_ns") is None
        strict = Gate(session, threshold=0.2, thresholds={"load_ns": 0.3})
        assert [strict._limit(m, exact=e) for m, e in (("latency_ns", True), ("load_ns", True))] == [
            0.2, 0.3
        ]  # fmt: skip
        assert [Gate(session)._limit("load_ns", exact=e) for e in (True, False)] == [0.01, 0.05]


def test_an_alarm_lasts_until_its_run_is_accepted(store: Store) -> None:
    first, second = add(store, row_of("a"), row_of("b", **later(1)))
    result = CheckResult(CheckRequest("window:7"), (), ())
    with store.session() as session:
        runs = [session.get_one(Run, number) for number in (first, second)]
        facts = (runs[1], (), "why", "latency_ns")
        entries = (
            CheckedMetric("regression", *facts, departed=(first,)),
            CheckedMetric("improvement", runs[1], (), "why", "load_ns"),
            CheckedMetric("failed", runs[1], (), "why"),
        )
        result = replace(result, entries=entries)
        assert (result.exit_code, [result.counts[o] for o in OUTCOMES]) == (
            1,
            [1, 1, 0, 1, 0, 0, 0],
        )
    store.write(lambda session: raise_alarms(session, result, START))
    acceptance = {"accepted_at": START, "accepted_by": "me", "why": "meant"}
    with store.session() as session:
        raised = {(alarm.run_id, alarm.metric) for alarm in session.query(Alarm)}
        assert raised == {(first, "latency_ns"), (second, "latency_ns")}
        stored = session.get_one(Run, second)
        judgement = Judgement("unchanged", 0.0, 0.0, 0.0, 0.05, "")
        judged = Gate(session).as_checked(stored, "latency_ns", judgement)
        assert (judged.verdict, judged.reason) == ("regression", "a check calls it worse")
        assert Gate(session).as_checked(stored, "load_ns", judgement) == judgement
        assert Gate(session).is_called_worse(stored, "latency_ns")
        assert not Gate(session).is_called_worse(stored, "load_ns")
    store.write(lambda s: selection.accept_runs(s, [s.get_one(Run, second)], acceptance))
    with store.session() as session:
        stored = session.get_one(Run, second)
        assert not Gate(session).is_called_worse(stored, "latency_ns")
        judged = Gate(session).as_checked(stored, "latency_ns", judgement)
        assert (judged.verdict, judged.reason) == (
            "changed", "accepted, though a check calls it worse",
        )  # fmt: skip


def test_changes_of_a_series_have_the_medians_around_them(store: Store) -> None:
    levels = [1.0] * 12 + [1.5] * 12
    rows = [
        row_of(f"{i}", 1e6 * level * (1 + 0.001 * (i % 3)), **later(i))
        for i, level in enumerate(levels)
    ]
    numbers = add(store, *rows, row_of("gone", None, **later(99)))
    with store.session() as session:
        (change,), doubts = find_changes(session, "latency_ns", {"branch": "main"})
        assert (change.run.id, change.previous.id, change.following.id) == (
            numbers[12], numbers[11], numbers[12],
        )  # fmt: skip
        assert (change.before, change.after) == pytest.approx((1.001e6, 1.5015e6))
        assert (change.unit, change.higher_is_better, doubts) == ("ns", False, [])
        assert find_changes(session, "latency_ns", {"branch": "none"})[0] == []
        assert standing_regressions(session, [change]) == [change]
        better = replace(change, after=1.0)
        assert standing_regressions(session, [change, better]) == []
    for number, standing in ((numbers[11], 1), (numbers[12], 0)):
        pin(store, f"b{number}", number)
        with store.session() as session:
            (change,), _ = find_changes(session, "latency_ns", {})
            assert len(standing_regressions(session, [change])) == standing


def layer(name: str, **amounts: int) -> dict[str, Any]:
    return {"layer": name, "source": "m.py:3", **amounts}


ON_SME = {"sme_operators": 1, "sme_macs": 900}
OFF_SME = {"other_operators": 1, "other_macs": 900}


def facts_row(key: str, layers: list[dict[str, Any]], **facts: Any) -> Run:  # noqa: ANN401
    return row_of(key, exact_facts={"layers": layers, "has_routes": True, **facts})


def exact_verdicts(before: Run, after: Run) -> dict[str, tuple[str, str]]:
    return {
        c.metric: (c.judgement.verdict, c.judgement.reason) for c in compare_facts(before, after)
    }


def test_a_layer_that_left_sme_is_worse_and_one_that_is_gone_is_only_another_model() -> None:
    conv, linear = layer("conv", **ON_SME), layer("linear", sme_operators=1, sme_macs=100)
    before = facts_row("a", [linear, conv], delegate_calls=1)
    left = exact_verdicts(before, facts_row("b", [linear, layer("conv", **OFF_SME)]))
    assert left == {
        "sme_operators": ("regression", "conv (m.py:3) left SME with 900 multiply-accumulates"),
        "sme_share": ("regression", "conv (m.py:3) left SME with 900 multiply-accumulates"),
        "model_macs": ("unchanged", "the same"),
    }
    gone = exact_verdicts(before, facts_row("b", [conv], delegate_calls=2))
    assert gone == {
        "sme_operators": ("changed", "linear (m.py:3) on SME 100 → 0"),
        "sme_share": ("unchanged", "the same"),
        "model_macs": ("changed", "linear (m.py:3) 100 → 0"),
        "delegate_calls": ("regression", "another value"),
    }
    back = exact_verdicts(facts_row("b", [layer("conv", **OFF_SME)]), facts_row("c", [conv]))
    assert {verdict for verdict, _ in back.values()} == {"improvement", "unchanged"}
    assert compare_facts(before, row_of("none")) == compare_facts(row_of("none"), before) == []


@pytest.mark.parametrize(
    ("size", "decibels", "verdicts"),
    [
        (1010, 37.0, ("unchanged", "unchanged")),
        (1011, 36.9, ("regression", "regression")),
        (990, 43.0, ("unchanged", "unchanged")),
        (989, 43.1, ("improvement", "improvement")),
    ],
)
def test_a_size_has_a_hundredth_and_outputs_three_decibels(
    size: int, decibels: float, verdicts: tuple[str, str]
) -> None:
    before = facts_row("a", [], program_bytes=1000, output_db=40.0)
    after = facts_row("b", [], program_bytes=size, output_db=decibels)
    (of_size, of_outputs) = exact_verdicts(before, after).values()
    assert (of_size[0], of_outputs[0]) == verdicts
    is_same = verdicts[0] == "unchanged"
    assert of_size[1] == ("within the tolerance" if is_same else "another value")
    sizes, _ = compare_facts(before, after)
    assert sizes.judgement.change == pytest.approx(size / 1000 - 1)


def test_layers_that_changed_are_named_with_the_largest_first_and_three_at_most() -> None:
    sizes = [10, 500, 20, 30, 40]
    before = facts_row("a", [layer(f"l{i}", sme_macs=size) for i, size in enumerate(sizes)])
    after = facts_row("b", [layer(f"l{i}", sme_macs=size + 1) for i, size in enumerate(sizes)])
    reason = exact_verdicts(before, after)["model_macs"][1]
    assert reason == (
        "l1 (m.py:3) 500 → 501, l4 (m.py:3) 40 → 41, l3 (m.py:3) 30 → 31, and 2 more layers"
    )


def work_row(key: str, *, svl: int = 512, counted: bool = True, **operators: Any) -> Run:  # noqa: ANN401
    work = {"svl_bits": svl, "has_instructions": counted, "operators": operators}
    return row_of(key, work=work, exact_facts={"layers": [layer("l", sme_macs=100)]})


def test_one_step_more_is_worse_where_the_same_products_are_on_sme() -> None:
    conv = {"calls": 1, "macs": 100, "steps": 10, "bytes": 64, "instructions": 1000}
    before = work_row("a", conv=conv, fc={"calls": 2})
    after = work_row("b", conv={**conv, "steps": 11, "bytes": 60}, fc={"calls": 3})
    verdicts = {c.metric: (c.judgement.verdict, c.judgement.reason, c.before, c.after)
                for c in compare_work(before, after)}  # fmt: skip
    assert verdicts == {
        "kernel_calls": ("regression", "exact: fc 2 → 3", 3, 4),
        "work_macs": ("unchanged", "exact: the same", 100, 100),
        "work_padded_macs": ("unchanged", "exact: the same", 0, 0),
        "work_steps": ("regression", "exact: conv 10 → 11", 10, 11),
        "work_bytes": ("improvement", "exact: conv 64 → 60", 64, 60),
        "instructions": ("unchanged", "exact: the same", 1000, 1000),
    }
    assert compare_work(before, work_row("c", svl=256, conv=conv)) == []
    uncounted = compare_work(before, work_row("c", counted=False, conv=conv))
    assert "instructions" not in {comparison.metric for comparison in uncounted}
    assert compare_work(before, row_of("c")) == compare_work(row_of("c"), before) == []


def test_work_that_left_sme_is_worse_though_all_its_counts_fall() -> None:
    conv = {"calls": 1, "macs": 100, "steps": 10}
    before, after = work_row("a", conv=conv, fc=conv), work_row("b", conv=conv)
    growth = {"layers": [layer("l", sme_macs=200)]}
    after.exact_facts = {"layers": [layer("l", sme_macs=100)]}
    before.exact_facts = growth

    def steps_of(first: Run, second: Run) -> str:
        return {c.metric: c.judgement.verdict for c in compare_work(first, second)}["work_steps"]

    # The model itself has less: another one, and no proof of anything.
    assert (steps_of(before, after), steps_of(after, before)) == ("changed", "regression")
    before.exact_facts = after.exact_facts
    assert (steps_of(before, after), steps_of(after, before)) == ("changed", "changed")
    before.exact_facts = None
    assert (steps_of(before, after), steps_of(after, before)) == ("regression", "regression")


def test_the_newest_run_that_is_not_worse_stands_for_those_before() -> None:
    runs = [
        facts_row(f"{i}", [], **({} if calls is None else {"delegate_calls": calls}))
        for i, calls in enumerate((3, 2, None, 2, 4))
    ]
    for number, row in enumerate(runs):
        row.id = number
    candidate = facts_row("c", [], delegate_calls=4)
    assert standing_run(candidate, runs, compare_facts, ()) is runs[3]
    assert standing_run(candidate, runs, compare_facts, (4,)) is runs[4]
    assert standing_run(candidate, runs[2:3], compare_facts, ()) is None
    assert standing_run(candidate, [], compare_facts, ()) is None


def judged_row(
    run: Run, outcome: Verdict, change: float | None, metric: str = "latency_ns"
) -> CheckedMetric:
    judgement = Judgement(outcome, change, change, change, 0.05, "why")
    facts = {"unit": "ns", "before": 100.0, "after": 125.0, "judgement": judgement}
    return CheckedMetric(outcome, run, (), "why", metric, **facts)  # type: ignore[arg-type]


def test_a_headline_counts_outcomes_and_first_runs() -> None:
    row = row_of("a")
    entries = tuple(judged_row(row, o, 0.25) for o in ("regression", "regression", "unchanged"))
    result = CheckResult(CheckRequest("window:7"), entries, (row, row))
    assert tables._headline(result) == (
        "Worse than window:7: 2 regressions, 1 unchanged; first run of 2 series"
    )
    calm = replace(result, entries=entries[2:], without_baseline=())
    assert tables._headline(calm) == "No regression against window:7: 1 unchanged"
    assert tables._headline(replace(calm, entries=(), without_baseline=(row,))) == (
        "First run of 1 series: nothing to compare with in window:7 yet"
    )


def test_a_comment_shows_twelve_changes_and_three_first_runs() -> None:
    rows = [row_of(f"{i}", precision=f"p{i}") for i in range(14)]
    for number, row in enumerate(rows):
        row.id = number
    entries = [judged_row(row, "regression", 0.01 * i) for i, row in enumerate(rows)]
    result = CheckResult(CheckRequest("window:7"), tuple(entries), tuple(rows[:5]))
    shown, _, folded = tables.render_check(result, "markdown").partition("<details>")
    assert shown.count("🔴 regression: **Inference, median**") == 12
    assert "- 🔴 regression: **Inference, median** 100 ns → 125 ns, +1.0 % (p1)\n" in shown
    assert "- and 2 more\n" in shown
    assert (shown.count("First run"), folded.count("First run")) == (3, 2)
    assert "All of 14 comparisons" in folded
    assert "A time counts beyond 5 %" in folded
    document = tables._document(replace(result, request=CheckRequest("x", threshold=0.0)))
    assert (document["threshold"], document["exit_code"]) == (0.0, 1)


def test_a_change_that_all_runs_share_names_none_of_them() -> None:
    rows = [row_of(f"{i}", threads=i) for i in (1, 2)]
    for number, row in enumerate(rows):
        row.id = number
    entries = [judged_row(row, "improvement", -0.2) for row in rows]
    assert tables._changes_of_runs(entries) == [
        "🟢 improvement: **Inference, median** 100 ns → 125 ns, −20.0 %"
    ]
    assert tables._short_names({0: rows[0], 1: rows[1]}) == {0: "1 thread", 1: "2 threads"}
    assert tables._short_names({7: rows[0]}) == {7: "#7"}


def timing(block: int, error: str | None = None, experiment: str = "on") -> LaunchRecord:
    return LaunchRecord(experiment=experiment, purpose="timing", block=block, error=error)


def test_a_failure_that_a_later_try_made_good_is_none() -> None:
    setup, measured = Experiment(name="on"), cast("ExperimentMetrics", object())

    def failure(*launches: LaunchRecord, was_measured: bool = True) -> str | None:
        manifest = cast("Manifest", SimpleNamespace(launches=launches, status="interrupted"))
        return ingest._failure(manifest, setup, measured if was_measured else None)

    assert failure(timing(0, "x"), timing(0), timing(1, "y", "off")) is None
    assert failure(timing(0, "x"), timing(1)) == "timing: x"
    assert failure(timing(0, "x"), timing(1, "y"), timing(2, "z")) == (
        "timing: x, and 2 more errors"
    )
    assert failure(was_measured=False) == "not measured: the run is interrupted"


def test_the_mode_of_a_failed_run_is_what_its_cpu_gives() -> None:
    def mode(sme: str, *features: str, is_known: bool = True) -> str:
        cpu = SimpleNamespace(has_sme2="sme2" in features, features=dict.fromkeys(features, True))
        manifest = cast("Manifest", SimpleNamespace(cpu=cpu if is_known else None))
        return ingest._sme_of_failed(manifest, Experiment(name="on", sme=sme))

    assert [mode("auto", "sme", "sme2"), mode("auto", "sme"), mode("auto")] == [
        "sme2",
        "sme1",
        "off",
    ]
    assert (mode("auto", "sme2", is_known=False), mode("off", "sme2")) == ("auto", "off")
