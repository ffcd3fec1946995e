"""The peaks of this machine, measured with small products, and a model's operators below them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from etprof.analysis.assessment import assess_run
from etprof.analysis.run_analysis import analyze_run
from etprof.cli import run_command_line
from etprof.measuring import peaks as measuring_peaks
from etprof.run.load import Run
from etprof.targets.peaks import with_peaks
from etprof.views.formats.html import render_html

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_peaks_of_this_machine_stand_in_its_next_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ETPROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(measuring_peaks, "PRODUCTS", ("Product256",))
    monkeypatch.setattr(measuring_peaks, "STREAMS", ("Stream8K", "Stream2M"))
    words = ["--peaks", "--precisions", "fp32", "--threads", "1", "--launches", "2", "--json"]
    assert run_command_line(["calibrate", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["precision"] for each in found["peaks"]] == ["fp32", None, None]
    # An element is four bytes, and each is read and written.
    assert sorted(each["moved_bytes"] or 0 for each in found["peaks"]) == [0, 2**13, 2**21]
    assert all(0 < each["low"] <= each["high"] for each in found["peaks"])

    program = next((tmp_path / "out_peaks").rglob("Product256*.pte"))
    brief = [
        "--threads",
        "1",
        "--blocks",
        "1",
        "--iterations",
        "3",
        "--min-seconds",
        "0.05",
        "--out",
        "run",
        "--json",
    ]
    assert run_command_line(["profile", str(program), *brief]) == 0
    run = with_peaks(Run.load(tmp_path / "run"))
    assessment = assess_run(analyze_run(run))
    (detail,) = assessment.primary.details
    placed = detail.placed(assessment.primary.roofs)
    assert placed is not None
    assert placed.bound == "compute"
    # It is the very product; how near it comes depends on what else runs here.
    assert placed.of_roof > 0.02
    assert 'class="roof"' in render_html([assessment])
    assert 'class="roof"' in (tmp_path / "run" / "report.html").read_text()

    # Without peaks, nothing is said.
    assert 'class="roof"' not in render_html([assess_run(analyze_run(Run.load(tmp_path / "run")))])
