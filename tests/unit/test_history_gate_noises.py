"""The gate under noise that is not normal, not of one state, or not independent (N3-2, N3-7)."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from etprof.cli import main
from etprof.history.check import CheckRequest, CheckResult, check_history, raise_alarms
from etprof.history.store import Store, open_store
from etprof.statistics.change_points import find_change_points
from etprof.statistics.dependence import estimate_dependence, level_factors, line_factors
from etprof.statistics.device_noise import DeviceNoise
from etprof.statistics.runs import find_drift
from etprof.statistics.states import find_states
from tests.noisy_history import START, NoisyHistory

SERIES, ROUNDS = 12, 20
Noise = Callable[[np.random.Generator, int, int], NDArray[np.float64]]


def dependent(correlation: float, spread: float) -> Noise:
    def draw(random: np.random.Generator, runs: int, series: int) -> NDArray[np.float64]:
        values = spread * random.normal(size=(runs, series))
        for i in range(1, runs):
            values[i] = correlation * values[i - 1] + math.sqrt(1 - correlation**2) * values[i]
        return values

    return draw


def normal(random: np.random.Generator, runs: int, series: int) -> NDArray[np.float64]:
    return 0.01 * random.normal(size=(runs, series))


NOISES: dict[str, Noise] = {
    "two states": lambda r, n, m: normal(r, n, m) + 0.14 * (r.random((n, m)) < 0.2),
    "shared states": lambda r, n, m: normal(r, n, m) + 0.14 * (r.random((n, 1)) < 0.2),
    "outliers": lambda r, n, m: normal(r, n, m) + r.uniform(0.1, 0.5, (n, m)) * (r.random((n, m)) < 0.05),
    "Student t2": lambda r, n, m: 0.01 * r.standard_t(2, (n, m)),
    "AR .5": dependent(0.5, 0.03),
    "AR .9": dependent(0.9, 0.03),
}  # fmt: skip


@pytest.fixture
def history(tmp_path: Path) -> Iterator[NoisyHistory]:
    with open_store(tmp_path / "h.sqlite") as store:
        yield NoisyHistory(store, 1e-4, series=SERIES)


def check_and_keep(store: Store, **how: Any) -> CheckResult:  # noqa: ANN401
    """Checks the newest runs and keeps the alarms, as `etprof history check` does."""
    with store.session() as session:
        request = CheckRequest("window:7", allows_first_run=True, **how)
        result = check_history(session, request)
    store.write(lambda session: raise_alarms(session, result, START))
    return result


@pytest.mark.parametrize("kind", NOISES)
def test_noise_of_every_kind_seldom_raises_an_alarm(history: NoisyHistory, kind: str) -> None:
    """N3-2: runs judged one after the other were red in up to 100 % of checks with nothing changed."""
    codes = [0]
    for values in NOISES[kind](np.random.default_rng(len(kind)), ROUNDS, SERIES):
        history.add(np.exp(values).tolist())
        codes.append(check_and_keep(history.store).exit_code)
    assert sum(after > before for before, after in itertools.pairwise(codes)) <= 1


@pytest.mark.parametrize(("kind", "most"), [("none", 1), ("outliers", 3), ("Student t2", 3)])
def test_a_change_that_lasts_is_found_and_stays_red(
    history: NoisyHistory, kind: str, most: int
) -> None:
    noise, random = NOISES.get(kind, normal), np.random.default_rng(1)
    for values in noise(random, ROUNDS, SERIES):
        history.add(np.exp(values).tolist())
        check_and_keep(history.store)
    codes = []
    for values in noise(random, 6, SERIES):
        values[0] += math.log(1.1)
        history.add(np.exp(values).tolist())
        runs = check_and_keep(history.store).entries
        codes.append(any(e.outcome == "regression" and e.run.model == "model0" for e in runs))
    assert any(codes[:most])
    assert codes == sorted(codes)


def test_all_series_together_are_one_observation_of_a_young_device(history: NoisyHistory) -> None:
    """N3-2: the first run in a state of the machine turned every series red."""
    random = np.random.default_rng(2)
    for values in normal(random, 8, SERIES):
        history.add(np.exp(values).tolist())
        check_and_keep(history.store)
    outcomes = []
    for _ in range(2):
        history.add((1.15 * np.exp(normal(random, 1, SERIES)[0])).tolist())
        outcomes.append(check_and_keep(history.store).entries)
    assert {entry.outcome for entry in outcomes[0]} == {"inconclusive"}
    assert outcomes[0][0].reason.startswith("12 series of the device became worse together")
    # WHEN the next run is as slow THEN it is no chance
    assert {entry.outcome for entry in outcomes[1]} == {"regression"}


def test_a_series_of_two_states_is_judged_by_the_nearest_one(history: NoisyHistory) -> None:
    """N3-2: a slow state hid what got slower in it, and what was slower still seemed as slow."""
    random = np.random.default_rng(8)
    states = np.array([1.0, 1.0, 1.15, 1.0, 1.0, 1.15, 1.0, 1.0, 1.15, 1.0, 1.0, 1.15, 1.0, 1.0])
    for state in states:
        history.add((state * np.exp(normal(random, 1, SERIES)[0])).tolist())
        assert check_and_keep(history.store).exit_code == 0
    # WHEN a run is in the slow state THEN it is told as that
    history.add((1.15 * np.exp(normal(random, 1, SERIES)[0])).tolist())
    (entry, *_) = check_and_keep(history.store).entries
    assert entry.outcome == "inconclusive"
    assert re.fullmatch(
        r"as far as the other state; two states: 4 of 14 runs are in a state that is \+1\d\.\d %",
        entry.reason,
    )
    # WHEN one series gets 10 % slower THEN its run in the slow state tells it from the slow state
    slower = np.exp(normal(random, 1, SERIES)[0]) * 1.15
    slower[0] *= 1.1
    history.add(slower.tolist())
    outcomes = {e.run.model: e for e in check_and_keep(history.store).entries}
    assert outcomes["model0"].outcome == "regression"
    assert outcomes["model0"].judgement is not None
    assert outcomes["model0"].judgement.change == pytest.approx(0.1, abs=0.03)
    assert {e.outcome for name, e in outcomes.items() if name != "model0"} <= {
        "unchanged", "inconclusive",
    }  # fmt: skip


def test_changes_say_that_a_series_has_two_states(
    history: NoisyHistory, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    random = np.random.default_rng(10)
    for number in range(24):
        slow = 1.15 if number % 4 == 2 else 1.0
        history.add((slow * np.exp(normal(random, 1, SERIES)[0])).tolist())
    url = history.store.engine.url.render_as_string(hide_password=False)
    assert main(["history", "changes", "--store", url, "--fail"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "No change point in latency_ns" in said
    assert re.search(r"on Phone: two states: 6 of 24 runs are in a state that is \+1\d\.\d %", said)


@pytest.mark.parametrize("higher_is_better", [False, True])
def test_states_are_gone_to_twice_and_left_twice(higher_is_better: bool) -> None:
    side = -1 if higher_is_better else 1
    noise = 0.01 * np.random.default_rng(9).normal(size=20)
    for runs, known in (({5, 12, 16}, True), ({5, 12}, False), (set(range(8, 12)), False)):
        logs = [side * (value + 0.1 * (index in runs)) for index, value in enumerate(noise)]
        states = find_states(logs)
        assert (states is not None) == known
        if states is not None:
            assert {*(states.lower if higher_is_better else states.upper)} == runs
            assert abs(states.change) == pytest.approx(math.expm1(0.1), abs=0.02)
            # A stretch of the rarer state is as probable as its share, then as it lasted before.
            few = {"upper": not higher_is_better}
            assert states.chance_of_stretch((), **few) == pytest.approx(4 / 22)
            assert states.chance_of_stretch((19,), **few) == pytest.approx(4 / 22 / 5)
    assert find_states([0.1 * (index % 2) for index in range(7)]) is None
    assert find_states([0.0] * 10 + [0.7] + [0.0] * 10) is None


def test_turning_points_tell_dependence_whatever_the_distribution() -> None:
    random = np.random.default_rng(3)
    for kind in ("two states", "outliers", "Student t2"):
        series = NOISES[kind](random, 40, SERIES).T
        assert estimate_dependence(series.tolist()) == 0
    for correlation in (0.5, 0.9):
        series = dependent(correlation, 1.0)(random, 100, 40).T
        assert estimate_dependence(series.tolist()) == pytest.approx(correlation, abs=0.1)
    # Few runs tell nothing, and a value that never varies has no turning points.
    assert estimate_dependence([[1.0, 2.0, 3.0, 4.0]]) == 0
    assert estimate_dependence([[1.0] * 100]) == 0


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_factors_are_those_of_simulated_runs(correlation: float) -> None:
    random = np.random.default_rng(4)
    values = dependent(correlation, 1.0)(random, 9, 20_000).T
    level, line = level_factors(correlation, 8), line_factors(correlation, 8)
    before = values[:, :8]
    left = before - before.mean(axis=1, keepdims=True)
    assert np.mean(np.sum(left**2, axis=1)) == pytest.approx(level.squares, rel=0.03)
    assert np.std(values[:, 8] - before.mean(axis=1)) == pytest.approx(level.error, rel=0.03)
    slope, middle = np.polyfit(np.arange(8), before.T, 1)
    left = before - slope[:, None] * np.arange(8) - middle[:, None]
    assert np.mean(np.sum(left**2, axis=1)) == pytest.approx(line.squares, rel=0.03)
    assert np.std(7 * slope) == pytest.approx(line.error, rel=0.03)
    if not correlation:
        assert level.freedom == pytest.approx(7)
        assert line.freedom == pytest.approx(6)


@pytest.mark.parametrize("correlation", [0.5, 0.9])
def test_a_drift_of_dependent_runs_is_paid_for(correlation: float) -> None:
    series = dependent(correlation, 0.03)(np.random.default_rng(5), 8, 2000).T
    drifts = [find_drift(logs.tolist(), None, correlation) for logs in series]
    assert np.mean([drift is not None and drift.total.p_value <= 0.05 for drift in drifts]) <= 0.07


def test_tails_are_normal_until_the_series_say_otherwise() -> None:
    random = np.random.default_rng(6)
    chances = {}
    for kind in ("normal", "Student t2"):
        series = NOISES.get(kind, normal)(random, 20, SERIES).T.tolist()
        noise = DeviceNoise({"latency_ns": dict(enumerate(series))})
        chances[kind] = [noise.tail(logs, 0.1, 0.011, 1e-7) for logs in series]
    assert max(chances["normal"]) < 1e-5
    # P(|t| > 9.3) of two degrees of freedom is 0.011.
    assert 0.011 / 2 < np.median(chances["Student t2"]) < 0.011 * 2
    # Of a series that is too short to tell, the device's others say it.
    others = NOISES["Student t2"](random, 20, SERIES).T.tolist()
    heavy = DeviceNoise({"latency_ns": dict(enumerate(others))})
    assert heavy.tail([0.0], 0.1, 0.011, 1e-7) > 1e-3


@pytest.mark.parametrize("count", [40, 120])
def test_some_runs_in_a_row_in_one_of_two_states_are_no_level(count: int) -> None:
    """N3-7: 17 and 52 % of such series had false changes."""
    random, false, found = np.random.default_rng(7), 0, 0
    for _ in range(50):
        logs = NOISES["two states"](random, count, 1)[:, 0]
        false += bool(find_change_points(np.exp(logs).tolist()))
        logs[count // 2 :] += 0.1
        changes = find_change_points(np.exp(logs).tolist())
        found += any(abs(change.start - count // 2) <= 5 for change in changes)
    assert false <= 3
    assert found >= 35


def test_the_spread_of_a_series_leans_on_that_of_the_device() -> None:
    """As if six more runs had the spread of all series of the metric."""
    calm, wide = (np.random.default_rng(1).normal(0, [[0.2], [0.8]], (2, 12))).tolist()
    noise = DeviceNoise({"latency_ns": {"calm": calm, "wide": wide}})
    own = DeviceNoise({"latency_ns": {"wide": wide}})._scale("latency_ns", wide)
    shared = noise._shared_scales["latency_ns"]
    assert 0.1 < shared < own
    expected = math.sqrt((len(wide) * own**2 + 6 * shared**2) / (len(wide) + 6))
    assert noise._scale("latency_ns", wide) == pytest.approx(expected)
