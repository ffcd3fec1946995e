"""Sums, shares and limits of the analysis, at their edges: small changes that went unnoticed."""

from __future__ import annotations

import statistics
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from etprof.analysis.compare.amdahl import build_amdahl_panel, find_bottlenecks
from etprof.analysis.compare.waterfall import Waterfall, WaterfallStep
from etprof.analysis.findings.finding import EVERYTHING
from etprof.analysis.findings.gains import Factors, TimeToGain, merge
from etprof.analysis.generation import TokenComparison, compare_tokens
from etprof.analysis.launch_state import fastest_core_khz, hottest_sensor_c, load_average
from etprof.analysis.numeric_gap import (
    Gap,
    NumericGaps,
    OperatorGap,
    PrecisionError,
    explain_dynamic_product,
    explain_error,
)
from etprof.analysis.outlook import predict_sme2
from etprof.analysis.roofline import Roofs
from etprof.analysis.split.agreement import BreakdownAgreement
from etprof.analysis.split.duration_counts import (
    ALL_DIGITS,
    DurationCounts,
    duration_step,
    pack_rows,
)
from etprof.analysis.split.executions import ExcludedExecutions, Executions, keep_near_median
from etprof.analysis.split.operators import (
    ExecutionTotals,
    PartTimes,
    _median_and_deviation,
    add_parts,
    category_times,
    class_times,
    group_of,
)
from etprof.backends.backend import CATEGORIES, DELEGATE_OVERHEAD, FRAMEWORK_OVERHEAD, OperatorClass
from etprof.tables import export
from tests.unit.test_outlook import WITH_SME2, Detail
from tests.unit.test_roofline import peaks, product, roofs, stream, took

if TYPE_CHECKING:
    from collections.abc import Sequence


def fake(**fields: Any) -> Any:  # noqa: ANN401
    """Something with these members."""
    return SimpleNamespace(**fields)


# ---- what an operator's precision explains


def gap_of(snr_db: float | None, gain: float | None = 1.0) -> Gap:
    return Gap(mse=0.0, snr_db=snr_db, cosine=None, gain=gain, max_abs=0.0, nonfinite=0)


def operator_gap(module: str = "", **facts: Any) -> OperatorGap:  # noqa: ANN401
    usual: dict[str, Any] = {
        "order": 0, "node": "n", "operator": "o", "source": None, "shape": (), "dtype": "float16",
        "delegate": None, "mode": "off", "explained": PrecisionError(46.0, 0.004),
        "own_gap": gap_of(80.0), "eager": gap_of(50.0), "float32": None, "off": None,
    }  # fmt: skip
    return OperatorGap(module=module, **(usual | facts))


def gaps_of(*rows: OperatorGap) -> NumericGaps:
    return NumericGaps(
        model="net", backend="portable", precision="fp16", method="forward", platform="linux",
        passes=1, rows=rows, prevented=(), checks={"off": gap_of(None)},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "least_db", "most_gain"),
    [
        # 10^(-90/20) and 10^(-45/20): the whole error is the bound of the gain, too.
        (("fp32", 1000.0, 64), 90.0, 3.1622776601683795e-05),
        (("int8", 1000.0, 64), 45.0, 0.005623413251903491),
        # Of 10^8 results one that is rounded once: 66 dB less 20 log10(1.0001).
        (("fp16", 1.0, 10**8), 65.9991314596, 0.0019534257482),
        # Of one result 66 dB less 20 log10 2: 2^-9 + 6 x 10^(-59.9794/20).
        (("fp16", 1.0, 1), 59.9794000867, 0.0079673681520),
        (("fp16", 1.0, 0), 59.9794000867, 0.0079673681520),
        # Of 100 products 20 dB less than 70: 2^-9 + 6 x 10^(-46.4781/20) / 2, of 4 results.
        (("fp16", 100.0, 4), 46.4781748189, 0.0161833866271),
        (("fp16", 0.25, 4), 62.4781748189, 0.0042084675513),
    ],
)  # fmt: skip
def test_an_error_is_explained_by_precision_sums_and_size(
    facts: tuple[str, float, int], least_db: float, most_gain: float
) -> None:
    explained = explain_error(*facts)
    assert explained.least_db == pytest.approx(least_db, abs=1e-8)
    assert explained.most_gain == pytest.approx(most_gain, rel=1e-6)


