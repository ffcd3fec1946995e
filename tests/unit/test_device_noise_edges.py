"""A device's noise, two states of a series, and what runs owe each other: by SciPy and by hand."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from etprof.statistics import change_points, device_noise
from etprof.statistics.change_points import Levels, find_change_points, step_in_doubt
from etprof.statistics.dependence import estimate_dependence, level_factors, line_factors
from etprof.statistics.device_noise import DeviceNoise
from etprof.statistics.states import TwoStates, find_states, remove_states

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

TAILS = (1.0, 1.5, 2.0, 3.0, 5.0, np.inf)


def distances(logs: Sequence[float]) -> NDArray[np.float64]:
    """Of each run from the median of the four before and the four after it."""
    return np.array([
        value - np.median([*logs[max(0, i - 4) : i], *logs[i + 1 : i + 5]])
        for i, value in enumerate(logs)
    ])  # fmt: skip


def scales_of(values: NDArray[np.float64]) -> NDArray[np.float64]:
    unit = max(1.4826 * float(np.median(np.abs(values))), 0.003)
    scales: NDArray[np.float64] = unit * np.geomspace(0.25, 30, 40)
    return scales


def likelihood_of(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Log of Student's likelihood by tail and scale, of the newest forty."""
    newest = values[-40:]
    tails, scales = np.array(TAILS)[:, None, None], scales_of(newest)[None, :, None]
    likely: NDArray[np.float64] = np.sum(stats.t.logpdf(newest, tails, scale=scales), axis=2)
    return likely


def common_tails(series: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """How common each tail is, where one series may look heavy by chance."""
    rows = [likelihood_of(distances(logs)) for logs in series]
    likely = np.array([np.exp(row - row.max()).sum(axis=1) for row in rows])
    common = np.full(6, 1 / 6)
    for _ in range(100):
        shares = (likely * common).T / (likely @ common)
        heavy = shares.sum(axis=1)[:5]
        heavy = heavy * max(1 - 1 / heavy.sum(), 0)
        common = np.append(heavy, len(series) - heavy.sum()) / len(series)
    return common


def stray_series(
    count: int = 12, strays: Sequence[int] = (3, 8), size: float = 0.05
) -> list[float]:
    """Runs that are all alike, which counts as a spread of 0.003, but for some."""
    return [size if index in strays else 0.0 for index in range(count)]


HEAVY = [
    np.ravel(0.01 * stats.t.rvs(1.5, size=60, random_state=seed)).tolist() for seed in range(6)
]
CALM = [np.ravel(0.01 * stats.norm.rvs(size=30, random_state=seed)).tolist() for seed in range(4)]


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 9, 10, 14])
def test_a_run_departs_from_the_four_on_each_side(count: int) -> None:
    logs = np.random.default_rng(count).normal(size=count).tolist()
    assert device_noise._departures(logs) == pytest.approx(distances(logs))
    expected = []
    for i in range(1, count - 1):
        before, after = np.median(logs[max(0, i - 4) : i]), np.median(logs[i + 1 : i + 5])
        expected.append(min(logs[i] - before, logs[i] - after, key=abs))
    assert device_noise._departures_from_either(logs)[1:-1] == pytest.approx(expected)


def test_the_likelihood_of_departures_is_student_s() -> None:
    series = [distances(logs) for logs in (HEAVY[0], CALM[0], CALM[1][:7])]
    logs, scales = device_noise._likelihoods(series)
    assert logs.shape == (3, 6, 40)
    for values, of_series, own_scales in zip(series, logs, scales, strict=True):
        assert own_scales == pytest.approx(scales_of(values[-40:]))
        assert of_series == pytest.approx(likelihood_of(values))


def test_runs_that_never_vary_have_the_least_scale() -> None:
    _, scales = device_noise._likelihoods([np.zeros(8)])
    assert scales[0, [0, -1]] == pytest.approx([0.25 * 0.003, 30 * 0.003])


def test_the_spread_of_calm_runs_is_by_the_lower_quartile() -> None:
    values = np.array([-0.08, 0.01, 0.02, -0.03, 0.04])  # the second smallest is the quartile
    quartile = float(stats.norm.ppf(0.625))
    assert device_noise._calm_spread(values) == pytest.approx(0.02 / quartile, rel=1e-3)
    assert device_noise._calm_spread(values / 100) == 0.003


