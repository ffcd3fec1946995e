"""I6: where nothing has changed, the commands speak of none, but for one case of twenty. Seeds are fixed.

The numbers are drawn, not measured; `compare` and `calibrate` are held to it in
`test_separate_runs.py` and `test_calibration.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from etprof.cli import main
from etprof.history.store import open_store
from tests.noisy_history import NoisyHistory

Noise = Callable[[np.random.Generator, int], Any]
"""Factors that all series of a machine share, by run."""

NOISES: dict[str, Noise] = {
    "none": lambda _, count: np.ones(count),
    "period 4": lambda _, count: np.where(np.arange(count) % 4 == 0, 1.02, 1.0),
}
METRICS = ("latency_ns", "load_ns", "peak_rss_bytes", "decode_tokens_per_second")
WINDOWS = (1, 3, 5, 7)
RUNS = 9


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize("spread", [0.0, 0.01, 0.03, 0.08])
def test_history_commands_find_nothing_in_nothing(
    tmp_path: Path, spread: float, noise: str
) -> None:
    """N3 to N6: red builds, and change points, of which there were none."""
    random = np.random.default_rng([round(1000 * spread), len(noise)])
    path = str(tmp_path / "h.sqlite")

    def command(name: str, *words: str) -> int:
        return main(["history", name, "--store", path, *words])

    with open_store(path) as store:
        history = NoisyHistory(store, spread, series=4, metrics=METRICS, seed=len(noise))
        for factor in NOISES[noise](random, RUNS):
            history.add(float(factor))
    for window in WINDOWS:
        assert command("check", "--baseline", f"window:{window}", "--metric", "all") == 0
    for metric in METRICS:
        assert command("changes", "--metric", metric, "--fail") == 0


def test_a_first_run_has_a_code_of_its_own_that_may_be_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """M3-4: "No regression" and exit code 0, where no run had a baseline."""
    path = str(tmp_path / "h.sqlite")
    with open_store(path) as store:
        NoisyHistory(store, 0.01, series=4, metrics=METRICS).add(1.0)
    assert main(["history", "check", "--store", path, "--baseline", "window:7"]) == 9
    told = capsys.readouterr().out
    assert told.startswith("First run of 4 series: nothing to compare with in window:7 yet")
    assert main(["history", "check", "--store", path, "--allow-first-run"]) == 0


@pytest.mark.parametrize(
    ("baseline", "nearest"),
    [
        ("widnow:7", "did you mean 'window:7'?"),
        ("branch:mian", "did you mean 'main'?"),
        ("relase", "did you mean 'release'?"),
        ("window:", "write window:N"),
    ],
)
def test_a_baseline_that_does_not_exist_is_refused_with_the_nearest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], baseline: str, nearest: str
) -> None:
    """C3-2: CI took a misspelt baseline for a first run, and passed."""
    path = str(tmp_path / "h.sqlite")
    with open_store(path) as store:
        history = NoisyHistory(store, 0.01)
        history.add(1.0)
        history.add(1.6)
    assert main(["history", "pin", "--store", path, "release", "1"]) == 0
    words = ["history", "check", "--store", path, "--allow-first-run"]
    assert main([*words, "--baseline", baseline]) == 2
    assert nearest in " ".join(capsys.readouterr().err.split())


def test_a_check_of_no_run_is_no_first_run(tmp_path: Path) -> None:
    path = str(tmp_path / "h.sqlite")
    with open_store(path) as store:
        NoisyHistory(store, 0.01).add(1.0)
    words = ["history", "check", "--store", path, "--allow-first-run"]
    assert main([*words, "--model", "model9"]) == 2
    assert main([*words, "--metric", "token_latency_ns"]) == 0


def test_the_same_commands_find_something_in_something(tmp_path: Path) -> None:
    """Or the test above could not fail."""
    path = str(tmp_path / "h.sqlite")
    with open_store(path) as store:
        history = NoisyHistory(store, 0.01, series=4, metrics=METRICS)
        for factor in (1.0,) * 9 + (1.15,) * 4:
            history.add(factor, only=2)
    for words in (("check", "--baseline", "window:7", "--metric", "all"), ("changes", "--fail")):
        assert main(["history", words[0], "--store", path, *words[1:]]) == 1
