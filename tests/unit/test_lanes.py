"""The lanes of `.ci/run`: which of them a change has, and that none is forgotten or hidden."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from etprof.base.process import run_command

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def lanes() -> ModuleType:
    """The script itself."""
    spec = importlib.util.spec_from_file_location("lanes", ROOT / ".ci" / "lanes.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["lanes"] = module
    spec.loader.exec_module(module)
    return module


def tracked_files() -> list[str]:
    listed = run_command(["git", "ls-files"], folder=ROOT)
    if listed.exit_code:
        pytest.skip("no git checkout")
    return listed.stdout.splitlines()


def test_every_tracked_file_has_its_folder_in_the_table(lanes: ModuleType) -> None:
    folders = lanes.LaneTable.read().folders
    paths = tracked_files()
    forgotten = [path for path in paths if not any(path.startswith(name) for name in folders)]
    assert forgotten == [".ci/full.json"][: len(forgotten)], "name their lanes in .ci/lanes.toml"
    gone = [name for name in folders if not any(path.startswith(name) for path in paths)]
    assert not gone, "these folders of .ci/lanes.toml are gone"
    # One of the package's own is named, so that a new one is thought of.
    parts = {path.split("/")[2] for path in paths if path.startswith("python/etprof/")}
    named = {name.split("/")[2] for name in folders if re.match(r"python/etprof/\w", name)}
    assert {part for part in parts if "." not in part} <= named


def test_every_lane_has_commands_and_a_module_one_lane(lanes: ModuleType) -> None:
    table = lanes.LaneTable.read()
    script = (ROOT / ".ci" / "lane").read_text()
    heads = re.findall(r"^    ([a-z |-]+)\)", script, re.MULTILINE)
    assert {name for head in heads for name in head.split(" | ")} == set(table.lane)
    modules = [module for lane in table.lane.values() for module in lane.tests]
    assert len(modules) == len(set(modules))
    assert [m for m in modules if not (ROOT / "tests" / "integration" / m).is_file()] == []
    for name, lane in table.lane.items():
        assert lane.within is None or lane.within in table.lane, name
        # What a lane waits for is in every run in which it is.
        assert all(table.lane[needed].always for needed in lane.after), name


@pytest.mark.parametrize(
    ("path", "among", "not_among"),
    [
        ("CHANGELOG.md", set(), {"emulator", "export-tests", "docs"}),
        ("docs/history.md", {"docs"}, {"emulator", "export-tests"}),
        ("cpp/runner/main.cpp", {"sanitizers", "emulator", "android"}, {"packages"}),
        ("python/etprof/history/store.py", {"postgresql"}, {"export-tests", "sanitizers"}),
        ("tests/integration/test_numerics.py", {"optimize-tests"}, {"export-tests"}),
        ("tests/integration/emulated.py", {"emulator", "export-tests"}, set()),
        ("a/new/folder.py", {"emulator", "fuzz-reader", "export-tests", "packages"}, set()),
    ],
)
def test_a_change_has_the_lanes_of_its_folder(
    lanes: ModuleType, path: str, among: set[str], not_among: set[str]
) -> None:
    table = lanes.LaneTable.read()
    chosen = set(table.lanes_for([path]))
    always = {name for name, lane in table.lane.items() if lane.always}
    assert among <= chosen
    assert not not_among & chosen
    # A lane that holds another whole runs in its place.
    assert {name for name in always - chosen if table.lane[name].within not in chosen} == set()
    assert [name for name in chosen if table.lane[name].within in chosen] == []


def test_a_full_run_has_every_lane(lanes: ModuleType) -> None:
    table = lanes.LaneTable.read()
    missing = set(table.lane) - set(table.all_lanes())
    assert {table.lane[name].within for name in missing} <= set(table.all_lanes())


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of its own with the script, a table of toy lanes, and toy commands."""
    folder = tmp_path / "it's a checkout"
    (folder / ".ci").mkdir(parents=True)
    for name in ("run", "lanes.py"):
        text = (ROOT / ".ci" / name).read_text()
        (folder / ".ci" / name).write_text(text)
        (folder / ".ci" / name).chmod(0o755)
    (folder / ".ci" / "lanes.toml").write_text(
        'most_commits = 2\ncores = 2\n[lane.first]\ntitle = "one"\ncores = 1\nalways = true\n'
        '[lane.second]\ntitle = "two"\ncores = 1\nafter = ["first"]\n'
        '[lane.third]\ntitle = "three"\ncores = 1\n'
        '[folders]\n".ci/" = []\n".gitignore" = []\n"a/" = ["second"]\n"b/" = ["third"]\n'
    )
    lane = folder / ".ci" / "lane"
    lane.write_text(
        'set -e\n[ "$1" != third ] || { echo "no such machine here"; exit 77; }\n'
        '[ ! -e "a/broken $1" ]\necho "ran $1"\n'
    )
    lane.write_text(f"#!/bin/sh\n{lane.read_text()}")
    lane.chmod(0o755)
    for part in ("a", "b"):
        (folder / part).mkdir()
        (folder / part / "file").write_text(part)
    (folder / ".gitignore").write_text("/build/\n__pycache__/\n")
    run_git(folder, "init", "-q")
    commit(folder)
    return folder


