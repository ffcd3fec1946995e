"""Programs are started in one place: found, timed, and their words kept."""

from __future__ import annotations

import sys

import pytest

from etprof.process import ProgramNotFoundError, ProgramTimeoutError, run_command


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
