"""What long work says where standard error is no terminal, and that it ends with the work."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time

import pytest

from etprof.cli import progress
from etprof.cli.export import StageProgress
from etprof.cli.progress import ProgressLog, show_progress
from etprof.export.stages import StageClock


def lines_after(capsys: pytest.CaptureFixture[str], seconds: float) -> list[str]:
    time.sleep(seconds)
    return capsys.readouterr().err.splitlines()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line every twentieth of a second."""
    begin = ProgressLog.__init__
    monkeypatch.setattr(ProgressLog, "__init__", lambda log: begin(log, 0.05))


@pytest.mark.usefixtures("quick")
def test_a_long_stage_is_told_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    """An export of minutes in CI was silent, and CI ends what is silent."""
    clock = StageClock(StageProgress())
    with clock.stage("lower"):
        lines = lines_after(capsys, 0.3)
    assert len(lines) >= 2
    assert all(re.fullmatch(r"export, lower: [\d.]+ ms so far", line) for line in lines)
    # AND nothing of a stage that is over, whether it ended well or not
    lines_after(capsys, 0.1)
    assert not lines_after(capsys, 0.2)
    with pytest.raises(ZeroDivisionError), clock.stage("quantise"):
        _ = 1 / 0
    lines_after(capsys, 0.1)
    assert not lines_after(capsys, 0.2)
    assert [stage.name for stage in clock.times] == ["lower"]


@pytest.mark.usefixtures("quick")
def test_a_long_measurement_says_how_far_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress() as show:
        show("linux_auto, launch", 3, 10)
        lines = lines_after(capsys, 0.3)
    assert lines
    assert all(line.startswith("linux_auto, launch, 3 of 10 done: ") for line in lines)
    lines_after(capsys, 0.1)
    assert not lines_after(capsys, 0.2)


@pytest.mark.parametrize("command", [["models"], ["docs"], ["config", "schema"], ["doctor"]])
def test_a_reader_that_went_away_ends_a_command_with_141(command: list[str]) -> None:
    """rich ended them with 1, which is a regression's code."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "etprof", *command],
            stdout=writer,
            stderr=subprocess.PIPE,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_short_work_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    threads = threading.active_count()
    with show_progress() as show:
        show("launch", 1, 2)
    assert not lines_after(capsys, 0.05)
    assert threading.active_count() == threads
    # A terminal has a bar; what is minutes long has a few lines in a log.
    assert progress._PERIOD_S == 30
