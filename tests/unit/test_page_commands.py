"""U3-12: every command that a page quotes has what runs it; here, those of known and simulated runs."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from etprof.base.errors import UsageError
from etprof.cli import build_parser
from etprof.history.store import open_store
from tests.known_etdumps import foreign_etdump
from tests.known_history import KnownHistory, fill
from tests.known_runs import on_off_run, write_run
from tests.odd_paths import ODD_NAME, pasted, printed_commands
from tests.page_commands import IN_ORDER, ROOT, ROWS, has_own_test, quoted_commands
from tests.upstream_files import runner_log
from tests.world.host import Done, etprof, simulated_host
from tests.world.sim_target import SimTarget
from tests.world.spec import Capabilities, RunSpec

QUOTED = quoted_commands()
PROGRAMS = ("my", "model", "before", "after", "baseline", "optimized")
RUNS = ("A", "B", "A1", "A2", "A3", "B1", "B2", "B3")


def test_every_quoted_command_has_a_row_and_every_row_a_command() -> None:
    quoted = {each.text for each in QUOTED if not has_own_test(each)}
    assert sorted(quoted - {*ROWS}) == [], "say in tests/page_commands.py what runs it"
    assert sorted({*ROWS} - {each.text for each in QUOTED}) == []
    assert len(QUOTED) > 200  # or the search finds nothing any more


def test_what_runs_elsewhere_is_there() -> None:
    for place in IN_ORDER.values():
        assert (ROOT / place).is_file()
    for command, row in ROWS.items():
        if row.lane == "elsewhere":
            word = next(word for word in command.split()[::-1] if word[-1].isalpha())
            assert word in (ROOT / row.why).read_text("utf-8"), command
        assert bool(row.why) == (row.lane in {"elsewhere", "parsed"}), command


@pytest.mark.parametrize("command", [c for c, row in ROWS.items() if row.lane == "parsed"])
def test_what_cannot_run_here_is_understood(command: str) -> None:
    build_parser().parse_args(shlex.split(ROWS[command].words or command))


def make_folder(folder: Path) -> None:
    """What the commands read: known runs, a history with a regression, programs, configs."""
    for name in PROGRAMS:
        (folder / f"{name}.pte").write_bytes(name.encode())
    for name in (*RUNS, *(f"out_toy_cnn/runs/{name}" for name in ("linux", "fp16", "int8"))):
        write_run(folder / name, on_off_run())
    experiment = {"name": "one", "sme": "auto", "runs": 5, "warmup": 1, "threads": [1]}
    config: dict[str, Any] = {"model": "my.pte", "output_root": "out", "experiments": [experiment]}
    config["measurement"] = {"blocks": 2, "min_seconds": 0.01}
    phone = {
        **config,
        "target": "android",
        "experiments": [{**experiment, "runner_path": "my.pte"}],
    }
    done = {**config, "output_root": "done/runs/linux"}
    matrix = {
        "models": ["toy_cnn"], "precisions": ["fp32"], "threads": [1],
        "devices": [{"name": "host", "kind": "local"}], "sme": ["on", "off"],
    }  # fmt: skip
    documents = {"config": config, "phone": phone, "done": done, "matrix": matrix}
    for name, document in {**documents, "thresholds": {}}.items():
        (folder / f"{name}.json").write_text(json.dumps(document))
    (folder / "model.etdump").write_bytes(foreign_etdump())
    (folder / "libetprof.so").write_bytes(b"\0Convolution (NHWC, F32)\0")
    (folder / "runner.log").write_text(runner_log([1.3, 0.13, 0.126]).replace("toy_cnn", "model"))
    with open_store(str(folder / "etprof_history.sqlite")) as store:
        fill(store, KnownHistory(commits=8, precisions=("fp32",), devices=("Phone",)))
    shutil.copy(folder / "etprof_history.sqlite", folder / "nightly.sqlite")
    for words in (
        "history export runs.json",
        *(f"history pin release {number}" for number in range(1, 10)),
        "run done.json",
        "import model.etdump runner.log --sme sme2 --platform android",
    ):
        done_ = run(folder, words)
        assert done_.exit_code == 0, done_


def run(folder: Path, command: str) -> Done:
    machine = Capabilities(platform="android" if "phone" in command else "linux")
    with simulated_host(lambda **_: SimTarget(RunSpec(capabilities=machine))):
        return etprof(folder, *shlex.split(command), columns=80)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    make_folder(folder)
    return folder


@pytest.fixture
def folder(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy with an odd name, for one command."""
    monkeypatch.delenv("ETPROF_HISTORY", raising=False)
    monkeypatch.setenv("ETPROF_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / ODD_NAME
    shutil.copytree(template, folder)
    return folder


@pytest.mark.parametrize("command", [c for c, row in ROWS.items() if row.lane == "simulated"])
def test_a_quoted_command_ends_as_its_page_says(folder: Path, command: str) -> None:
    row = ROWS[command]
    if row.without:
        gone = folder / row.without
        shutil.rmtree(gone) if gone.is_dir() else gone.unlink()
    done = run(folder, row.words or command)
    assert done.exit_code == row.exit_code, done.stdout + done.stderr
    assert done.stdout
    # What it prints can be pasted.
    for printed in printed_commands(done.stdout + done.stderr):
        check_pasted(pasted(printed))


@pytest.mark.slow
@pytest.mark.parametrize("command", [c for c, row in ROWS.items() if row.lane == "served"])
def test_a_quoted_command_serves_until_it_is_told_to_end(folder: Path, command: str) -> None:
    words = [sys.executable, "-m", "etprof", *shlex.split(ROWS[command].words)]
    with subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            told = next(line for line in server.stdout if "http://" in line)
            address = told[told.index("http://") :].split()[0]
            with urllib.request.urlopen(address, timeout=60) as answer:  # noqa: S310 - ours
                assert b"toy_cnn" in answer.read()
        finally:
            server.send_signal(signal.SIGINT)
        assert server.wait(60) in {0, 130}


def check_pasted(words: list[str]) -> None:
    """etprof understands it, or it only names a command."""
    named = not [word for word in words if word.startswith("-")] and len(words) < 3
    with pytest.raises(UsageError, match="required") if is_bare(words) else nullcontext():
        build_parser().parse_args(words)
    assert words or named


def is_bare(words: list[str]) -> bool:
    return len(words) == 1 and words[0] in {"compare", "report", "import", "export-llm"}


@pytest.mark.parametrize("name", [c for c, row in ROWS.items() if row.lane == "named"])
def test_a_command_that_is_only_named_asks_for_the_rest(folder: Path, name: str) -> None:
    done = run(folder, name)
    assert done.exit_code == 2
    assert f"`etprof {name}" in done.stderr or "give " in done.stderr