def test_tails_are_as_common_as_the_series_of_the_device_say() -> None:
    series = [*HEAVY, *CALM]
    noise = DeviceNoise({"latency": dict(enumerate(series))})
    expected = common_tails(series)
    assert noise._common_tails == pytest.approx(expected, abs=1e-9)
    assert noise._common_tails.sum() == pytest.approx(1)
    assert 0.3 < expected[:5].sum() < 0.7
    # AND series of fewer than five runs say nothing of tails
    short = dict(enumerate([*series, [0.0, 9.0, 0.0, 0.0]]))
    assert DeviceNoise({"latency": short})._common_tails == pytest.approx(expected, abs=1e-9)
    one = DeviceNoise({"latency": {"short": [0.0, 9.0, 0.0, 0.0]}})
    assert one._common_tails.tolist() == [0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("change", [0.05, -0.2])
def test_the_chance_of_a_departure_is_over_all_tails(change: float) -> None:
    series = [*HEAVY, *CALM]
    noise = DeviceNoise({"latency": dict(enumerate(series))})
    common, departures = common_tails(series), distances(HEAVY[1])
    likely = likelihood_of(departures)
    weights = common[:, None] * np.exp(likely - likely.max())
    weights /= weights.sum()
    scales = scales_of(departures[-40:])
    chance = sum(
        float(weights[row] @ (2 * stats.t.sf(abs(change) / scales, tail)))
        for row, tail in enumerate(TAILS[:5])
    )
    expected = chance + 0.001 * weights[5].sum()
    assert noise.tail(HEAVY[1], change, 0.01, 0.001) == pytest.approx(expected, rel=1e-6)
    # AND a series of four runs has the tails of its device, around its standard error
    few = sum(
        common[row] * 2 * stats.t.sf(abs(change) / 0.02, tail) for row, tail in enumerate(TAILS[:5])
    )
    answer = noise.tail([0.0, 0.01, 0.02, 0.01], change, 0.02, 0.001)
    assert answer == pytest.approx(few + 0.001 * common[5], rel=1e-6)
    assert noise.tail([*CALM[0][:5]], change, 0.02, 0.001) != pytest.approx(answer, rel=1e-3)


@pytest.mark.parametrize(
    ("strays", "size", "has_tails"),
    [
        ((3, 8), 0.0185, True),
        ((3, 8), -0.0185, True),
        ((3, 8), 0.0175, False),
        ((3,), 0.05, False),
        ((0, 11), 0.05, False),  # of a level that begins or ends there, maybe
        ((1, 10), 0.05, True),
    ],
)
def test_two_runs_of_six_spreads_make_heavy_tails(
    strays: tuple[int, ...], size: float, has_tails: bool
) -> None:
    noise = DeviceNoise({"latency": {"a": stray_series(12, strays, size)}})
    assert noise._has_tails is has_tails
    assert noise._has_strays is (has_tails and size > 0)
    if not has_tails:
        assert noise.tail([0.0] * 12, 0.1, 0.01, 1e-4) == 1e-4


@pytest.mark.parametrize(("change", "strays"), [(0.0666, 2), (-0.0666, 2), (0.0668, 0), (0.2, 0)])
def test_a_run_that_was_three_quarters_as_far_out_is_as_far(change: float, strays: int) -> None:
    """Of twelve runs the first and the last are not counted; one more is as the candidate."""
    noise = DeviceNoise({"latency": {"a": stray_series()}})
    share = noise.share_as_far("latency", [0.0] * 12, change)
    assert share == pytest.approx((strays + 1) / (10 + 1))


@pytest.mark.parametrize("side", [1, -1])
def test_what_is_worse_falls_where_higher_is_better(side: int) -> None:
    logs = [side * value for value in stray_series()]
    noise = DeviceNoise({"speed": {"a": logs}}, {"speed"} if side < 0 else ())
    assert noise.share_as_far("speed", [0.0] * 12, 0.066) == pytest.approx(3 / 11)
    assert noise.share_as_far("speed", [0.0] * 12, 0.068) == pytest.approx(1 / 11)
    # AND what stands out for the better excuses nothing
    reverse = DeviceNoise({"speed": {"a": logs}}, () if side < 0 else {"speed"})
    assert reverse.share_as_far("speed", [0.0] * 12, 0.066) == 0.0


def test_the_larger_share_counts_of_all_metrics_and_of_the_one() -> None:
    calm = [0.0] * 11 + [0.001]
    noise = DeviceNoise({"latency": {"a": calm}, "memory": {"a": stray_series()}})
    assert noise.share_as_far("latency", calm, 0.05) == pytest.approx(3 / 21)
    assert noise.share_as_far("memory", [0.0] * 12, 0.05) == pytest.approx(3 / 11)


@pytest.mark.parametrize(
    ("first", "second", "is_excused"),
    [(("latency", "a", 3), ("memory", "a", 3), False),
     (("latency", "a", 3), ("memory", "a", 4), True),
     (("latency", "a", 3), ("memory", "b", 3), True)],
)  # fmt: skip
def test_metrics_of_one_run_are_one_stray(
    first: tuple[str, str, int], second: tuple[str, str, int], is_excused: bool
) -> None:
    series = {
        metric: {key: stray_series(12, [index]), "calm": stray_series(12, [11], 0.001)}
        for metric, key, index in (first, second)
    }
    noise = DeviceNoise(series)
    assert (noise.share_as_far("latency", [0.0] * 12, 0.05) > 0) is is_excused


@pytest.mark.parametrize(
    ("lengths", "presumed"),
    [([7] * 28, 1000), ([8] * 2, 0), ([5] * 40, 0), ([5] * 39 + [4], 1000), ([3], 1000)],
)
def test_few_runs_are_presumed_to_have_strays(lengths: Sequence[int], presumed: int) -> None:
    """Below eight runs of a series and 200 of a metric one of a thousand is; else none was seen."""
    series = {key: [0.001 * (i % 2) for i in range(n)] for key, n in enumerate(lengths)}
    noise = DeviceNoise({"latency": series, "memory": series})
    inner = 2 * sum(length - 2 for length in lengths)
    expected = max(1 / (n + presumed) for n in (inner, inner / 2)) if presumed else 0.0
    assert noise.share_as_far("latency", series[0], 0.5) == pytest.approx(expected)


def test_a_device_without_history_is_young() -> None:
    noise = DeviceNoise({"latency": {"a": [0.1, 0.1, 0.1]}})  # which never varied: no series
    assert noise.share_as_far("latency", [0.1], 0.5) == pytest.approx(1 / 1000)
    assert noise.tail([0.1], 0.5, 0.1, 0.02) == 0.02
    assert noise.dependence == 0.0


def test_a_series_own_spread_counts_by_its_runs_and_that_of_its_metric_as_six() -> None:
    series = {key: (0.01 * (key + 1) * np.asarray(CALM[key])).tolist() for key in range(3)}
    series = {key: [100 * value for value in logs] for key, logs in series.items()}
    noise = DeviceNoise({"latency": series})
    quartile = 0.3186
    shared = float(np.percentile(np.abs([*map(distances, series.values())]), 25)) / quartile
    for logs in (series[2], series[2][:5]):
        spread = float(np.percentile(np.abs(distances(logs)), 25)) / quartile
        count = len(logs)
        expected = math.sqrt((count * spread**2 + 6 * shared**2) / (count + 6))
        assert noise._scale("latency", logs) == pytest.approx(expected)
    assert noise._scale("latency", series[2][:4]) == pytest.approx(shared)
    assert noise._scale("memory", series[2][:4]) == 0.003


def test_two_states_by_hand() -> None:
    states = find_states([1.0, 1.5] * 4)
    assert states == TwoStates((0, 2, 4, 6), (1, 3, 5, 7), 1.0, 1.5, 0.0)
    assert states.freedom == 6
    assert states.change == pytest.approx(math.exp(0.5) - 1)
    assert [states.is_upper(value) for value in (1.25, 1.2501, 9.0)] == [False, True, True]
    assert states.without_states([1.1, 1.6, 0.0]) == pytest.approx([1.1, 1.1, 0.0])
    assert remove_states([1.0, 1.5] * 4) == [1.0] * 8
    constant = [1.0] * 8
    assert remove_states(constant) is constant


def test_the_squares_of_two_states_are_around_the_level_of_each() -> None:
    lower, upper = [0.0, 0.02, 0.0, 0.02], [0.5, 0.52, 0.51, 0.51]
    states = find_states([value for pair in zip(lower, upper, strict=True) for value in pair])
    assert states is not None
    assert (states.lower_level, states.upper_level) == pytest.approx((0.01, 0.51))
    assert states.squares == pytest.approx(4 * 0.01**2 + 2 * 0.01**2)


def test_the_chance_of_a_stretch_in_a_state_by_hand() -> None:
    states = TwoStates((0, 1, 3, 6, 7), (2, 4, 5), 0.0, 1.0, 0.0)
    # Of the lower, without the runs 6 and 7: 3 of 6 runs, and 1 of 3 was followed by another.
    share, stay = 4 / 8, 2 / 5
    assert states.chance_of_stretch((6, 7), upper=False) == pytest.approx(share**3)
    # Of the upper: 3 of 8 runs, of which one was followed by another.
    share, stay = 4 / 10, 2 / 5
    assert states.chance_of_stretch((), upper=True) == pytest.approx(share)
    lasting = TwoStates((0, 1, 2, 3), (4, 5, 6, 8, 9, 10), 0.0, 1.0, 0.0)
    share, stay = 5 / 12, 4 / 6
    assert lasting.chance_of_stretch((), upper=False) == pytest.approx(share)
    share, stay = (5 + 1) / (5 + 4 + 2), (3 + 1) / (5 + 2)
    assert lasting.chance_of_stretch((10,), upper=True) == pytest.approx(share * max(share, stay))
    share, stay = (3 + 1) / (3 + 6 + 2), (2 + 1) / (3 + 2)
    assert lasting.chance_of_stretch((3,), upper=False) == pytest.approx(share * stay)


def stays(*lengths: int) -> list[float]:
    """Runs that stay so many times low, then high, and so on."""
    return [float(number % 2) for number, length in enumerate(lengths) for _ in range(length)]


@pytest.mark.parametrize(
    ("lengths", "is_found"),
    [
        ((5, 2, 5, 2, 5), True),  # four changes, and no more than two runs a stay
        ((5, 2, 5, 3, 5), False),
        ((2, 6, 2, 6), False),  # three changes
        ((3, 1, 3, 2), False),
        ((3, 3, 3, 3, 3, 3, 3, 3, 3), True),  # eight changes, however long the stays
        ((3, 3, 3, 3, 3, 3, 3, 3), False),
        ((4, 1, 4, 1, 4, 1, 4), True),
        ((4, 1, 4, 1, 4), False),  # two runs may be strays
        ((1, 4, 1, 4, 1, 4, 1, 4), True),
    ],
)
def test_a_series_that_goes_back_and_forth_has_two_states(
    lengths: tuple[int, ...], is_found: bool
) -> None:
    logs = stays(*lengths)
    assert (find_states(logs) is not None) is is_found
    assert (find_states([1 - value for value in logs]) is not None) is is_found


@pytest.mark.parametrize(("apart", "is_found"), [(4.9, False), (5.1, True)])
@pytest.mark.parametrize("side", [1, -1])
def test_two_states_are_five_spreads_apart(apart: float, is_found: bool, side: int) -> None:
    inner = [0.0, 0.01] * 4
    step = apart * float(np.std(inner, ddof=1))
    pairs = [(value, 0.005 + step) for value in inner]
    logs = [side * value for pair in pairs for value in pair]
    assert (find_states(logs) is not None) is is_found
    # AND states of no spread at all are taken to have one of .003
    assert (find_states([0.0, apart * 0.003] * 4) is not None) is is_found


@pytest.mark.parametrize("side", [1, -1])
def test_a_stray_beyond_a_state_does_not_hide_it(side: int) -> None:
    logs = [side * value for value in [0.0, 0.1] * 36]
    logs[41] = side * 0.21  # further from its state than the two are apart
    states = find_states(logs)
    assert states is not None
    assert {len(states.lower), len(states.upper)} == {36}


def test_the_newest_hundred_runs_tell_the_states() -> None:
    for older in (1, 30):
        states = find_states([9.0] * older + [0.0, 1.0] * 50)
        assert states is not None
        assert (states.lower[0], states.upper[-1]) == (older, older + 99)
        assert len(states.lower) + len(states.upper) == 100


def test_runs_that_were_called_worse_are_of_neither_state() -> None:
    states = find_states([7.0, 0.0, 1.0, 0.0, 1.0, 8.0, 0.0, 1.0, 0.0, 1.0], {0, 5})
    assert states is not None
    assert (states.lower, states.upper) == ((1, 3, 6, 8), (2, 4, 7, 9))
    assert find_states([0.0, 1.0] * 4, {7}) is None


def sharing_turns(turning: int, triples: int) -> list[list[float]]:
    """Series of three values, of which so many turn in the middle."""
    return [[0.0, 1.0, 0.0] if i < turning else [0.0, 1.0, 2.0] for i in range(triples)]


@pytest.mark.parametrize(
    ("turning", "triples", "expected"),
    [
        (0, 29, 0.0),  # too few to tell
        (15, 30, 0.0),  # .5 is less than 2 / 3 by 2.16 deviations
        (14, 30, 0.97),  # by 2.6
        (57, 100, 0.0),  # by 2.29
        (56, 100, 1 - 2 * math.sin(math.pi * 0.06)),  # by 2.53
        (30, 100, 0.97),
    ],
)
def test_dependence_is_by_the_share_of_turning_points(
    turning: int, triples: int, expected: float
) -> None:
    series = [*sharing_turns(turning, triples), [1.0, 1.0, 2.0], [3.0], []]
    assert estimate_dependence(series) == pytest.approx(round(expected, 2))


@pytest.mark.parametrize("dependence", [0.0, 0.4, 0.9])
@pytest.mark.parametrize("runs", [3, 6])
def test_what_a_fit_leaves_of_dependent_runs(dependence: float, runs: int) -> None:
    """By the mean and variance of quadratic forms (Box 1954)."""
    lags = [[abs(i - j) for j in range(runs + 1)] for i in range(runs + 1)]
    following = np.power(dependence, lags)
    correlations = following[:runs, :runs]
    offsets = np.arange(runs) - (runs - 1) / 2
    around_mean = np.eye(runs) - 1 / runs
    around_line = around_mean - np.outer(offsets, offsets) / np.sum(offsets**2)
    for residual, factors in (
        (around_mean, level_factors(dependence, runs)),
        (around_line, line_factors(dependence, runs)),
    ):
        left = residual @ correlations
        assert factors.squares == pytest.approx(np.trace(left))
        assert factors.freedom == pytest.approx(np.trace(left) ** 2 / np.trace(left @ left))
    # The next run's distance from the mean, and the line's rise over all runs.
    pairs = itertools.product(range(runs), repeat=2)
    variance = 1 + sum(correlations[i, j] for i, j in pairs) / runs**2
    variance -= 2 * following[runs, :runs].sum() / runs
    assert level_factors(dependence, runs).error == pytest.approx(math.sqrt(variance))
    slope = offsets / np.sum(offsets**2)
    rise = (runs - 1) * math.sqrt(slope @ correlations @ slope)
    assert line_factors(dependence, runs).error == pytest.approx(rise)


def test_one_run_leaves_nothing_of_its_level() -> None:
    factors = level_factors(0.5, 1)
    assert (factors.squares, factors.freedom) == (0.0, 0.0)
    # Neighbours correlate by .5: their difference varies by 2 (1 - .5).
    assert factors.error == pytest.approx(1.0)


def generalised(values: NDArray[np.float64], rho: float) -> tuple[float, float]:
    """Squares around the best level of AR(1) values, and half the log of what they are worth."""
    lags = np.abs(np.subtract.outer(range(values.size), range(values.size)))
    inverse = np.linalg.inv(rho**lags / (1 - rho**2))
    level = float(inverse.sum(axis=0) @ values) / inverse.sum()
    worth = math.log(inverse.sum() / (1 - rho**2)) / 2
    return float((values - level) @ inverse @ (values - level)), worth


def test_a_stretch_costs_what_generalised_least_squares_leave() -> None:
    logs = np.random.default_rng(3).normal(size=12)
    rhos = (0, 0.15, 0.3, 0.45, 0.6, 0.7, 0.8, 0.87, 0.93, 0.97)
    squares, worths = Levels(logs).cost(np.array([0, 2, 5]), np.array([12, 6, 6]))
    for row, rho in enumerate(rhos):
        for column, (start, end) in enumerate(((0, 12), (2, 6), (5, 6))):
            expected = generalised(logs[start:end], rho)
            cost = squares[row, column], worths[row, column]
            assert cost == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("step", "begin"), [(2.5, 0), (-3.0, 4), (6.0, 2), (1.0, 0)])
