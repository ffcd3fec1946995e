"""A recipe makes the same bytes as the export that it was written for, in a process of its own."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from etprof.base.files import hash_file
from etprof.base.process import run_command
from etprof.export.exporter import export_model
from etprof.export.request import ExportOptions, ExportRequest
from etprof.optimize.recipe import write_recipe
from etprof.run.program import load_export_manifest
from tests.integration.marked_models import marked

ROOT: Final = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "precision"),
    [
        ("toy_cnn", "int8"),
        ("transformer_encoder", "fp16"),
        (marked("ShallowDecoder"), "8da4w"),
        (marked("ShallowDecoder"), "8da4w_channel"),
    ],
    ids=["toy_cnn-int8", "transformer_encoder-fp16", "decoder-8da4w", "decoder-8da4w_channel"],
)
def test_a_recipe_makes_the_same_bytes_as_the_export(
    tmp_path: Path, model: str, precision: str
) -> None:
    """Of a float, a quantised and a 4-bit program, the last with two methods and one cache."""
    request = ExportRequest(
        model, precision, out=tmp_path / "made.pte", options=ExportOptions(rewrites=("all",))
    )
    made = export_model(request)
    manifest = load_export_manifest(made.pte)
    assert manifest is not None
    names = [rewrite.name for rewrite in manifest.rewrites]
    # What a precision is made with is not asked for, so it is no rewrite of the program's.
    assert ("channel_weights" in names) == (precision == "8da4w")
    recipe, again = tmp_path / "recipe.py", tmp_path / "again.pte"
    asked = replace(request, options=ExportOptions(rewrites=tuple(names)))
    recipe.write_text(write_recipe(asked))
    # The shallow decoder's file imports the zoo, as the tests do.
    zoo = {"PYTHONPATH": str(ROOT)} if model.endswith("ShallowDecoder") else {}
    done = run_command([sys.executable, recipe, again], timeout_s=900, environment=zoo)
    assert done.exit_code == 0, done.stderr
    assert names
    assert hash_file(again) == hash_file(made.pte)