def test_each_rounding_and_a_grown_sum_explain_more() -> None:
    of_many = 65.9991314596
    four_steps = explain_error("fp16", 1.0, 10**8, steps=4)
    assert four_steps.least_db == pytest.approx(of_many - 6.0205999133)
    # 70 dB less 10 of ten products less 20 of a sum a hundred times as large: 40.
    grown = explain_error("fp16", 10.0, 10**8, growth=100.0)
    assert grown.least_db == pytest.approx(of_many - 26)
    assert explain_error("fp16", 10.0, 10**8, growth=0.01).least_db == pytest.approx(of_many - 6)


def test_a_left_side_that_is_quantised_on_the_way_has_35_db() -> None:
    explained = explain_dynamic_product(4)
    assert explained.least_db == 35.0
    # 10^(-45/20) + 6 x 10^(-35/20) / 2
    assert explained.most_gain == pytest.approx(0.0589717955, rel=1e-8)
    assert explain_dynamic_product(0) == explain_dynamic_product(1)


def test_the_worse_of_noise_and_gain_is_the_excess() -> None:
    bound = PrecisionError(40.0, 0.25)

    def excess(snr_db: float | None, gain: float | None) -> float:
        return bound.excess(gap_of(snr_db, gain))

    assert excess(20.0, 1.0) == pytest.approx(10.0)
    assert excess(None, 1.5) == excess(None, 0.5) == pytest.approx(2.0)
    assert excess(None, None) == 0.0
    assert not gap_of(40.0).is_below(40.0)
    assert gap_of(39.9).is_below(40.0)
    assert not gap_of(None).is_below(40.0)


def test_noise_is_added_by_what_follows_what_was_there() -> None:
    """Error by signal power of 10^-4, 5 x 10^-4, 10^-4 and 3 x 10^-4, in three modules."""
    distances = [gap_of(-10 * float(np.log10(power))) for power in (1e-4, 5e-4, 1e-4, 3e-4)]
    rows = [
        operator_gap(module, float32=distance)
        for module, distance in zip("abba", distances, strict=True)
    ]
    gaps = gaps_of(*rows, operator_gap("c"))
    assert gaps.added_noise("off") == pytest.approx({"a": 3e-4, "b": 4e-4})
    assert gaps.added_noise("sme2") == {}


def test_an_error_that_is_just_explained_does_not_part() -> None:
    exact, above = (
        operator_gap(own_gap=gap_of(None, 1.5), explained=PrecisionError(46.0, limit))
        for limit in (0.5, 0.25)
    )
    gaps = gaps_of(exact, above)
    assert gaps.first_parted("off") is above
    assert gaps.ranked("off") == [above, exact]
    assert gaps_of(exact).first_parted("off") is None


# ---- roofs


def test_of_equal_bounds_the_work_is_named_before_the_bytes_and_the_overhead() -> None:
    limits = Roofs({"fp32": product("fp32", 2.0)}, (stream(1000, 10.0),))
    # 1000 bytes take 100 ns, as the smallest stream does; 100 MACs take 100 ns.
    assert limits.place(took(400), 0, None, 1000, "fp32").bound == "memory"
    assert limits.place(took(400), 0, 100, 1000, "fp32").bound == "compute"
    assert limits.place(took(400), 0, 99, 1000, "fp32").bound == "memory"
    assert limits.place(took(400), 0, 99, 999, "fp32").bound == "overhead"
    without_work = limits.place(took(400), 0, None, 1000, "fp32")
    assert (without_work.peak, without_work.compute_ns, without_work.roof_ns) == (None, None, 100.0)
    assert (without_work.of_roof, without_work.distance) == (0.25, 4.0)


@pytest.mark.parametrize(("median_ns", "is_above"), [(100.0, False), (99.9, True)])
def test_three_per_cent_above_a_roof_are_noise(median_ns: float, *, is_above: bool) -> None:
    limits = Roofs({"fp32": product("fp32", 1.0)}, (stream(1030, 10.0),))
    assert limits.place(took(median_ns), 0, None, 1030, "fp32").is_above == is_above


def test_what_an_operator_took_at_most_is_its_interval_and_a_step_of_its_clock() -> None:
    placed = roofs().place(took(100.0), 25.0, None, 2**13, "fp32")
    assert placed.most_ns == 125.0
    times = type(took(100.0))(**{**vars(took(100.0)), "launches_ns": (80.0, 100.0, 120.0)})
    assert times.interval is not None
    assert times.interval.high > 120
    assert roofs().place(times, 25.0, None, 2**13, "fp32").most_ns == times.interval.high + 25.0


