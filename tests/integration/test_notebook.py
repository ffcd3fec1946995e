"""The notebook of the documentation runs from its first cell to its last, and shows what it says."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
from nbclient import NotebookClient

if TYPE_CHECKING:
    import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "first_run.ipynb"


def shown(cell: nbformat.NotebookNode) -> str:
    """Returns what a cell shows, as a notebook does: HTML where there is some."""
    found = (each.get("data", {"text/plain": each.get("text", "")}) for each in cell.outputs)
    return "".join(each.get("text/html") or each["text/plain"] for each in found)


def test_every_cell_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN the notebook, without results, in a folder of its own
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
    scripts = sysconfig.get_path("scripts")
    monkeypatch.setenv("PATH", f"{scripts}:/usr/bin:/bin")
    # WHEN its cells run
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": tmp_path}}).execute()
    # THEN no command failed, and each name shows what its text says
    by_source = {cell.source: shown(cell) for cell in notebook.cells if cell.cell_type == "code"}
    assert not [text for text in by_source.values() if "etprof: " in text]
    assert "<iframe" in by_source['run.section("icicle")']
    assert "Inside an inference" in by_source['run.section("icicle")']
    assert "<iframe" in by_source["both"]
    (advice,) = (text for source, text in by_source.items() if "finding.action" in source)
    (command,) = (source for source in by_source if source.startswith("!etprof export"))
    assert f"`{command[1:]}`" in advice
    assert "toy_cnn_xnnpack_fp32_kept_dimensions.pte" in by_source[command]
    assert "--against" in by_source[command]
