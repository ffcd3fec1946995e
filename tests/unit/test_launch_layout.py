"""N3-1: verdicts on operators followed the length of file names, for names move stack and heap."""

from __future__ import annotations

import json
import os
import random
import stat
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from etprof.base.errors import TargetError
from etprof.base.process import stack_bytes
from etprof.targets import local
from etprof.targets.launch_layout import LAYOUT_VARIABLE, LayoutShift, level_paths, restore_paths
from etprof.targets.local import LocalTarget
from etprof.targets.request import RunnerRequest, runner_arguments

_STEP_BYTES = 16 << 10
_RUNNER = """\
#!{python} -IS
import json, os, sys
with open("/proc/self/environ", "rb") as stream:
    environment = [entry.decode() for entry in stream.read().split(b"\\0")[:-1]]
with open({seen!r}, "a") as stream:
    print(json.dumps([sys.argv[1:], environment]), file=stream)
sys.exit("cannot do this: " + sys.argv[1])
"""


def request_of(folder: Path, **settings: object) -> RunnerRequest:
    """A request with every path that there is, all in `folder`."""
    paths = {"model": "m.pte", "data": "m.ptd", "etdump": "e.etdump", "outputs": "outputs",
             "kernel_trace": "k.json", "result": "r.json"}  # fmt: skip
    values: dict[str, Any] = {name: folder / path for name, path in paths.items()}
    return RunnerRequest(**{**values, **settings}, inputs=(folder / "i.bin",))


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    """A program that notes how it was started, and refuses."""
    path = tmp_path / "runner"
    # The first line of a script takes no blank, and the folder of this Python may have one.
    (tmp_path / "python").symlink_to(sys.executable)
    path.write_text(_RUNNER.format(python=tmp_path / "python", seen=str(tmp_path / "seen")))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def launches(runner: Path) -> list[tuple[list[str], dict[str, str]]]:
    lines = runner.with_name("seen").read_text().splitlines()
    started = (json.loads(line) for line in lines)
    return [(argv, dict(entry.split("=", 1) for entry in entries)) for argv, entries in started]


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux's /proc")
def test_all_launches_have_command_lines_and_environments_of_one_length(
    runner: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chooser = random.Random(7)  # noqa: S311
    for index, length in enumerate((1, 9, 14, 17, 20)):
        monkeypatch.setenv("ANOTHER", "x" * index)
        request = request_of(
            tmp_path / ("o" * length),
            runner=runner,
            sme="off" if index % 2 else "sme2",
            layout=LayoutShift.draw(chooser),
        )
        with pytest.raises(TargetError):
            LocalTarget().run(request)
    seen = launches(runner)
    assert len(seen) == 5
    paths = {len(word.partition("=")[2]) for argv, _ in seen for word in argv if "/" in word}
    assert len(paths) == 1
    assert paths <= {128, 256}
    # A script's own path is handed to its interpreter: what the kernel laid for it is not seen here.
    totals = {stack_bytes([str(runner), str(runner), *argv], env) for argv, env in seen}
    assert len(totals) == 1
    assert totals.pop() % _STEP_BYTES == 0
    shifts = [environment[LAYOUT_VARIABLE] for _, environment in seen]
    assert len(set(shifts)) == 5
    assert {len(shift) for shift in shifts} == {9}


def test_messages_have_the_paths_that_people_know(runner: Path, tmp_path: Path) -> None:
    request = request_of(tmp_path, runner=runner)
    with pytest.raises(TargetError) as raised:
        LocalTarget().run(request)
    assert f"cannot do this: --model={tmp_path}/m.pte" in str(raised.value)
    assert "//" not in str(raised.value)


def test_every_path_of_a_request_is_levelled(tmp_path: Path) -> None:
    argv, plain_paths = level_paths(runner_arguments(request_of(tmp_path)))
    assert len(plain_paths) == 7
    values = [word.partition("=")[2] for word in argv if str(tmp_path) in word]
    assert len(values) == 7
    assert len({len(value) for value in values}) == 1
    assert [Path(value) for value in values] == [Path(plain_paths[value]) for value in values]
    assert restore_paths(" ".join(argv), plain_paths).split() == runner_arguments(
        request_of(tmp_path)
    )


def lengthened(path: str) -> str:
    (word,), _ = level_paths([f"--model={path}"])
    return word.removeprefix("--model=")


@pytest.mark.parametrize(
    ("size", "length"),
    [
        (5, 128),
        (126, 128),
        (127, 256),
        (254, 256),
        (255, 512),
        (998, 1000),
        (999, 999),
        (3000, 3000),
    ],
)
def test_long_paths_have_the_next_length(size: int, length: int) -> None:
    path = "/" + "é" * ((size - 1) // 2) + "x" * ((size - 1) % 2)
    assert len(os.fsencode(lengthened(path))) == length


def test_a_relative_path_stays_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m.pte").write_text("a program")
    monkeypatch.chdir(tmp_path)
    assert len(lengthened("m.pte")) in {128, 256}
    assert Path(lengthened("m.pte")).read_text() == "a program"


def test_shifts_are_drawn_from_all_of_a_page() -> None:
    chooser = random.Random(1)  # noqa: S311
    shifts = [LayoutShift.draw(chooser) for _ in range(4000)]
    for sizes in ({s.heap_bytes for s in shifts}, {s.stack_bytes for s in shifts}):
        assert sizes == set(range(16, 4096, 16))
    assert sum(s.heap_bytes == s.stack_bytes for s in shifts) < 100


def test_a_fill_takes_nothing_where_nothing_is_missing() -> None:
    def total(environment: Mapping[str, str]) -> int:
        return stack_bytes(["/bin/true", "true"], environment)

    assert total({}) == len("/bin/true") + len("true") + 2 + 16
    assert total({"A": "bc"}) - total({}) == len("A=bc") + 1 + 8
    assert total({"A": "é"}) == total({"A": "bc"})


@pytest.mark.parametrize(
    ("setting", "personality", "state"),
    [
        ("2", "00000000", "on"), ("1", "00000000", "without heap"), ("0", "00000000", "off"),
        ("2", "00040000", "off"), (None, None, None),
    ],
)  # fmt: skip
def test_the_state_of_address_randomization_is_recorded(
    setting: str | None,
    personality: str | None,
    state: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, text in (("_RANDOMIZE_VA_SPACE", setting), ("_PERSONALITY", personality)):
        path = tmp_path / name
        if text is not None:
            path.write_text(f"{text}\n")
        monkeypatch.setattr(local, name, path)
    assert LocalTarget().describe()["address_randomization"] == state


def test_a_path_that_a_message_cuts_has_no_slashes_before_it(tmp_path: Path) -> None:
    """ExecuTorch cuts its messages at 256 bytes, so the end of a path may be missing."""
    (argument,), plain_paths = level_paths([f"--model={tmp_path}/m.pte"])
    cut = argument.removeprefix("--model=")[:-5]
    assert restore_paths(f"cannot read {cut}", plain_paths) == f"cannot read {tmp_path}/"
