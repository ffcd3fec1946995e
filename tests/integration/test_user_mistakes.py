"""A user's mistake is one line with the way out and an exit code, never a traceback."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from etprof.process import Completed, run_command

if TYPE_CHECKING:
    from pathlib import Path


def etprof(folder: Path, *words: object) -> Completed:
    return run_command(
        [sys.executable, "-m", "etprof", *map(str, words)], folder=folder, timeout_s=120
    )


MISTAKES = {
    "unknown model": (
        ("profile", "toy_cn"),
        2,
        "no model is called 'toy_cn'; did you mean 'toy_cnn'?",
    ),
    "missing program": (
        ("profile", "missing.pte"),
        4,
        "missing.pte does not exist; `etprof export MODEL` makes a program",
    ),
    "program that is none": (("profile", "text.pte"), 4, "text.pte"),
    "missing input": (
        ("profile", "text.pte", "--inputs", "no.bin"),
        4,
        "no.bin does not exist; `etprof export MODEL` makes a program",
    ),
    "unknown precision": (("export", "toy_cnn", "--dtype", "fp17"), 2, "fp17"),
    "unknown backend": (
        ("export", "toy_cnn", "--backend", "tpu"),
        2,
        "unknown backend 'tpu'; choose one of xnnpack, portable",
    ),
    "no model at all": (("export",), 2, "give one model, as in `etprof export toy_cnn`"),
    "nothing to analyse": (
        ("analyze",),
        2,
        "give one run directory or ETDump, as in `etprof analyze out_toy_cnn/runs/linux`",
    ),
    "missing run": (
        ("analyze", "nowhere"),
        4,
        "nowhere does not exist; `etprof profile MODEL` makes a run directory",
    ),
    "empty run": (
        ("analyze", "empty"),
        4,
        "empty holds no .etdump file; measure with `etprof profile MODEL` first",
    ),
    "damaged ETDump": (("analyze", "damaged.etdump"), 4, "damaged.etdump"),
    "run directory that is something else": (
        ("profile", "text.pte", "--out", "folder"),
        7,
        "folder exists and is not a run directory; choose another with --out",
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mistakes")
    (path / "text.pte").write_text("this is not a program")
    (path / "damaged.etdump").write_bytes(os.urandom(100))
    (path / "empty").mkdir()
    (path / "folder").mkdir()
    (path / "folder" / "thesis.doc").touch()
    return path


@pytest.mark.parametrize(("words", "code", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(folder: Path, words: tuple[str, ...], code: int, message: str) -> None:
    before = {path.name for path in folder.iterdir()}
    completed = etprof(folder, *words)
    assert completed.exit_code == code, completed.stderr
    assert "Traceback" not in completed.stderr
    (line,) = [x for x in completed.stderr.splitlines() if x.startswith("etprof: ")]
    assert message in line
    assert {path.name for path in folder.iterdir()} == before, "nothing half-written stays"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("profile", "toy_cnn", "--blocks", "0"), "--blocks: must be at least 1, not 0"),
        (("profile", "toy_cnn", "--threads", "x"), "--threads: invalid"),
        (("profile", "toy_cnn", "--min-seconds", "0"), "--min-seconds: must be above 0 s, not 0"),
        (("frobnicate",), "invalid choice: 'frobnicate'"),
        ((), "the following arguments are required: COMMAND"),
    ],
    ids=["zero blocks", "threads not a number", "zero seconds", "unknown command", "no command"],
)
def test_wrong_flags(folder: Path, words: tuple[str, ...], message: str) -> None:
    completed = etprof(folder, *words)
    assert completed.exit_code == 2
    assert message in completed.stderr


def test_every_command_explains_itself(folder: Path) -> None:
    for command in ("profile", "export", "analyze", "models", "doctor"):
        completed = etprof(folder, command, "--help")
        assert completed.exit_code == 0
        assert len(completed.stdout) > 100


def test_a_reader_that_goes_away_is_no_error(folder: Path) -> None:
    command = f"{sys.executable} -m etprof models --json | head -c 1; echo ${{PIPESTATUS[0]}}"
    completed = run_command(["bash", "-c", command], folder=folder, timeout_s=120)
    assert "Traceback" not in completed.stderr
