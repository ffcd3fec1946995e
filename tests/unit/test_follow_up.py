"""Commands that come next keep the flags of the command that was run."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pytest

from etprof.base.text import kept_flags
from etprof.cli import build_parser
from etprof.cli.follow_up import PROFILE_FLAGS, flags_of_last_profile, with_flags_of
from tests.known_runs import on_off_run, write_run
from tests.manifests import edit_manifest

if TYPE_CHECKING:
    from pathlib import Path

PROFILE = ["profile", "net.py:Net", "--full", "--threads", "1", "--dtype=int8"]


def leave_run(folder: Path, *command: str) -> Path:
    """Leaves a run beside a program, and returns the program's path."""
    run = folder / "out_net" / "runs" / "linux"
    write_run(run, on_off_run())
    edit_manifest(run, lambda document: document.update(command=["etprof", *command]))
    return folder / "out_net" / "artifacts" / "net.pte"


def test_what_comes_next_is_measured_as_before(tmp_path: Path) -> None:
    """`--threads 1` was lost on the way from `profile` over `export --rewrite` to `--against`."""
    program = leave_run(tmp_path, *PROFILE, "--warmup-steady", "--target", "emulator")
    assert flags_of_last_profile(program) == (
        "--threads", "1", "--warmup-steady", "--target", "emulator",
    )  # fmt: skip


def test_a_stranger_names_no_runner(tmp_path: Path) -> None:
    program = leave_run(tmp_path, *PROFILE, "--runner", "theirs/runner", "--trace-runner=x")
    assert flags_of_last_profile(program) == ("--threads", "1")


@pytest.mark.parametrize("content", ["{", "{}"])
def test_without_a_readable_run_nothing_is_added(tmp_path: Path, content: str) -> None:
    program = leave_run(tmp_path)
    path = tmp_path / "out_net" / "runs" / "linux" / "manifest.json"
    path.write_text(content, encoding="utf-8")
    assert flags_of_last_profile(program) == ()
    assert flags_of_last_profile(tmp_path / "elsewhere" / "artifacts" / "net.pte") == ()


def test_the_command_in_a_refusal_is_the_users_with_what_was_wrong_mended() -> None:
    message = "no input; as in `etprof profile net.py:Net --input 1x3x8x8`; see `etprof models`"
    assert with_flags_of(message, PROFILE) == (
        "no input; as in `etprof profile net.py:Net --input 1x3x8x8 --threads 1 --dtype int8`; "
        "see `etprof models`"
    )
    # AND a command that has the flag, a placeholder or another subcommand stays
    for said in (
        "`etprof profile net.py:Net --threads 2 --dtype fp32`",
        "`etprof profile MODEL`",
        "`etprof numerics net.py:Net`",
    ):
        assert with_flags_of(said, PROFILE) == said


def test_a_flag_at_the_end_has_no_value() -> None:
    assert kept_flags(["profile", "--threads"], {"--threads": 1}) == ()
    assert kept_flags(["--full", "--cold-inputs"], {"--cold-inputs": 0}) == ("--cold-inputs",)


def test_flags_that_are_kept_are_flags_of_profile() -> None:
    """A flag that was renamed would be lost without a word, or take a value that is none."""
    parser = build_parser()
    commands = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    declared = {
        flag: 0 if action.nargs == 0 else 1
        for action in commands.choices["profile"]._actions
        for flag in action.option_strings
    }
    assert {flag: declared.get(flag) for flag in PROFILE_FLAGS} == PROFILE_FLAGS
