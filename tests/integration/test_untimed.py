"""I2: a run that proves no times shows none: no derived file and no terminal has a number of time."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from etprof.history.ingest import read_run_directory
from etprof.run.load import Run
from etprof.tables.operators import TIMELINE
from etprof.tables.report import DECLARED
from etprof.views.formats import format_names
from tests.world.host import etprof, simulated_host
from tests.world.sim_target import SimTarget
from tests.world.spec import Capabilities, RunSpec

RAW = ("*_result.json", "*.etdump", "*_kernels.json", "manifest.json", "metrics.json")
"""What was measured, as the runner wrote it, and when each launch began."""
OF_TIME = re.compile(r"(^|_)(ns|us|ms)$|^(p_value|speed_up\w*|share)$|_speed_up$")
OF_OUTPUTS = {"calls_per_inference", "snr_db", "minimum_snr_db", "max_abs", "max_rel", "top1",
              "mse", "cosine", "least_equal_share", "output_db"}  # fmt: skip
OF_TILES = {"tile_use", "sme_work"}
"""Of counted sizes, and of multiply-accumulates."""
OF_STEPS = {"ts", "dur"}
"""Of Chrome's trace: events stand one step apart."""
TOLD = re.compile(r"\d\s?(ns|µs|ms)\b")


@pytest.fixture(scope="module")
def untimed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of three modes under emulation, reported in every format, and what was printed."""
    folder = tmp_path_factory.mktemp("untimed")
    (folder / "m.pte").write_bytes(b"program")
    spec = RunSpec(capabilities=Capabilities(platform="emulator"))
    printed = ""
    modes = [{"name": mode, "sme": mode} for mode in spec.capabilities.modes]
    document = {
        "model": "m.pte",
        "output_root": "run",
        "target": {"kind": "emulator"},
        "experiments": modes,
        "measurement": {"blocks": 6, "etdump_runs": 12},
    }
    (folder / "c.json").write_text(json.dumps(document))
    run = "out_m/runs/emulator"
    for words in (
        ("profile", "m.pte", "--target", "emulator"),
        ("report", run, "--format", ",".join(format_names())),
        ("analyze", run),
        ("run", "c.json"),
        ("report", "run", "--format", ",".join(format_names())),
        ("compare", "run:off", "run:sme2"),
        ("analyze", "run", "--full"),
        ("compare", "run:off", "run:sme2", "--full"),
    ):
        with simulated_host(lambda **_: SimTarget(spec)):
            done = etprof(folder, *words)
        assert done.exit_code == 0, (words, done.stderr)
        printed += done.stdout
    return folder, printed


def derived(folder: Path, pattern: str) -> list[Path]:
    found = [p for p in folder.rglob(pattern) if not any(p.match(raw) for raw in RAW)]
    assert found
    return found


def figures_of(path: Path) -> Iterator[tuple[str, Any]]:
    """Every figure of a derived file that is no whole number, with its name."""
    if path.suffix == ".json":
        yield from floats_in(json.loads(path.read_text()))
    elif path.suffix == ".csv":
        dtypes = {c.name: c.dtype for t in (*DECLARED.values(), TIMELINE) for c in t.columns}
        with path.open(newline="") as stream:
            for row in csv.DictReader(stream):
                yield from ((k, v) for k, v in row.items() if dtypes[k] == "float64" and v)
    else:
        for row in pq.read_table(path).to_pylist():
            yield from ((k, v) for k, v in row.items() if isinstance(v, float))


def floats_in(document: Any, name: str = "") -> Iterator[tuple[str, float]]:  # noqa: ANN401
    if isinstance(document, dict):
        for key, value in document.items():
            yield from floats_in(value, key)
    elif isinstance(document, list):
        for each in document:
            yield from floats_in(each, name)
    elif isinstance(document, float):
        yield name, document


def times_in(document: Any, where: str = "") -> Iterator[str]:  # noqa: ANN401 - any JSON
    """The members of a document that are named as times and have a number."""
    if isinstance(document, dict):
        for key, value in document.items():
            if OF_TIME.search(key) and isinstance(value, int | float):
                yield f"{where}.{key}"
            yield from times_in(value, f"{where}.{key}")
    elif isinstance(document, list):
        for each in document:
            yield from times_in(each, where)


def test_no_json_has_a_time(untimed: tuple[Path, str]) -> None:
    folder, _ = untimed
    found = {
        f"{path.name}{where}"
        for path in derived(folder, "*.json")
        for where in times_in(json.loads(path.read_text()))
    }
    assert not {each for each in found if "traceEvents" not in each}


def test_no_table_has_a_time(untimed: tuple[Path, str]) -> None:
    """T8: `_ops_stats.csv` and `_timeline.csv` had the emulator's."""
    folder, _ = untimed
    found = set()
    for path in derived(folder, "*.csv"):
        with path.open(newline="") as stream:
            for row in csv.DictReader(stream):
                found |= {(path.name, k) for k, v in row.items() if OF_TIME.search(k) and v}
    for path in derived(folder, "*.parquet"):
        for row in pq.read_table(path).to_pylist():
            found |= {(path.name, k) for k, v in row.items() if OF_TIME.search(k) and v is not None}
    assert not found


@pytest.mark.parametrize("pattern", ["*.json", "*.csv", "*.parquet"])
def test_no_file_has_a_figure_that_a_clock_made(pattern: str, untimed: tuple[Path, str]) -> None:
    """T8: whatever it is called, what is no whole number is of outputs; a trace has steps alone."""
    folder, _ = untimed
    found = {
        (path.name, name, value)
        for path in derived(folder, pattern)
        for name, value in figures_of(path)
        if name not in OF_OUTPUTS | OF_TILES
        and not (name in OF_STEPS and float(value).is_integer())
    }
    assert not found


@pytest.mark.parametrize("pattern", ["*.md", "*.html"])
def test_no_page_has_a_time(pattern: str, untimed: tuple[Path, str]) -> None:
    folder, _ = untimed
    for path in derived(folder, pattern):
        text = re.sub(r"(?s)<(script|style).*?</\1>", "", path.read_text())
        assert not TOLD.findall(text), path


def test_no_terminal_has_a_time(untimed: tuple[Path, str]) -> None:
    _, printed = untimed
    assert "sme2_mopa" in printed
    assert not TOLD.findall(printed)


def test_a_run_that_was_cut_off_proves_no_times_either(
    untimed: tuple[Path, str], tmp_path: Path
) -> None:
    """T8: metrics.json is written last; the manifest has said from the start what is proven."""
    cut_off = tmp_path / "run"
    shutil.copytree(untimed[0] / "run", cut_off)
    (cut_off / "metrics.json").unlink()
    assert not Run.load(cut_off).is_timed
    done = etprof(tmp_path, "analyze", "run", "--full")
    assert done.exit_code == 0
    assert not TOLD.search(done.stdout)


def test_the_history_takes_it_as_a_run_that_went_well(untimed: tuple[Path, str]) -> None:
    """T6: nothing is timed there by plan, so that no block is missing."""
    runs = read_run_directory(untimed[0] / "run")
    assert {run.sme_mode for run in runs} == {"off", "sme1", "sme2"}
    assert {(run.status, run.failure, run.representative) for run in runs} == {("ok", None, False)}
    assert not any(run.metrics for run in runs)
