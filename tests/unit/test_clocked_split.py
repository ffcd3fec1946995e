"""T11, F-d: operators have the operator clock's times where it ran; else what is rounded is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from etprof.analysis.run_analysis import analyze_run
from etprof.analysis.split.operator_clock import put_on_clock
from etprof.etdump import reader
from etprof.etdump.reader import ETDump, ETDumpFormatError, LongETDump, open_etdump
from etprof.run.load import Run
from etprof.tables.operators import SPLIT
from etprof.views.cells import shown_rows
from tests.world.host import etprof, simulated_host
from tests.world.sim_target import SimTarget
from tests.world.spec import Capabilities, RunSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etprof.run.load import LoadedSplit
    from etprof.tables.table import Value
    from etprof.targets.request import RunnerRequest

GAP_NS = 300
"""From the border between two operators to the hand-over of the second one's work."""


class Clocked(SimTarget):
    """Its operators hand their work over a little after they begin."""

    def _kernel_trace(
        self, request: RunnerRequest, mode: str, iterations: int
    ) -> dict[str, object]:
        trace: dict[str, Any] = super()._kernel_trace(request, mode, iterations)
        for each in trace["executions"]:
            each["times_ns"] = [
                time + GAP_NS * (mark == "P")
                for mark, time in zip(each["marks"], each["times_ns"], strict=True)
            ]
        return trace


