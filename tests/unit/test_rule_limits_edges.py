"""Rules, conditions and exact facts at their limits: small changes that went unnoticed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from etprof.analysis import validity
from etprof.analysis.exact_facts import (
    EXACT_METRICS,
    ExactFacts,
    LayerWork,
    describe_value,
    facts_of_experiment,
)
from etprof.analysis.findings.rules import evaluate_run
from etprof.analysis.generation import LEAST_TOKENS, block_values, summarise_generation
from etprof.analysis.split.cold_start import (
    LedgerEntry,
    SeparateRuns,
    build_ledger,
    build_ledger_of_runs,
)
from etprof.run.directory import ExperimentMetrics
from tests.known_runs import Op
from tests.unit.test_findings import (
    convolutions,
    findings_of,
    fired,
    insight,
    one,
    small_transposes,
    threads,
    transposed,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.known_runs import Run

MS = 1000
"""In µs."""
SOFTMAX = "Softmax (NC, F32) #1"
TRANSPOSE = "Transpose (ND, X32) #1"
NORM = "Normalize (NC, F32) #1"
COPY = "Copy (NC, X32) #1"


@pytest.mark.parametrize(
    ("rule", "run", "fires"),
    [
        # An operator of 1 ms is small, whatever share it has; one above it is not.
        ("F2", one(small_transposes(10, MS, 20 * MS)), True),
        ("F2", one(small_transposes(10, MS + 1, 20 * MS)), False),
        # Ten of 2 % each are small, however long they take; of 2.1 % they are not.
        ("F2", one(small_transposes(10, 2 * MS, 80 * MS)), True),
        ("F2", one(small_transposes(10, 2 * MS, 75 * MS)), False),
        # Together they have to take 10 %.
        ("F2", one(small_transposes(10, 10, 899)), True),
        ("F2", one(small_transposes(10, 10, 901)), False),
        # One that takes 10 % itself is none of the small ones: nine are too few.
        ("F2", one([*small_transposes(9, 10, 800), Op("Transpose (ND, X32) #10", 98)]), True),
        ("F2", one([*small_transposes(9, 10, 810), Op("Transpose (ND, X32) #10", 100)]), False),
        ("F2c", one([Op(COPY, 30), *convolutions(70)]), True),
        ("F2c", one([Op(COPY, 300), *convolutions(701)]), False),
        ("F2d", one([Op(TRANSPOSE, 10), *convolutions(90)]), True),
        ("F2d", one([Op(TRANSPOSE, 100), *convolutions(901)]), False),
        ("F3b", one([*convolutions(98), Op("native_call_convolution.out", 1, 1)]), True),
        ("F3b", one([*convolutions(99), Op("native_call_convolution.out", 1, 1)]), False),
        ("F5", one([*convolutions(94), Op("native_call_gelu.out", 5, 1)]), True),
        ("F5", one([*convolutions(95), Op("native_call_gelu.out", 5, 1)]), False),
        ("F6", one([*convolutions(90), Op(SOFTMAX, 10)]), True),
        ("F6", one([*convolutions(901), Op(SOFTMAX, 100)]), False),
        # A delegate's clock may have rounded 1 µs off, which is none of its overhead.
        ("F12", one(convolutions(89), delegate_overhead_us=11), True),
        ("F12", one(convolutions(90), delegate_overhead_us=10), False),
        # Norms beat convolutions that take as long, if both take 5 %.
        ("F1", one([*convolutions(10), Op(NORM, 10), Op(SOFTMAX, 80)]), True),
        ("F1", one([*convolutions(11), Op(NORM, 10), Op(SOFTMAX, 79)]), False),
        ("F1", one([*convolutions(5), Op(NORM, 5), Op(SOFTMAX, 90)]), True),
        ("F1", one([*convolutions(49), Op(NORM, 49), Op(SOFTMAX, 902)]), False),
        ("F1", one([*convolutions(85), Op(NORM, 15)]), True),
        ("F1", one([*convolutions(851), Op(NORM, 150)]), False),
        # Ten times the median convolution.
        ("F3", one(convolutions(10, 10, 100)), True),
        ("F3", one(convolutions(10, 10, 99)), False),
        ("F3", one(convolutions(10, 100)), False),
    ],
)  # fmt: skip
def test_a_rule_fires_from_its_limit_on(
    rule: str, run: Run, *, fires: bool, tmp_path: Path
) -> None:
    assert (rule in fired(insight(tmp_path / "r", run))) == fires


@pytest.mark.parametrize(
    ("run", "rule", "severity"),
    [
        # A call of a portable kernel takes 1 µs beside it.
        (one([*convolutions(90), Op("native_call_gelu.out", 10, 1)]), "F5", "medium"),
        (one([*convolutions(89), Op("native_call_gelu.out", 10, 1)]), "F5", "high"),
        (one(small_transposes(10, 30, 700)), "F2", "high"),
        (one(small_transposes(10, 30, 701)), "F2", "medium"),
        (one([Op(TRANSPOSE, 30), *convolutions(70)]), "F2d", "high"),
        (one([Op(TRANSPOSE, 29), *convolutions(71)]), "F2d", "medium"),
        (one([*convolutions(80), Op(NORM, 20)]), "F1", "medium"),
        (one([*convolutions(80), Op("native_call_native_layer_norm.out", 20, 1)]), "F1", "high"),
    ],
)  # fmt: skip
def test_how_bad_it_is_has_a_limit_of_its_own(
    run: Run, rule: str, severity: str, tmp_path: Path
) -> None:
    assert fired(insight(tmp_path / "r", run))[rule].severity == severity


def test_cheap_operators_between_two_calls_split_the_delegate(tmp_path: Path) -> None:
    """Each takes 1 %, less than 5 %: they matter as they stand between delegate calls."""
    call = "Convolution (NHWC, F16) IGEMM #{}"

    def run(first_us: int) -> Run:
        gelu = Op("native_call_gelu.out", 1, 1)
        return one([Op(call.format(1), first_us), gelu, Op(call.format(2), 10, 2)])

    # With 1 µs of dispatch these are 100 µs.
    summary = fired(insight(tmp_path / "a", run(88)))["F5"].summary
    assert summary == (
        "1 operator outside the delegate: 1.00 µs per inference, 1.0 %; 2 delegate calls, "
        "cut apart by 1 cheap operator."
    )
    # Of 99 µs it takes more than 1 %, and is not cheap; of 101 µs less, and not worth a word.
    assert "F5" not in fired(insight(tmp_path / "b", run(87)))
    assert "F5" not in fired(insight(tmp_path / "d", run(89)))
    # Behind the last call it cuts nothing apart.
    last = one([*convolutions(98), Op("native_call_gelu.out", 1, 1)])
    assert "F5" not in fired(insight(tmp_path / "c", last))


def test_pairs_of_transposes_are_the_first_that_many_small_ones_are_told_to_leave_out(
    tmp_path: Path,
) -> None:
    run = transposed([2, 0, 1], "Hardswish")
    (experiment,) = run.experiments
    long = [replace(op, us=5 * op.us) if "Transpose" in op.label else op for op in experiment.ops]
    run = replace(run, experiments=[replace(experiment, ops=long)])
    action = fired(insight(tmp_path / "r", run))["F2d"].action
    assert action == (
        "remove the 1 pair that undo each other (F2b); "
        "move the transposes and copies to the model's edge, or leave them out"
    )


def test_a_convolution_and_a_transpose_ask_for_one_layout(tmp_path: Path) -> None:
    with_convolution = one([Op(TRANSPOSE, 30), *convolutions(70)])
    assert "--channels-last" in fired(insight(tmp_path / "a", with_convolution))["F2d"].action
    for name, operators in {
        "b": [Op(TRANSPOSE, 30), Op("Fully Connected (NC, F32) GEMM #1", 70)],
        "c": [Op(COPY, 30), *convolutions(70)],
    }.items():
        action = fired(insight(tmp_path / name, one(operators)))["F2d"].action
        assert "--channels-last" not in action


def test_overhead_is_told_with_its_share_and_claims_itself(tmp_path: Path) -> None:
    finding = fired(insight(tmp_path / "r", one(convolutions(75), delegate_overhead_us=25)))["F12"]
    # The clock may have rounded 1 µs of its operator's off.
    assert finding.summary == (
        "24.0 µs per inference, 24.0 %, belongs to no operator; the program has 1 delegate call."
    )
    assert finding.time_ns == pytest.approx(24_000)
    # After the one operator comes the delegate's overhead, of which all is claimed.
    assert finding.claims == pytest.approx({1: 1.0})


def test_a_slow_convolution_claims_what_it_takes_beyond_the_usual(tmp_path: Path) -> None:
    finding = fired(insight(tmp_path / "r", one(convolutions(10, 10, 20, 200))))["F3"]
    # The median of 10, 10, 20 and 200 is 15: 185 of 200 are too much.
    assert finding.claims == pytest.approx({3: 0.925})
    assert finding.time_ns == pytest.approx(185_000)
    assert "takes 200 µs, 13.3× the median convolution" in finding.summary


def test_as_many_rows_are_shown_as_fit_and_the_rest_in_one(tmp_path: Path) -> None:
    finding = fired(insight(tmp_path / "r", one(small_transposes(12, 20, 1000))))["F2"]
    assert len(finding.evidence) == 7
    assert (finding.evidence[-1].label, finding.evidence[-1].text) == ("6 others", "120 µs")
    assert finding.summary == (
        "12 transposes and copies of 20.0 µs each take 240 µs per inference, 19.4 %."
    )
    assert finding.ruled_out == ("one slow copy: the longest takes 20.0 µs",)


def test_fewer_threads_that_are_faster_are_advised_with_what_they_save(tmp_path: Path) -> None:
    run = insight(tmp_path / "r", threads(100, 130))
    finding = fired(run)["F14"]
    assert finding.action == "use 1 thread"
    assert finding.summary.startswith("1 thread is best: 1.30× as fast as 4")
    assert [row.label for row in finding.evidence] == ["off, 4 threads", "off, 1 thread"]
    # Medians of 100 and 101 and of 130 and 131 µs: 30 of 130.5.
    assert finding.gain_ns == pytest.approx(30_000)
    first = next(entry for entry in evaluate_run(run) if entry.experiment == "t1")
    assert "F14" not in {finding.rule for finding in first.findings}
    assert findings_of(run).experiment == "e"


# ---- conditions of a verdict


def launches(*names: str, error_at: int | None = None) -> Any:  # noqa: ANN401
    """Two launches a block, by the experiment that came first."""
    return [
        SimpleNamespace(block=block, experiment=name, error=None)
        for block, first in enumerate(names)
        for name in (first, "x" if first == "a" else "a")
    ]


@pytest.mark.parametrize(
    ("first", "state"), [("aaxx", "passed"), ("aaaaaaaaaaxxxxxx", "passed"), ("a" * 16, "failed")]
)
def test_each_side_comes_first_about_as_often(first: str, state: str) -> None:
    check = validity._check_order(launches(*first), "a")
    assert (check.state, check.detail) == (
        state, f"baseline first in {first.count('a')} of {len(first)} blocks",
    )  # fmt: skip
    assert validity._check_order([], "a").state == "unknown"


@pytest.mark.parametrize(
    ("verdict", "candidate", "state"),
    [
        ("faster", 99.0, "passed"), ("faster", 100.0, "passed"), ("faster", 101.0, "failed"),
        ("slower", 101.0, "passed"), ("slower", 100.0, "passed"), ("slower", 99.0, "failed"),
        ("no difference", 150.0, "passed"), ("inconclusive", 50.0, "passed"),
    ],
)  # fmt: skip
def test_a_verdict_and_its_medians_have_one_direction(
    verdict: str, candidate: float, state: str
) -> None:
    effect: Any = SimpleNamespace(verdict=verdict, speed_up=1.5)
    check = validity._check_direction(LedgerEntry("", "ns", 100.0, candidate, effect))
    assert check.state == state
    assert bool(check.cause) == (state == "failed")
    assert validity._check_direction(LedgerEntry("", "ns", 100.0, None, effect)).state == "unknown"
    assert validity._check_direction(None).state == "unknown"


def side(*blocks: dict[str, Any]) -> Any:  # noqa: ANN401
    """One side of a comparison with these blocks."""
    usual: dict[str, Any] = {
        "latency_ns": [1000] * 20, "is_steady": None, "conditions": None, "clock": None,
        "inferences_per_sample": 1,
    }  # fmt: skip
    made = [SimpleNamespace(**(usual | block)) for block in blocks]
    for block in made:
        block.timed_ns = sum(block.latency_ns) * block.inferences_per_sample
    return SimpleNamespace(experiment=SimpleNamespace(metrics=SimpleNamespace(blocks=made)))


def test_four_of_five_launches_have_to_be_steady() -> None:
    steady, unsettled = {"is_steady": True}, {"is_steady": False}
    passed = validity._check_warmup([side(*[steady] * 4, unsettled)])
    assert (passed.state, passed.detail) == ("passed", "4 of 5 blocks were steady from the start")
    assert validity._check_warmup([side(*[steady] * 3, unsettled)]).state == "failed"
    few = validity._check_warmup([side(steady, {"latency_ns": [1000] * 19})])
    assert (few.state, few.detail) == ("unknown", "1 of 2 blocks have under 20 samples")
    assert validity._check_warmup([]).state == "unknown"


def conditions(switches: int, faults: int = 0, **more: int | None) -> dict[str, Any]:
    """Of a launch that timed 1 s."""
    usual = {"minor_faults": None, "voluntary_switches": None, "first_core": 1, "last_core": 1}
    fields = {"involuntary_switches": switches, "major_faults": faults, **usual, **more}
    return {"conditions": SimpleNamespace(**fields), "latency_ns": [10**8] * 10}


def test_fifty_switches_a_second_are_a_quiet_machine() -> None:
    calm = validity._check_interruptions([side(conditions(50)), side(conditions(50))])
    assert calm.state == "passed"
    assert calm.detail == (
        "preempted 50 times a second; 0 pages from storage; other core at the end in 0 of 2 blocks"
    )
    busy = validity._check_interruptions([side(conditions(51)), side(conditions(51))])
    assert (busy.state, busy.cause, busy.name) == ("failed", "", "undisturbed")
    stored = validity._check_interruptions([side(conditions(0, 1, last_core=2)), side()])
    assert (stored.state, stored.cause) == ("failed", "pages came from storage during the run")
    assert "1 page from storage; other core at the end in 1 of 1 blocks" in stored.detail
    counted = conditions(0, minor_faults=40, voluntary_switches=20) | {"inferences_per_sample": 2}
    detail = validity._check_interruptions([side(counted)]).detail
    assert detail.endswith("; 2 new pages per inference; 1 waits per inference")
    assert validity._check_interruptions([side({})]).state == "unknown"


def test_a_busy_machine_that_slows_one_side_more_is_said() -> None:
    """Calm 100 against 50, in the middle 110 or 121 against 50: one in ten is the limit."""

    def latencies(calm: int, middle: int) -> dict[str, Any]:
        return {**conditions(99_999), "latency_ns": [calm] * 4 + [middle] * 16}

    alike = validity._check_interruptions([side(latencies(100, 110)), side(latencies(50, 50))])
    assert (alike.name, alike.cause) == ("undisturbed", "")
    biased = validity._check_interruptions([side(latencies(100, 121)), side(latencies(50, 50))])
    assert biased.name == "disturbed alike"
    assert biased.state == "failed"
    assert biased.cause.endswith("(10th percentile) is 2.00×, that of the medians 2.42×")
    other_way = validity._check_interruptions([side(latencies(50, 50)), side(latencies(100, 121))])
    assert other_way.name == "disturbed alike"


@pytest.mark.parametrize(("latency_ns", "state"), [(1000, "passed"), (999, "failed")])
def test_a_sample_is_a_hundred_ticks_of_the_clock(latency_ns: int, state: str) -> None:
    def clocked(ns: int, count: int = 1) -> dict[str, Any]:
        clock = SimpleNamespace(tick_ns=20, reading_ns=25.0)
        return {"latency_ns": [ns] * 20, "clock": clock, "inferences_per_sample": count}

    check = validity._check_clock([side(clocked(10**6)), side(clocked(latency_ns, 2))])
    assert check.state == state
    assert check.detail.endswith("ticks or more; a reading takes 25.0 ns")
    assert check.detail.startswith(
        "a sample is 100 ticks" if state == "passed" else "a sample is 99"
    )


def states(*khz: int, **more: str) -> Any:  # noqa: ANN401
    """Before and after each launch the cores have these frequencies."""
    shown = [{"frequency_khz": [1, fastest], **more} for fastest in khz]
    return [SimpleNamespace(state_before=state, state_after=None) for state in shown]


def test_a_frequency_may_fall_by_a_twentieth() -> None:
    check = validity._check_frequency(states(2_000_000, 1_900_000, governor="performance"))
    assert (check.state, check.detail) == ("passed", "1.90 to 2.00 GHz, governor performance")
    assert validity._check_frequency(states(2_000_000, 1_899_999)).state == "failed"
    assert validity._check_frequency(states()).state == "unknown"
    assert validity._check_throttling(states(1, thermal_status="None")).state == "passed"
    hot = validity._check_throttling(states(1, thermal_status="Severe"))
    assert (hot.state, hot.detail) == ("failed", "severe")


def test_runners_may_differ_in_sme_and_instruments_alone() -> None:
    def check(*builds: dict[str, object]) -> validity.ValidityCheck:
        results: Any = [SimpleNamespace(runner=SimpleNamespace(build=build)) for build in builds]
        return validity._check_builds(results)

    usual: dict[str, object] = {"flags": "-O2", "sme": True, "trace": False}
    alike = check(usual, {**usual, "sme": False, "trace": True})
    assert (alike.state, alike.detail) == ("passed", "but for SME switches")
    apart = check(usual, {"flags": "-O3", "build_type": "Release"})
    assert (apart.state, apart.detail) == ("failed", "runners differ in build_type, flags")
    assert validity._check_builds([None]).state == "unknown"


def test_a_badge_names_what_is_not_met_before_what_nobody_knows() -> None:
    made = [validity.ValidityCheck(*pair, "") for pair in (
        ("steady frequency", "failed"), (validity.WARM_UP, "failed"), ("equal outputs", "failed"),
        ("fine clock", "unknown"),
    )]  # fmt: skip
    whole = validity.Validity(tuple(made))
    assert whole.objection == "the CPU's frequency changed"
    assert whole.remark == "latencies had not settled after the warm-up"
    assert whole.badge == (
        "questionable, not met: steady frequency, warm-up settled, equal outputs"
    )
    assert validity.Validity(tuple(made[1:2])).badge == "not met: warm-up settled"
    assert validity.Validity(tuple(made[3:])).badge == "not known: fine clock"
    assert (whole.is_valid, whole.unknown) == (False, ("fine clock",))
    assert validity.Validity(()).is_valid


# ---- what no noise changes


def layer(sme: tuple[int, int], rest: tuple[int, int], outside: int = 0) -> LayerWork:
    return LayerWork(
        sme_operators=sme[0], sme_macs=sme[1], other_operators=rest[0], other_macs=rest[1],
        outside=outside,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("before", "now", "text"),
    [
        (layer((1, 50), (0, 0)), layer((0, 0), (1, 50)), "left SME with 50 multiply-accumulates"),
        (layer((0, 0), (1, 50)), layer((1, 60), (0, 0)),
         "runs on SME now, 60 multiply-accumulates"),
        (layer((1, 50), (0, 0)), layer((0, 0), (0, 0)), "on SME 50 → 0"),
        (layer((1, 50), (1, 5)), layer((2, 50), (1, 7)), "off SME 5 → 7"),
        (layer((1, 50), (1, 5)), layer((1, 50), (2, 5)), ""),
        (layer((1, 50), (1, 5)), layer((1, 51), (1, 5)), "on SME 50 → 51"),
        # One of two products without SME is gone: none went anywhere.
        (layer((0, 0), (2, 50)), layer((0, 0), (1, 30)), "off SME 50 → 30"),
        (layer((0, 0), (1, 30)), layer((0, 0), (2, 50)), "off SME 30 → 50"),
    ],
)  # fmt: skip
def test_what_became_of_a_layers_products_is_said(
    before: LayerWork, now: LayerWork, text: str
) -> None:
    describe = EXACT_METRICS["sme_share"].describe_layer
    assert describe is not None
    assert describe(before, now) == text


def test_exact_metrics_are_sums_over_layers_where_routes_are_told() -> None:
    layers = (layer((1, 30), (2, 10), 1), layer((3, 30), (4, 30), 2))
    facts = ExactFacts(layers=layers, has_routes=True, program_bytes=500)
    values = {name: metric.value_of(facts) for name, metric in EXACT_METRICS.items()}
    assert values == {
        "sme_operators": 4, "sme_share": 0.6, "model_macs": 100, "delegate_calls": None,
        "operators_outside": None, "program_bytes": 500, "planned_bytes": None, "output_db": None,
    }  # fmt: skip
    unrouted = facts.model_copy(update={"has_routes": False})
    assert EXACT_METRICS["sme_operators"].value_of(unrouted) is None
    assert EXACT_METRICS["model_macs"].value_of(unrouted) == 100
    assert EXACT_METRICS["model_macs"].value_of(ExactFacts()) is None
    nothing = ExactFacts(layers=(layer((0, 0), (0, 0)),), has_routes=True)
    assert EXACT_METRICS["sme_share"].value_of(nothing) == 0.0
    counterparts = {
        name: metric.counterpart(facts)
        for name, metric in EXACT_METRICS.items()
        if metric.counterpart
    }
    assert counterparts == {"sme_operators": 6, "sme_share": 40}


def test_sizes_may_change_by_one_per_cent_and_outputs_by_three_decibels() -> None:
    tolerances = {name: metric.tolerance(200.0) for name, metric in EXACT_METRICS.items()}
    assert {name: limit for name, limit in tolerances.items() if limit} == {
        "program_bytes": 2.0, "planned_bytes": 2.0, "output_db": 3.0,
    }  # fmt: skip
    outside = EXACT_METRICS["delegate_calls"].describe_layer
    macs = EXACT_METRICS["model_macs"].describe_layer
    assert outside is not None
    assert macs is not None
    before, now = layer((1, 1), (0, 0), 2), layer((1, 1), (0, 2000), 0)
    assert (outside(before, now), outside(now, now)) == ("2 → 0 outside", "")
    assert (macs(before, now), macs(now, now)) == ("1 → 2,001", "")
    assert describe_value("bytes", 123_456.0) == "123,456"
    named = LayerWork(layer="a", source="m.py:1"), LayerWork(source="m.py:1"), LayerWork(layer="a")
    assert [work.title for work in named] == ["a (m.py:1)", "m.py:1", "a"]
    assert EXACT_METRICS["sme_share"].title == "share of work on SME"


def test_products_are_counted_by_layer_on_sme_or_off_it() -> None:
    def operator(answer: str, layer: str, macs: int | None, **facts: bool) -> tuple[Any, Any]:
        route = SimpleNamespace(answer=answer, takes_sme=answer in {"proven", "named"})
        usual = {"could_use_sme2": True, "is_delegated": True, "route": route}
        origin = SimpleNamespace(module_path=layer, source=None)
        return SimpleNamespace(**(usual | facts)), SimpleNamespace(origin=origin, macs=macs)

    pairs = [
        operator("proven", "a", 10), operator("named", "a", 20), operator("excluded", "a", 5),
        operator("excluded", "b", None, is_delegated=False),
        operator("unknown", "b", 7, could_use_sme2=False, is_delegated=False),
    ]  # fmt: skip
    program: Any = SimpleNamespace(
        name="", model=SimpleNamespace(size_bytes=9), report=SimpleNamespace(
            summary=SimpleNamespace(delegate_calls=3, undelegated_operators=2),
            memory=SimpleNamespace(arena_bytes=[4, 5]),
        ),
    )  # fmt: skip
    evidence, attributions = zip(*pairs, (operator("proven", "", 1)[0], None), strict=True)
    experiment: Any = SimpleNamespace(program=program, evidence=evidence, attributions=attributions)
    facts = facts_of_experiment(experiment, [])
    assert facts.layers == (
        LayerWork(layer="a", sme_operators=2, other_operators=1, sme_macs=30, other_macs=5),
        LayerWork(layer="b", other_operators=1, outside=2), LayerWork(sme_operators=1),
    )  # fmt: skip
    assert (facts.has_routes, facts.delegate_calls, facts.operators_outside) == (True, 3, 2)
    assert (facts.program_bytes, facts.planned_bytes, facts.output_db) == (9, 9, None)


# ---- from start to steady state


def metrics(*blocks: dict[str, Any], **more: Any) -> ExperimentMetrics:  # noqa: ANN401
    usual: dict[str, Any] = {"load": {}, "warmup_latency_ns": [], "latency_ns": [100], "memory": {}}
    numbered = [{"block": number, **usual, **block} for number, block in enumerate(blocks)]
    return ExperimentMetrics.model_validate({"sme": "off", "blocks": numbered, **more})


def spoken(token_ns: Sequence[int], prefill: float = 10.0) -> dict[str, Any]:
    """A generation whose tokens take so long."""
    rate = 1e9 * len(token_ns) / sum(token_ns)
    return {
        "prefill_tokens_per_second": [prefill], "decode_tokens_per_second": [rate],
        "time_to_first_token_ns": [7000], "token_latency_ns": list(token_ns),
        "first_of_process_ns": 9000,
    }  # fmt: skip


def ledger(before: ExperimentMetrics, after: ExperimentMetrics) -> dict[str, LedgerEntry]:
    return {entry.label: entry for entry in build_ledger(before, after, margin=0.02)}


def test_a_ledger_has_medians_of_sides_and_effects_of_times_alone() -> None:
    def timed(ns: int, first: int | None, rss: int) -> dict[str, Any]:
        return {"latency_ns": [ns, ns, 10 * ns], "first_inference_ns": first,
                "memory": {"peak_rss_bytes": rss}}  # fmt: skip

    before = metrics(*(timed(200, 500, 4000) for _ in range(6)))
    after = metrics(*(timed(100, 150, 1000) for _ in range(6)))
    costs = ledger(before, after)
    steady, beyond = costs["Steady inference"], costs["First inference beyond steady"]
    assert (steady.baseline, steady.candidate, steady.unit) == (200.0, 100.0, "ns")
    assert steady.effect is not None
    assert steady.effect.speed_up == pytest.approx(2.0)
    assert (beyond.baseline, beyond.candidate) == (300.0, 50.0)
    peak = costs["Peak memory"]
    assert (peak.baseline, peak.candidate, peak.effect) == (4000.0, 1000.0, None)
    load = costs["Load program"]
    assert (load.baseline, load.candidate, load.effect) == (None, None, None)
    # A pair of which one side took nothing has no ratio.
    slower_first = metrics(*(timed(100, 100, 1) for _ in range(6)))
    assert ledger(slower_first, after)["First inference beyond steady"].effect is None
    assert not any("token" in label.lower() for label in costs)


def test_of_rates_the_larger_is_faster_and_of_one_side_none_is_told() -> None:
    slow = metrics(*({"generation": spoken([200, 200, 200])} for _ in range(6)))
    fast = metrics(*({"generation": spoken([50, 100, 150])} for _ in range(6)))
    costs = ledger(slow, fast)
    decode, mean = costs["Decode, tokens"], costs["Latency of a token, mean"]
    assert (decode.baseline, decode.candidate) == pytest.approx((5e6, 1e7))
    assert (mean.baseline, mean.candidate) == (200.0, 100.0)
    for entry in (decode, mean):
        assert entry.effect is not None
        assert entry.effect.speed_up == pytest.approx(2.0)
    assert not any("token" in label for label in ledger(slow, metrics({})))


def test_a_block_has_the_medians_of_its_tokens_and_their_mean() -> None:
    entry = metrics(
        {"generation": spoken([100, 100, 400]), "load": {"program_ns": 5, "method_ns": 6}}
    )
    values = block_values(entry.blocks[0])
    assert values == pytest.approx(
        {
            "prefill_tokens_per_second": 10.0, "decode_tokens_per_second": 5e6,
            "time_to_first_token_ns": 7000.0, "token_latency_ns": 100.0, "token_mean_ns": 200.0,
            "cold_first_token_ns": 9011.0,
        }
    )  # fmt: skip
    assert block_values(metrics({}).blocks[0]) == {}


@pytest.mark.parametrize(("count", "quantiles"), [(28, 0), (29, 1), (298, 1), (299, 2)])
def test_a_quantile_needs_a_token_beyond_it(count: int, quantiles: int) -> None:
    """0.9^29 and 0.99^299 are the first powers below 5 %."""
    assert LEAST_TOKENS == {0.9: 29, 0.99: 299}
    tokens = list(range(1, count + 1))
    speed = summarise_generation(metrics(*({"generation": spoken(tokens)} for _ in range(2))))
    assert speed is not None
    assert (speed.tokens, speed.tokens_of_a_launch) == (2 * count, count)
    summaries = (speed.token_p90_ns, speed.token_p99_ns)
    assert sum(summary is not None for summary in summaries) == quantiles
    if speed.token_p90_ns:
        assert speed.token_p90_ns.median == pytest.approx(1 + 0.9 * (count - 1))
    assert speed.decode_tokens_per_second.median == pytest.approx(2e9 / (count + 1))


def test_latency_by_position_is_of_equal_parts_of_the_cache() -> None:
    """Ten tokens after the first, in two generations a launch, behind a prompt of three."""
    generated = {
        "prompt_tokens": [1, 2, 3], "tokens": list(range(11)), "prefill_method": "p",
        "decode_method": "d", "prefilled_tokens": 3,
    }  # fmt: skip
    tokens = [*range(100, 110), *range(200, 210)]
    entry = metrics(*({"generation": spoken(tokens)} for _ in range(2)), generated=generated)
    speed = summarise_generation(entry)
    assert speed is not None
    spans = [(span.first, span.last, span.latency_ns.median) for span in speed.positions]
    # Ten places in eight parts: two of two, and six of one; at each the mean of 1xx and 2xx.
    assert spans == [
        (3, 4, 150.5), (5, 6, 152.5), (7, 7, 154), (8, 8, 155), (9, 9, 156), (10, 10, 157),
        (11, 11, 158), (12, 12, 159),
    ]  # fmt: skip


def test_of_separate_runs_the_values_are_those_whose_ratio_the_speedup_is() -> None:
    def run(*latencies: int) -> ExperimentMetrics:
        return metrics(
            *({"latency_ns": [ns], "memory": {"peak_rss_bytes": ns}} for ns in latencies)
        )

    sides = SeparateRuns([run(100, 110, 120), run(440, 450)], [run(50)], {})
    costs = {entry.label: entry for entry in build_ledger_of_runs(sides, margin=0.02)}
    # The geometric mean of the medians of both runs: of 110 and 445.
    steady, peak = costs["Steady inference"], costs["Peak memory"]
    assert steady.baseline == pytest.approx((110 * 445) ** 0.5)
    assert steady.candidate == pytest.approx(50)
    assert steady.effect is not None
    assert steady.effect.speed_up == pytest.approx((110 * 445) ** 0.5 / 50)
    assert (peak.baseline, peak.candidate, peak.effect, peak.unit) == (120.0, 50.0, None, "bytes")
    assert costs["First inference"].baseline is None
