"""D5: untouched runs of etprof 0.1 are read, validated and kept; what was changed in them is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from etprof.analysis.run_analysis import analyze_run
from etprof.cli import main
from etprof.history.ingest import read_run_directory
from etprof.run.load import Run
from etprof.run.validation import validate_run, worst_level
from tests.first_edition import (
    BLOCKS,
    MODES,
    bench_run,
    emulator_run,
    failed_bench_run,
    host_run,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KINDS = [host_run, emulator_run, bench_run]


@pytest.mark.parametrize("write", KINDS)
def test_an_untouched_run_is_sound(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    """D5: kernel traces, which 0.1 wrote behind its manifest, were "not of this run": exit 4."""
    folder = write(tmp_path / "run")
    assert worst_level(validate_run(folder)) == "note"
    assert main(["validate", str(folder)]) == 0


@pytest.mark.parametrize("write", KINDS)
def test_a_run_is_reported(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    folder = write(tmp_path / "run")
    assert main(["analyze", str(folder), "--quiet"]) == 0
    assert main(["report", str(folder), "--out", str(tmp_path / "out")]) == 0
    loaded = Run.load(folder)
    assert len(analyze_run(loaded).experiments) == len(MODES)
    assert loaded.is_timed == (write is not emulator_run)
    assert all(bool(each.kernels) == (write is not bench_run) for each in loaded.experiments)
    blocks = [len(each.blocks) for each in loaded.timed.values()]
    assert blocks == [BLOCKS if write is not emulator_run else 0] * len(MODES)


def test_an_emulated_run_that_does_not_say_so_has_no_times(tmp_path: Path) -> None:
    """I2: a manifest of the first schema may lack the flag; its page said that times are not shown,
    and showed them."""
    folder = emulator_run(tmp_path / "run")
    for name in ("manifest.json", "metrics.json"):
        path = folder / name
        if path.is_file():
            path.write_text(path.read_text().replace('"times_are_meaningful": false', '"x": 0'))
    metrics = folder / "metrics.json"
    metrics.unlink(missing_ok=True)
    assert not Run.load(folder).is_timed


@pytest.mark.parametrize("write", [*KINDS, failed_bench_run])
def test_a_run_is_kept_in_the_history(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    rows = read_run_directory(write(tmp_path / "run"))
    if write is failed_bench_run:
        assert [row.failure for row in rows] == ["timing: not exported: no such model"]
    else:
        assert [row.failure for row in rows] == [None] * len(MODES)
        assert {row.sme_mode for row in rows} == set(MODES)


def test_a_failed_unit_is_incomplete_and_no_more(tmp_path: Path) -> None:
    assert worst_level(validate_run(failed_bench_run(tmp_path / "run"))) == "incomplete"


@pytest.mark.parametrize("change", ["edit", "remove", "truncate"])
def test_a_change_of_a_listed_file_is_told(tmp_path: Path, change: str) -> None:
    folder = host_run(tmp_path / "run")
    path = next(folder.glob("*/*_b00_result.json"))
    if change == "remove":
        path.unlink()
    else:
        text = path.read_text()
        path.write_text(f"{text} " if change == "edit" else text[:50])
    told = [each.text for each in validate_run(folder) if each.level == "damaged"]
    assert len(told) == 1
    assert path.name in told[0]


def test_a_trace_that_is_no_trace_is_told(tmp_path: Path) -> None:
    """D5, D15: nothing has its hash, but it must be one."""
    folder = emulator_run(tmp_path / "run")
    path = next(folder.glob("*/*_kernels.json"))
    path.write_text(path.read_text()[:100])
    told = [each.text for each in validate_run(folder) if each.level == "damaged"]
    assert len(told) == 1
    assert path.name in told[0]
