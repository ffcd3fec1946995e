"""Calibration recovers the noise it is given, and what can be told apart with it, with bounds."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
import pytest

from etprof.cli import run_command_line
from etprof.history.run_spread import describe_device, keep_calibration, newest_calibration
from etprof.history.store import open_store
from etprof.statistics.calibration import calibrate
from etprof.statistics.effect import estimate_effect
from tests.json_numbers import undeclared
from tests.known_runs import on_off_run, write_run
from tests.world.host import simulated_host
from tests.world.sim_target import SimTarget
from tests.world.spec import Noise, RunSpec

if TYPE_CHECKING:
    from pathlib import Path

Series = tuple[list[float], list[float]]


def series(
    noise: float, *, bias: float = 0.0, pairs: int = 60, seed: int = 9, run: float = 0.0
) -> Series:
    random = np.random.default_rng(seed)
    level = 100 * np.exp(run * random.normal())
    first = level * np.exp(noise * random.normal(size=pairs))
    second = level * np.exp(noise * random.normal(size=pairs) - bias)
    return first.tolist(), second.tolist()


def test_the_noise_is_found_with_its_bounds() -> None:
    """N11: the smallest effect went from 1.4 to 19.4 % within minutes, with no error bar."""
    truth, inside = 0.01 * np.sqrt(2), 0
    for seed in range(200):
        noise = calibrate([series(0.01, seed=seed, pairs=20)]).noise
        assert noise.low < noise.value < noise.high
        inside += noise.low <= truth <= noise.high
    assert 0.9 <= inside / 200 <= 0.99


def test_a_quiet_machine_finds_smaller_effects() -> None:
    quiet, noisy = calibrate([series(0.005)]), calibrate([series(0.05)])
    assert quiet.smallest_effect is not None
    assert noisy.smallest_effect is not None
    assert quiet.smallest_effect.value < 0.035 < noisy.smallest_effect.value < 0.15
    assert noisy.smallest_effect.low < noisy.smallest_effect.value < noisy.smallest_effect.high


def test_the_smallest_effect_is_found_8_times_in_10() -> None:
    """I6: found at the power that the command itself prints."""
    found = calibrate([series(0.03, pairs=400)]).smallest_effect
    assert found is not None
    seen = sum(
        estimate_effect(*series(0.03, bias=np.log1p(found.value), pairs=10, seed=seed)).verdict
        == "faster"
        for seed in range(400)
    )
    assert 0.72 <= seen / 400 <= 0.88


def test_no_false_alarm_in_ten_blocks_is_not_zero_percent() -> None:
    """N11: it said 0 % or 100 % false alarms by construction."""
    found = calibrate([series(0.01, pairs=10)])
    assert (found.comparisons, found.false_alarms) == (1, 0)
    assert found.most_false_alarms == pytest.approx(0.95)
    found = calibrate([series(0.01, pairs=600)])
    assert found.comparisons == 60
    assert found.false_alarms / 60 < found.most_false_alarms < 0.25


def test_a_machine_that_favours_one_side_gives_itself_away() -> None:
    """M3, tests: of false alarms only "faster" was counted."""
    for bias in (0.05, -0.05):
        found = calibrate([series(0.01, bias=bias)])
        assert found.false_alarms == found.comparisons == 6
        assert found.most_false_alarms == 1.0


def test_hopeless_noise_finds_nothing() -> None:
    assert calibrate([series(1.0)]).smallest_effect is None


def test_too_few_pairs_are_refused() -> None:
    with pytest.raises(ValueError, match="5 pairs were measured; a comparison has 10"):
        calibrate([series(0.01, pairs=5)])


def test_separate_runs_have_a_spread_of_their_own() -> None:
    """The blocks of a run say nothing of another run."""
    assert calibrate([series(0.01)]).between_runs is None
    found = calibrate([series(0.01, run=0.05, seed=seed, pairs=10) for seed in range(8)])
    between = found.between_runs
    assert between is not None
    assert between.runs == 8
    assert between.spread.low < 0.05 < between.spread.high
    assert between.smallest_effect.value > 2 * between.spread.value
    assert found.noise.high < 0.025


def test_the_history_of_the_device_keeps_it(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", on_off_run())
    alone = calibrate([series(0.01)])
    several = calibrate([series(0.01, run=0.05, seed=seed) for seed in range(6)])
    with open_store(tmp_path / "h.sqlite") as store:
        assert describe_device(store, run) is None
        device = keep_calibration(store, run, several)
        assert keep_calibration(store, run, alone) == device
        with store.session() as session:
            kept = newest_calibration(session, device)
            assert kept is not None
            assert (kept.runs, kept.run_spread, kept.pairs) == (1, None, 10)
            assert newest_calibration(session, "another") is None
        told = describe_device(store, run)
    assert told is not None
    assert told.startswith("This machine can tell ")
    assert "in 10 blocks" in told


def test_the_command_measures_runs_and_keeps_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """I6: nothing comes from nothing through `calibrate`, and `compare` rests on what it kept."""
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "m.pte"
    program.write_bytes(b"program")
    seeds = itertools.count()
    monkeypatch.setattr(
        "etprof.measuring.plan.configured_target",
        lambda _: SimTarget(RunSpec(noise=Noise(run=0.05, block=0.01), seed=next(seeds))),
    )
    words = ["--runs", "6", "--blocks", "6", "--pairs", "6", "--store", "h.sqlite", "--out", "out"]
    assert run_command_line(["calibrate", str(program), *words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["measured_pairs"], found["comparisons"]) == (36, 6)
    assert found["false_alarms"] <= 2
    assert found["noise"]["low"] < 0.01 * 2**0.5 < found["noise"]["high"]
    assert found["between_runs"]["spread"]["low"] < 0.05 < found["between_runs"]["spread"]["high"]
    sides = [f"out/run{number}:first" for number in (1, 2)]
    assert run_command_line(["compare", *sides, "--store", "h.sqlite", "--json"]) == 0
    latency = json.loads(capsys.readouterr().out)["latency"]
    assert latency["rests_on"] == "one run per side, 5 degrees of freedom from the history"
    assert latency["verdict"] == "inconclusive"


def test_every_number_of_its_json_is_declared() -> None:
    """U3-5: unit and basis of each."""
    result = calibrate([series(0.01, seed=seed) for seed in range(6)])
    assert undeclared("calibrate", json.loads(json.dumps(asdict(result)))) == []


def test_a_profile_says_what_its_calibrated_machine_can_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ETPROF_HISTORY", "h.sqlite")
    (tmp_path / "m.pte").write_bytes(b"program")
    spec = RunSpec(noise=Noise(block=0.01))
    monkeypatch.setattr("etprof.measuring.plan.configured_target", lambda _: SimTarget(spec))
    words = ["--blocks", "6", "--pairs", "6", "--store", "h.sqlite"]
    assert run_command_line(["calibrate", "m.pte", *words]) == 0
    assert (tmp_path / "out_m/runs/calibrate/calibration.json").is_file()
    capsys.readouterr()
    with simulated_host(lambda **_: SimTarget(spec)):
        assert run_command_line(["profile", "m.pte"]) == 0
    assert "This machine can tell " in capsys.readouterr().err
    monkeypatch.setenv("ETPROF_HISTORY", "none.sqlite")
    with simulated_host(lambda **_: SimTarget(spec)):
        assert run_command_line(["profile", "m.pte"]) == 0
    assert "can tell" not in capsys.readouterr().err
