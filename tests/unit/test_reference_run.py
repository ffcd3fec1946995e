"""A run is set beside MobileNet's where one was measured alike, without being asked."""

from __future__ import annotations

import html
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etprof.analysis.assessment import assess_run, assess_runs
from etprof.analysis.run_analysis import analyze_run
from etprof.base.errors import UsageError
from etprof.run.load import Run as LoadedRun
from etprof.views.formats.html import render_html
from tests.known_runs import Experiment, Op, Run, write_run

CONVOLUTION = Op("Convolution (NHWC, F16) IGEMM #1", 90)
MINE = Run([Experiment("e", [CONVOLUTION, Op("Copy (NC, X32) #1", 60)])], model="mine")
MOBILENET = Run([Experiment("e", [CONVOLUTION, Op("Copy (NC, X32) #1", 10)])], model="mobilenet_v2")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    (tmp_path / "out_mine" / "runs").mkdir(parents=True)
    return write_run(tmp_path / "out_mine" / "runs" / "android", MINE)


def write_reference(tmp_path: Path, run: Run, platform: str = "android") -> Path:
    folder = tmp_path / f"out_{run.model}" / "runs"
    folder.mkdir(parents=True)
    return write_run(folder / platform, run)


def test_mobilenet_beside_it_answers_the_three_questions(run: Path, tmp_path: Path) -> None:
    place = write_reference(tmp_path, MOBILENET)
    assessment = assess_run(analyze_run(LoadedRun.load(run, with_reference=True)))
    assert assessment.reference is not None
    assert assessment.reference.source == place
    found = assessment.findings_of("e")
    assert [answer.answer.split(",")[0] for answer in found.reference_answers] == [
        "Yes", "No", "Yes",
    ]  # fmt: skip
    assert "F7" in {finding.rule for finding in found.findings}
    page = html.unescape(render_html([assessment]))
    assert f"Beside the reference model: mobilenet_v2, {place}" in page


@pytest.mark.parametrize(
    "other",
    [
        replace(MOBILENET, precision="int8"),
        replace(MOBILENET, platform="mac"),
        replace(MOBILENET, meaningful=False),
        replace(MOBILENET, cpu={**MOBILENET.cpu, "model_name": "Cortex-X4"}),
        replace(MOBILENET, model="resnet18"),
    ],
)
def test_what_was_not_measured_alike_is_no_reference(run: Path, tmp_path: Path, other: Run) -> None:
    write_reference(tmp_path, other)
    assert LoadedRun.load(run, with_reference=True).reference is None


def test_a_damaged_one_is_none_and_a_reference_has_none(run: Path, tmp_path: Path) -> None:
    place = write_reference(tmp_path, MOBILENET)
    assert LoadedRun.load(place, with_reference=True).reference is None
    (place / "manifest.json").write_text("{")
    assert LoadedRun.load(run, with_reference=True).reference is None


def test_runs_elsewhere_have_none(tmp_path: Path) -> None:
    write_reference(tmp_path, MOBILENET)
    assert LoadedRun.load(write_run(tmp_path / "r", MINE), with_reference=True).reference is None


@pytest.mark.parametrize(
    "other",
    [
        replace(MOBILENET, precision="int8"),
        replace(MOBILENET, platform="mac"),
        replace(MOBILENET, cpu={**MOBILENET.cpu, "model_name": "Cortex-X4"}),
    ],
)
def test_a_named_reference_of_another_kind_is_refused(
    run: Path, tmp_path: Path, other: Run
) -> None:
    """R239: what differs between machines would be told of the model."""
    place = write_reference(tmp_path, other, "elsewhere")
    with pytest.raises(UsageError, match=r"--reference.* against "):
        assess_runs([LoadedRun.load(run)], reference=LoadedRun.load(place))


def test_a_named_reference_without_times_is_refused_whatever_else_is_known(
    run: Path, tmp_path: Path
) -> None:
    """Without a manifest on both sides it was taken, and `report` ended in exit code 70."""
    place = write_reference(tmp_path, replace(MOBILENET, meaningful=False))
    for folder in (run, place):
        (folder / "manifest.json").unlink()
    with pytest.raises(UsageError, match=r"--reference .*a target that proves no times against"):
        assess_runs([LoadedRun.load(run)], reference=LoadedRun.load(place))


def test_a_named_reference_stands_beside_the_runs_of_its_precision(
    run: Path, tmp_path: Path
) -> None:
    """R239: with runs of two precisions, it was refused for the other's sake."""
    other = write_run(tmp_path / "int8", replace(MINE, precision="int8"))
    place = write_reference(tmp_path, MOBILENET)
    sources = [LoadedRun.load(run), LoadedRun.load(other)]
    mine, without = assess_runs(sources, reference=LoadedRun.load(place))
    assert mine.reference is not None
    assert without.reference is None
    assert without.findings_of("e").reference_answers == ()


@pytest.mark.parametrize("other", [{"threads": 4}, {"sme": "sme2"}])
def test_shares_of_other_threads_or_modes_are_set_beside_nothing(
    run: Path, tmp_path: Path, other: dict[str, Any]
) -> None:
    """R239: the rules of the reference are silent, where they once took what was there."""
    (experiment,) = MOBILENET.experiments
    place = write_reference(
        tmp_path, replace(MOBILENET, experiments=[replace(experiment, **other)])
    )
    (found,) = assess_runs([LoadedRun.load(run)], reference=LoadedRun.load(place))
    assert found.findings_of("e").reference_answers == ()
