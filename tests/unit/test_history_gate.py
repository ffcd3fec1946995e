"""The gate against histories of which the truth is known (N3 to N6, N13), seeded."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sqlalchemy import select

from etprof.base.units import format_range, format_value
from etprof.cli import main
from etprof.dashboard.judging import Judge
from etprof.dashboard.visit import Catalogue
from etprof.history import gate
from etprof.history.check import CheckedMetric, CheckRequest, CheckResult, check_history
from etprof.history.gate import Judgement
from etprof.history.schema import Acceptance, Alarm, DeviceCalibration, Run
from etprof.history.store import Store, open_store
from etprof.history.tables import render_check
from etprof.statistics.runs import (
    ASSUMED,
    departure,
    find_drift,
    fit_prior,
    moderated,
    spread_of_neighbours,
    standing_level,
)
from etprof.statistics.two_samples import Spread
from tests.noisy_history import START, NoisyHistory

TEN = (
    "latency_ns", "latency_mean_ns", "latency_trimmed_mean_ns", "load_ns", "first_inference_ns",
    "peak_rss_bytes", "time_to_first_token_ns", "prefill_tokens_per_second",
    "decode_tokens_per_second", "token_latency_ns",
)  # fmt: skip
RED = {"regression", "drift", "failed"}
Make = Callable[..., NoisyHistory]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    stores: list[Store] = []

    def make_history(spread: float, **how: Any) -> NoisyHistory:  # noqa: ANN401
        stores.append(open_store(tmp_path / f"h{len(stores)}.sqlite"))
        return NoisyHistory(stores[-1], spread, **how)

    yield make_history
    for store in stores:
        store.close()


def check(history: NoisyHistory, baseline: str = "window:7", **how: Any) -> CheckResult:  # noqa: ANN401
    with history.store.session() as session:
        return check_history(session, CheckRequest(baseline, **how))


def command(history: NoisyHistory, *words: str) -> int:
    """Runs `etprof history` over the store."""
    url = history.store.engine.url.render_as_string(hide_password=False)
    return main(["history", words[0], "--store", url, *words[1:]])


def outcome(history: NoisyHistory, baseline: str = "window:7", **how: Any) -> str:  # noqa: ANN401
    """The gate's verdict on a history of one series and one metric."""
    first, *_ = check(history, baseline, **how).entries
    return first.outcome


def test_a_red_build_stays_red_when_run_again(make: Make) -> None:
    """N3, promise 46: the failed run was in the baseline of its own repetition."""
    history = make(0.01)
    for _ in range(8):
        history.add()
    for _ in range(6):
        history.add(1.15, commit="f" * 40)
        assert command(history, "check", "--baseline", "window:7") == 1
        assert command(history, "check", "--baseline", "branch:main") == 1
    history.add()
    assert command(history, "check", "--baseline", "window:7") == 0


def test_a_commit_is_never_its_own_baseline(make: Make) -> None:
    """N3: where few runs are known, none is called worse; those of the commit are out all the same."""
    history = make(0.01)
    history.add()
    for _ in range(4):
        history.add(3.0, commit="f" * 40)
        assert outcome(history) == "regression"


@pytest.mark.parametrize("baseline", ["window:3", "window:7", "branch:main"])
def test_a_lasting_regression_is_red_every_time_until_it_is_pinned(
    make: Make, baseline: str
) -> None:
    """N3: a lasting rise was flagged once, then its runs were the baseline."""
    history = make(0.01, seed=3)
    for _ in range(12):
        history.add()
    for _ in range(15):
        (slow,) = history.add(1.1)
        assert outcome(history, baseline) == "regression"
    # WHEN the new level is meant, THEN it is what later runs are compared with
    assert command(history, "pin", "meant", str(slow)) == 0
    for _ in range(4):
        history.add(1.1)
        assert outcome(history, baseline) not in RED
    history.add(1.21)
    assert outcome(history, baseline) == "regression"


