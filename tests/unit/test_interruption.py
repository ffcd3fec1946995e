"""Signals that end etprof: one exception, one line, the exit code of a shell (S2)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from argparse import Namespace
from pathlib import Path

import pytest

from etprof.base.interruption import Interrupted, interruptible, until_interrupted
from etprof.cli import main
from tests.process_tree import ProcessTree, wait_for

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("number", SIGNALS, ids=lambda number: number.name)
def test_a_signal_is_one_line_and_its_exit_code(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """S2: SIGTERM ended etprof without a word, and without its `finally` blocks."""
    tidied: list[str] = []
    before = {each: signal.getsignal(each) for each in SIGNALS}

    def run(_: Namespace) -> int:
        try:
            signal.raise_signal(number)
            time.sleep(30)
        finally:
            tidied.append("tidied")
        return 0

    monkeypatch.setattr("etprof.cli.models.run", run)
    monkeypatch.setitem(before, signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert main(["models"]) == 128 + number
    assert tidied == ["tidied"]
    (line,) = capsys.readouterr().err.splitlines()
    asked = "" if number == signal.SIGINT else f" by {number.name}"
    assert line == f"etprof: interrupted{asked}; finished work is kept"
    assert {each: signal.getsignal(each) for each in SIGNALS} == before


def test_what_is_sent_twice_at_once_is_one_wish() -> None:
    """`timeout` sends SIGTERM to the process and to its group: tidying up is not to be cut off."""
    tidied: list[str] = []

    def work() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
            tidied.append("tidied")

    with pytest.raises(Interrupted) as caught, interruptible():
        work()
    assert tidied == ["tidied"]
    assert caught.value.exit_code == 143


def swallow() -> None:
    """As PyTorch does while it imports NumPy."""
    with contextlib.suppress(BaseException):
        signal.raise_signal(signal.SIGTERM)


def test_what_a_library_swallows_is_raised_again() -> None:
    """An export went on for its 17 s, and ended in 0."""

    def work() -> None:
        swallow()
        time.sleep(30)

    with pytest.raises(Interrupted) as caught, interruptible():
        work()
    assert caught.value.signal == signal.SIGTERM


@pytest.mark.slow
def test_tidying_up_is_not_cut_off() -> None:
    tidied: list[str] = []

    def tidy() -> None:
        with contextlib.suppress(OSError):
            (Path("/") / "nowhere" / "file").unlink()
        time.sleep(0.7)
        tidied.append("tidied")

    def work() -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(tidy)
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted), interruptible():
        work()
    assert tidied == ["tidied"]


def test_an_error_that_comes_of_a_signal_is_the_signal() -> None:
    """NumPy's import ended in "cannot load module more than once per process"."""

    def work() -> None:
        swallow()
        msg = "cannot load module more than once per process"
        raise ImportError(msg)

    with pytest.raises(Interrupted), interruptible():
        work()


@pytest.mark.slow
def test_what_has_no_other_end_ends_well() -> None:
    with interruptible():
        with until_interrupted():
            signal.raise_signal(signal.SIGTERM)
        time.sleep(0.7)


def test_a_signal_that_is_ignored_stays_so() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with interruptible():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


_DEAF = """
import time
from etprof.base.interruption import interruptible
with interruptible():
    try:
        print("ready", flush=True)
        time.sleep(60)
    finally:
        print("tidying", flush=True)
        time.sleep(60)
"""


@pytest.mark.slow
def test_a_second_wish_ends_at_once() -> None:
    command = [sys.executable, "-c", _DEAF]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ}) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.terminate()
        assert process.stdout.readline() == b"tidying\n"
        deadline = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < deadline:
            process.terminate()
            time.sleep(0.05)
        assert process.wait(1) == -signal.SIGTERM


_IN_SQLITE = """
import sqlite3, sys, threading
from etprof.base.interruption import interruptible
from etprof.base.process import run_command
if sys.argv[1] == "child":
    threading.Thread(target=run_command, args=(["sleep", "60"],), daemon=True).start()
with interruptible(ends_process=True):
    print("ready", flush=True)
    sqlite3.connect(":memory:").execute(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    ).fetchall()
"""
"""Native code that never comes back to Python: no handler of Python's runs."""


@pytest.mark.slow
@pytest.mark.parametrize("child", ["child", "alone"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=lambda each: each.name)
def test_native_code_is_ended_in_two_seconds(number: signal.Signals, child: str) -> None:
    """S3-2: SIGTERM did nothing inside SQLite."""
    tree = ProcessTree()
    process = subprocess.Popen(
        [sys.executable, "-c", _IN_SQLITE, child],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **tree.environment},
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"ready\n"
        if child == "child":
            wait_for(lambda: tree.running("sleep 60"), "no child")
        time.sleep(0.2)
        start = time.monotonic()
        process.send_signal(number)
        assert process.wait(30) == 128 + number
        assert time.monotonic() - start < 2
        told = f"etprof: interrupted by {number.name} while it was busy; finished work is kept\n"
        assert process.stderr.read() == told.encode()
    assert tree.seconds_until_empty() is not None


@pytest.mark.slow
def test_a_second_wish_ends_native_code_too() -> None:
    command = [sys.executable, "-c", _IN_SQLITE, "alone"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        time.sleep(1.2)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130


def test_a_block_that_has_ended_is_watched_no_more() -> None:
    """A command in a program of somebody else's must not end that."""
    # An earlier test of the same process may have left both; a thread of its may end at any moment.
    signal.set_wakeup_fd(-1)
    before = set(threading.enumerate())

    def work() -> None:
        assert len(set(threading.enumerate()) - before) == 1
        signal.raise_signal(signal.SIGTERM)

    with pytest.raises(Interrupted), interruptible():
        work()
    assert set(threading.enumerate()) <= before
    assert signal.set_wakeup_fd(-1) == -1


@pytest.mark.parametrize("is_closed", [False, True])
def test_who_watched_before_watches_again(*, is_closed: bool) -> None:
    """As asyncio does in a program that calls etprof; where that has closed its pipe, nobody does."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    earlier = signal.set_wakeup_fd(writer)
    try:
        with interruptible():
            assert signal.set_wakeup_fd(writer) != writer
            if is_closed:
                os.close(writer)
        assert signal.set_wakeup_fd(-1) == (-1 if is_closed else writer)
    finally:
        signal.set_wakeup_fd(earlier)
        os.close(reader)
        if not is_closed:
            os.close(writer)


IN_A_FINALISER = """
import os, signal, sys, time
from etprof import cli

class Finalised:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)

def run(_):
    value = Finalised()
    del value
    time.sleep(60)

class Broken:
    def __del__(self):
        raise ValueError("of the finaliser itself")

def run_command_line(argv):
    Broken()
    return run(argv)

cli.run_command_line = run_command_line
sys.argv = ["etprof", "models"]
sys.exit(cli.main())
"""


def test_a_signal_inside_a_finaliser_leaves_no_traceback() -> None:
    """Python printed "Exception ignored in", with ten lines of this package's insides."""
    done = subprocess.run(
        [sys.executable, "-c", IN_A_FINALISER],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 130
    assert "Interrupted" not in done.stderr
    assert done.stderr.endswith("etprof: interrupted; finished work is kept\n")
    # BUT what else nobody can catch is told.
    assert "ValueError: of the finaliser itself" in done.stderr
