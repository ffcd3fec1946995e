"""The tutorial's commands, in order, as a stranger types them; what it shows is what they print."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from etprof.base.errors import EtprofError
from etprof.base.process import run_command
from etprof.targets.emulator.installation import locate

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FRAME = re.compile(r"[│┃\s]+")
MOST_S = 300


def blocks() -> list[tuple[str, str]]:
    """The tutorial's blocks in order: language and text."""
    return BLOCK.findall(TUTORIAL.read_text())


def plain(text: str) -> str:
    """Text without the frames of tables, which are as wide as the terminal."""
    return FRAME.sub(" ", text).strip()


def test_the_tutorial_is_made_of_files_commands_and_outputs() -> None:
    """`sh` is run, `python` is saved, an output without a language is compared."""
    kinds = [kind for kind, _ in blocks()]
    assert set(kinds) == {"bash", "sh", "python", "", "text"}
    assert kinds.count("bash") == 1
    assert kinds.count("sh") > 6
    assert all(text.startswith("# ") for kind, text in blocks() if kind == "python")


@pytest.mark.slow
def test_the_tutorials_commands_run_in_order(tmp_path: Path) -> None:
    """U6: there was no tutorial; this one is what CI does (issue 18.5)."""
    try:
        locate()
    except EtprofError as error:
        pytest.skip(str(error))
    environment = {"COLUMNS": "100", "ETPROF_LOCKS": str(tmp_path)}
    printed = ""
    for kind, text in blocks():
        if kind == "python":
            name = text.splitlines()[0].removeprefix("# ")
            (tmp_path / name).write_text(text)
        elif kind == "sh":
            script = ["bash", "-e", "-c", text]
            done = run_command(script, folder=tmp_path, environment=environment, timeout_s=MOST_S)
            printed = plain(done.stdout + done.stderr)
            assert done.exit_code == 0, f"{text}{done.stdout}{done.stderr}"
        elif kind == "":
            parts = [part for line in text.splitlines() for part in line.split("…")]
            assert [part for part in parts if plain(part) not in printed] == []
