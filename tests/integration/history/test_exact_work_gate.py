"""The gate of exact work on programs that really changed: exported, counted under emulation, judged."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

from etprof.base.errors import EtprofError
from etprof.base.process import run_command
from etprof.cli import run_command_line
from etprof.targets.emulator.installation import locate

if TYPE_CHECKING:
    from pathlib import Path

try:
    locate()
except EtprofError as error:
    pytestmark = pytest.mark.skip(reason=str(error))

MODEL = '''
"""A net of two convolutions and a linear layer."""
import torch
from torch import nn
from etprof.model_registry.eager_model import EagerModelBase

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, {channels}, 3, padding=1)
        self.second = nn.Conv2d({channels}, 32, 1)
        self.head = nn.Sequential({head})

    def forward(self, image):
        return self.head(self.second(self.first(image).relu()).relu().flatten(1))

class NetModel(EagerModelBase):
    def get_eager_model(self):
        torch.manual_seed(0)
        return Net()

    def get_example_inputs(self):
        return (torch.ones(1, 3, 8, 8),)
'''
HEAD = "nn.Linear(2048, 40)"
LAYER_MORE = f"{HEAD}, nn.Linear(40, 40)"
FIRST = "Convolution (NHWC, PF16) IGEMM #1"
ADDED = "Fully Connected (NC, PF16) GEMM #2"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty git repository, in which commands run."""
    monkeypatch.chdir(tmp_path)
    git("init", "-q", "-b", "main")
    (tmp_path / ".gitignore").write_text("runs\nout_*\n*.sqlite*\n")
    return tmp_path


def git(*words: str) -> None:
    author = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    start("git", *author, *words)


def start(*words: str) -> None:
    done = run_command(words)
    assert done.exit_code == 0, done.stderr


def add_commit(repository: Path, number: int, channels: int = 32, head: str = HEAD) -> None:
    """Commits a version of the model, counts it under emulation, and adds it to the history."""
    (repository / "net.py").write_text(MODEL.format(channels=channels, head=head))
    (repository / "number.txt").write_text(str(number))
    git("add", "-A")
    git("commit", "-qm", f"version {number}")
    run = f"runs/{number}"
    words = ["profile", "net.py:NetModel", "--dtype", "fp16", "--target", "emulator"]
    # A process of its own: a module that is imported once stays as it was.
    start(sys.executable, "-m", "etprof", *words, "--out", run, "--json")
    assert run_command_line(["history", "add", "--store", "h.sqlite", run]) == 0


def check(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    words = ["history", "check", "--store", "h.sqlite", "--exact-work", "--format", "json"]
    code = run_command_line(words)
    return code, json.loads(capsys.readouterr().out)


def worse(found: dict[str, Any]) -> dict[str, str]:
    """Reasons of what became worse, by metric."""
    return {
        each["metric"]: each["reason"]
        for each in found["entries"]
        if each["outcome"] == "regression"
    }


@pytest.mark.slow
def test_a_layer_and_a_channel_more_fail_with_their_operators_and_the_same_passes(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Issue 20: this was shown on records that were made up, not on a model that changed."""
    add_commit(repository, 1)
    add_commit(repository, 2)
    code, found = check(capsys)
    assert code == 0, found
    outcomes = {e["metric"]: e["outcome"] for e in found["entries"] if e["metric"]}
    assert len([metric for metric in outcomes if metric.startswith(("work_", "kernel_"))]) == 5
    assert set(outcomes.values()) == {"unchanged"}

    add_commit(repository, 3, head=LAYER_MORE)
    code, found = check(capsys)
    assert code == 1
    reasons = worse(found)
    assert "work_macs" in reasons
    assert f"{ADDED} 0 → 1,600" in reasons["work_macs"]
    assert not any(FIRST in reason for reason in reasons.values())

    add_commit(repository, 4, channels=33)
    code, found = check(capsys)
    assert code == 1
    reasons = worse(found)
    assert f"{FIRST} 55,296 → 57,024" in reasons["work_macs"]
    assert ADDED not in reasons["work_macs"]
