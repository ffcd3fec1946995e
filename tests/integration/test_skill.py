"""The skill's commands, in order, as an assistant runs them."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path

import pytest

from etprof.base.errors import EtprofError
from etprof.base.process import run_command
from etprof.targets.emulator.installation import locate
from tests.known_etdumps import foreign_etdump
from tests.unit.test_import import EXECUTIONS, LOGGED_MS
from tests.upstream_files import runner_log

ROOT = Path(__file__).parents[2]
SKILL = ROOT / "skills/etprof/SKILL.md"
COMMAND = re.compile(r"`etprof ([a-z][^`]*)`")
MOST_S = 600


def commands() -> list[list[str]]:
    """The skill's command lines without `etprof`, in order."""
    steps = SKILL.read_text("utf-8").partition("## Profile")[2]
    return [shlex.split(found) for found in COMMAND.findall(steps)]


def test_the_skill_has_each_part_and_its_commands_speak_json() -> None:
    assert {words[0] for words in commands()} == {
        "doctor", "profile", "emulator", "import", "analyze", "validate", "compare", "optimize",
        "numerics",
    }  # fmt: skip
    silent = {words[0] for words in commands() if "--json" not in words}
    assert silent == {"emulator", "profile", "import"}  # what is waited for, and what files follow
    text = (ROOT / "llms.txt").read_text("utf-8")
    assert text.startswith("# etprof\n\n> ")
    assert "skills/etprof/SKILL.md" in text


def prepare(words: list[str], folder: Path) -> list[str]:
    """Makes what a command reads and no command before it wrote; returns its words."""
    if words[0] == "import":
        (folder / "model.etdump").write_bytes(foreign_etdump(EXECUTIONS))
        (folder / "runner.log").write_text(runner_log(LOGGED_MS, threads=2))
    if words[0] == "compare":
        run(["profile", "toy_cnn", "--out", "B"], folder)
        return ["out_toy_cnn/runs/linux" if word == "A" else word for word in words]
    return words


def run(words: list[str], folder: Path) -> str:
    """Runs one command in a process of its own; returns what it printed."""
    line = [sys.executable, "-m", "etprof", *words]
    settings = {"ETPROF_LOCKS": str(folder)}
    done = run_command(line, folder=folder, environment=settings, timeout_s=MOST_S)
    assert done.exit_code == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="its paths are those of a Linux machine")
def test_the_skills_commands_run_in_order(tmp_path: Path) -> None:
    try:
        locate()
        missing = set[str]()
    except EtprofError:
        missing = {"emulator"}  # `emulator setup` fetches packages: a test does not
    ran = 0
    for words in commands():
        if missing & {*words}:
            continue
        printed = run(prepare(words, tmp_path), tmp_path)
        ran += 1
        if "--json" in words:
            assert json.loads(printed)["schema_version"]
    assert ran >= len(commands()) - 2
