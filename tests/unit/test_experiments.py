"""Benchmarks that hold advice and searches against what they could have been: planted faults are seen."""

from __future__ import annotations

import importlib
import json
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from etprof.analysis.findings.finding import Finding
from etprof.model_registry.input_spec import parse_input
from etprof.tables.findings import FindingGroup
from tests.unit.test_optimize_search import program

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow  # they import torch and the models' libraries


@pytest.fixture
def brute_force(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("brute_force")


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("findings_commands")


def test_a_combination_that_a_search_missed_is_told(
    brute_force: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    combinations = (
        program((), outside=9),
        program(("a",), outside=5),
        program(("b",), outside=3),
        # More is gained by what does not hold, or loses too much.
        program(("a", "b"), outside=0, passed=False),
        program(("c",), outside=0, snr_db=57.0),
    )
    found = {
        name: brute_force.SearchedModel(name, ("a", "b"), 4, combinations[0], result, combinations)
        for name, result in (("missed", combinations[1]), ("right", combinations[2]))
    }
    assert [trial.rewrites for trial in found["missed"].better] == [("b",)]
    assert not found["right"].better
    monkeypatch.setattr(brute_force, "try_all", lambda name, *_: found.get(name, "too many"))
    assert brute_force.main(["--models", "right,left"]) == 0
    assert brute_force.main(["--models", "right,missed"]) == 1
    printed = capsys.readouterr()
    assert "1 of 2 results are the best of all combinations" in printed.out
    assert "b (3 outside, 9.8 KiB)" in printed.out
    assert "left: left out: too many" in printed.err


def test_commands_are_the_exports_that_findings_print(commands: ModuleType) -> None:
    findings: list[dict[str, Any]] = [
        {"rule": "F5", "action": "`etprof export m --rewrite a` replaces 2; see `etprof docs F5`"},
        {"rule": "F13", "action": "measure again: `etprof profile m --blocks 20`"},
        {
            "rule": "F23",
            "action": "`etprof export m --rewrite a`, or `etprof export m --dtype 'x y'`",
        },
    ]
    found = commands.find_commands({"findings": [{"findings": findings}]})
    assert found == {
        "etprof export m --rewrite a": ["F5", "F23"],
        "etprof export m --dtype 'x y'": ["F23"],
    }


@pytest.mark.parametrize(
    ("content", "code", "answer"),
    [(b"other", 0, "changed"), (b"plain", 0, "the same bytes"), (b"other", 6, "failed: no such")],
)
def test_a_command_that_changes_nothing_or_fails_is_told(
    content: bytes, code: int, answer: str, commands: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    action = "`etprof export m --rewrite a`"
    analysis = {"findings": [{"findings": [{"rule": "F5", "action": action}]}]}
    report: dict[str, Any] = {"schema_version": 1, "model": "m", "methods": {}}
    manifest = {"model": "m", "backend": "xnnpack", "precision": "fp16"}

    def run(folder: Path, subcommand: str, *words: str) -> subprocess.CompletedProcess[str]:
        programs = {"profile": ("m.pte", b"plain"), "export": ("m_a.pte", content)}
        if subcommand in programs:
            name, data = programs[subcommand]
            artifacts = folder / "out_m/artifacts"
            artifacts.mkdir(parents=True, exist_ok=True)
            (artifacts / name).write_bytes(data)
            (artifacts / f"{name}.delegation.json").write_text(json.dumps(report))
            (artifacts / f"{name}.json").write_text(json.dumps(manifest))
        is_export = subcommand == "export"
        return subprocess.CompletedProcess(
            words, code if is_export else 0, json.dumps(analysis), "no such" if is_export else ""
        )

    monkeypatch.setattr(commands, "etprof", run)
    with tempfile.TemporaryDirectory() as folder:
        ((*_, rules, command, outside, calls, share, told),) = commands.try_model(
            "m", "fp16", Path(folder)
        )
    assert (rules, command, told) == ("F5", action, answer)
    assert (outside, calls, share) == ("0", "0", "–")
    # AND the exit code says so
    assert commands.main(["--models", "m", "--precisions", "fp16"]) == int(answer != "changed")


@pytest.fixture
def faulty(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return importlib.import_module("faulty_models")


def test_each_faulty_network_has_one_faulty_line_and_runs(faulty: ModuleType) -> None:
    files = faulty.find_nets(None)
    assert len(files) >= 40
    assert sum(file.path.name == "strange_nets.py" for file in files) >= len(files) / 3
    for file in files:
        specs = [parse_input(text) for text in file.net.inputs]
        inputs = [spec.draw(2) for spec in specs]
        with torch.no_grad():
            file.net().eval()(*inputs)
        name, line = file.fault.split(":")
        assert name == file.path.name
        assert file.path.read_text().splitlines()[int(line) - 1].endswith("# fault")


def test_an_answer_is_held_against_the_fault(faulty: ModuleType) -> None:
    (file,) = faulty.find_nets(["CubedGelu"])

    def misses(*findings: Finding) -> list[str]:
        group = FindingGroup(findings[0], findings[1:]) if findings else None
        return list(faulty.judge(file, group))

    right = Finding(
        "Fallback",
        "high",
        f"at {file.fault}",
        "`etprof export m --rewrite whole_powers`",
        rule="F5",
    )
    assert misses(right) == []
    assert misses() == ["no finding"]
    assert misses(replace(right, rule="F1")) == ["F5 is not first"]
    # A rule that saw the same counts too.
    assert misses(replace(right, rule="F1"), right) == []
    assert misses(replace(right, summary="")) == [f"{file.fault} is not named"]
    assert misses(replace(right, action="`etprof export m --rewrite plain_views`")) == [
        "no command with whole_powers"
    ]
    (unmended,) = faulty.find_nets(["RunningSum"])
    assert list(faulty.judge(unmended, FindingGroup(right))) == [
        f"{unmended.fault} is not named", "cumsum is not named",
    ]  # fmt: skip