@pytest.mark.parametrize("baseline", ["window:7", "branch:main", "pinned"])
def test_a_run_with_wrong_outputs_is_no_baseline(make: Make, baseline: str) -> None:
    """X1: a wrong answer may be twice as fast; nothing is compared with it, nor does it widen what
    runs of the series or of the device are known to differ by."""
    alone = make(0.0)
    alone.add(wrong_outputs="they part by 2 dB")
    alone.add()
    if baseline != "pinned":
        assert check(alone, baseline).without_baseline
    sound, mixed = make(0.0), make(0.0)
    for value in (1.0, 1.01, 0.99, 1.0, 1.02, 0.99):
        for history in (sound, mixed):
            history.add(values={"latency_ns": 1e6 * value})
    for value in (0.5, 0.5, 0.5, 3.0):
        sound.minute += 1
        (wrong,) = mixed.add(values={"latency_ns": 1e6 * value}, wrong_outputs="they part by 2 dB")
        assert [entry.outcome for entry in check(mixed).entries] == ["failed"]
    if baseline == "pinned":
        assert command(mixed, "pin", baseline, str(wrong)) == 0
    for history in (sound, mixed):
        history.add(values={"latency_ns": 1.2e6})
    if baseline == "pinned":
        assert check(mixed, baseline).without_baseline
    else:
        (told,), (same,) = (check(history, baseline).entries for history in (mixed, sound))
        assert told.outcome == "regression"
        assert told.judgement == same.judgement


def calibrate(history: NoisyHistory) -> None:
    facts = {"device": "Phone", "measured_at": START, "model": "another", "pairs": 10}
    found = DeviceCalibration(**facts, runs=8, run_spread=0.01)
    history.store.write(lambda session: session.add(found))


def test_a_calibration_is_what_the_gate_knows_of_a_new_series(make: Make) -> None:
    """N11: what `calibrate` kept of the device was read by `compare` alone."""
    history = make(0.01)
    history.add()
    history.add(1.2)
    assert outcome(history) == "inconclusive"
    calibrate(history)
    assert outcome(history) == "regression"
    # A loud series keeps to its own.
    loud = make(0.1, seed=1)
    calibrate(loud)
    for _ in range(8):
        loud.add()
    loud.add(1.15)
    assert outcome(loud) == "inconclusive"


def test_three_better_runs_are_the_new_level_and_one_is_none(make: Make) -> None:
    history = make(0.01, seed=5)
    for _ in range(8):
        history.add()
    history.add(0.8)
    history.add()
    assert outcome(history) not in RED
    for _ in range(4):
        history.add(0.8)
    assert outcome(history) in {"unchanged", "inconclusive"}
    # A single run that stood out alone is no state of the device.
    history.add(0.88)
    assert outcome(history) == "regression"


def test_a_candidate_without_a_commit_is_held_against_what_was_before(make: Make) -> None:
    history = make(0.01)
    for _ in range(5):
        history.add(commit=None)
    history.add(1.3, commit=None)
    assert outcome(history) == "regression"


def test_runs_of_one_commit_have_nothing_to_be_held_against(make: Make) -> None:
    history = make(0.01)
    for _ in range(3):
        history.add(commit="a" * 40)
    result = check(history)
    assert (result.entries, len(result.without_baseline)) == ((), 1)


@pytest.mark.parametrize("window", [3, 7])
def test_false_alarms_of_a_whole_check(make: Make, window: int) -> None:
    """N5, promise 47: 12 series and 10 metrics had 20 to 76 % chance of a false red build."""
    history = make(0.05, series=12, metrics=TEN, seed=window)
    for _ in range(window):
        history.add()
    checks = 10
    alarms = 0
    for _ in range(checks):
        history.add()
        code = command(history, "check", "--baseline", f"window:{window}", "--metric", "all")
        alarms += code
    assert alarms <= 1


@pytest.mark.parametrize("runs", [3, 5, 7, 10])
@pytest.mark.parametrize("kind", ["alike", "mixed"])
def test_the_interval_covers_the_truth(runs: int, kind: str) -> None:
    """N4: at windows of 3, 5 and 7 the interval of 95 % covered 81, 88 and 90 %."""
    random = np.random.default_rng(runs)
    inside = count = 0
    for _ in range(60):
        spreads = np.full(12, 0.03) if kind == "alike" else np.exp(random.uniform(-4.6, -2.5, 12))
        series = [random.normal(0, spread, runs).tolist() for spread in spreads]
        prior = fit_prior([s for logs in series if (s := spread_of_neighbours(logs))])
        for logs, spread in zip(series, spreads, strict=True):
            level = standing_level(logs, worse=1, threshold=0.05, prior=prior)
            found = departure(
                [logs[i] for i in level.members], random.normal(0, spread), level.spread
            )
            inside += found.interval.low <= 0 <= found.interval.high
            count += 1
    assert 0.925 <= inside / count <= 0.985


