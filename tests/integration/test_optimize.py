"""`etprof optimize` on a real model: found, written, made again by its recipe, gone on from."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest

from etprof.base.errors import ExportError
from etprof.base.process import run_command
from etprof.cli import main
from etprof.export.request import ExportOptions, ExportRequest
from etprof.optimize.optimizing import Optimizer
from etprof.run.program import load_export_manifest

if TYPE_CHECKING:
    from pathlib import Path


def optimize(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert main(["optimize", *words, "--json"]) == 0
    document: dict[str, object] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "kept"),
    [("fp16", ["kept_dimensions", "half_pointwise_weights"]), ("int8", ["kept_dimensions"])],
)
def test_a_better_program_is_found_and_its_recipe_makes_it_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], precision: str, kept: list[str]
) -> None:
    folder = tmp_path / "found"
    words = ("toy_cnn", "--dtype", precision, "--outdir", str(folder))
    found = optimize(capsys, *words)
    baseline, best = found["baseline"], found["best"]
    assert isinstance(baseline, dict)
    assert isinstance(best, dict)
    assert best["rewrites"] == kept
    assert (baseline["delegate_calls"], baseline["outside"]) == (2, 1)
    assert (best["delegate_calls"], best["outside"]) == (1, 0)
    assert best["snr_db"] >= baseline["snr_db"] - 2
    # The program says itself what it was made with.
    program = folder / "optimized.pte"
    manifest = load_export_manifest(program)
    assert manifest is not None
    assert [each.name for each in manifest.rewrites] == kept
    # Its recipe, in a process that knows nothing of the search, makes the same bytes.
    again = tmp_path / "again.pte"
    made = run_command([sys.executable, folder / "recipe.py", again], timeout_s=300)
    assert made.exit_code == 0, made.stderr
    assert again.read_bytes() == program.read_bytes()
    # A second search tries nothing again and decides the same.
    assert optimize(capsys, *words) == found
    assert not list(folder.glob(".trial-*"))


@pytest.mark.slow
def test_wrong_outputs_that_no_rewrite_mends_are_an_error(tmp_path: Path) -> None:
    """X1: the plain program's wrong outputs do not end the search, only those of the best one."""
    options = ExportOptions(rewrites=("kept_dimensions",))
    request = ExportRequest("toy_cnn", least={"snr_db": 300.0}, options=options)
    told: list[str] = []
    with pytest.raises(ExportError, match="are wrong, and no rewrite mends them"):
        Optimizer(request, tmp_path, 2.0, None, told.append).run()
    assert len(told) == 2
    assert not (tmp_path / "optimized.pte").exists()


def test_a_damaged_record_is_told_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "optimize.json").write_text('{"schema_version": 1}')
    assert main(["optimize", "toy_cnn", "--outdir", str(tmp_path)]) == 4
    assert "delete it to search anew" in capsys.readouterr().err


def test_an_unknown_rewrite_is_refused_before_any_export(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["optimize", "toy_cnn", "--rewrite", "magic", "--outdir", str(tmp_path / "o")]) == 2
    assert "'magic' is unknown" in capsys.readouterr().err