def test_the_place_of_a_change_is_by_its_odds(step: float, begin: int) -> None:
    random = np.random.default_rng(8)
    logs = random.normal(size=24) + step * (np.arange(24) >= 13)
    rhos = (0.0, 0.6)

    def evidence(*cuts: int) -> float:
        edges = [begin, *cuts, 24]
        likely = []
        for rho in rhos:
            costs = [generalised(logs[a:b], rho) for a, b in itertools.pairwise(edges)]
            squares, worth = np.sum(costs, axis=0)
            count = 24 - begin
            likely.append(-worth - (count - 1) / 2 * math.log(squares + count * 1e-6))
        return float(logsumexp(likely)) - math.log(2)

    cuts = range(begin + 1, 24)
    odds = np.exp([evidence(cut) - evidence() for cut in cuts])
    probability = odds.mean() / (1 + odds.mean())
    answer = Levels(logs, np.array(rhos)).locate_change(begin, 24)
    if probability < 0.95:
        assert answer is None
        return
    order = np.argsort(-odds)
    count = 1 + int(np.sum(np.cumsum(odds[order]) / odds.sum() < 0.95))
    among = [cuts[index] for index in order[:count]]
    assert answer is not None
    assert (answer.start, answer.earliest, answer.latest) == (among[0], min(among), max(among))
    assert answer.probability == pytest.approx(probability)


