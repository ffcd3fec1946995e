"""Intervals, tests and levels at their edges: by SciPy, by counting out, and by hand."""

from __future__ import annotations

import itertools
import math
from dataclasses import astuple

import numpy as np
import pytest
from scipy import stats

from etprof.base.errors import InputFileError
from etprof.statistics import calibration, effect, launch_ratio, summary, two_samples
from etprof.statistics.effect import effect_of_runs, estimate_effect, judge
from etprof.statistics.launch_ratio import ratio_of_launches
from etprof.statistics.likeness import (
    compare,
    find_degeneracy,
    least_equal_share,
    number_kind,
    snr_db,
)
from etprof.statistics.noise import launch_noise
from etprof.statistics.order_statistics import Interval, median_interval
from etprof.statistics.summary import summarise, summarise_blocks, trimmed_mean, two_states
from etprof.statistics.two_samples import (
    Spread,
    difference_of_groups,
    mean_interval,
    mean_p_value,
    p_of_t,
    pooled_spread,
    shift_interval,
    t_quantile,
)
from etprof.statistics.warmup import is_settled, settled_after


def figures(interval: Interval | None) -> tuple[float, ...]:
    """Its ends and confidence."""
    assert interval is not None
    return astuple(interval)


@pytest.mark.parametrize("sizes", [(1, 4), (4, 1), (2, 3), (3, 2), (4, 4), (0, 3)])
def test_the_rank_sum_is_that_of_all_orders(sizes: tuple[int, int]) -> None:
    first, second = sizes
    counts = [0] * (first * second + 1)
    for chosen in itertools.combinations(range(first + second), first):
        counts[sum(chosen) - first * (first - 1) // 2] += 1
    expected = np.array(counts) / sum(counts)
    assert two_samples._rank_sum_masses(first, second) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("sizes", "critical"),
    [((4, 4), 0), ((10, 10), 23), ((7, 20), 34), ((20, 20), 127), ((3, 3), -1)],
)
def test_the_rank_of_a_shift_is_that_of_the_tables(sizes: tuple[int, int], critical: int) -> None:
    """Critical values of Mann and Whitney's U, two-sided 5 %; the rank is one more."""
    assert two_samples._rank_of_interval(*sizes)[0] == critical + 1


def test_a_shift_is_between_differences_of_pairs() -> None:
    answer = shift_interval(np.array([1.0, 2, 3, 4]), np.array([11.0, 13, 17, 19]))
    assert figures(answer) == pytest.approx((7, 18, 1 - 2 / 70))
    # AND of 21 against five: 52.5 - 1.96 √(105 · 27 / 12) = 22.4
    baseline, candidate = np.arange(21.0), np.array([100.5, 130.25, 160.0, 190.75, 220.125])
    differences = sorted(b - a for a in baseline for b in candidate)
    expected = Interval(differences[21], differences[-22], 0.95)
    assert shift_interval(baseline, candidate) == expected
    assert two_samples._rank_of_interval(5, 21) == (22, 0.95)


@pytest.mark.parametrize("session", [0.0, 0.03])
def test_groups_of_two_sessions_differ_by_both(session: float) -> None:
    """Welch and Satterthwaite, where a session's deviation is known for certain."""
    before, after = [0.0, 0.02, 0.04, 0.02], [0.1, 0.16]
    answer = difference_of_groups(before, after, session=session)
    assert answer is not None
    pooled = (3 * np.var(before, ddof=1) + np.var(after, ddof=1)) / 4
    variance = pooled * (1 / 4 + 1 / 2)
    whole = variance + session**2 + session**2
    freedom = 4 * (whole / variance) ** 2
    assert answer.spread.freedom == pytest.approx(freedom)
    assert answer.spread.deviation == pytest.approx(math.sqrt(pooled))
    assert answer.change == pytest.approx(0.11)
    reach = stats.t.ppf(0.975, freedom) * math.sqrt(whole)
    assert (answer.interval.low, answer.interval.high) == pytest.approx(
        (0.11 - reach, 0.11 + reach)
    )
    assert answer.p_value == pytest.approx(2 * stats.t.sf(0.11 / math.sqrt(whole), freedom))
    power = stats.t.ppf(0.8, freedom) / stats.t.ppf(0.975, freedom)
    assert answer.smallest == pytest.approx(reach * (1 + power))


