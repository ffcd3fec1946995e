"""I3, T13: whichever launches of a run fail, what succeeded is reported, and what failed is named."""

from __future__ import annotations

import csv
import json
import re
from typing import TYPE_CHECKING

import pytest

from etprof.base.errors import TargetError
from etprof.cli import main
from etprof.measuring.pipeline import measure
from etprof.measuring.plan import Experiment, Settings, plan
from etprof.run.program import Program
from etprof.views.formats import format_names
from tests.world.sim_target import SimTarget
from tests.world.spec import Capabilities, Failure, RunSpec

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.measuring.pipeline import MeasuredRun

EXPERIMENTS = [Experiment(name="linux_off", sme="off"), Experiment(name="linux_on", sme="sme2")]
BLOCKS = 2
LAUNCHES = len(EXPERIMENTS) * (BLOCKS + 1) + 1
"""The last counts the kernels of the experiment with SME2."""
SPLITS = {each.name for each in EXPERIMENTS}


def run_with(folder: Path, target: SimTarget, settings: Settings) -> MeasuredRun:
    model = folder / "m.pte"
    model.write_bytes(b"program")
    return measure(
        program=Program(name="m", label="m", model=model),
        target=target,
        run=folder / "run",
        planned=plan(EXPERIMENTS, settings, target),
        progress=lambda *_: None,
        keep_going=True,
    )


def assert_everything_is_told(
    folder: Path, measured: MeasuredRun, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command ends in a documented code; each launch is in a table, or named as failed."""
    run = folder / "run"
    timed = {(name, block) for name, purpose, block in measured.results if purpose == "timing"}
    split = {name for name, purpose, _ in measured.results if purpose == "operators"}
    counted = {name for name, purpose, _ in measured.results if purpose != "timing"}
    code = 0 if counted else 4
    assert main(["analyze", str(run), "--quiet"]) == code
    assert main(["report", str(run), "--format", ",".join(format_names())]) == code
    capsys.readouterr()
    is_sound = not measured.errors and len(split) == len(EXPERIMENTS)
    assert main(["validate", str(run), "--json"]) == (0 if is_sound else 1)
    findings = json.loads(capsys.readouterr().out)["findings"]
    validated = " ".join(each["text"] for each in findings)
    failed = [record for record in measured.records if record.error is not None]
    for record in failed:
        assert str(record.error) in validated
    assert main(["history", "add", str(run), "--store", str(folder / "h.sqlite")]) == 0
    assert main(["history", "list", "--store", str(folder / "h.sqlite")]) == 0
    if not split:
        for name, blocks in ((n, sum(n == each for each, _ in timed)) for n, _ in timed):
            assert f"{name}: {blocks} timing blocks" in validated
        return
    with (run / "report_samples.csv").open() as stream:
        assert {(row["experiment"], int(row["block"])) for row in csv.DictReader(stream)} == timed
    with (run / "report_operators.csv").open() as stream:
        assert {row["experiment"] for row in csv.DictReader(stream)} == split
    page = re.sub(r"\\(.)", r"\1", (run / "report.md").read_text())
    for record in failed:
        assert f"failed: {record.error}" in page


@pytest.mark.parametrize("high", range(16))
def test_any_subset_of_failed_launches_still_yields_a_report(
    high: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for subset in range(high * 8, high * 8 + 8):
        folder = tmp_path / str(subset)
        folder.mkdir()
        failing = {launch for launch in range(LAUNCHES) if subset >> launch & 1}
        if len(failing) == LAUNCHES:
            with pytest.raises(TargetError, match="launch 0 failed"):
                run_with(
                    folder,
                    SimTarget(RunSpec(failure=Failure(frozenset(failing)))),
                    Settings(blocks=BLOCKS, operator_launches=1),
                )
            assert not (folder / "run").exists()
            continue
        measured = run_with(
            folder,
            SimTarget(RunSpec(failure=Failure(frozenset(failing)))),
            Settings(blocks=BLOCKS, operator_launches=1),
        )
        assert len(measured.records) == LAUNCHES
        assert_everything_is_told(folder, measured, capsys)


@pytest.mark.parametrize(
    ("target", "settings"),
    [
        (SimTarget(), Settings(blocks=3, budget_s=0.000001)),
        (SimTarget(RunSpec(capabilities=Capabilities(only_counts=True))), Settings(blocks=1)),
        (SimTarget(RunSpec(failure=Failure(sme="off"))), Settings(blocks=3)),
        (SimTarget(RunSpec(capabilities=Capabilities(event_tracer=False))), Settings(blocks=3)),
    ],
    ids=["no time at all", "a trace runner", "one mode fails", "a runner without event tracer"],
)
def test_a_run_without_some_kind_of_launch_is_reported(
    target: SimTarget, settings: Settings, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """T13: these ended in `min()` of nothing and in divisions by zero."""
    assert_everything_is_told(tmp_path, run_with(tmp_path, target, settings), capsys)