@pytest.mark.parametrize(("at", "is_found"), [(2, False), (3, True), (17, True), (18, False)])
def test_a_level_of_fewer_than_three_runs_is_not_known_yet(at: int, is_found: bool) -> None:
    logs = 0.01 * np.random.default_rng(1).normal(size=20) + (np.arange(20) >= at)
    answer = Levels(logs).locate_change(0, 20)
    assert (answer is not None) is is_found


def test_the_mean_of_numbers_by_their_logs() -> None:
    logs = np.array([[-1000.0, -1001, -1002], [3, 2, 800]])
    expected = logsumexp(logs, axis=1) - math.log(3)
    assert change_points._mean_of_logs(logs, axis=1) == pytest.approx(expected)
    assert change_points._mean_of_logs(logs, axis=0) == pytest.approx(
        logsumexp(logs, axis=0) - math.log(2)
    )


def test_a_stray_is_brought_back_to_three_spreads_from_its_neighbours() -> None:
    logs = np.array([0.0, 0.01] * 6)
    logs[4], logs[9] = 1.0, -1.0
    reach = 3 * 1.4826 * 0.01 / math.sqrt(2)  # differences of .01 mostly
    clipped = change_points._clip_outliers(logs)
    # Neighbours of the fifth: 0, .01, 1, .01, 0; of the tenth: .01, 0, -1, 0, .01.
    assert clipped[[4, 9]] == pytest.approx([0.01 + reach, -reach])
    assert np.delete(clipped, [4, 9]) == pytest.approx(np.delete(logs, [4, 9]))
    # AND where most runs equal the one before, the upper quartile of differences tells
    rounded = np.array([0, 0, 0, 0.1, 0.1, 0.1, 0, 0, 0.1, 0.1, 0, 0, 0, 5])
    differences = np.abs(np.diff(rounded))
    assert np.median(differences) == 0
    reach = 3 * np.percentile(differences, 75) / (math.sqrt(2) * stats.norm.ppf(0.875))
    assert reach == pytest.approx(3 * 0.1 / 1.6268, rel=1e-4)
    assert change_points._clip_outliers(rounded)[-1] == pytest.approx(reach, rel=1e-4)
    # AND no series is clipped nearer than .003
    flat = np.array([0.0] * 9 + [1.0, 0.0, 0.0])
    assert change_points._clip_outliers(flat)[9] == pytest.approx(0.003)


