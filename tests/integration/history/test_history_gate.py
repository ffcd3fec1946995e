"""The gate over a store, through the command line: baselines, verdicts, exit codes, reports."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from etprof.cli import main
from tests.measured_runs import STEADY, MeasuredRun, scaled, write_measured

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from etprof.history.store import Store

WIP = {"commit": "d" * 40, "branch": "wip", "dirty": False}
LATENCY = ("--metric", "latency_ns")


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "250")


class History:
    """A store with what a test adds to it, and the command line over it."""

    def __init__(self, store: Store, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.store, self.folder, self.capsys = store, folder, capsys
        self.minute = 0

    def add(self, factor: float = 1.0, **facts: Any) -> int:  # noqa: ANN401
        """Adds one run whose latencies are `factor` times the steady ones, at a commit of its own."""
        self.minute += 1
        program = hashlib.sha256(str(factor).encode()).hexdigest()
        git = {"commit": hashlib.sha256(b"%d" % self.minute).hexdigest()[:40], "branch": "main"}
        own = {
            "blocks_us": scaled(factor), "minute": self.minute, "program": program,
            "git": {**git, "dirty": False},
        }  # fmt: skip
        run = MeasuredRun(**{**own, **facts})
        path = write_measured(self.folder / f"run{self.minute}", run)
        (added,) = self.store.add_run_directory(path)
        return added.run_id

    def add_steady(self, count: int = 6, **facts: Any) -> list[int]:  # noqa: ANN401
        """Adds runs of a level, which tell how much runs differ."""
        return [self.add(**facts) for _ in range(count)]

    def command(self, *words: str | Path) -> tuple[int, str]:
        """Runs `etprof history`; returns exit code and what was printed."""
        url = self.store.engine.url.render_as_string(hide_password=False)
        code = main(["history", str(words[0]), "--store", url, *map(str, words[1:])])
        printed = self.capsys.readouterr()
        return code, printed.out + printed.err

    def check(self, *words: str | Path) -> tuple[int, dict[str, Any]]:
        """Runs the gate; returns exit code and its JSON."""
        code, text = self.command("check", *words, "--format", "json")
        document: dict[str, Any] = json.loads(text)
        return code, document


@pytest.fixture
def history(store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> History:
    return History(store, tmp_path, capsys)


def outcomes(document: dict[str, Any]) -> list[str]:
    return [entry["outcome"] for entry in document["entries"]]


@pytest.mark.parametrize(
    ("factor", "outcome", "code"),
    [(1.3, "regression", 1), (0.7, "improvement", 0), (1.0, "unchanged", 0)],
)
def test_against_a_pinned_baseline(
    history: History, factor: float, outcome: str, code: int
) -> None:
    base, *_ = history.add_steady()
    history.add(1.6)
    assert history.command("pin", "release", str(base))[0] == 0
    history.add(factor)
    assert history.check("--baseline", "release", *LATENCY)[0] == code
    (entry,) = history.check("--baseline", "release", *LATENCY)[1]["entries"]
    assert entry["outcome"] == outcome
    assert entry["judgement"]["change"] == pytest.approx(factor - 1)
    assert [subject["run_id"] for subject in entry["baseline"]] == [base]


def test_equal_runs_of_a_quiet_machine_pass(history: History) -> None:
    """Ten of ten, all metrics, by simulated clocks: launches and runs vary by half a percent."""
    random = np.random.default_rng(12)

    def add() -> int:
        level = 100 * np.exp(random.normal(0, 0.005))
        return history.add(blocks_us=(level * np.exp(random.normal(0, 0.005, 10))).tolist())

    base = add()
    assert history.command("pin", "release", str(base))[0] == 0
    for _ in range(10):
        code, document = history.check("--baseline", "release", "--run", str(add()))
        assert {entry["metric"] for entry in document["entries"]} >= {"latency_ns", "load_ns"}
        assert code == 0, document


def test_against_a_branch(history: History) -> None:
    history.add_steady()
    history.add(2.0)
    first = {"commit": "e" * 40, "branch": "main", "dirty": False}
    newest = [history.add(git=first), history.add(git=first)]
    history.add(1.3, git=WIP)
    code, document = history.check("--baseline", "branch:main", *LATENCY)
    (entry,) = document["entries"]
    assert (code, entry["outcome"]) == (1, "regression")
    assert sorted(subject["run_id"] for subject in entry["baseline"]) == newest


def test_against_a_window_of_its_own_branch(history: History) -> None:
    history.add_steady()
    # A run that was worse is no part of a baseline.
    runs = [history.add(factor) for factor in (5.0, 1.0, 1.001, 0.999)]
    history.add(3.0, git=WIP)
    history.add(1.3)
    code, document = history.check("--baseline", "window:3", *LATENCY, "--branch", "main")
    (entry,) = document["entries"]
    assert (code, entry["outcome"]) == (1, "regression")
    assert sorted(subject["run_id"] for subject in entry["baseline"]) == runs[1:]


def test_all_metrics_and_series_are_judged(history: History) -> None:
    history.add_steady()
    history.add_steady(model="other")
    history.add(1.3)
    history.add(model="other")
    code, document = history.check("--baseline", "window:3")
    by_metric = {
        (entry["subject"]["title"].split(",")[0], entry["metric"]): entry["outcome"]
        for entry in document["entries"]
    }
    assert code == 1
    assert by_metric == {
        ("toy_cnn", "latency_ns"): "regression",
        ("toy_cnn", "first_inference_ns"): "regression",
        ("toy_cnn", "load_ns"): "unchanged",
        ("toy_cnn", "peak_rss_bytes"): "unchanged",
        ("other", "latency_ns"): "unchanged",
        ("other", "first_inference_ns"): "unchanged",
        ("other", "load_ns"): "unchanged",
        ("other", "peak_rss_bytes"): "unchanged",
    }
    code, document = history.check("--baseline", "window:3", "--model", "other")
    assert (code, set(outcomes(document))) == (0, {"unchanged"})


def test_two_runs_do_not_tell_how_much_runs_differ(history: History) -> None:
    """N1: launches of one run agree better with each other than two runs do."""
    history.add()
    history.add(1.3)
    code, document = history.check("--baseline", "window:1")
    assert (code, set(outcomes(document))) == (0, {"inconclusive"})
    assert {entry["metric"] for entry in document["entries"]} == {
        "latency_ns", "first_inference_ns", "load_ns", "peak_rss_bytes",
    }  # fmt: skip
    assert document["entries"][0]["reason"].startswith("too few runs to know how much they differ")


def test_thresholds_by_metric(history: History) -> None:
    history.add_steady()
    history.add(1.3)
    words = ("--baseline", "window:3", "--threshold", "50", "--threshold", "latency_ns=10")
    code, document = history.check(*words)
    found = {entry["metric"]: entry["outcome"] for entry in document["entries"]}
    assert code == 1
    assert found["latency_ns"] == "regression"
    assert found["first_inference_ns"] == "unchanged"


def test_a_failed_run_fails_the_gate(history: History) -> None:
    history.add()
    history.add(failing={"off": "the device went away"})
    code, document = history.check("--baseline", "window:5")
    (entry,) = document["entries"]
    assert (code, entry["outcome"]) == (1, "failed")
    assert entry["reason"] == "timing: the device went away"


def test_emulated_runs_are_never_judged(history: History) -> None:
    history.add(platform="emulator")
    history.add(10.0, platform="emulator")
    code, document = history.check("--baseline", "window:1")
    assert (code, set(outcomes(document))) == (0, {"inconclusive"})
    assert {(e["metric"], e["before"], e["after"]) for e in document["entries"]} == {(None,) * 3}


def test_the_first_run_has_nothing_to_be_compared_with(history: History) -> None:
    history.add()
    code, text = history.command("check", "--baseline", "window:3", "--full")
    assert code == 9
    assert "First run: #1 toy_cnn" in text
    assert "First run of 1 series: nothing to compare with in window:3 yet" in text


def test_the_noise_floor_of_the_device_counts(history: History) -> None:
    for factor in (1.0, 1.3, 0.8, 1.2, 0.75, 1.1):
        history.add(blocks_us=scaled(factor))
    code, text = history.command("noise")
    assert code == 0
    assert "Inference, median" in text
    floors = json.loads(history.command("noise", "--json")[1])["spreads"]
    latency = next(floor for floor in floors if floor["metric"] == "latency_ns")
    assert (latency["runs"], latency["series"]) == (6, 1)
    assert latency["of_run"] == pytest.approx(0.28, abs=0.03)
    pinned = history.add()
    history.command("pin", "base", str(pinned))
    history.add(1.3)
    assert outcomes(history.check("--baseline", "base", *LATENCY)[1]) == ["inconclusive"]


def test_markdown_and_files(history: History, tmp_path: Path) -> None:
    history.add_steady(model="a|b `<b>`")
    history.add(1.3, model="a|b `<b>`")
    out = tmp_path / "comment.md"
    words = ("--baseline", "window:1", "--format", "markdown", "--out", out)
    assert history.command("check", *words) == (1, "")
    text = out.read_text()
    assert text.startswith("### etprof: Worse than window:1: 2 regressions, 2 unchanged\n")
    assert "| 🔴 regression | #&#8203;7 a\\|b \\`&lt;b&gt;\\`, fp32" in text
    assert "<details><summary>All of 4 comparisons</summary>" in text
    assert "| Inference, median | 100 µs | 130 µs | +30.0 % |" in text


def test_changes_of_level_are_listed(history: History) -> None:
    """Promise 48, mutants 35 and 36: the cause lies between two commits, which are named."""
    for number, factor in enumerate((1.0, 1.001, 0.999, 1.0, 1.3, 1.301, 1.299, 1.3)):
        history.add(factor, git={"commit": "abcdef01"[number] * 40, "branch": "main"})
    code, text = history.command("changes")
    assert code == 0
    assert "#5" in text
    assert f"{'d' * 10}..{'e' * 10}" in text
    assert "+30.0 %" in text
    assert history.command("changes", "--metric", "load_ns")[1].startswith("No change point")


def test_list_show_and_pins(history: History) -> None:
    history.add(git={"commit": "c" * 40, "branch": "main", "dirty": False})
    history.add(failing={"off": "lost"})
    assert "toy_cnn, fp32, xnnpack, SME off, 1 thread" in history.command("list")[1]
    listed = history.command("list", "--failed")[1]
    assert "#2" in listed
    assert "#1 " not in listed
    assert history.command("list", "--model", "none")[1].startswith("No run matches")
    shown = history.command("show", "run1", "--full")[1]
    assert "Inference, median" in shown
    assert "c" * 40 in shown
    assert history.command("pin")[1].startswith("No baseline is pinned")
    assert history.command("pin", "base", history.folder / "run1")[0] == 0
    assert "base" in history.command("pin")[1]
    assert history.command("pin", "--remove", "base")[0] == 0
    assert history.command("pin")[1].startswith("No baseline is pinned")


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_an_export_makes_the_same_history(history: History, tmp_path: Path, kind: str) -> None:
    history.add()
    history.add(1.3, failing={"off": "lost"})
    history.add(platform="emulator", git=None)
    history.command("pin", "base", "1")
    first, second = tmp_path / f"first.{kind}", tmp_path / f"second.{kind}"
    assert history.command("export", first) == (0, f"Wrote 3 runs to {first}\n")
    copy = str(tmp_path / "copy.sqlite")
    assert main(["history", "import", str(first), "--store", copy]) == 0
    assert main(["history", "import", str(first), "--store", copy]) == 0
    printed = history.capsys.readouterr().out.splitlines()
    assert printed[0] == "Added 3 runs, 0 were known, pinned 1 baseline"
    assert printed[1] == "Added 0 runs, 3 were known"
    assert main(["history", "export", str(second), "--store", copy]) == 0
    assert second.read_bytes() == first.read_bytes()


def test_hud_export_leaves_emulated_runs_out(history: History, tmp_path: Path) -> None:
    history.add()
    history.add(platform="emulator")
    path = tmp_path / "hud.json"
    assert history.command("export", path, "--format", "hud")[0] == 0
    records = json.loads(path.read_text())
    assert {record["runners"][0]["type"] for record in records} == {"local"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("check", "--baseline", "release"), "no baseline release is pinned (pinned: none)"),
        (("check", "--baseline", "branch:x"), "no run of that branch; branches with runs: main"),
        (("check", "--baseline", "window:0"), "write window:N with N from 1 to 100"),
        (("check", "--baseline", "window:1", "--run", "77"), "no run 77 in the history"),
        (("check", "--baseline", "window:1", "--metric", "x"), "--metric x: no such metric"),
        (("check", "--baseline", "window:1", "--threshold", "-5"), "give per cent above 0"),
        (("show", "nothing"), "no run nothing in the history"),
        (("pin", "branch:x", "1"), "a baseline cannot be called 'branch:x'"),
        (("pin", "--", "-x", "1"), "a baseline cannot be called '-x'"),
        (("check", "--baseline", "a b"), "`etprof history pin 'a b' RUN`"),
        (("pin", "base"), "which run is base to be?"),
        (("pin", "--remove", "base"), "no baseline base is pinned"),
        (("changes", "--metric", "x"), "--metric x: no such metric"),
        (("export", "history.txt"), "call it .json or .parquet"),
    ],
)
def test_mistakes_have_exit_code_2(history: History, words: Sequence[str], message: str) -> None:
    history.add()
    code, text = history.command(*words)
    assert code == 2
    assert message in text
    assert text.count("\n") == 1


def test_ten_of_ten(history: History) -> None:
    """A steady machine: every slowed run is found, no repetition is ever blamed."""
    history.command("pin", "base", str(history.add_steady()[0]))
    for number in range(10):
        shifted = STEADY[number:] + STEADY[:number]
        history.add(blocks_us=scaled(1 + 0.004 * (-1) ** number, shifted))
        assert history.check("--baseline", "base")[0] == 0
        history.add(1.15)
        assert history.check("--baseline", "base")[0] == 1