def test_the_bytes_of_an_operator_are_held_against_no_smaller_stream() -> None:
    rising = Roofs({}, (stream(10, 5.0), stream(20, 3.0), stream(30, 4.0)))
    assert [rising.bandwidth(size).high for size in (9, 10, 19, 20, 29, 30)] == [5, 5, 5, 4, 4, 4]


def predicted(shares: Sequence[tuple[float, int | None]], **changes: Any) -> Any:  # noqa: ANN401
    """Asks for the outlook of operators that all have an SME2 kernel."""
    details = []
    for share, macs in shares:
        detail: Any = Detail(macs, sme2=True)
        detail.row.times = type(took(1.0))(**{**vars(took(40_000)), "share": share})
        details.append(detail)
    experiment = fake(sme="off", threads=1, **changes)
    return predict_sme2(fake(experiment=experiment, details=details), peaks(found=WITH_SME2))


def test_where_everything_can_use_sme2_there_is_no_ceiling_but_a_bound() -> None:
    outlook = predicted([(0.25, 10**6), (0.75, 10**6)])
    assert (outlook.operators, outlook.share, outlook.ceiling) == (2, 1.0, None)
    # 5 000 to 10 000 ns of 40 000, of everything.
    assert (outlook.bound.low, outlook.bound.high) == pytest.approx((4.0, 8.0))
    assert outlook.packed_types == ("PF32",)


def test_where_nothing_would_be_left_there_is_no_bound() -> None:
    outlook = predicted([(1.0, None)])
    assert (outlook.ceiling, outlook.bound) == (None, None)
    partly = predicted([(0.5, None), (0.25, 10**6)])
    assert partly.ceiling == 4.0
    assert partly.bound.unplaced == 1
    # The first takes all of its half or nothing, the second a quarter or an eighth of its quarter.
    assert partly.bound.low == pytest.approx(1 / (0.25 + 0.5 + 0.25 * 0.25))
    assert partly.bound.high == pytest.approx(1 / (0.25 + 0.25 * 0.125))


# ---- recorded times beside the timed latency


def agreement(
    recorded: float, quietest: float = 1.0, operators: int = 1, latency_ns: float = 2.0**30
) -> BreakdownAgreement:
    """Recorded inferences as multiples of the latency."""
    return BreakdownAgreement(recorded * latency_ns, quietest * latency_ns, latency_ns, operators)


@pytest.mark.parametrize(
    ("times", "operators", "is_in_doubt"),
    [
        (0.75, 0, False), (0.7499, 0, True), (1.25, 0, False), (1.2501, 0, True),
        # 96 operators may add 0.75 of 128 µs, of which half of the latency is accepted.
        (1.5, 96, False), (1.5001, 96, True), (0.7499, 96, True),
        # 16 operators may add 0.125: up to 0.375.
        (1.375, 16, False), (1.3751, 16, True),
    ],
)  # fmt: skip
def test_a_breakdown_is_in_doubt_a_quarter_off_or_what_recording_explains(
    times: float, operators: int, *, is_in_doubt: bool
) -> None:
    assert agreement(times, operators=operators, latency_ns=128_000).is_in_doubt == is_in_doubt


@pytest.mark.parametrize(
    ("quietest", "is_recording"), [(1.5, False), (1.51, True), (2.0, True), (2.01, False)]
)
def test_recording_is_the_cause_where_the_quietest_launch_says_so(
    quietest: float, *, is_recording: bool
) -> None:
    """96 operators of 1 µs explain up to 100 % of 128 µs; 50 % are accepted."""
    assert agreement(2.5, quietest, 96, 128_000).is_recording == is_recording


def test_the_cause_of_a_doubt_is_said_in_figures() -> None:
    assert agreement(2.0).cause == "operator times and the timed latency differ by 100.0 %"
    assert agreement(0.5).cause == "operator times and the timed latency differ by 50.0 %"
    assert agreement(3.0).cause == "operator times add up to 3.00× the timed latency"
    cause = agreement(2.5, 1.75, 96, 128_000).cause
    # 0.75 of 128 µs by 96 events is 1 µs.
    assert cause.startswith("recording adds about 1.00 µs to each of 96 events: ")
    assert "at least 224 µs, an unrecorded one 128 µs" in cause
    assert (agreement(1.5).excess_ns, agreement(0.5).excess_ns) == (2.0**29, 0.0)