def test_a_quiet_group_in_a_loud_session_is_known_for_certain_at_most() -> None:
    answer = difference_of_groups([0.0, 1e-9], [0.0, 1e-9], session=0.1)
    assert answer is not None
    assert answer.spread.freedom == pytest.approx(1e6)
    assert answer.interval.high == pytest.approx(1.96 * 0.1 * math.sqrt(2), rel=1e-3)


def test_groups_without_values_are_refused_with_their_sizes() -> None:
    with pytest.raises(ValueError, match="got 0 and 1"):
        difference_of_groups([], [1.0])
    with pytest.raises(ValueError, match="got 2 and 0"):
        difference_of_groups([1.0, 2.0], [])
    assert pooled_spread(([1.0], [2.0])) == Spread(0.0, 0.0)
    assert pooled_spread(([1.0, 3.0],)) == Spread(math.sqrt(2), 1)


def test_a_mean_is_tested_with_what_was_known() -> None:
    values, prior = [0.1, 0.3, 0.2], Spread(0.05, 4)
    deviation = math.sqrt((0.02 + 4 * 0.05**2) / 6)
    error = deviation / math.sqrt(3)
    answer = mean_interval(values, prior=prior, confidence=0.9)
    assert answer is not None
    reach = stats.t.ppf(0.95, 6) * error
    assert (answer.low, answer.high) == pytest.approx((0.2 - reach, 0.2 + reach))
    assert answer.confidence == 0.9
    expected = 2 * stats.t.sf(0.2 / error, 6)
    assert mean_p_value(values, prior=prior) == pytest.approx(expected, abs=1e-6)
    for few, seen in (([], prior), ([1.0], None), ([1.0], Spread(0.1, 0.9))):
        assert mean_interval(few, prior=seen) is None
        assert mean_p_value(few, prior=seen) is None
    assert mean_interval([1.0], prior=Spread(0.1, 1)) is not None
    assert mean_p_value([1.0], prior=Spread(0.1, 1)) is not None
    assert mean_interval([1.0, 2.0]) is not None


@pytest.mark.parametrize("freedom", [1, 1.5, 2.7, 11, 1000])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_student_s_t_is_scipy_s(freedom: float, confidence: float) -> None:
    expected = stats.t.ppf((1 + confidence) / 2, freedom)
    assert t_quantile(freedom, confidence) == pytest.approx(expected, rel=1e-5)
    for shift in (-3.0, 0.0, 0.5):
        chance = 2 * stats.t.sf(abs(shift) / 2, freedom)
        assert p_of_t(shift, 2.0, freedom) == pytest.approx(chance, abs=1e-6)
    assert (p_of_t(0.0, 0.0, freedom), p_of_t(-1e-9, 0.0, freedom)) == (1.0, 0.0)


def test_a_few_pairs_of_launches_have_student_s_interval() -> None:
    old, new = np.array([2.0, 3.0, 2.5, 2.6]), np.array([1.0, 1.2, 1.1, 1.3])
    answer = ratio_of_launches(old.tolist(), new.tolist())
    assert answer.speed_up == pytest.approx(old.sum() / new.sum())
    shares = old / old.mean() - new / new.mean()
    error = shares.std(ddof=1) / 2
    reach = stats.t.ppf(0.975, 3) * error
    assert answer.interval is not None
    ends = (answer.interval.low / answer.speed_up, answer.interval.high / answer.speed_up)
    assert ends == pytest.approx((math.exp(-reach), math.exp(reach)))
    chance = 2 * stats.t.sf(math.log(answer.speed_up) / error, 3)
    assert answer.p_value == pytest.approx(chance, abs=1e-6)
    assert answer.is_sure
    single = ratio_of_launches([3.0], [2.0])
    assert (single.speed_up, single.interval, single.p_value) == pytest.approx((1.5, None, None))


@pytest.mark.parametrize(
    ("old", "new"), [([1.0], []), ([], []), ([0.0], [1.0]), ([1.0], [0.0]), ([1.0, 2.0], [1.0])]
)
def test_launches_that_are_no_pairs_have_no_ratio(old: list[float], new: list[float]) -> None:
    with pytest.raises(ValueError, match=f"got {len(old)} and {len(new)} launches"):
        ratio_of_launches(old, new)


