"""A wrong answer is told beside its times: F17 against the export's references, and without."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from etprof.analysis.assessment import assess_run
from etprof.analysis.findings.rules import evaluate_run
from etprof.analysis.insight import RunInsight, describe_run
from etprof.analysis.run_analysis import analyze_run
from etprof.base.files import hash_file
from etprof.run.load import Run as LoadedRun
from tests.known_runs import Experiment, Op, Run, write_run
from tests.world.results import result_document

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from etprof.analysis.findings.finding import Finding
    from etprof.analysis.findings.rules import ExperimentFindings

RUN = Run([Experiment("e", [Op("Convolution (NHWC, F16) IGEMM #1", 9)])])


def findings_of(run: RunInsight) -> ExperimentFindings:
    (found,) = evaluate_run(run)
    return found


def fired(run: RunInsight) -> dict[str, Finding]:
    return {finding.rule: finding for finding in findings_of(run).findings}


def with_outputs(
    folder: Path,
    values: Sequence[float],
    *,
    at_export_db: float = 100,
    least_db: float | None = None,
) -> RunInsight:
    """A run that kept `values` as its output, of a program that its export lies beside.

    Eager gave 1, 2, 3, 4; the export came as close to that as `at_export_db`, and asked `least_db`.
    """
    run = write_run(folder / "run", RUN)
    etdump = next(run.glob("*/*.etdump"))
    output = etdump.with_name(f"{etdump.stem}_outputs") / "output_0.bin"
    output.parent.mkdir()
    np.array(values, "<f4").tofile(output)
    np.array([1, 2, 3, 4], "<f4").tofile(folder / "reference_0.bin")
    result = result_document(1000)
    odd = sum(not math.isfinite(value) for value in values)
    result["outputs"] = [
        {"index": 0, "dtype": "float32", "shape": [4], "size_bytes": 16, "nonfinite_count": odd}
    ]
    etdump.with_name(f"{etdump.stem}_result.json").write_text(json.dumps(result))
    tensor = {"index": 0, "dtype": "float32", "path": "reference_0.bin"}
    expected = tensor | {"sha256": hash_file(folder / "reference_0.bin")}
    forward = {
        "inputs": [tensor | {"path": "x.bin", "sha256": "a" * 64}],
        "references": [expected],
        "check": {
            "minimum_snr_db": least_db,
            "outputs": [{"index": 0, "snr_db": at_export_db}],
        },
    }
    export = {"model": "known", "backend": "xnnpack", "precision": "fp16"}
    (run / "export.json").write_text(json.dumps({**export, "methods": {"forward": forward}}))
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["model"]["path"] = str(folder / "known.pte")
    (run / "manifest.json").write_text(json.dumps(manifest))
    return describe_run(analyze_run(LoadedRun.load(run)))


def test_a_wrong_answer_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    finding = fired(with_outputs(tmp_path / "a", [1, 2, 3, 5]))["F17"]
    assert finding.title == "The outputs are wrong"
    assert finding.summary.startswith(
        "1 output with a larger error against the eager model than this precision"
    )
    (row,) = finding.evidence
    assert row.text == "14.8 dB signal to noise (at least 40), largest difference 1"
    (tmp_path / "near").mkdir()
    assert "F17" not in fired(with_outputs(tmp_path / "near", [1, 2, 3, 4.001]))
    # X1: an export that was as bad is no excuse
    (tmp_path / "as bad").mkdir()
    assert "F17" in fired(with_outputs(tmp_path / "as bad", [1, 2, 3, 5], at_export_db=20.0))


@pytest.mark.parametrize("least_db", [15.0, 14.0])
def test_the_limit_is_the_one_that_the_export_used(least_db: float, tmp_path: Path) -> None:
    """B-D11: the export refused below 40, 20 or 15 dB, the report below 35 or 8."""
    found = fired(with_outputs(tmp_path, [1, 2, 3, 5], least_db=least_db)).get("F17")
    assert (found is not None) is (least_db > 14.8)
    assert found is None or f"(at least {least_db:.0f})" in found.evidence[0].text


def test_with_other_inputs_or_another_export_nothing_is_compared(tmp_path: Path) -> None:
    run = with_outputs(tmp_path, [9, 9, 9, 9])
    assert "F17" in fired(run)
    manifest = tmp_path / "run" / "manifest.json"
    before = manifest.read_text()
    manifest.write_text(before.replace("a" * 64, "c" * 64))
    assert "F17" not in fired(describe_run(analyze_run(LoadedRun.load(tmp_path / "run"))))
    manifest.write_text(before)
    np.array([9, 9, 9, 8], "<f4").tofile(tmp_path / "reference_0.bin")
    assert "F17" not in fired(describe_run(analyze_run(LoadedRun.load(tmp_path / "run"))))


def test_a_run_whose_program_was_exported_again_says_so(tmp_path: Path) -> None:
    """The page of such a run had no comparison with the eager model, and did not say why."""
    note = (
        "known was exported again after this run, and the eager model's outputs are of that "
        "export: what this run computed is not compared with them; measure again"
    )
    assert note not in assess_run(with_outputs(tmp_path, [1, 2, 3, 4]).run).notes
    # GIVEN the outputs of a later export in their place
    np.array([9, 9, 9, 8], "<f4").tofile(tmp_path / "reference_0.bin")
    notes = assess_run(analyze_run(LoadedRun.load(tmp_path / "run"))).notes
    assert notes.count(note) == 1
    # AND GIVEN none, as where a colleague sent the run alone
    (tmp_path / "reference_0.bin").unlink()
    assert note not in assess_run(analyze_run(LoadedRun.load(tmp_path / "run"))).notes


def test_a_reference_elsewhere_is_none_of_the_exports(tmp_path: Path) -> None:
    """Found by hostile files: an export's description had any file of the machine read."""
    run = tmp_path / "export" / "run"
    run.parent.mkdir()
    assert "F17" in fired(with_outputs(run.parent, [9, 9, 9, 9]))
    # GIVEN the very file, but not beside the program
    (run.parent / "reference_0.bin").rename(tmp_path / "elsewhere.bin")
    told = run / "export.json"
    told.write_text(told.read_text().replace("reference_0.bin", "../elsewhere.bin"))
    # THEN it is not what the outputs are compared with
    assert "F17" not in fired(describe_run(analyze_run(LoadedRun.load(run))))


def test_outputs_that_are_no_numbers_are_told(tmp_path: Path) -> None:
    # GIVEN no number where eager has one
    (tmp_path / "a").mkdir()
    (row,) = fired(with_outputs(tmp_path / "a", [1, 2, 3, math.nan]))["F17"].evidence
    assert row.text.endswith("; 1 value not finite on one side only")
    # AND GIVEN nothing to compare with
    (tmp_path / "a" / "reference_0.bin").unlink()
    finding = fired(describe_run(analyze_run(LoadedRun.load(tmp_path / "a" / "run"))))["F17"]
    assert (finding.title, finding.evidence[0].text) == ("Outputs are not finite", "1 value")
    # AND GIVEN a damaged result, the times are still read
    next((tmp_path / "a").glob("run/*/*_result.json")).write_text("{")
    found = findings_of(describe_run(analyze_run(LoadedRun.load(tmp_path / "a" / "run"))))
    assert "F15" in found.checked
    assert "F17" not in found.checked