# ---- how often an operator took how long


def counts_of(*rows: tuple[int, int]) -> list[tuple[int, int, int]]:
    operators, durations = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    counts = DurationCounts.of_calls(operators, durations)
    return [tuple(map(int, row)) for row in zip(*counts, strict=True)]  # type: ignore[misc]


def test_equal_durations_of_an_operator_are_counted_by_operator_and_length() -> None:
    assert counts_of((2, 5), (1, 7), (2, 5), (2, 3), (1, 7)) == [(1, 7, 2), (2, 3, 1), (2, 5, 2)]
    assert counts_of((0, 9)) == [(0, 9, 1)]
    # What 64 bits do not hold is counted all the same.
    assert counts_of((0, 2**62), (3, 1), (0, 2**62), (3, 0)) == [
        (0, 2**62, 2),
        (3, 0, 1),
        (3, 1, 1),
    ]


@pytest.mark.parametrize(
    ("digits", "durations", "steps"),
    [
        (3, [1, 7, 8, 15, 16, 17], [1, 1, 2, 2, 4, 4]),
        (1, [1, 2, 3, 4, 1000], [1, 2, 2, 4, 512]),
    ],
)
def test_the_step_of_a_duration_is_that_of_its_last_digit(
    digits: int, durations: list[int], steps: list[int]
) -> None:
    values = np.array(durations, np.int64)
    assert np.asarray(duration_step(values, digits)).tolist() == steps
    assert duration_step(values, ALL_DIGITS) == 1


def test_rounded_durations_that_become_equal_are_one() -> None:
    operators = np.array([0, 0, 0, 1], np.int64)
    counts = DurationCounts.of_calls(operators, np.array([9, 8, 10, 9], np.int64))
    rounded = counts.rounded(3)
    assert [column.tolist() for column in rounded] == [[0, 0, 1], [8, 10, 8], [2, 1, 1]]
    assert counts.rounded(ALL_DIGITS) is counts
    merged = DurationCounts.merged([rounded, rounded])
    assert merged.calls.tolist() == [4, 2, 2]


def test_rows_are_packed_in_their_order() -> None:
    rows = [(0, 5), (0, 9), (1, -3), (7, -4), (7, 9)]
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
    packed = pack_rows(*columns).tolist()
    assert packed == sorted(packed)
    assert len(set(packed)) == len(rows)
    # 2^31 by 2^31 fits in 63 bits, 2^31 by 2^32 does not.
    low = np.array([0, 2**31 - 1], np.int64)
    assert pack_rows(low, low).dtype == np.int64
    assert pack_rows(low, np.array([0, 2**32 - 1], np.int64)).dtype == object
    assert pack_rows(np.zeros(0, np.int64)).size == 0


@pytest.mark.parametrize(
    "calls",
    [
        {7: 1}, {7: 2}, {4: 1, 9: 1}, {4: 1, 9: 2}, {4: 3, 9: 1, 20: 2}, {4: 1, 9: 2, 20: 3},
        {1: 2, 3: 2, 5: 1}, {1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1}, {1: 3, 100: 4, 1000: 1},
    ],
)  # fmt: skip
def test_median_and_deviation_are_those_of_the_calls_one_by_one(calls: dict[int, int]) -> None:
    every = [ns for ns, count in calls.items() for _ in range(count)]
    median, deviation = _median_and_deviation(
        PartTimes(float(sum(every)), (), 0.0, 0.0), np.array([*calls]), np.array([*calls.values()])
    )
    assert median == statistics.median(every)
    assert deviation == pytest.approx(statistics.stdev(every) if len(every) > 1 else 0.0)


# ---- parts and wholes


def times(mean_ns: float, *launches_ns: float, share: float = 0.0) -> PartTimes:
    return PartTimes(2 * mean_ns, launches_ns or (mean_ns,), mean_ns, share)


def test_parts_are_added_launch_by_launch_or_not_at_all() -> None:
    total = add_parts([times(3, 2, 4, share=0.25), times(5, 4, 6, share=0.5)])
    assert total == PartTimes(16.0, (6, 10), 8, 0.75)
    alone = times(3)
    assert add_parts([alone]) is alone
    assert add_parts([]) is None
    assert add_parts([alone, None]) is None