@pytest.mark.parametrize(
    ("sets", "confidence", "rank"),
    [
        (63, 0.95, 1),
        (255, 0.95, 6),
        (255, 0.975, 3),
        (39, 0.95, 1),
        (79, 0.975, 1),
        (4095, 0.95, 102),
    ],
)
def test_as_many_ratios_are_cut_as_the_confidence_lets(
    sets: int, confidence: float, rank: int
) -> None:
    answer = launch_ratio._cut(np.arange(1.0, sets + 1), confidence)
    assert answer == Interval(rank, sets + 1 - rank, 1 - 2 * rank / (sets + 1))


def test_ratios_of_too_few_sets_or_without_an_end_are_none() -> None:
    assert launch_ratio._cut(np.arange(1.0, 39), 0.95) is None
    assert launch_ratio._cut(np.array([*range(62), np.inf], float), 0.95) is None
    # The smallest of all may be anything but the largest that counts must be a number.
    assert launch_ratio._cut(np.array([*range(250), *[np.inf] * 5], float), 0.95) is not None
    assert launch_ratio._cut(np.array([*range(249), *[np.inf] * 6], float), 0.95) is None


def test_sets_of_pairs_are_all_of_twelve_and_drawn_of_more() -> None:
    assert sorted(map(tuple, launch_ratio._sets(3))) == sorted(
        signs for signs in itertools.product((0.0, 1.0), repeat=3) if any(signs)
    )
    twelve, thirteen = launch_ratio._sets(12), launch_ratio._sets(13)
    assert twelve.shape == (4095, 12)
    assert len(np.unique(twelve, axis=0)) == 4095
    assert thirteen.shape[1] == 13
    assert 4090 <= len(thirteen) <= 4095
    assert thirteen.any(axis=1).all()
    assert set(np.unique(thirteen)) == {0.0, 1.0}
    assert thirteen.mean(axis=0) == pytest.approx(np.full(13, 0.5), abs=0.03)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1 / 1.02, 1.02, "no difference"),
        (1 / 1.02, 1.021, "inconclusive"),
        (1 / 1.021, 1.02, "inconclusive"),
        (1.001, 1.02, "no difference"),
        (1.0, 1.5, "inconclusive"),
        (1.0001, 1.5, "faster"),
        (0.5, 1.0, "inconclusive"),
        (0.5, 0.9999, "slower"),
    ],
)
def test_a_verdict_at_the_edge_of_its_interval(low: float, high: float, verdict: str) -> None:
    assert judge(Interval(low, high, 0.95), 0.02) == verdict
    assert judge(None, 0.02) == "inconclusive"


