"""Pages and check have one verdict on exact figures: losing SME2 is red without any time (C3-5)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from etprof.cli import run_command_line
from etprof.history.store import open_store
from tests.unit.test_dashboard_pages import show, words
from tests.unit.test_history_work import BODY, STEM, STEM_OFF_SME, emulated, placed

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["emulated"]
LOST = "Operators on SME, Share of work on SME: regression"
GREEN = "Nothing: no newest run is a regression"


@pytest.fixture
def store_path(emulated: dict[str, Any], tmp_path: Path) -> Path:
    """Three emulated runs; the stem of the last one is not on SME any more."""
    path = tmp_path / "history.sqlite"
    runs = [placed(emulated, 1, STEM, BODY), placed(emulated, 2, STEM, BODY)]
    with open_store(path) as store:
        store.add([*runs, placed(emulated, 3, STEM_OFF_SME, BODY)])
    return path


def history(path: Path, command: str, *arguments: str) -> int:
    return run_command_line(["history", command, *arguments, "--store", str(path)])


def overview(path: Path) -> str:
    with open_store(path) as store:
        return words(show(store, "overview"))


def figures(path: Path, run: str) -> dict[str, tuple[str, ...]]:
    """The table of exact figures on a run's page: value, before, verdict and where, by metric."""
    with open_store(path) as store:
        page = show(store, "run", id=run)
    _, _, table = page.partition('<h2 id="exact">')
    rows = re.findall(r"<tr><th scope=\"row\">(.*?)</tr>", table.partition("</section>")[0])
    cells = [[words(cell) for cell in re.split(r"</t[hd]>", row)] for row in rows]
    return {cell[0]: tuple(cell[1:5]) for cell in cells}


def test_a_layer_that_left_sme_is_red_on_both_pages(store_path: Path) -> None:
    assert history(store_path, "check") == 1
    assert LOST in overview(store_path)
    assert GREEN not in overview(store_path)
    (value, before, verdict, where) = figures(store_path, "3")["Operators on SME"]
    assert (value, before, verdict) == ("1", "2", "regression")
    assert where == "stem (net.py:13) left SME with 442,368 multiply-accumulates"
    assert figures(store_path, "3")["Delegate calls"][:3] == ("1", "1", "unchanged")
    # AND the run before it is as the first one was
    assert {row[2] for row in figures(store_path, "2").values()} == {"unchanged"}
    assert figures(store_path, "1") == {}


def test_what_somebody_accepted_is_a_change(store_path: Path) -> None:
    assert history(store_path, "check") == 1
    assert history(store_path, "accept", "3", "--why", "the stem is cheap") == 0
    assert GREEN in overview(store_path)
    verdict, where = figures(store_path, "3")["Operators on SME"][2:]
    assert verdict == "changed"
    assert where.startswith("accepted, though worse: stem (net.py:13) left SME")
    assert history(store_path, "check") == 0


def test_a_pinned_run_is_meant_on_every_page(store_path: Path) -> None:
    """The overview had it red where the check and the run's own page called it accepted."""
    assert history(store_path, "check") == 1
    assert history(store_path, "pin", "release", "3") == 0
    assert GREEN in overview(store_path)
    assert figures(store_path, "3")["Operators on SME"][2] == "changed"