def test_a_quiet_series_does_not_lend_its_spread_to_a_loud_one() -> None:
    """N4: A/A data of one model replaced the spread of every other series of its device."""
    random = np.random.default_rng(1)
    quiet = [random.normal(0, 0.003, 30).tolist() for _ in range(11)]
    loud = random.normal(0, 0.08, 7).tolist()
    prior = fit_prior([s for logs in (*quiet, loud) if (s := spread_of_neighbours(logs))])
    level = standing_level(loud, worse=1, threshold=0.05, prior=prior)
    assert level.spread.deviation == pytest.approx(np.std(loud, ddof=1))
    own = standing_level(quiet[0], worse=1, threshold=0.05, prior=prior).spread
    assert own.deviation < 0.02


def test_degrees_of_freedom_are_of_runs() -> None:
    """N4: the t quantile was that of the blocks."""
    level = standing_level([0.0, 0.01, -0.01, 0.02], worse=1, threshold=0.05)
    assert level.spread.freedom == 3
    assert level.spread.deviation == pytest.approx(np.std([0.0, 0.01, -0.01, 0.02], ddof=1))
    found = departure([0.0, 0.01, -0.01, 0.02], 0.5, level.spread)
    reach = stats.t.ppf(0.975, 3) * level.spread.deviation * math.sqrt(1.25)
    assert found.interval.high - found.change == pytest.approx(reach)


def test_little_knowledge_is_an_assumption(make: Make) -> None:
    """N1: one run per side says nothing of how much runs differ; a half more still stands out."""
    assert moderated(0.0, 1, None) == ASSUMED
    history = make(0.001)
    history.add()
    history.add(1.2)
    (entry,) = check(history, "window:1").entries
    assert entry.outcome == "inconclusive"
    assert entry.reason.startswith("too few runs to know how much they differ (1 run")
    history.add(3.0)
    assert outcome(history, "window:1") == "regression"


def test_every_row_says_what_it_could_have_seen(make: Make) -> None:
    """N5: nothing said which change a calm or a loud device would have shown."""
    seen = {}
    for spread in (0.003, 0.05):
        history = make(spread, metrics=("latency_ns", "decode_tokens_per_second"))
        for _ in range(12):
            history.add()
        for entry in check(history).entries:
            assert entry.judgement is not None
            seen[spread, entry.metric] = entry.judgement.smallest or 0.0
    assert 0.05 < seen[0.003, "latency_ns"] < 0.08
    assert 0.12 < seen[0.05, "latency_ns"] < 0.4
    assert -0.4 < seen[0.05, "decode_tokens_per_second"] < -0.12


def test_what_is_said_to_be_seen_is_seen() -> None:
    """N5: of true changes of that size four in five are called, one comparison alone."""
    random = np.random.default_rng(4)
    spread = Spread(0.03, 30)
    found = departure([0.0] * 7, 0.0, spread)
    calls = [
        departure(
            [0.0] * 7, random.normal(found.smallest, spread.deviation * math.sqrt(8 / 7)), spread
        )
        for _ in range(2000)
    ]
    assert np.mean([call.p_value <= 0.05 for call in calls]) == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize(
    ("value", "verdict"),
    [(100.0, "unchanged"), (100.5, "unchanged"), (107.0, "regression"), (90.0, "improvement")],
)
def test_a_value_that_never_varied_is_compared_exactly(
    make: Make, value: float, verdict: str
) -> None:
    """N5: a constant number of bytes that rose by 7 % was inconclusive."""
    history = make(0.01, metrics=())
    for _ in range(2):
        history.add(values={"peak_rss_bytes": 100.0})
    history.add(values={"peak_rss_bytes": value})
    (entry,) = check(history).entries
    assert entry.outcome == verdict
    assert entry.judgement is not None
    assert entry.judgement.low == entry.judgement.change == entry.judgement.high
    assert entry.judgement.threshold == 0.01
    assert outcome(history, threshold=0.2) == "unchanged"


