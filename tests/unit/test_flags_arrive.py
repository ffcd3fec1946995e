"""What a command line asks for arrives at what does the work, each value in its own place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from etprof.base.errors import UsageError
from etprof.config import TargetConfig
from etprof.optimize import optimizing, proving
from etprof.targets import registry
from tests.world.host import etprof
from tests.world.sim_target import SimTarget


class Recorder:
    """Stands in for a class; the command ends where it would be used."""

    def __init__(self) -> None:
        self.arguments: tuple[Any, ...] = ()
        self.named: dict[str, Any] = {}

    def __call__(self, *arguments: object, **named: object) -> Recorder:
        self.arguments, self.named = arguments, named
        return self

    def run(self) -> None:
        raise UsageError("recorded")


@pytest.fixture
def optimizer(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr(optimizing, "Optimizer", recorder)
    return recorder


WORDS = ("optimize", "toy_cnn", "--tolerance", "1.5", "--budget", "2min", "--outdir", "made")


def test_a_search_by_figures(tmp_path: Path, optimizer: Recorder) -> None:
    done = etprof(tmp_path, *WORDS)
    assert "recorded" in done.stderr
    request, *others = optimizer.arguments
    assert (request.model, request.precision) == ("toy_cnn", "fp16")
    assert others[:3] == [Path("made"), 1.5, 120.0]
    # A tolerance that is asked for counts everywhere.
    assert optimizer.named == {"holds_everywhere": True}


def test_a_search_by_times(
    tmp_path: Path, optimizer: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluator, target = Recorder(), SimTarget()
    monkeypatch.setattr(proving, "TargetEvaluator", evaluator)
    monkeypatch.setattr(registry, "make_target", lambda *_: target)
    more = ("--target", "linux", "--threads", "3", "--blocks", "12")
    assert "recorded" in etprof(tmp_path, *WORDS, *more).stderr
    assert optimizer.arguments[1:4] == (Path("made"), 1.5, 120.0)
    assert optimizer.named == {"prover": evaluator, "holds_everywhere": True}
    used, wanted, _, threads, blocks = evaluator.arguments
    assert used is target
    assert wanted == TargetConfig(kind="linux")
    assert (threads, blocks) == (3, 12)


@pytest.mark.parametrize("flag", ["--threads", "--blocks", "--serial", "--runner"])
def test_what_is_of_a_target_needs_one(tmp_path: Path, optimizer: Recorder, flag: str) -> None:
    done = etprof(tmp_path, *WORDS, flag, "3")
    assert done.exit_code == 2
    assert f"{flag} is for measuring: add --target" in done.stderr
    assert optimizer.arguments == ()
