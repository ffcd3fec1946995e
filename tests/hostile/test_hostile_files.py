"""The harness sees what it is there to see, and a slice of it runs with every `pytest`."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from random import Random

import pytest

from tests.hostile import pool
from tests.hostile.cases import frame_of
from tests.hostile.commands import READ, Command
from tests.hostile.consumer import check_document, check_text, consume
from tests.hostile.damage import damage_bytes, damage_place
from tests.hostile.etdump_seeds import etdump_seeds
from tests.hostile.etdumps import mutate_etdump, sound_blocks, write_blocks
from tests.hostile.guard import Guard
from tests.hostile.judging import Output, check_files, judge, known_files
from tests.hostile.kinds import KINDS
from tests.hostile.pool import run_cases
from tests.hostile.tally import Tally
from tests.hostile.values import CANARY, TEXTS, VALUES, mutate_json

VALIDATE = Command("validate", lambda _: [], READ | {1})
DOCUMENT = json.dumps({"a": {"b": [1, 2.5, "c", None, True]}, "d": {}})


@pytest.fixture(scope="module")
def guard(tmp_path_factory: pytest.TempPathFactory) -> Guard:
    return Guard(tmp_path_factory.mktemp("seeds"))


def judged(
    code: int, out: str = "", err: str = "etprof: no", words: str = "validate r"
) -> list[str]:
    return [key for key, _ in judge(VALIDATE, words.split(), Output(code, out, err))]


def test_one_case_of_each_kind_is_no_breach() -> None:
    tally = Tally()
    kinds = [name for name, kind in KINDS.items() if not kind.needs_torch]
    for result in run_cases(((name, 0) for name in kinds), workers=2, until=lambda: False):
        tally.add(result)
    assert tally.missing_kinds() == [n for n, kind in KINDS.items() if kind.needs_torch]
    assert tally.defects() == ""


def test_a_hang_is_named_and_the_next_case_runs() -> None:
    # GIVEN a bound that no case can keep
    found = list(
        run_cases([("manifest", 0), ("config", 7)], workers=1, until=lambda: False, longest_s=1e-4)
    )
    # THEN each is a hang of its own
    assert [(result.kind, result.number) for result in found] == [("manifest", 0), ("config", 7)]
    assert [result.breaches[0][0].split()[0] for result in found] == ["hang", "hang"]


def test_a_machine_that_stood_still_is_no_hang(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a bound that no case can keep, for the first worker only
    stop = pool._Worker.stop

    def stop_and_give_time(worker: pool._Worker) -> None:
        worker.longest_s = 60.0
        stop(worker)

    monkeypatch.setattr(pool._Worker, "stop", stop_and_give_time)
    # WHEN cases run
    cases = [("manifest", 0), ("config", 7)]
    found = list(run_cases(cases, workers=1, until=lambda: False, longest_s=1e-4))
    # THEN the one that took too long was told, ran again, and was no breach
    assert [(result.kind, result.number, result.breaches) for result in found] == [
        ("manifest", 0, ()),
        ("config", 7, ()),
    ]
    assert capsys.readouterr().err.startswith("manifest:0 runs again: hang")


def test_the_same_case_is_the_same_damage() -> None:
    first, second = (
        [mutate_json(DOCUMENT, Random(n)) for n in range(50)]
        + [mutate_etdump(Random(n)) for n in range(50)]
        + [damage_bytes(b"abc" * 99, Random(n)) for n in range(50)]
        for _ in range(2)
    )
    assert first == second
    assert len({str(each) for each in first}) > 120


def test_every_value_reaches_the_document() -> None:
    texts = {mutate_json('{"a": 1}', Random(n))[0] for n in range(4000)}
    for value in VALUES.values():
        assert f'{{"a": {value}}}' in texts
    assert "{}" in texts


def test_every_place_can_be_taken(tmp_path: Path) -> None:
    told = set()
    for number in range(200):
        path = tmp_path / str(number)
        path.write_text("{}")
        told.add(damage_place(path, Random(number)))
    assert {"pipe", "link to /dev/zero", "link to itself", "folder", "512 MiB of nothing"} <= told


def test_the_guard_sees_files_processes_and_code(guard: Guard, tmp_path: Path) -> None:
    case = tmp_path / "case"
    case.mkdir()
    (tmp_path / "secret").write_text("x")
    guard.watch(case)
    try:
        (case / "own").write_text("x")
        (tmp_path / "secret").read_text()
        (tmp_path / "written").write_text("x")
        (tmp_path / "folder").mkdir()
        with pytest.raises(PermissionError):
            subprocess.run(["true"], check=True)
        with pytest.raises(PermissionError):
            os.system("true")  # noqa: S605
        compile(f"'{CANARY}'", "x", "exec")
        compile("1", "x", "exec")
    finally:
        guard.watch(None)
    kinds = [breach.split()[0] for breach in guard.breaches]
    assert kinds == ["read", "opened", "os.mkdir:", "subprocess.Popen", "os.system", "compiled"]


@pytest.mark.parametrize(
    ("output", "keys"),
    [
        ((0, "fine"), []),
        ((4, "", "etprof: r is damaged; measure again"), []),
        ((70,), ["validate: code 70"]),
        ((2,), ["validate: code 2"]),
        ((4, "", ""), ["validate: no message"]),
        ((4, "", "etprof: a\x1b[2J"), ["validate: control character on stderr"]),
        ((0, "a\u202eb"), ["validate: control character on stdout"]),
        ((4, "", "etprof: Traceback (most recent call last):"), ["validate: traceback"]),
        ((4, "", "etprof: " + "x" * 30_000), ["validate: long message"]),
        ((0, '{"verdict": "ok"}', "", "validate r --json"), []),
        ((1, '{"verdict": "ok"}', "", "validate r --json"), ["validate: verdict"]),
        ((0, '{"verdict": "ok", "share": 1.5}', "", "validate r --json"), ["validate: share"]),
        ((0, '{"verdict": NaN}', "", "validate r --json"), ["validate: not JSON"]),
        ((0, "a nan", "", "analyze r"), ["validate: no number"]),
    ],
)
def test_what_a_command_says_is_judged(output: tuple[int, str, str, str], keys: list[str]) -> None:
    assert judged(*output) == keys


def test_written_pages_are_judged(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("sound\n")
    (tmp_path / "a.csv").write_bytes(b"sound\r\n")
    before = known_files(tmp_path)
    assert list(check_files(tmp_path, {})) == []
    (tmp_path / "b.html").write_text("\x1b[2J")
    assert list(check_files(tmp_path, before)) == ["control character in a .html file"]


def test_an_exception_is_known_by_its_place_in_etprof(tmp_path: Path) -> None:
    from etprof.base.errors import UsageError
    from etprof.config import load_config

    with pytest.raises(UsageError) as caught:
        load_config(tmp_path / "none")
    assert frame_of(caught.value).startswith("UsageError in ")
    assert frame_of(ValueError("x")) == "ValueError outside etprof"


def test_lies_about_events_are_refused_or_told_whole() -> None:
    """N16: what an ETDump says of times never becomes a share outside 0 to 1."""
    assert consume(write_blocks(sound_blocks()))
    outcomes = {consume(mutate_etdump(Random(number))[0]) for number in range(100)}
    assert outcomes == {True, False}


@pytest.mark.parametrize("name", etdump_seeds())
def test_what_the_fuzzing_starts_from_is_read_or_refused(name: str) -> None:
    consume(etdump_seeds()[name])


def test_the_consumer_target_fails_on_what_it_checks() -> None:
    with pytest.raises(AssertionError):
        check_document({"a": [{"time_share": -0.1}]})
    with pytest.raises(AssertionError):
        check_text("html", "a\x07")
    with pytest.raises(ValueError, match="not JSON compliant"):
        check_document({"a": float("nan")})
    assert TEXTS["escapes"] != TEXTS["bidirectional"]
