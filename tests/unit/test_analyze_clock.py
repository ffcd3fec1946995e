"""`analyze FILE.etdump` asks for the clock as `import` does: ticks of an unknown clock are no ns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from etprof import api
from etprof.base.errors import UsageError
from tests.known_etdumps import US, foreign_etdump
from tests.known_runs import on_off_run, write_run
from tests.world.host import etprof

OPERATORS_US = 110
"""Of an execution of `foreign_etdump`, in its operators."""


@pytest.fixture
def unknown(tmp_path: Path) -> Path:
    """An ETDump of so few delegated operators that nothing shows what a tick is."""
    path = tmp_path / "one.etdump"
    path.write_bytes(foreign_etdump(1))
    return path


def inference_ns(folder: Path, *words: object) -> float:
    done = etprof(folder, "analyze", *words, "--json")
    assert done.exit_code == 0, done.stderr
    (experiment,) = json.loads(done.stdout)["experiments"].values()
    return sum(float(each["mean_ns"]) for each in experiment["operators"])


def test_ticks_of_a_clock_that_nothing_tells_are_not_shown_as_ns(unknown: Path) -> None:
    done = etprof(unknown.parent, "analyze", unknown.name)
    assert done.exit_code == 2, done.stdout
    assert "--time-scale ns" in done.stderr
    assert "--clock-hz" in done.stderr
    assert not done.stdout


@pytest.mark.parametrize(
    "words", [("report", "one.etdump"), ("compare", "one.etdump", "one.etdump")]
)
def test_no_command_takes_them_as_ns(unknown: Path, words: tuple[str, ...]) -> None:
    done = etprof(unknown.parent, *words)
    assert done.exit_code == 2, done.stdout
    assert "etprof import one.etdump --time-scale ns" in done.stderr
    with pytest.raises(UsageError, match="--clock-hz"):
        api.load_run(unknown)


@pytest.mark.parametrize("words", [("--time-scale", "us"), ("--clock-hz", "800e6")])
def test_the_command_that_prints_all_has_the_flags(unknown: Path, words: tuple[str, str]) -> None:
    """Else it would be refused, or show other times."""
    done = etprof(unknown.parent, "analyze", unknown.name, *words)
    assert done.exit_code == 0, done.stderr
    assert words[0] in " ".join(done.stdout.split())


def test_a_flag_says_what_a_tick_is(unknown: Path) -> None:
    in_ns = inference_ns(unknown.parent, unknown.name, "--time-scale", "ns")
    assert inference_ns(unknown.parent, unknown.name, "--time-scale", "us") == 1000 * in_ns
    assert inference_ns(unknown.parent, unknown.name, "--clock-hz", "250e6") == 4 * in_ns
    done = etprof(unknown.parent, "analyze", unknown.name, "--time-scale", "us", "--full")
    assert "clock of the ETDump: us, as --time-scale says" in done.stdout


def test_steps_of_a_delegate_say_it_too(tmp_path: Path) -> None:
    (tmp_path / "four.etdump").write_bytes(foreign_etdump(4))
    assert inference_ns(tmp_path, "four.etdump") == OPERATORS_US * US


def test_an_etdump_of_a_run_has_the_runs_clock(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", on_off_run())
    (etdump, *_) = sorted(run.glob("*/*.etdump"))
    done = etprof(tmp_path, "analyze", etdump, "--full")
    assert done.exit_code == 0, done.stderr
    (tmp_path / "one.etdump").write_bytes(foreign_etdump(1))
    words = ["import", "one.etdump", "--clock-hz", "250e6", "--out", "cycles"]
    assert etprof(tmp_path, *words).exit_code == 0
    (kept,) = (tmp_path / "cycles").glob("*/*.etdump")
    alone = inference_ns(tmp_path, kept)
    assert alone == 4 * inference_ns(tmp_path, "one.etdump", "--time-scale", "ns")


def test_flags_of_an_etdump_are_refused_for_a_run(tmp_path: Path) -> None:
    write_run(tmp_path / "run", on_off_run())
    for words in (("--time-scale", "ns"), ("--clock-hz", "1e9"), ("--etrecord", "x")):
        done = etprof(tmp_path, "analyze", "run", *words)
        assert done.exit_code == 2
        assert "are of an ETDump alone" in done.stderr
