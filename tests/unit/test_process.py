"""Programs are started in one place: found, timed, and their words kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from etprof.base.process import (
    CommandStop,
    CommandStopped,
    ProgramNotFoundError,
    ProgramTimeoutError,
    run_command,
    stoppable,
)
from tests.process_tree import ProcessTree, wait_for

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")


def test_what_a_program_printed_is_kept_whatever_its_exit_code() -> None:
    code = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
    completed = run_command([sys.executable, "-c", code])
    assert (completed.exit_code, completed.stdout, completed.stderr) == (3, "out\n", "err\n")


def test_output_that_is_not_text_does_no_harm() -> None:
    completed = run_command(["printf", r"a\377b"])
    assert completed.stdout == "a�b"


def test_a_missing_program_is_named() -> None:
    with pytest.raises(ProgramNotFoundError) as caught:
        run_command(["no-such-program-7", "--flag"])
    assert str(caught.value) == (
        "cannot run 'no-such-program-7': no such program here; install it or give its full path"
    )


def test_a_program_that_does_not_end_is_stopped() -> None:
    with pytest.raises(ProgramTimeoutError) as caught:
        run_command(["sleep", "60"], timeout_s=0.1)
    assert str(caught.value) == "sleep did not end within 0.1 s and was stopped: sleep 60"


def test_the_environment_is_added_to() -> None:
    completed = run_command(
        ["sh", "-c", "echo $ETPROF_TEST $HOME"], environment={"ETPROF_TEST": "x"}
    )
    assert completed.stdout.startswith("x /")


def test_nobody_is_asked_on_standard_input() -> None:
    assert run_command(["cat"], timeout_s=10).stdout == ""


def test_the_command_is_shown_as_it_would_be_typed() -> None:
    assert run_command(["echo", "a b"]).shell_text == "echo 'a b'"


def test_a_program_that_cannot_be_started_is_named(tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x7fELF of no machine")
    program.chmod(0o755)
    with pytest.raises(OSError, match="Exec format error") as caught:
        run_command([program])
    assert caught.value.filename == str(program)


def test_a_program_is_found_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "tool").write_text("#!/bin/sh\npwd\n")
    (tmp_path / "tool").chmod(0o755)
    shown = run_command([tmp_path / "tool"], folder=tmp_path)
    assert shown.stdout.strip() == str(tmp_path.resolve())


def test_a_program_has_the_signals_that_it_expects() -> None:
    """Python ignores SIGPIPE; a launcher that pipes would never end."""
    assert run_command(["sh", "-c", "kill -PIPE $$"]).exit_code == -signal.SIGPIPE
    assert run_command(["sh", "-c", "kill -TERM $$"]).exit_code == -signal.SIGTERM


@on_linux
def test_what_a_program_leaves_running_ends_with_it() -> None:
    """S2: what a launcher left in the background would run beside the next launch."""
    tree = ProcessTree()
    completed = run_command(["sh", "-c", "sleep 60 & echo $!"], environment=tree.environment)
    assert completed.exit_code == 0
    assert tree.seconds_until_empty() is not None, tree.living()


@pytest.mark.slow
@on_linux
def test_after_its_time_all_that_a_program_started_is_stopped() -> None:
    """S2: only the direct child was killed; the runner behind a launcher went on."""
    tree = ProcessTree()
    with pytest.raises(ProgramTimeoutError):
        run_command(
            ["sh", "-c", "sleep 60 & sleep 60; true"], timeout_s=0.5, environment=tree.environment
        )
    assert tree.seconds_until_empty() is not None, tree.living()


@pytest.mark.slow
@on_linux
def test_a_program_that_ignores_sigterm_is_stopped_all_the_same() -> None:
    tree = ProcessTree()
    with pytest.raises(ProgramTimeoutError):
        run_command(
            ["sh", "-c", "trap '' TERM; sleep 60; sleep 60"],
            timeout_s=0.5,
            environment=tree.environment,
        )
    assert tree.living() == {}


_ASKS = """
import sys
from etprof.base.process import run_command
run_command(["sh", "-c", "sleep 600 & sleep 600; true"])
"""


@on_linux
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_however_this_process_ends_its_programs_do(number: signal.Signals) -> None:
    """S2: they lived on for up to an hour."""
    tree = ProcessTree()
    with subprocess.Popen(
        [sys.executable, "-c", _ASKS], env={**os.environ, **tree.environment}
    ) as process:
        wait_for(lambda: len(tree.running("sleep 600")) >= 2, "nothing was started")
        process.send_signal(number)
        process.wait()
        assert tree.seconds_until_empty() is not None, tree.living()


@on_linux
def test_another_thread_can_end_a_program() -> None:
    tree, stop = ProcessTree(), CommandStop()
    seen: list[BaseException] = []

    def work() -> None:
        with stoppable(stop):
            try:
                run_command(["sleep", "600"], environment=tree.environment)
            except CommandStopped as error:
                seen.append(error)
            # Nor does it start another, but to tidy up it may.
            with pytest.raises(CommandStopped):
                run_command(["true"])
            with stoppable(None):
                assert run_command(["true"]).exit_code == 0
            seen.append(CommandStopped())

    thread = threading.Thread(target=work)
    thread.start()
    wait_for(lambda: tree.running("sleep 600"), "nothing was started")
    stop.set()
    thread.join(30)
    assert len(seen) == 2
    assert tree.living() == {}


def test_standard_input_that_ends_with_this_process_is_open_until_then() -> None:
    with pytest.raises(ProgramTimeoutError):
        run_command(["cat"], timeout_s=0.3, sees_our_end=True)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_command_inherits_nothing_but_its_three_streams() -> None:
    program = "import os; print(*sorted(os.listdir('/proc/self/fd'), key=int))"
    done = run_command([sys.executable, "-c", program], timeout_s=60)
    # The last one is the listing's own.
    assert done.stdout.split() == ["0", "1", "2", "3"]