@pytest.mark.parametrize("flat", [0, 10])
def test_a_creep_is_found_within_eight_runs(make: Make, flat: int) -> None:
    """N5: +77 % over 20 runs, 3 % at a time, were never flagged."""
    history = make(0.01, seed=2)
    for _ in range(flat):
        history.add()
    found = []
    for number in range(1, 9):
        history.add(1.03**number)
        found += [entry.outcome for entry in check(history, "window:1").entries]
    assert RED & {*found}
    if not flat:
        (drift,) = [e for e in check(history, "window:1").entries if e.outcome == "drift"]
        assert drift.judgement is not None
        assert drift.judgement.change == pytest.approx(1.03**7 - 1, abs=0.05)
        assert command(history, "check", "--baseline", "window:1") == 1


def test_a_few_short_series_that_look_alike_are_no_proof_that_they_are() -> None:
    """N4, N5: one series of six is eight times as loud as the others of its device."""
    random = np.random.default_rng(8)
    alarms = 0
    for _ in range(100):
        wrong = []
        for _ in range(10):
            spreads = np.where(random.random(12) < 1 / 6, 0.08, 0.01)
            runs = random.normal(size=(4, 12)) * spreads
            known = [spread_of_neighbours(logs) for logs in runs[:3].T.tolist()]
            prior = fit_prior([spread for spread in known if spread is not None])
            for *logs, value in runs.T.tolist():
                squares = 3 * float(np.var(logs))
                found = departure(logs, value, moderated(squares, 2, prior))
                wrong.append(120 * found.p_value <= 0.05 and abs(found.change) > math.log(1.05))
        alarms += any(wrong)
    assert alarms <= 6


def test_neither_a_step_nor_noise_is_a_drift() -> None:
    random = np.random.default_rng(0)
    step = find_drift([0.0, 0.001, 0.0, 0.002, 0.1, 0.101, 0.1, 0.099])
    assert step is not None
    # Python's own bool: mypy refuses numpy's with the numpy of Python 3.13.
    assert step.is_steady is False
    alarms = [find_drift(random.normal(0, 0.03, 8).tolist()) for _ in range(400)]
    shares = np.mean([each.total.p_value <= 0.05 for each in alarms if each])
    assert shares == pytest.approx(0.05, abs=0.03)
    assert find_drift([0.0] * 5) is None


def test_the_prior_is_that_of_many_like_series() -> None:
    random = np.random.default_rng(8)
    alike = [spread_of_neighbours(random.normal(0, 0.02, 20).tolist()) for _ in range(50)]
    prior = fit_prior([each for each in alike if each])
    assert prior is not None
    assert prior.deviation == pytest.approx(0.02, rel=0.1)
    assert prior.freedom == 6
    unlike = [Spread(math.exp(random.normal(-4, 1.5)), 20) for _ in range(50)]
    assert (fit_prior(unlike) or prior).freedom < 3
    assert fit_prior(unlike[:2]) is None


def test_neighbours_tell_the_spread_whatever_the_level() -> None:
    random = np.random.default_rng(9)
    values = random.normal(0, 0.02, 40)
    values[20:] += 0.5
    found = spread_of_neighbours(values.tolist())
    assert found is not None
    assert found.deviation == pytest.approx(0.02, rel=0.25)
    assert spread_of_neighbours([1.0, 2.0]) is None


def test_values_that_cannot_be_of_one_thing_are_not_judged(make: Make) -> None:
    """S5: a damaged store ended in an OverflowError."""
    history = make(0.01)
    history.add(1e-300)
    history.add(1e290)
    (entry,) = check(history).entries
    assert entry.judgement is not None
    assert (entry.outcome, entry.judgement.change) == ("inconclusive", None)


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_a_check_formats_numbers_as_everything_does(form: str) -> None:
    """T12: rates and changes had a formatter of their own here."""
    run = Run(id=1, model="decoder", device="Phone", sme_mode="off")
    judgement = Judgement("unchanged", 0.0, -0.0123, 0.0001, 0.05, "within", 0.5, -0.08)
    entry = CheckedMetric(
        "unchanged", run, (run,), "within", "decode_tokens_per_second", "1/s",
        1234.0, 1234.4, judgement,
    )  # fmt: skip
    text = render_check(CheckResult(CheckRequest("window:1"), (entry,), ()), form)
    cells = [cell.strip() for line in text.splitlines() for cell in re.split("[│|]", line)]
    for unit, value in (("1/s", 1234.0), ("change", 0.0), ("change", -0.08)):
        assert format_value(unit, value) in cells
    assert format_range("change", -0.0123, 0.0001) in cells