def run_git(folder: Path, *words: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    done = run_command(["git", *identity, *words], folder=folder)
    assert done.exit_code == 0, done.stderr


def commit(folder: Path) -> None:
    run_git(folder, "add", "-A")
    run_git(folder, "commit", "-q", "--allow-empty", "-m", "x")


def run_ci(folder: Path, *words: str) -> tuple[int, str]:
    environment = {name: text for name, text in os.environ.items() if name != "ETPROF_CI"}
    done = subprocess.run(
        [folder / ".ci" / "run", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_run_without_a_record_is_full_and_the_next_one_fast(checkout: Path) -> None:
    code, text = run_ci(checkout)
    assert code == 0, text
    assert text.splitlines()[0] == "last full run: unknown; this run is a full one"
    assert "ran first" in text
    assert "ran second" in text
    assert "skipped  third: three (0 s, 0 s of CPU): no such machine here" in text
    assert text.splitlines()[-1] == "2 passed, 0 failed, 1 skipped"
    record = json.loads((checkout / ".ci" / "full.json").read_text())
    assert record["lanes"] == {
        "first": "passed 0 s, 0 s of CPU",
        "second": "passed 0 s, 0 s of CPU",
        "third": "skipped 0 s, 0 s of CPU",
    }
    commit(checkout)
    code, text = run_ci(checkout)
    assert code == 0
    assert re.search(
        r"last full run: 1 commits ago .* nothing has changed since for: second, third", text
    )
    assert text.splitlines()[-1] == "1 passed, 0 failed, 0 skipped"
    # An uncommitted change counts, and so does a lane's own folder alone.
    (checkout / "a" / "new file").write_text("new")
    assert run_ci(checkout)[1].splitlines()[-1] == "2 passed, 0 failed, 0 skipped"
    # What no folder of the table begins is of every lane.
    (checkout / "unknown").write_text("new")
    assert "what has changed since is of every lane" in run_ci(checkout)[1]
    commit(checkout)
    commit(checkout)
    assert "3 commits ago" in (text := run_ci(checkout)[1])
    assert "more than 2; this run is a full one" in text


def test_a_broken_lane_is_red_with_its_last_lines_and_leaves_no_record(checkout: Path) -> None:
    (checkout / "a" / "broken first").touch()
    code, text = run_ci(checkout, "full")
    assert code == 1
    assert "FAILED   first: one" in text
    # One red test must not hide what other lanes would say.
    assert "passed   second: two" in text
    assert text.splitlines()[-1] == "1 passed, 1 failed, 1 skipped"
    assert not (checkout / ".ci" / "full.json").exists()


def test_a_lane_that_hangs_is_ended_with_what_it_started(checkout: Path) -> None:
    script = checkout / ".ci" / "lanes.py"
    assert script.read_text().count("LONGEST_LANE_S = 40 * 60\n") == 1
    script.write_text(
        script.read_text().replace("LONGEST_LANE_S = 40 * 60\n", "LONGEST_LANE_S = 1\n")
    )
    lane = checkout / ".ci" / "lane"
    lane.write_text('#!/bin/sh\n[ "$1" != first ] || sleep 600 | cat\n')
    began_s = time.monotonic()
    code, text = run_ci(checkout, "full")
    assert code == 1
    assert time.monotonic() - began_s < 60
    # What it computed is unknown, for nobody waited for what it had started.
    assert re.search(r"FAILED   first: one \([12] s\)\n    not ended within 1 s\n", text)
    assert "passed   second: two (0 s, 0 s of CPU)" in text


def test_the_subject_of_one_slow_lane_broken_turns_a_fast_run_red(checkout: Path) -> None:
    assert run_ci(checkout)[0] == 0
    commit(checkout)
    (checkout / "a" / "broken second").touch()
    code, text = run_ci(checkout)
    assert code == 1
    assert "FAILED   second: two" in text
    assert "passed   first: one" in text


def test_a_red_full_run_is_resumed_where_it_was(checkout: Path) -> None:
    (checkout / "a" / "broken second").touch()
    commit(checkout)
    assert run_ci(checkout, "full")[0] == 1
    assert not (checkout / ".ci" / "full.json").exists()
    (checkout / "a" / "broken second").unlink()
    commit(checkout)
    code, text = run_ci(checkout, "resume")
    assert code == 0, text
    # What the lane comes after runs again with it; what could not run here is not tried again.
    assert text.splitlines()[0] == "goes on with a full run that has passed: third"
    assert text.splitlines()[-1] == "2 passed, 0 failed, 0 skipped"
    record = json.loads((checkout / ".ci" / "full.json").read_text())
    assert set(record["lanes"]) == {"first", "second", "third"}
    assert re.fullmatch(r"skipped 0 s, 0 s of CPU at [0-9a-f]{7}", record["lanes"]["third"])
    assert record["lanes"]["second"] == "passed 0 s, 0 s of CPU"
    # A lane that passed is run again when its own folder has changed since.
    commit(checkout)
    (checkout / "b" / "file").write_text("changed")
    commit(checkout)
    text = run_ci(checkout, "resume")[1]
    assert text.splitlines()[0] == "goes on with a full run that has passed: second"


def test_uncommitted_changes_leave_no_record_of_a_full_run(checkout: Path) -> None:
    (checkout / "a" / "new").touch()
    assert run_ci(checkout, "full")[0] == 0
    assert not (checkout / ".ci" / "full.json").exists()
    assert not (checkout / "build").exists()


def test_readmes_test_command_is_the_lanes(lanes: ModuleType) -> None:
    script = (ROOT / ".ci" / "lane").read_text()
    (block,) = re.findall(r"## Test it\n\n```sh\n(.*?)\n```", (ROOT / "README.md").read_text())
    assert f"        {block}\n" in script
    blocks = re.findall(r"```sh\n(.*?)\n```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert f"({blocks[0]})" in script
