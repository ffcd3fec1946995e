"""Exact work in a history: one step more is found, named, and nothing else is."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from etprof.analysis.exact_facts import ExactFacts, LayerWork
from etprof.cli import run_command_line
from etprof.history.check import CheckRequest, check_history
from etprof.history.exact import judging
from etprof.history.schema import OperatorWork, Run, make_run, record_of
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


def test_more_work_stays_more_until_somebody_accepts_it(
    emulated: dict[str, Any], tmp_path: Path
) -> None:
    runs = [made(emulated, 1), *(made(emulated, day, Linear=19) for day in range(2, 8))]
    assert checked(tmp_path, *runs).exit_code == 1
    # A window of seven runs has none with less any more.
    assert checked(tmp_path, made(emulated, 9, Linear=19)).exit_code == 1
    store = ["--store", str(tmp_path / "history.sqlite")]
    assert run_command_line(["history", "accept", "7", "--why", "meant", *store]) == 0
    assert checked(tmp_path, made(emulated, 10, Linear=19)).exit_code == 0


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
    assert [(entry.outcome, entry.metric) for entry in result.entries] == [("inconclusive", None)]


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
    assert f"Steps on SME {LINEAR} 18 → 19" in " ".join(capsys.readouterr().out.split())


STEM = LayerWork(layer="stem", source="net.py:13", sme_operators=1, sme_macs=442_368)
BODY = LayerWork(layer="body", source="net.py:14", sme_operators=1, sme_macs=1_179_648)
STEM_OFF_SME = LayerWork(layer="stem", source="net.py:13", other_operators=1, other_macs=442_368)
SMALLER_BODY = BODY.model_copy(update={"sme_macs": 884_736})


def placed(facts: dict[str, Any], day: int, *layers: LayerWork, **figures: int) -> Run:
    """A run whose layers' work is known, with the work of microkernels that follows from it."""
    run = made(facts, day)
    macs = sum(layer.sme_macs for layer in layers)
    kernel_work = WORK | {"macs": macs, "steps": macs // 1024}
    run.work = {"svl_bits": 512, "operators": {CONV: kernel_work}}
    exact_facts = ExactFacts(layers=layers, has_routes=True, delegate_calls=1, **figures)
    run.exact_facts = exact_facts.model_dump()
    return run


@pytest.mark.parametrize("work", [False, True])
def test_a_layer_that_leaves_sme_is_a_regression(
    emulated: dict[str, Any], tmp_path: Path, work: bool
) -> None:
    """C3-0: `--exact-work` called it ten improvements, and the plain check saw nothing."""
    runs = placed(emulated, 1, STEM, BODY), placed(emulated, 2, STEM_OFF_SME, BODY)
    result = checked(tmp_path, *runs, work=work)
    assert result.exit_code == 1
    worse = {entry.metric: entry for entry in result.entries if entry.outcome == "regression"}
    assert set(worse) == {"sme_operators", "sme_share"}
    assert "stem (net.py:13) left SME" in worse["sme_operators"].reason
    assert (worse["sme_operators"].before, worse["sme_operators"].after) == (2, 1)
    assert not result.counts["improvement"]


def test_a_smaller_layer_is_a_change_and_no_regression(
    emulated: dict[str, Any], tmp_path: Path
) -> None:
    runs = placed(emulated, 1, STEM, BODY), placed(emulated, 2, STEM, SMALLER_BODY)
    result = checked(tmp_path, *runs)
    assert result.exit_code == 0
    (macs,) = [entry for entry in result.entries if entry.metric == "model_macs"]
    assert macs.outcome == "changed"
    assert macs.reason == "body (net.py:14) 1,179,648 → 884,736"
    assert not result.counts["improvement"]


def test_less_on_sme_is_worse_where_nobody_knows_where_the_work_went(
    emulated: dict[str, Any], tmp_path: Path
) -> None:
    """A store of an earlier etprof has the counts of microkernels alone."""
    runs = placed(emulated, 1, STEM, BODY), placed(emulated, 2, STEM_OFF_SME, BODY)
    for run in runs:
        run.exact_facts = None
    assert checked(tmp_path, *runs).exit_code == 1


def test_work_that_moves_to_sme_is_no_regression(emulated: dict[str, Any], tmp_path: Path) -> None:
    result = checked(
        tmp_path, placed(emulated, 1, STEM_OFF_SME, BODY), placed(emulated, 2, STEM, BODY)
    )
    assert result.exit_code == 0
    better = {entry.metric for entry in result.entries if entry.outcome == "improvement"}
    assert better == {"sme_operators", "sme_share"}


@pytest.mark.parametrize(
    ("now", "outcome"), [(1005, "unchanged"), (1020, "regression"), (900, "improvement")]
)
def test_a_program_may_grow_by_its_threshold(
    emulated: dict[str, Any], tmp_path: Path, now: int, outcome: str
) -> None:
    before = placed(emulated, 1, BODY, program_bytes=1000)
    result = checked(tmp_path, before, placed(emulated, 2, BODY, program_bytes=now))
    (size,) = [entry for entry in result.entries if entry.metric == "program_bytes"]
    assert size.outcome == outcome


def test_the_operator_that_changed_most_is_named_first() -> None:
    before = {name: OperatorWork(calls=10) for name in ("small", "large", "same", "less")}
    now = {**before, "small": OperatorWork(calls=11), "large": OperatorWork(calls=90),
           "less": OperatorWork(calls=2)}  # fmt: skip
    text = judging._describe_operators("calls", before, now)
    assert text.startswith("large 10 → 90")
    assert "same" not in text
