"""A user's mistake is one line with the way out and an exit code, never a traceback."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from etprof.base.process import run_command
from etprof.cli import COMMANDS
from etprof.model_registry.registry import find_models
from tests import etdump_writer as writer
from tests.world.host import etprof

LONG = "x" * 300
MISTAKES = {
    "unknown model": (
        ("profile", "toy_cn"),
        2,
        (
            f"no model is called 'toy_cn'; did you mean 'toy_cnn'? known: {', '.join(find_models())}; "
            "or give path/to/file.py:Class or FILE.pt2"
        ),
    ),
    "missing program": (
        ("profile", "missing.pte"),
        4,
        "missing.pte does not exist; `etprof export MODEL` makes a program",
    ),
    "program that is none": (
        ("profile", "text.pte"),
        4,
        (
            "text.pte is not a program of ExecuTorch, or is damaged: export it again, or copy it again "
            "if it was cut short"
        ),
    ),
    "empty program": (
        ("profile", "empty.pte"),
        4,
        (
            "empty.pte is not a program of ExecuTorch, or is damaged: export it again, or copy it again "
            "if it was cut short"
        ),
    ),
    "missing input": (
        ("profile", "text.pte", "--inputs", "no.bin"),
        4,
        "no.bin does not exist; --inputs and --data take files; give shapes to --input",
    ),
    "missing data": (
        ("profile", "text.pte", "--data", "no.ptd"),
        4,
        "no.ptd does not exist; --inputs and --data take files; give shapes to --input",
    ),
    "unknown precision": (
        ("export", "toy_cnn", "--dtype", "fp17"),
        2,
        (
            "unknown precision 'fp17'; did you mean 'fp16'? choose one of fp32, fp16, bf16, int8, int8_per_tensor, int8_dynamic, "
            "8da4w, 8da4w_channel, 8da4w_b<BLOCK>"
        ),
    ),
    "unknown backend": (
        ("export", "toy_cnn", "--backend", "tpu"),
        2,
        (
            "argument --backend: invalid choice: 'tpu' (choose from xnnpack, portable); "
            "see `etprof export --help`"
        ),
    ),
    "no model at all": (
        ("export",),
        2,
        "give one model, as in `etprof export toy_cnn`; `etprof models` lists them",
    ),
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
    "something else than an ETDump": (
        ("analyze", "text.pte"),
        4,
        (
            'text.pte: no identifier "ED00" at byte 4 or 8 (at byte 4); '
            "give a run directory, or an ETDump such as `etprof-runner --etdump` writes"
        ),
    ),
    "ETDump without events": (
        ("analyze", "eventless.etdump"),
        4,
        (
            "eventless.etdump: the ETDump has no steady Method::execute event, so there is no "
            "inference to analyse; run the model with --etdump and at least one iteration, on a "
            "runner built with the event tracer"
        ),
    ),
    "path that no system takes": (
        ("compare", LONG, LONG),
        4,
        f"{LONG}: File name too long; check the path and its permissions",
    ),
    "run directory that is something else": (
        ("profile", "text.pte", "--out", "folder"),
        7,
        "folder exists and is not a run directory; move it away yourself, or choose another folder with --out",
    ),
    "run directory below a file": (
        ("profile", "text.pte", "--out", "text.pte/run"),
        7,
        "cannot write text.pte/run/manifest.json: text.pte is a file; choose another folder",
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("mistakes")
    (path / "text.pte").write_text("this is not a program")
    (path / "empty.pte").touch()
    document = writer.etdump([writer.event_block(b"Execute", [])])
    (path / "eventless.etdump").write_bytes(writer.write_etdump(document).data)
    (path / "empty").mkdir()
    (path / "folder").mkdir()
    (path / "folder" / "thesis.doc").touch()
    return path


@pytest.mark.parametrize(("words", "code", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(folder: Path, words: tuple[str, ...], code: int, message: str) -> None:
    before = sorted(folder.rglob("*"))
    completed = etprof(folder, *words)
    assert (completed.exit_code, completed.stdout) == (code, "")
    assert completed.stderr.splitlines()[-1] == f"etprof: {message}"
    assert "Traceback" not in completed.stderr
    assert sorted(folder.rglob("*")) == before, "nothing half-written stays"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("profile toy_cnn --blocks 0", "--blocks: must be at least 1, not 0"),
        ("profile toy_cnn --threads x", "--threads: must be a whole number, at least 1, not x"),
        ("profile toy_cnn --min-seconds 0", "--min-seconds: must be above 0 s, not 0"),
        ("profile toy_cnn --min-seconds x", "--min-seconds: must be above 0 s, not x"),
        (
            "profile toy_cnn --generate x",
            "--generate: must be a whole number, at least 2, not x",
        ),
        (
            "frobnicate",
            f"COMMAND: invalid choice: 'frobnicate' (choose from {', '.join(COMMANDS)})",
        ),
    ],
)
def test_wrong_flags(folder: Path, words: str, message: str) -> None:
    completed = etprof(folder, *words.split())
    assert (completed.exit_code, completed.stdout) == (2, "")
    command = words.split(maxsplit=1)[0] if words.startswith("profile") else ""
    way_out = f"; see `{f'etprof {command}'.strip()} --help`"
    assert completed.stderr == f"etprof: argument {message}{way_out}\n"


def test_no_command_is_a_call_for_help(folder: Path) -> None:
    completed = etprof(folder)
    assert (completed.exit_code, completed.stderr) == (0, "")
    assert completed.stdout == etprof(folder, "--help").stdout


def test_every_command_explains_itself(folder: Path) -> None:
    for command in ("profile", "export", "analyze", "models", "doctor"):
        completed = etprof(folder, command, "--help")
        assert completed.exit_code == 0
        assert len(completed.stdout) > 100


def test_a_reader_that_goes_away_is_no_error(folder: Path) -> None:
    python = shlex.quote(sys.executable)
    command = f"{python} -m etprof models --json | head -c 1; echo ${{PIPESTATUS[0]}}"
    completed = run_command(["bash", "-c", command], folder=folder, timeout_s=120)
    assert "Traceback" not in completed.stderr