@pytest.mark.parametrize("count", [1, 5, 6, 7, 10])
def test_signed_ranks_are_those_of_all_signs(count: int) -> None:
    ranks = np.arange(1, count + 1)
    sums = [int(np.dot(ranks, signs)) for signs in itertools.product((0, 1), repeat=count)]
    counts = np.bincount(sums, minlength=count * (count + 1) // 2 + 1)
    assert effect._signed_rank_masses(count) == pytest.approx(counts / 2**count)
    values = np.random.default_rng(count).normal(size=count)
    averages = sorted((values[i] + values[j]) / 2 for i in range(count) for j in range(i, count))
    tails = np.cumsum(counts) / 2**count
    rank = int(np.sum(tails <= 0.025))
    answer = effect.hodges_lehmann_interval(values)
    if rank == 0:
        assert answer is None
        return
    expected = (averages[rank - 1], averages[-rank], 1 - 2 * tails[rank - 1])
    assert figures(answer) == pytest.approx(expected)


def test_runs_of_both_sides_are_compared_by_their_medians() -> None:
    before = [[100.0, 101.0, 500.0], [103.0, 102.0, 1.0], [99.0]]
    after = [[90.0], [91.0, 91.0, 95.0]]
    answer = effect_of_runs(before, after, in_turns=True, margin=0.03, prior=Spread(0.01, 4.4))
    logs = np.log([101, 102, 99]), np.log([90, 91])
    change = logs[0].mean() - logs[1].mean()
    freedom = 3 + 4.4
    squares = sum(((side - side.mean()) ** 2).sum() for side in logs) + 4.4 * 0.01**2
    error = math.sqrt(squares / freedom * (1 / 3 + 1 / 2))
    reach = stats.t.ppf(0.995, freedom) * error
    assert answer.speed_up == pytest.approx(math.exp(change))
    assert answer.interval is not None
    ends = (answer.interval.low, answer.interval.high)
    assert ends == pytest.approx((math.exp(change - reach), math.exp(change + reach)))
    assert answer.half_width == pytest.approx((ends[1] - ends[0]) / 2)
    assert answer.p_value == pytest.approx(2 * stats.t.sf(change / error, freedom), abs=1e-6)
    assert (answer.pairs, answer.margin, answer.verdict) == (0, 0.03, "faster")
    history = "4 degrees of freedom from the history"
    assert answer.rests_on == f"3 against 2 runs, {history}"
    assert effect_of_runs(before, after[:1], prior=Spread(0.01, 9)).rests_on == (
        "3 against 1 runs, measured one after the other, 9 degrees of freedom from the history"
    )


def test_one_run_a_side_is_as_wide_as_its_launches_at_least() -> None:
    before, after = [[100.0, 110.0, 120.0, 90.0]], [[50.0, 40.0, 60.0, 55.0]]
    answer = effect_of_runs(before, after, in_turns=True, prior=Spread(0.001, 50))
    assert answer.interval is not None
    # Four launches a side: from the smallest ratio of a pair to the largest.
    assert (answer.interval.low, answer.interval.high) == pytest.approx((90 / 60, 120 / 40))
    assert answer.interval.confidence == 0.99
    assert answer.rests_on == "one run per side, 50 degrees of freedom from the history"
    alone = effect_of_runs(before, after)
    assert alone.interval is not None
    assert (alone.interval.low, alone.interval.high) == pytest.approx((1.5, 3.0))
    assert alone.interval.confidence == pytest.approx(1 - 2 / 70)
    assert (alone.speed_up, alone.p_value) == pytest.approx((105 / 52.5, None))
    short = effect_of_runs([[3.0]], [[2.0]])
    assert (short.interval, short.half_width, short.margin) == (None, None, 0.02)


def test_a_ratio_beyond_all_numbers_is_still_one() -> None:
    runs = [[[1e200]] * 2, [[1e-200]] * 2]
    assert effect_of_runs(runs[0], runs[1], in_turns=True).speed_up == math.exp(700)
    assert effect_of_runs(runs[1], runs[0], in_turns=True).speed_up == math.exp(-700)


def test_the_effect_of_pairs_has_their_logs() -> None:
    answer = estimate_effect([2.0, 4.0, 8.0, 2.0, 4.0, 8.0], [1.0] * 6, margin=0.5)
    assert answer.pairs == 6
    assert answer.log_ratios == pytest.approx(np.log([2, 4, 8, 2, 4, 8]))
    assert figures(answer.interval) == pytest.approx((2, 8, 0.96875))
    assert (answer.speed_up, answer.p_value) == pytest.approx((4, 0.03125))
    assert (answer.margin, answer.verdict, answer.rests_on) == (0.5, "faster", "")
    with pytest.raises(ValueError, match="got 0 and 0"):
        estimate_effect([], [])


def test_a_summary_is_numpy_s() -> None:
    values = [*range(100), 1000]
    answer = summarise(values)
    assert (answer.p10, answer.p25, answer.median, answer.p75) == (10, 25, 50, 75)
    assert (answer.p90, answer.p95, answer.p99) == (90, 95, 99)
    assert answer.standard_deviation == pytest.approx(np.std(values, ddof=1))
    assert answer.trimmed_mean == pytest.approx(np.mean(range(10, 91)))
    assert (answer.outliers, summarise([*range(101)]).outliers) == (1, 0)
    # Quartiles 25 and 75: 150 is the last one inside, and -50 the first.
    low, high = [-50, *range(1, 100), 150], [-51, *range(1, 100), 151]
    assert (summarise(low).p25, summarise(low).p75) == (25, 75)
    assert (summarise(low).outliers, summarise(high).outliers) == (0, 2)


@pytest.mark.parametrize(("count", "dropped"), [(9, 0), (10, 1), (19, 1), (20, 2)])
def test_a_tenth_is_cut_from_each_end(count: int, dropped: int) -> None:
    values = [2.0**number for number in range(count)][::-1]
    expected = sum(sorted(values)[dropped : count - dropped]) / (count - 2 * dropped)
    assert trimmed_mean(values) == pytest.approx(expected)


def test_ranks_of_neighbours_correlate_as_by_hand() -> None:
    values = np.array([5.0, 1.0, 4.0, 2.0, 3.0, 9.0])
    ranks = stats.rankdata(values) - 3.5
    expected = sum(a * b for a, b in itertools.pairwise(ranks)) / sum(ranks**2) + 1 / 6
    answer = summary._serial_correlation(values)
    assert answer == pytest.approx((expected, 1.645 / math.sqrt(6)))
    assert summary._serial_correlation(np.ones(4)) == pytest.approx((0, 1.645 / 2))


@pytest.mark.parametrize(("count", "is_told"), [(19, False), (20, True)])
def test_twenty_launches_tell_whether_they_depend(count: int, is_told: bool) -> None:
    order = np.random.default_rng(5).permutation(count)
    answer = summarise_blocks([[100.0 + value] for value in order])
    assert ("one state" in answer.assumes) is is_told
    rising = summarise_blocks([[100.0 + value] for value in range(count)])
    assert (rising.interval, rising.doubt) == (None, "launches depend on those before them")
    few = summarise_blocks([[1.0]] * 5)
    assert (few.interval, few.doubt, few.median) == (None, "fewer than 6 launches", 1.0)


@pytest.mark.parametrize("count", [8, 20])
@pytest.mark.parametrize(("share", "is_found"), [(0.99, False), (1.01, True)])
def test_a_gap_is_forty_nths_of_the_spread(count: int, share: float, is_found: bool) -> None:
    half = count // 2
    lower = np.arange(half) / half
    deviation = math.sqrt(2 * np.sum((lower - lower.mean()) ** 2) / (count - 2))
    gap = share * 40 / count * deviation
    upper = lower[-1] + gap + lower
    answer = two_states([*upper, *lower])
    assert (answer is not None) is is_found
    if answer:
        assert answer == pytest.approx((half, np.median(lower), np.median(upper)))


@pytest.mark.parametrize(
    ("count", "rare", "is_found"), [(10, 2, True), (10, 1, False), (11, 2, False), (11, 3, True)]
)
def test_a_state_holds_a_fifth_of_the_launches(count: int, rare: int, is_found: bool) -> None:
    noise = 0.001 * np.arange(count)
    for slow in (np.arange(count) < rare, np.arange(count) >= rare):
        answer = two_states((noise + slow).tolist())
        assert (answer is not None) is is_found
        if answer:
            assert answer[0] in {rare, count - rare}


@pytest.mark.parametrize(
    ("count", "slow", "is_found"),
    [
        (60, (30, 31, 32), True),
        (60, (30, 31, 40), True),  # 3420 of 34220 orders have five stretches or fewer
        (59, (30, 31, 40), False),  # 3304 of 32509
        (60, (30, 35, 40), False),
        (60, (0, 30, 59), True),
        (60, (1, 30, 58), False),
        (60, (30,), False),
    ],
)
def test_a_rare_state_lasts_where_it_has_few_stretches(
    count: int, slow: tuple[int, ...], is_found: bool
) -> None:
    """The faster launches reach far towards the slower ones, and are no slow ones for that."""
    values = np.random.default_rng(2).permutation(count) / (count - 1)
    values[list(slow)] = 1.9
    answer = summary._lasting_states(values.tolist())
    assert (answer is not None) is is_found
    if answer:
        assert (answer[0], answer[2]) == (count - len(slow), 1.9)


def test_the_interval_of_a_median_of_six_by_hand() -> None:
    # 96.875 % at the ends and 78.125 % one further in: a tenth, weighed by 5 and 1.
    assert figures(median_interval([6, 1, 5, 2, 4, 3])) == pytest.approx(
        (1 + 0.5 / 1.4, 6 - 0.5 / 1.4, 0.95)
    )


@pytest.mark.parametrize(
    ("dtype", "kind"),
    [("float32", "real"), ("bfloat16", "real"), ("complex64", "real"), ("int8", "level"),
     ("uint8", "level"), ("int16", "level"), ("uint16", "level"), ("int32", "label"),
     ("int64", "label"), ("bool", "label")],
)  # fmt: skip
def test_numbers_are_compared_by_their_type(dtype: str, kind: str) -> None:
    assert number_kind(dtype) == kind


@pytest.mark.parametrize(
    ("decibels", "share"),
    [(80.0, 0.99), (79.9, 0.95), (40.0, 0.95), (39.9, 0.9), (20.0, 0.9), (19.9, 0.8), (-9.0, 0.8)],
)
def test_whole_numbers_are_as_equal_as_their_floats_are_alike(
    decibels: float, share: float
) -> None:
    assert least_equal_share(decibels) == share


def test_labels_are_right_or_wrong_and_levels_may_be_a_little_off() -> None:
    reference = np.arange(100.0) + 1
    value = reference.copy()
    value[:10] += 1
    labels = compare(0, value, reference, 10, kind="label")
    assert (labels.equal_share, labels.top1, labels.clear_top1) == (0.9, 0.9, None)
    assert (labels.snr_db, labels.cosine, labels.degenerate) == (None, None, None)
    assert (labels.max_abs, labels.mse) == (1.0, 0.1)
    assert (labels.is_within(39.0), labels.is_within(40.0)) == (True, False)
    assert (labels.has_equal(0.9), labels.has_equal(0.91)) == (True, False)
    levels = compare(0, value, reference, 10, kind="level")
    decibels = 10 * math.log10(sum(n * n for n in range(1, 101)) / 10)
    assert levels.snr_db == pytest.approx(decibels)
    assert (levels.is_within(decibels - 0.1), levels.is_within(decibels + 0.1)) == (True, False)
    empty = np.zeros(0)
    assert compare(0, empty, empty, 10, kind="label").equal_share == 1.0
    assert compare(0, empty, empty, 10).mse == 0.0
    with pytest.raises(InputFileError, match="output 4 has 0 values, its reference 100"):
        compare(4, empty, reference, 1)


def test_relative_errors_are_of_values_of_a_thousandth_and_more() -> None:
    reference = np.array([1000.0, 1.0, 0.999, 0.0])
    assert compare(0, np.add(reference, [0, 0.5, 0, 9]), reference, 4).max_rel == pytest.approx(0.5)
    assert compare(0, np.add(reference, [0, 0, 0.5, 0]), reference, 4).max_rel == 0.0
    assert compare(0, np.add(reference, [10, 0, 0, 0]), reference, 4).max_rel == pytest.approx(0.01)


def test_a_row_is_clear_where_it_leads_by_three_errors() -> None:
    """Root mean square 10; at 40 dB an error of .1, at 20 dB one of 1."""
    reference = np.array([10.0, 9.6, -10.4, -10.0, 9.98, 10.01])
    swapped = np.array([10.0, 9.6, -10.0, -10.4, 10.0, 9.0])
    answer = compare(0, swapped, reference, 2)
    assert (answer.top1, answer.clear_top1) == pytest.approx((1 / 3, 0.5))
    assert compare(0, swapped, reference, 2, least_db=20).clear_top1 is None
    assert compare(0, swapped, reference, 2, least_db=70).clear_top1 == pytest.approx(1 / 3)
    near = np.array([10.0, 9.71, 10.0, 9.69])
    assert compare(0, near, near, 2).clear_top1 == 1.0
    assert compare(0, near[:2], near[:2], 2).clear_top1 is None
    for columns in (1, 4):
        assert compare(0, reference, reference, columns).top1 is None


def test_what_no_likeness_is_told_of() -> None:
    tiny = float(np.finfo(np.float32).tiny)
    assert find_degeneracy(np.zeros(0)) == "it is empty"
    assert find_degeneracy(np.array([1, np.nan, np.inf])) == "2 of its 3 values are not finite"
    assert find_degeneracy(np.array([-0.0])) == "it is 0 everywhere"
    assert find_degeneracy(np.array([2.5, 2.5])) == "it is 2.5 everywhere"
    assert find_degeneracy(np.array([2.5])) is None
    assert find_degeneracy(np.array([tiny, 0])) is None
    assert find_degeneracy(np.array([1e-39, 0])) == (
        "it is 1e-39 at most, where float32 has no precision left"
    )
    ones, zeros = np.ones(3), np.zeros(3)
    assert (snr_db(ones, zeros), snr_db(zeros, ones)) == (None, -np.inf)
    assert snr_db(10 * ones, ones) == pytest.approx(20)
    assert compare(0, zeros, ones, 3).cosine is None
    assert compare(0, np.array([1.0, 1]), np.array([1.0, 0]), 2).cosine == pytest.approx(0.5**0.5)


def test_the_noise_of_launches_is_numpy_s() -> None:
    blocks = [[100, 110, 120, 130], [90] * 4, [105] * 3, [95, 100, 150, 150], [80] * 5]
    answer = launch_noise(blocks)
    assert answer is not None
    medians = [115, 90, 105, 125, 80]
    assert answer.between == pytest.approx(np.std(medians, ddof=1) / 103)
    assert (answer.fastest, answer.slowest, answer.within) == (80, 125, 0.0)
    assert answer.drift == pytest.approx(102.5 / 102.5 - 1)
    # Quartiles 102.5 and 127.5 of four values.
    alike = launch_noise([[100, 110, 120, 130]] * 4)
    assert alike is not None
    assert alike.within == pytest.approx(25 / 1.349 / 115)
    assert launch_noise(blocks[:3]) is None
    assert launch_noise([*blocks, [0]]) is None
    later = launch_noise([[100], [100], [110], [110]])
    assert later is not None
    assert "slower than the first" in later.trend
    sooner = launch_noise([[110], [110], [99], [99]])
    assert sooner is not None
    assert sooner.drift == pytest.approx(-0.1)
    assert "faster than the first" in sooner.trend


@pytest.mark.parametrize(("cold", "is_early"), [(7, True), (8, False)])
def test_a_quarter_of_the_samples_may_be_cold(cold: int, is_early: bool) -> None:
    """A window of five is warm as soon as three of them are: two samples before the first one."""
    values = [200] * cold + [100] * (20 - cold)
    assert settled_after(values) == cold - 2
    assert is_settled(values) is is_early
    assert is_settled(values[1:]) is None
    with pytest.raises(ValueError, match="19 samples do not tell where they settle; it needs 20"):
        settled_after(values[1:])


@pytest.mark.parametrize(("step", "is_found"), [(1.9, True), (2.1, False)])
def test_a_series_is_steady_within_two_percent(step: float, is_found: bool) -> None:
    level = 1000
    second = [level] * 5 + [round(level + 10 * step)] * 5
    middle = (level + round(level + 10 * step)) / 2
    assert abs(second[-1] - second[0]) / middle < 0.0211
    assert (settled_after([level] * 10 + second) is not None) is is_found


def test_noise_of_one_size_tells_what_pairs_can_see() -> None:
    """Ten pairs of ±c have the interval -c to c mostly: what is found is c, or leaves the margin."""
    spread = calibration.Estimate(0.1, 0.05, 0.2)
    answer = calibration._smallest_effect(np.array([0.1, -0.1]), spread, 10, 0.02)
    assert answer is not None
    expected = (math.expm1(0.1), math.expm1(0.05), math.expm1(0.2))
    assert (answer.value, answer.low, answer.high) == pytest.approx(expected)
    quiet = calibration._smallest_effect(np.array([0.002]), spread, 10, 0.02)
    assert quiet is not None
    ends = [math.expm1(math.log(1.02) - factor * 0.002) for factor in (1, 0.5, 2)]
    assert (quiet.value, quiet.low, quiet.high) == pytest.approx(tuple(ends), rel=0.1)
    for size, is_known in ((0.69, True), (0.70, False)):
        seen = calibration._smallest_effect(np.array([size]), spread, 10, 0.02)
        assert (seen is not None) is is_known
    assert calibration._smallest_effect(np.array([0.1]), spread, 5, 0.02) is None
    assert [calibration._upper_bound(hits, 4) for hits in (4, 5)] == [1.0, 1.0]