def measured(folder: Path, target: SimTarget) -> tuple[dict[str, Any], Run]:
    (folder / "m.pte").write_bytes(b"program")
    document = {
        "model": "m.pte",
        "output_root": "run",
        "experiments": [{"name": "sme2", "sme": "sme2"}],
        "measurement": {"blocks": 2, "operator_launches": 2, "kernels": False},
    }
    (folder / "c.json").write_text(json.dumps(document))
    with simulated_host(lambda **_: target):
        done = etprof(folder, "run", "c.json", "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout), Run.load(folder / "run")


def delegated(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [row for row in report["experiments"]["sme2"]["operators"] if row["delegated"]]


def overheads(report: dict[str, Any]) -> dict[str, float]:
    rows = report["experiments"]["sme2"]["overheads"]
    return {row["label"]: row["mean_ns"] for row in rows}


def test_operators_have_the_times_of_the_clock(tmp_path: Path) -> None:
    """T11: the clock ended in JSON that nothing read."""
    spec = RunSpec()
    report, run = measured(tmp_path, Clocked(spec))
    expected = {op.label: op.us * 1000 - GAP_NS for op in spec.operators["sme2"] if op.is_delegated}
    assert {row["label"]: row["mean_ns"] for row in delegated(report)} == expected
    assert {row["step_ns"] for row in delegated(report)} == {None}
    # A gap is the delegate's, and nothing is rounded.
    assert "Rounding of operators' times" not in overheads(report)
    (experiment,) = run.experiments
    assert [each.clock is not None for each in experiment.splits] == [True, True]
    timeline = next((tmp_path / "run" / "sme2").glob("*_timeline.csv")).read_text().splitlines()
    assert {line.rsplit(",", 1)[1] for line in timeline[1:]} == {"0"}, "synthetic starts"


def test_without_the_clock_what_is_rounded_is_no_overhead(tmp_path: Path) -> None:
    """F-d: a microsecond an operator was called overhead, and delegate calls were to be merged."""
    spec = replace(RunSpec(), capabilities=Capabilities(counts=False))
    report, _ = measured(tmp_path, SimTarget(spec))
    assert {row["step_ns"] for row in delegated(report)} == {1000}
    found = report["experiments"]["sme2"]
    shares = [row["share"] for row in (*found["operators"], *found["overheads"])]
    assert sum(shares) == pytest.approx(1, abs=1e-12)


class Damaged(LongETDump):
    """An ETDump whose damage stands behind its first piece."""

    def __init__(self) -> None:
        """Without a file."""

    def pieces(self) -> Iterator[ETDump]:
        raise ETDumpFormatError("m.etdump", reason="torn", offset=5_000_000, fault="damaged")


def test_a_damaged_launch_takes_no_other_with_it(tmp_path: Path) -> None:
    """T11, N17: the whole experiment was dropped, and a file was named after another launch."""
    _, run = measured(tmp_path, Clocked())
    (experiment,) = run.experiments
    first, second = experiment.splits
    splits = (replace(first, dump=Damaged()), second)
    run = replace(run, experiments=(replace(experiment, splits=splits),))
    (found,) = analyze_run(run).experiments
    assert found.etdump == second.etdump
    assert any("torn" in problem for problem in found.problems)


def clocked_launch(tmp_path: Path) -> LoadedSplit:
    _, run = measured(tmp_path, Clocked())
    return run.experiments[0].splits[0]


def test_a_clock_of_other_operators_is_refused(tmp_path: Path) -> None:
    """Nothing is joined by place alone."""
    launch = clocked_launch(tmp_path)
    assert launch.clock is not None
    trace = launch.clock
    assert not isinstance(put_on_clock(launch.dump, trace), str)
    first = next(i for i, each in enumerate(trace.operators) if each.delegate is not None)
    operators = list(trace.operators)
    operators[first] = operators[first].model_copy(update={"name": "Softmax (NC, F32) #9"})
    longer = [
        each.model_copy(update={"duration_ns": tuple(10**9 for _ in each.duration_ns)})
        for each in trace.operators
    ]
    timeless = [
        each.model_copy(update={"start_ns": (None, *each.start_ns[1:])}) for each in trace.operators
    ]
    changes: list[dict[str, object]] = [
        {"operators": tuple(timeless)},
        {"operators": tuple(operators)},
        {"operators": tuple(longer)},
        {"operators": trace.operators[:first]},
        {"executions": trace.executions[1:]},
        {"all_operators_named": False},
    ]
    for change in changes:
        assert isinstance(put_on_clock(launch.dump, trace.model_copy(update=change)), str), change


def test_operators_stay_inside_the_calls_that_hold_them(tmp_path: Path) -> None:
    launch = clocked_launch(tmp_path)
    assert launch.clock is not None
    found = put_on_clock(launch.dump, launch.clock)
    assert isinstance(found, ETDump)
    assert isinstance(launch.dump, ETDump)
    inside = found.profile.delegate_debug_id_str_id >= 0
    unchanged = ~inside
    for name in ("start_time", "end_time"):
        before, after = (getattr(each.profile, name) for each in (launch.dump, found))
        assert np.array_equal(before[unchanged], after[unchanged])
    length = found.profile.end_time[inside] - found.profile.start_time[inside]
    assert (length % 1000 == 1000 - GAP_NS).all()


def test_a_long_etdump_is_put_on_the_clock_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """N17: it was read whole, and each event had a text of the longest name."""
    launch = clocked_launch(tmp_path)
    assert launch.clock is not None
    whole = put_on_clock(launch.dump, launch.clock)
    assert isinstance(whole, ETDump)
    monkeypatch.setattr(reader, "_SHORT_BYTES", 0)
    monkeypatch.setattr(reader, "_PIECE_EVENTS", 7)
    assert isinstance(launch.etdump, Path)
    long = open_etdump(launch.etdump)
    found = put_on_clock(long, launch.clock)
    assert isinstance(found, LongETDump)
    for name in ("start_time", "end_time"):
        pieces = [getattr(piece.profile, name) for piece in found.pieces()]
        assert len(pieces) > 1
        assert np.array_equal(np.concatenate(pieces), getattr(whole.profile, name))
    less = launch.clock.model_copy(update={"executions": launch.clock.executions[1:]})
    assert isinstance(put_on_clock(long, less), str)


def test_a_damaged_clock_leaves_the_etdumps_times_and_is_told(tmp_path: Path) -> None:
    measured(tmp_path, Clocked())
    run = tmp_path / "run"
    clock = next((run / "sme2").glob("*_o01_clock.json"))
    clock.write_text("{}")
    done = etprof(tmp_path, "analyze", run, "--json")
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout)
    assert {row["step_ns"] for row in delegated(report)} == {1000}
    assert any(clock.name in note for note in report["notes"])
    assert etprof(tmp_path, "validate", run).exit_code == 4


def test_nothing_reads_zero() -> None:
    """N16, T11: an operator of less than a microsecond was shown as `0 ns`."""
    names = SPLIT.names
    known: dict[str, Value] = {
        "label": "x",
        "where": "delegate",
        "step_ns": 1000.0,
        "median_ns": 0.0,
        "mean_ns": 200.0,
    }
    slow = known | {"median_ns": 2000.0, "mean_ns": 2100.0, "label": "y"}
    ends: dict[str, Value] = {"mean_ns_low": 100.0, "mean_ns_high": 300.0}
    rows = tuple(tuple((each | ends).get(name) for name in names) for each in (known, slow))
    cells = [
        [cell.text for cell in row] for row in shown_rows(replace(SPLIT, rows=rows), "everywhere")
    ]
    assert cells[0].count("≤ 1.00 µs") == 2
    assert not any("≤" in text for text in cells[1])
    assert "0 ns" not in cells[0]