def test_a_share_is_of_the_means_of_launches_and_of_nothing_none() -> None:
    execute = times(40, 30, 50)
    part_times = ExecutionTotals((2, 4), execute).part_times([20.0, 80.0])
    assert part_times == PartTimes(100.0, (10.0, 20.0), 15.0, 0.375)
    assert ExecutionTotals((2,), times(0)).part_times([20.0]).share == 0.0
    assert ExecutionTotals((2,), None).part_times([20.0]).share == 0.0


def test_no_time_is_below_nothing_but_that_of_a_part_that_is() -> None:
    interval = times(5, 0, 1, 14).interval
    assert interval is not None
    assert (interval.low, interval.high > 14) == (0.0, True)
    negative = times(-5, 0, -1, -14).interval
    assert negative is not None
    assert negative.low < -14
    assert times(0, 0, 1, -1).interval.low == 0.0  # type: ignore[union-attr]
    assert times(5).interval is None


def split(*rows: tuple[OperatorClass, float, float]) -> Any:  # noqa: ANN401
    """A split of rows of a class, with their mean time and share."""
    parts = tuple(
        (SimpleNamespace(operator_class=kind), times(ns, share=share)) for kind, ns, share in rows
    )
    return SimpleNamespace(parts=parts, launches=(0,), times=SimpleNamespace())


DENSE, COPY, NORM = (
    OperatorClass("Convolution", "dense"),
    OperatorClass("Data Movement", "copy"),
    OperatorClass("Other", "norm"),
)


def test_classes_stand_by_their_time_and_categories_in_their_order() -> None:
    made = split((COPY, 10, 0.1), (DENSE, 30, 0.3), (COPY, 25, 0.25), (NORM, 5, 0.05))
    assert [(kind.finer, each_ns.mean_ns) for kind, each_ns in class_times(made).items()] == [
        ("copy", 35), ("dense", 30), ("norm", 5),
    ]  # fmt: skip
    by_category = category_times(made)
    assert tuple(by_category) == CATEGORIES
    assert by_category["Data Movement"].share == pytest.approx(0.35)
    assert (by_category["Elementwise"].mean_ns, by_category["Other"].mean_ns) == (0.0, 5.0)
    untimed = fake(times=None)
    assert (class_times(untimed), category_times(untimed)) == ({}, {})
    assert group_of(NORM) == "Other"
    assert group_of(DELEGATE_OVERHEAD) == group_of(FRAMEWORK_OVERHEAD) == "Overhead"


def test_a_bottleneck_is_a_class_that_takes_some_time_and_not_all_of_it() -> None:
    made = split((DENSE, 75, 0.75), (COPY, 25, 0.25), (NORM, 0, 0.0))
    first, second = find_bottlenecks(made)
    assert (first.operator_class, first.mean_ns, first.share) == (DENSE, 75, 0.75)
    assert first.speed_up_if_removed == 4.0
    assert second.speed_up_if_removed == pytest.approx(4 / 3)
    assert find_bottlenecks(split((DENSE, 75, 1.0))) == ()
    assert [entry.mean_ns for entry in find_bottlenecks(made, 1)] == [75]
    kinds = [OperatorClass("Other", name) for name in "abcdefgh"]
    assert len(find_bottlenecks(split(*((kind, 10, 0.125) for kind in kinds)))) == 6


def panel(before_ns: float, after_ns: float, *pairs: tuple[float, float]) -> Any:  # noqa: ANN401
    before, after = (
        cast("Any", (SimpleNamespace(split=split()), SimpleNamespace(execute=times(ns))))
        for ns in (before_ns, after_ns)
    )
    return build_amdahl_panel(before, after, [(times(old), times(new)) for old, new in pairs])


def test_amdahls_ceiling_is_what_the_rest_takes() -> None:
    made = panel(100, 50, (60, 10), (15, 5))
    assert (made.accelerated_operators, made.accelerated_share) == (2, 0.75)
    assert (made.accelerated_speed_up, made.achieved, made.ceiling) == (5.0, 2.0, 4.0)
    everything = panel(100, 50, (100, 50))
    assert (everything.ceiling, everything.accelerated_speed_up) == (None, 2.0)
    nothing = panel(0, 0)
    assert (nothing.accelerated_share, nothing.accelerated_speed_up) == (0.0, None)
    assert (nothing.achieved, nothing.ceiling) == (1.0, 1.0)
    assert panel(100, 0, (10, 0)).accelerated_speed_up is None


