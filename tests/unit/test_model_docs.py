"""docs/models.md tells of every model that comes with etprof."""

from __future__ import annotations

from pathlib import Path

from etprof.model_registry.registry import find_model_folders

DOCUMENT = Path(__file__).parents[2] / "docs" / "models.md"


def test_every_model_has_a_line_on_what_sme2_can_do_for_it() -> None:
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    told = {line.split("|")[1].strip(" `") for line in lines if line.startswith("| `")}
    (folder,) = find_model_folders()
    assert told == {file.parent.name for file in folder.glob("*/model.py")}
