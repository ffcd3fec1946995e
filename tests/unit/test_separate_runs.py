"""I6: nothing comes from nothing when separate runs are compared, through the command itself."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from etprof.analysis.compare.pairs import match_groups
from etprof.analysis.run_analysis import analyze_run
from etprof.base.errors import UsageError
from etprof.cli import run_command_line
from etprof.history.store import open_store
from etprof.measuring.pipeline import measure
from etprof.measuring.plan import Experiment, Settings, plan
from etprof.run.load import Run
from etprof.run.program import Program
from tests.manifests import edit_manifest
from tests.world.sim_target import SimTarget
from tests.world.spec import Noise, RunSpec

if TYPE_CHECKING:
    from pathlib import Path

SPREAD = 0.05


def measured(
    folder: Path,
    seed: int,
    *,
    spread: float = SPREAD,
    block: float = 0.005,
    **experiment: object,
) -> Path:
    """One run of the simulated machine, whose runs differ by `spread`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    model = folder.parent / "m.pte"
    model.write_bytes(b"program")
    noise = Noise(run=spread, block=block)
    target = SimTarget(RunSpec(noise=noise, seed=seed))
    named = {"name": "off", "sme": "off", "iterations": 20, **experiment}
    settings = Settings(blocks=6, operator_iterations=2, kernels=False)
    measure(
        program=Program(name="m", label="m", model=model),
        target=target,
        run=folder,
        planned=plan([Experiment.model_validate(named)], settings, target),
        progress=lambda *_: None,
    )
    git = {"commit": "a" * 40, "branch": "main", "dirty": False}
    edit_manifest(folder, lambda document: document.update(git=git))
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [measured(folder / f"run{seed}", seed) for seed in range(9)]


def compared(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    assert run_command_line(["compare", *map(str, words), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_one_run_a_side_is_never_a_verdict(
    runs: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """N1: 11 of 16 comparisons of a program with itself were faster or slower, and "valid"."""
    monkeypatch.chdir(tmp_path)
    apart = 0
    for one, other in itertools.islice(itertools.combinations(runs, 2), 8):
        document = compared(capsys, one, other)
        latency = document["latency"]
        assert (latency["verdict"], latency["rests_on"]) == ("inconclusive", "one run per side")
        assert document["validity"]["badge"] != "valid"
        apart += not latency["interval"]["low"] <= 1 <= latency["interval"]["high"]
        steady = next(e for e in document["cold_start"] if e["label"] == "Steady inference")
        assert latency["speed_up"] == pytest.approx(steady["baseline"] / steady["candidate"])
    assert apart >= 4, "the launches alone would have said otherwise"


def test_repeated_runs_tell_nothing_from_nothing(
    runs: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    verdicts = Counter(
        compared(capsys, *runs[i : i + 3], "--against", *runs[i + 3 : i + 6])["latency"]["verdict"]
        for i in range(4)
    )
    assert verdicts == {"inconclusive": 4}


@pytest.mark.slow
@pytest.mark.parametrize("block", [0.005, 0.02])
@pytest.mark.parametrize("spread", [0.0, 0.01, 0.03, 0.08])
def test_every_spread_of_runs_and_launches_tells_nothing_from_nothing(
    spread: float,
    block: float,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """I6, N1: and a run that takes three times as long is told, or this could not fail."""
    monkeypatch.chdir(tmp_path)
    first = round(10_000 * (spread + block))
    same = [
        measured(tmp_path / f"r{seed}", seed, spread=spread, block=block)
        for seed in range(first, first + 6)
    ]
    found = compared(capsys, *same[:3], "--against", *same[3:])["latency"]
    assert found["verdict"] not in {"faster", "slower"}
    assert found["interval"]["low"] <= 1 <= found["interval"]["high"]
    for run in same[3:]:
        metrics = json.loads((run / "metrics.json").read_text())
        for each in metrics["experiments"]["off"]["blocks"]:
            each["latency_ns"] = [3 * taken for taken in each["latency_ns"]]
        (run / "metrics.json").write_text(json.dumps(metrics))
        edit_manifest(run, lambda document: document["files"].clear())
    found = compared(capsys, *same[:3], "--against", *same[3:])["latency"]
    assert found["verdict"] == "slower"


def test_a_history_says_how_much_runs_differ(
    runs: list[Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The spread is of the device's other runs of the series; those that are compared are not in it."""
    monkeypatch.chdir(tmp_path)
    with open_store(tmp_path / "h.sqlite") as store:
        for run in runs:
            store.add_run_directory(run)
    found = compared(capsys, runs[0], runs[1], "--store", tmp_path / "h.sqlite")["latency"]
    assert found["rests_on"] == "one run per side, 6 degrees of freedom from the history"
    assert found["verdict"] == "inconclusive"
    assert found["p_value"] > 0.01
    # WHEN a run is truly slower than all of that
    slow = measured(tmp_path / "slow", 50, spread=0.0, warmup=10)
    metrics = json.loads((slow / "metrics.json").read_text())
    for block in metrics["experiments"]["off"]["blocks"]:
        block["latency_ns"] = [3 * each for each in block["latency_ns"]]
    (slow / "metrics.json").write_text(json.dumps(metrics))
    edit_manifest(slow, lambda document: document["files"].clear())
    found = compared(capsys, runs[0], slow, "--store", tmp_path / "h.sqlite")["latency"]
    assert found["verdict"] == "slower"
    assert found["interval"]["confidence"] == pytest.approx(0.99)


def test_sides_are_named_by_what_differs(
    runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """N12: both sides were called `linux_auto`."""
    assert compared(capsys, runs[0], runs[1])["name"] == "run0 → run1"


@pytest.mark.parametrize(
    ("field", "setting", "told"),
    [
        ("warmup", {"warmup": 0}, "10 inferences.*0 inferences"),
        ("warmup", {"warmup_steady": True}, "10 inferences.*10 inferences and until steady"),
        ("warmup", {"warmup_seconds": 2.5}, r"10 inferences.*10 inferences and 2\.5 s"),
        ("iterations", {"iterations": 3}, "3"),
        ("cores", {"cpus": (1, 2)}, "any.*1,2"),
    ],
)  # fmt: skip
def test_settings_are_compared_fields(
    runs: list[Path],
    tmp_path: Path,
    field: str,
    setting: dict[str, Any],
    told: str,
) -> None:
    """N9: 3 iterations without warm-up were "faster, valid" than a default run."""
    other = measured(tmp_path / "other", 1, **setting)
    with pytest.raises(UsageError, match=f"(?s){told}.*--allow {field}"):
        run_command_line(["compare", str(runs[0]), str(other)])


def test_a_group_repeats_one_thing(runs: list[Path], tmp_path: Path) -> None:
    one, other = (analyze_run(Run.load(run)) for run in runs[:2])
    with pytest.raises(UsageError, match="is given twice"):
        match_groups([(one, None), (one, None)], [(other, None)])
    edited = measured(tmp_path / "edited", 3)
    edit_manifest(edited, lambda document: document["model"].update(sha256="e" * 64))
    third = analyze_run(Run.load(edited))
    with pytest.raises(UsageError, match="measured another program"):
        match_groups([(one, None), (third, None)], [(other, None)])
    ((before, after),) = match_groups([(one, None)], [(other, None)])
    assert (before.repeats, replace(after, repeats=())) == ((), after)


def test_more_runs_than_two_need_against(
    runs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match="follow --against"):
        run_command_line(["compare", *map(str, runs[:3])])