def test_levels_that_are_alike_are_joined_the_most_alike_first() -> None:
    logs = np.repeat([0.0, 0.03, 0.05, 0.2, 0.19], 4)
    drop = change_points._drop_small_changes
    assert drop(logs, [4, 8, 12, 16], 0.005) == [4, 8, 12, 16]
    assert drop(logs, [4, 8, 12, 16], 0.015) == [4, 8, 12]
    assert drop(logs, [4, 8, 12, 16], 0.025) == [4, 12]
    assert drop(logs, [4, 8, 12, 16], 0.25) == []
    steps = np.repeat([0.0, 0.25], 4)
    assert (drop(steps, [4], 0.25), drop(steps, [4], 0.26)) == ([4], [])
    assert drop(steps[::-1], [4], 0.25) == [4]


@pytest.mark.parametrize(
    ("length", "strays", "is_kept"), [(4, 1, True), (7, 2, False), (7, 1, True), (8, 3, True)]
)
def test_a_short_level_is_on_one_side_but_for_a_quarter(
    length: int, strays: int, is_kept: bool
) -> None:
    level = np.where(np.arange(length) < strays, 0.3, 1.0)
    for logs, start in (
        (np.append(np.zeros(12), level), 12),
        (np.append(level, np.zeros(12)), length),
    ):
        for side in (1, -1):
            kept = change_points._drop_mixed(side * logs, [start])
            assert kept == ([start] if is_kept else [])


