"""Exact work in a history: one step more is found, named, and nothing else is."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from etprof.cli import run_command_line
from etprof.history.check import CheckRequest, check_history
from etprof.history.schema import Run, make_run, record_of
from etprof.history.store import open_store
from tests.known_history import START
from tests.measured_runs import MeasuredRun
from tests.unit.test_history_ingest import read_one

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.history.check import CheckResult

WORK = {"calls": 2, "macs": 27648, "padded_macs": 9216, "steps": 18, "bytes": 6720}
CONV, LINEAR = "Convolution (NHWC, PF16) IGEMM #1", "Fully Connected (NC, PF16) GEMM #1"


@pytest.fixture
def emulated(tmp_path: Path) -> dict[str, Any]:
    """The facts of an emulated run."""
    run = read_one(tmp_path / "run", MeasuredRun(platform="emulator", blocks_us=()))
    return record_of(run).model_dump()


def made(facts: dict[str, Any], day: int, *, svl_bits: int = 512, **steps: int) -> Run:
    changed = {"Convolution": CONV, "Linear": LINEAR}
    operators = {CONV: dict(WORK), LINEAR: dict(WORK)}
    for name, count in steps.items():
        operators[changed[name]]["steps"] = count
    return make_run({
        **facts, "key": f"{day:064d}", "git_commit": f"{day:040d}", "git_branch": "main",
        "git_dirty": False, "measured_at": START + timedelta(days=day),
        "work": {"svl_bits": svl_bits, "operators": operators},
    })  # fmt: skip


def checked(folder: Path, *runs: Run, work: bool = True) -> CheckResult:
    with open_store(folder / "history.sqlite") as store:
        store.add(runs)
        with store.session() as session:
            return check_history(session, CheckRequest("window:7", work=work))


def test_one_step_more_fails_and_has_its_operator(emulated: dict[str, Any], tmp_path: Path) -> None:
    result = checked(tmp_path, made(emulated, 1), made(emulated, 2, Linear=19))
    assert result.exit_code == 1
    (worse,) = [each for each in result.entries if each.outcome == "regression"]
    assert (worse.metric, worse.before, worse.after) == ("work_steps", 36, 37)
    assert worse.reason == f"exact: {LINEAR} 18 → 19"


def test_more_work_stays_more_until_no_run_of_the_window_has_less(
    emulated: dict[str, Any], tmp_path: Path
) -> None:
    runs = [made(emulated, 1), *(made(emulated, day, Linear=19) for day in range(2, 8))]
    assert checked(tmp_path, *runs).exit_code == 1
    assert checked(tmp_path, made(emulated, 8, Linear=19)).exit_code == 1
    assert checked(tmp_path, made(emulated, 9, Linear=19)).exit_code == 0


def test_less_is_better_and_the_same_is_the_same(emulated: dict[str, Any], tmp_path: Path) -> None:
    result = checked(tmp_path, made(emulated, 1), made(emulated, 2, Convolution=9))
    assert (result.exit_code, result.counts["improvement"], result.counts["unchanged"]) == (0, 1, 4)


def test_an_a_a_has_no_alarm(emulated: dict[str, Any], tmp_path: Path) -> None:
    result = checked(tmp_path, *(made(emulated, day) for day in range(50)))
    assert (result.exit_code, result.counts["unchanged"], len(result.entries)) == (0, 5, 5)


def test_nobody_asked(emulated: dict[str, Any], tmp_path: Path) -> None:
    result = checked(tmp_path, made(emulated, 1), made(emulated, 2, Linear=19), work=False)
    assert (result.exit_code, result.counts["inconclusive"], len(result.entries)) == (0, 1, 1)


def test_another_vector_length_is_no_baseline(emulated: dict[str, Any], tmp_path: Path) -> None:
    result = checked(tmp_path, made(emulated, 1), made(emulated, 2, svl_bits=256, Linear=99))
    assert not result.entries


def test_work_survives_an_export(emulated: dict[str, Any]) -> None:
    run = made(emulated, 1)
    again = make_run(record_of(run).model_dump())
    assert again.work == run.work
    assert again.work
    assert again.metrics == []


def test_the_flag_asks_for_it(
    emulated: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checked(tmp_path, made(emulated, 1), made(emulated, 2, Linear=19))
    words = ["history", "check", "--store", str(tmp_path / "history.sqlite")]
    assert run_command_line(words) == 0
    assert run_command_line([*words, "--exact-work"]) == 1
    assert f"work_steps {LINEAR} 18 → 19" in " ".join(capsys.readouterr().out.split())