def test_a_waterfall_shows_the_largest_steps_and_the_rest_as_one() -> None:
    deltas = {"a": (10.0, 12.0), "b": (30.0, 20.0), "c": (5.0, 5.0), "d": (0.0, 1e-3), "e": (4, 1)}
    steps = tuple(WaterfallStep(name, "operator", *ends) for name, ends in deltas.items())
    fall = Waterfall(49.0, 38.0, steps)
    assert fall.residual_ns == pytest.approx(-1e-3)
    first, second, rest = fall.largest(2)
    assert (first.label, first.delta_ns, second.label, second.delta_ns) == ("b", -10, "e", -3)
    # Of `d` nothing but rounding is there.
    assert (rest.label, rest.baseline_ns, rest.candidate_ns) == ("2 others", 15.0, 17.0)
    # What did not change is no step of its own, whatever room there is.
    assert [step.label for step in fall.largest(9)] == ["b", "e", "a", "1 other"]
    assert [step.label for step in Waterfall(1, 2, steps[:1]).largest(1)] == ["a"]
    assert WaterfallStep("d", "operator", 0.0, 1.0, "layer (m.py:1)").name == "layer (m.py:1)"


# ---- what findings gain


def time_of(*shares: float, latency_ns: float | None = 1000.0) -> TimeToGain:
    """Parts of an inference with these shares, alike in two launches."""
    parts = [(None, times(100 * share, 100 * share, 100 * share, share=share)) for share in shares]
    experiment: Any = SimpleNamespace(split=SimpleNamespace(parts=parts), inference_ns=latency_ns)
    return TimeToGain(experiment)


def test_a_claim_on_everything_is_one_on_each_and_none_is_more_than_all() -> None:
    time = time_of(0.5, 0.3, 0.2)
    assert time.spread({EVERYTHING: 0.25, 1: 0.5}) == {0: 0.25, 1: 0.5, 2: 0.25}
    assert time.spread({0: 1.5, 2: 0.0}) == {0: 1.0, 2: 0.0}
    assert time.measure({0: 1.0, 2: 0.5}) == pytest.approx(600.0)
    assert (time.inference_ns, time_of(1.0, latency_ns=None).inference_ns) == (1000.0, 0.0)
    assert merge([{0: 0.25, 1: 0.5}, {0: 0.75}, {1: 0.25}]) == {0: 0.75, 1: 0.5}


def test_the_next_finding_takes_what_is_left_of_its_operators() -> None:
    time = time_of(0.5, 0.3, 0.2)
    gain_ns, interval = time.take({0: 0.4}, {0: Factors(0.5, 1.0, 1.25)})
    assert gain_ns == pytest.approx(200.0)
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((100.0, 250.0))
    gain_ns, _ = time.take({0: 1.0, 1: 0.5})
    # What was taken is no more there to take: 0.6 of a half, and a half of 0.3.
    assert gain_ns == pytest.approx(450.0)
    assert time.take({0: 0.9})[0] == 0.0


def test_no_gain_or_loss_is_more_than_an_inference() -> None:
    _, interval = time_of(0.5, 0.5).take({0: 1.0, 1: 1.0}, {0: Factors(-5.0, 1.0, 5.0)})
    assert interval is not None
    assert (interval.low, interval.high) == (-1000.0, 1000.0)


# ---- what a machine told, and what an export took


def test_a_state_tells_its_hottest_fastest_and_busiest() -> None:
    state = {
        "frequency_khz": [1000, "off", 3000, 2000], "temperatures_c": {"a": 30, "b": "?", "c": 41.5},
        "load_average": [0.5, 2.0, 3.0],
    }  # fmt: skip
    assert (fastest_core_khz(state), hottest_sensor_c(state), load_average(state)) == (
        3000,
        41.5,
        0.5,
    )
    odd = {"frequency_khz": 5, "temperatures_c": [5], "load_average": []}
    for empty in ({}, odd, {"load_average": ["x"], "frequency_khz": [], "temperatures_c": {}}):
        assert (fastest_core_khz(empty), hottest_sensor_c(empty), load_average(empty)) == (
            None, None, None,
        )  # fmt: skip