@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize(("stray", "inside"), [(0.076, 3), (0.074, 0), (0.149, 3), (0.151, 0)])
def test_a_level_that_other_runs_stand_at_may_be_chance(
    side: int, stray: float, inside: int
) -> None:
    """Binomial: three of four runs where `inside` of twenty others are, in twenty places."""
    others = np.zeros(20)
    others[[3, 8, 15]] = stray
    short = np.array([0.1, 0.1, 0.0, 0.1])
    expected = 20 * stats.binom.sf(2, 4, (inside + 1) / 22)
    for levels, index in (([others, short], 0), ([short, others], 0)):
        chance = change_points._chance_of_stretch([side * level for level in levels], index)
        assert chance == pytest.approx(expected)
    # AND levels further away count, unless they go on where this one is
    for beyond, counted, hits in (([0.1] * 5, 20, inside), ([0.02] * 5, 25, inside)):
        levels = [side * others, side * short, side * np.array(beyond)]
        chance = change_points._chance_of_stretch(levels, 0)
        share = (hits + 1) / (counted + 2)
        assert chance == pytest.approx(counted * stats.binom.sf(2, 4, share))
    levels = [side * np.full(5, 0.1), side * np.zeros(9), side * others, side * short]
    share = (inside + 5 + 1) / (34 + 2)
    chance = change_points._chance_of_stretch(levels, 2)
    assert chance == pytest.approx(34 * stats.binom.sf(2, 4, share))