def test_changes_fail_until_they_are_meant(
    make: Make, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """N5: `history changes` had no exit code."""
    monkeypatch.setenv("COLUMNS", "200")
    history = make(0.01)
    for _ in range(10):
        history.add()
    assert command(history, "changes", "--fail") == 0
    for _ in range(6):
        (slow,) = history.add(1.2)
    assert command(history, "changes", "--full") == 0
    assert command(history, "changes", "--fail") == 1
    assert command(history, "pin", "meant", str(slow)) == 0
    assert command(history, "changes", "--fail") == 0
    assert re.search(r"│ +(9[5-9]|100)\.\d % +│", capsys.readouterr().out)


def test_a_step_that_may_be_a_drift_is_told_so(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    """N6: where few runs may have stepped or drifted, neither is claimed; of the newest level."""
    history = make(1e-6)
    for number in range(12):
        history.add(1.3 + number % 3 / 1000)
    for value in (100, 101, 100.5, 102, 101.5, 104, 104.5, 103.5, 105, 104.2):
        history.add(value / 100)
    capsys.readouterr()
    assert command(history, "changes", "--fail") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"10 runs cannot tell a step of \+3\.\d %", said)


def test_json_says_what_was_adjusted(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    history = make(0.01, series=3)
    for _ in range(4):
        history.add()
    capsys.readouterr()
    command(history, "check", "--baseline", "window:3", "--format", "json")
    document = json.loads(capsys.readouterr().out)
    assert document["threshold"] == 0.05
    for entry in document["entries"]:
        assert 0 <= entry["judgement"]["p_value"] <= 1
        assert entry["judgement"]["smallest"] > 0.05


def check_each(history: NoisyHistory, *factors: float, commit: str | None = "") -> list[int]:
    """Measures and checks commits one after the other, as CI does; returns the exit codes."""
    codes = []
    for factor in factors:
        history.add(factor, commit=commit)
        codes.append(command(history, "check", "--allow-first-run"))
    return codes


def test_a_regression_stays_red_after_one_known_run(make: Make) -> None:
    """C3-1: fast, slow, slow, slow ended in 0, 1, 0, 0, for the red run became the baseline."""
    assert check_each(make(0.005), 1.0, 1.56, 1.56, 1.56) == [0, 1, 1, 1]


KINDS: dict[str, Callable[[np.random.Generator, int], list[float]]] = {
    "even": lambda random, count: [math.exp(random.normal(0, 0.01)) for _ in range(count)],
    "loud": lambda random, count: [math.exp(random.normal(0, 0.04)) for _ in range(count)],
    "long tail": lambda random, count: [math.exp(abs(random.standard_t(3)) * 0.01) for _ in range(count)],
    "two states": lambda random, count: [float(random.choice([1.0, 1.03])) for _ in range(count)],
    "warming up": lambda random, count: [
        math.exp(0.02 * i / count + random.normal(0, 0.005)) for i in range(count)
    ],
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("step", [1.05, 1.1, 1.5])
def test_red_stays_red_however_many_runs_are_known(make: Make, kind: str, step: float) -> None:
    """C3-1: by 1, 2, 3, 5 and 8 known runs, six slow ones after them."""
    reds = 0
    for known in (1, 2, 3, 5, 8):
        random = np.random.default_rng([known, len(kind)])
        noise = KINDS[kind](random, known + 6)
        codes = check_each(
            make(0.001, seed=known),
            *noise[:known],
            *(step * factor for factor in noise[known:]),
        )
        slow = codes[known:]
        first_red = slow.index(1) if 1 in slow else len(slow)
        assert not any(code == 0 for code in slow[first_red:]), (known, codes)
        reds += first_red < len(slow)
    if step == 1.5:
        assert reds == 5


@pytest.mark.parametrize("commit", ["f" * 40, None])
def test_a_red_rerun_is_red_whatever_noise_does(make: Make, commit: str | None) -> None:
    history = make(0.001)
    noise = np.random.default_rng(3).normal(0, 0.02, 12)
    assert 1 not in check_each(history, *(math.exp(value) for value in noise))
    reruns = check_each(history, 1.14, 1.09, 1.1, 1.08, commit=commit)
    assert reruns == [1, 1, 1, 1]


def test_a_repaired_regression_is_green_again(make: Make) -> None:
    history = make(0.005)
    assert check_each(history, *[1.0] * 6, 1.2, 1.2) == [0] * 6 + [1, 1]
    assert check_each(history, 1.0, 1.0) == [0, 0]


def test_an_accepted_run_is_the_new_level_and_the_store_says_who_and_why(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    history = make(0.005)
    assert check_each(history, *[1.0] * 6, 1.2) == [0] * 6 + [1]
    assert command(history, "accept", "7") == 2
    assert command(history, "accept", "7", "--why", "exact softmax", "--by", "Ada") == 0
    assert check_each(history, 1.2, 1.2) == [0, 0]
    assert check_each(history, 1.45) == [1]
    capsys.readouterr()
    assert command(history, "accept", "--json") == 0
    (accepted,) = json.loads(capsys.readouterr().out)["acceptances"]
    assert (accepted["by"], accepted["why"]) == ("Ada", "exact softmax")


def test_alarms_and_acceptances_survive_an_export(make: Make, tmp_path: Path) -> None:
    history = make(0.005)
    check_each(history, *[1.0] * 6, 1.2, 1.2)
    assert command(history, "accept", "7", "--why", "meant") == 0
    export, copy = str(tmp_path / "all.json"), str(tmp_path / "copy.sqlite")
    assert command(history, "export", export) == 0
    assert main(["history", "import", export, "--store", copy]) == 0
    with open_store(copy) as store, store.session() as session:
        assert [alarm.metric for alarm in session.scalars(select(Alarm))] == ["latency_ns"] * 2
        (acceptance,) = session.scalars(select(Acceptance))
        assert acceptance.why == "meant"


def test_a_lone_run_is_told_apart_from_a_level_that_lasts(make: Make) -> None:
    """A phone that is warm now and then turned a build red each time."""
    history = make(0.004)
    warm = {9, 20, 31, 42}
    codes = check_each(history, *(1.08 if day in warm else 1.0 for day in range(50)))
    assert codes[31] == codes[42] == 0
    # WHEN the same change lasts
    codes = check_each(history, 1.08, 1.08, 1.08)
    # THEN it is red within three runs, and stays so
    assert codes[-1] == 1
    assert codes == sorted(codes)
    # AND one that no run was ever so far out for is red at once
    assert check_each(history, 1.3) == [1]


@pytest.mark.parametrize("factor", [1.0, 1.04, 1.35, 1.444, 1.548])
def test_the_dashboard_has_the_verdicts_of_a_check(make: Make, factor: float) -> None:
    """C3-5: +54.8 % was a regression in the check, and inconclusive on the page."""
    history = make(0.005, series=2, metrics=("latency_ns", "load_ns"))
    history.add()
    ids = history.add(factor)
    assert command(history, "check") in {0, 1}
    outcomes = {(entry.run.id, entry.metric): entry.outcome for entry in check(history).entries}
    with history.store.session() as session:
        catalogue = Catalogue(session)
        runs = [session.get_one(Run, run_id) for run_id in ids]
        for metric in ("latency_ns", "load_ns"):
            references = Judge(catalogue, metric).references(runs)
            words = {(run_id, metric): found.change["word"] for run_id, found in references.items()}
            assert words.items() <= outcomes.items()
            assert len(words) == 2


def test_a_drift_is_told_as_what_each_run_adds() -> None:
    drift = SimpleNamespace(total=SimpleNamespace(change=math.log(1.21)), runs=3)
    comparison: Any = SimpleNamespace(drift=drift, threshold=0.05, states="")
    text = gate._reason(comparison, "regression", 0.21, is_real=True)
    assert text == "+10.0 % a run over the last 3 commits"