def test_the_work_of_an_export_is_in_three_parts() -> None:
    def parts(sme2: float | None, delegated: float | None) -> list[float]:
        summary = fake(predicted_sme2_macs_share=sme2, delegated_macs_share=delegated)
        made = export.share_of_work(fake(methods={"forward": fake(summary=summary)}))
        return [part.share for part in made]

    assert parts(0.25, 0.75) == [0.25, 0.5, 0.25]
    assert (parts(0.5, 0.5), parts(0.0, 1.0)) == ([0.5, 0.5], [1.0])
    assert (parts(None, 0.5), parts(0.5, None)) == ([], [])


def test_an_exports_sizes_are_added_up() -> None:
    delegates = [
        fake(blob_bytes=1024, weight_bytes=2048),
        fake(blob_bytes=1024, weight_bytes=None),
    ]
    assert export._delegated_bytes(fake(delegates=delegates)) == "2.0 KiB + –"
    assert export._delegated_bytes(fake(delegates=delegates[:1])) == "1.0 KiB + 2.0 KiB"
    assert export._delegated_bytes(fake(delegates=[])) is None
    plan = fake(arena_bytes=[1024, 2048], peak_live_bytes=512, unshared_bytes=4096)
    assert export._plan(plan) == "1.0 KiB + 2.0 KiB (512 B live at once; 4.0 KiB without reuse)"
    rows = [fake(answer=answer, snr_db_converted=ratio, inputs=name) for answer, ratio, name in (
        ("passed", 60.0, "a"), ("failed", 20.0, "b"), ("unknown", 1.0, "c"), ("passed", None, "d"),
    )]  # fmt: skip
    assert export._further_inputs(fake(further_inputs=rows)) == "right on 2 of 3; worst: b, 20.0 dB"
    assert export._further_inputs(fake(further_inputs=rows[2:3])) is None


# ---- which executions are split, and which tokens are equal


def kept(*durations: int, is_timed: bool = True) -> list[int]:
    """The durations that are near the median of two launches, which have every second one."""
    launches: Any = []
    for part in (durations[::2], durations[1::2]):
        fields: dict[str, Any] = dict.fromkeys(Executions.__dataclass_fields__)
        fields["duration"] = np.array(part) if is_timed else None
        fields["selected"] = np.ones(len(part), np.bool_)
        launches.append(Executions(**fields))
    near = keep_near_median(launches)
    parts = zip((durations[::2], durations[1::2]), near, strict=True)
    return sorted(ns for part, launch in parts for ns in np.array(part)[launch.selected].tolist())


def test_an_execution_is_near_within_half_or_six_quartile_distances() -> None:
    steady = [100] * 7
    # Within half of the median, where its lower quartile is as long.
    assert kept(*steady, 49, 50, 150, 151) == [50, *steady, 150]
    # A quarter takes 90 at most: up to 6 x 10 from 100.
    assert kept(80, 90, 100, 110, 160) == [80, 90, 100, 110, 160]
    assert kept(80, 90, 100, 110, 161) == [80, 90, 100, 110]
    # Of four nobody can say which one is unlike the others, and of none without times.
    assert kept(100, 100, 100, 900) == [100, 100, 100, 900]
    assert kept(*steady, 900, is_timed=False) == [*steady, 900]
    counts = [ExcludedExecutions(recorded, 2, 0) for recorded in (6, 7)]
    assert [count.has_enough_for_band for count in counts] == [False, True]


@pytest.mark.parametrize(
    ("sides", "first_difference", "text"),
    [
        (((1, 2, 3), (1, 5, 3)), 1, "1 tokens are equal, then 2 against 5: "),
        (((4,), (5,)), 0, "0 tokens are equal, then 4 against 5: "),
        (((1, 2), (1,)), 1, "1 tokens are equal, then 2 against nothing: "),
        (((1,), (1, 2)), 1, "1 tokens are equal, then nothing against 2: "),
        (((1, 2), (1, 2)), None, "all 2 tokens are equal"),
    ],
)
def test_the_first_token_that_differs_is_named(
    sides: tuple[tuple[int, ...], tuple[int, ...]], first_difference: int | None, text: str
) -> None:
    generated: Any = [SimpleNamespace(prompt_tokens=[9], tokens=list(side)) for side in sides]
    comparison = compare_tokens(*generated)
    assert comparison == TokenComparison(*sides)
    assert comparison.first_difference == first_difference
    assert str(comparison).startswith(text)
    generated[1].prompt_tokens = [8]
    assert compare_tokens(*generated) is None
    assert compare_tokens(generated[0], None) is None