def test_changes_that_come_again_are_dropped_the_shortest_level_first() -> None:
    logs = np.array([0.0, 0, 0.1, 0, 0, 0.1, 0, 0, 0.1, 0.1, 0.1, 0, 0, 0.1, 0, 0, 0.1, 0.1, 0])
    assert change_points._drop_recurring(logs, [8, 11]) == []
    once = np.repeat([0.0, 0.1], [20, 8])
    assert change_points._drop_recurring(once, [20]) == [20]


@pytest.mark.parametrize("step", [0.3, -0.3])
def test_a_step_in_doubt_is_the_largest(step: float) -> None:
    noise = 0.001 * np.random.default_rng(4).normal(size=30)
    logs = noise + np.repeat([0.0, step, 0.4 * step], 10)
    levels = [float(np.median(stretch)) for stretch in np.split(logs, 3)]
    values = np.exp(logs).tolist()
    assert step_in_doubt(values) == pytest.approx(math.expm1(levels[1] - levels[0]))
    # AND of more than two hundred runs the newest are looked at
    assert step_in_doubt([9.0] * 20 + [1.0] * 200) is None
    assert step_in_doubt([9.0] * 20 + [1.0] * 190) == pytest.approx(1 / 9 - 1)
    assert step_in_doubt([1.0] * 3 + [2.0] * 3) == pytest.approx(1.0)
    assert step_in_doubt([1.0] * 3 + [2.0] * 2) is None
    assert step_in_doubt([1.0] * 10 + [0.0] * 10) is None
    assert find_change_points([1.0] * 10 + [0.0] * 10) == []
    assert step_in_doubt([1.0] * 10 + [1.03] * 10, minimum_change=0.04) is None
    assert step_in_doubt([1.0] * 10 + [1.03] * 10, minimum_change=0.02) == pytest.approx(0.03)
