"""Reading a run: each file once, everything of one program joined, analysis without files."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from etprof.analysis import assessment
from etprof.analysis.assessment import assess_run
from etprof.analysis.findings.rules import evaluate_run
from etprof.analysis.run_analysis import analyze_run
from etprof.cli import main
from etprof.etdump.reader import ETDump, load_etdump
from etprof.history.ingest import read_run_directory
from etprof.run import load
from etprof.run.load import Run
from tests.hostile.seeds import add_result, kernel_trace
from tests.known_runs import OFF_OPS, ON_OPS, Experiment, on_off_run, write_run

OPENED: list[str] = []
_WATCHED: list[str] = []


def _note(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _WATCHED and str(arguments[0]).startswith(_WATCHED[0]):
        OPENED.append(str(arguments[0])[len(_WATCHED[0]) + 1 :])


sys.addaudithook(_note)


@contextmanager
def watched(folder: Path) -> Iterator[Counter[str]]:
    """Counts how often each file of `folder` is opened for reading."""
    count = Counter[str]()
    OPENED.clear()
    _WATCHED[:] = [str(folder)]
    try:
        yield count
    finally:
        _WATCHED.clear()
        count.update(OPENED)


@pytest.fixture(name="run")
def three_experiments(tmp_path: Path) -> Path:
    known = on_off_run()
    third = Experiment("android_sme1", OFF_OPS, sme="sme1", latency_us=[800.0] * 10)
    entries = [
        replace(entry, kernels=kernel_trace(entry.name, entry.ops))
        for entry in (*known.experiments, third)
    ]
    run = write_run(tmp_path / "run", replace(known, experiments=entries))
    for entry in entries:
        add_result(run / entry.name / f"known_{entry.name}_t1")
    return run


def test_analyze_opens_each_file_once_and_asks_the_rules_once(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T10: 17 times the manifest, 18 times one result, all rules twice."""
    asked: list[object] = []
    dumps: list[Path] = []

    def judge(*subjects: Any, **beside: Any) -> Any:  # noqa: ANN401 - as the rules take them
        asked.append(subjects)
        return evaluate_run(*subjects, **beside)

    def read(path: Path) -> ETDump:
        dumps.append(path)
        return load_etdump(path)

    monkeypatch.setattr(assessment, "evaluate_run", judge)
    monkeypatch.setattr(load, "load_etdump", read)
    measured = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
    with watched(run) as opened:
        assert main(["analyze", str(run), "--quiet"]) == 0
    found = {name: opened[name] for name in measured if not name.endswith(".etdump")}
    assert found == dict.fromkeys(found, 1)
    assert len(found) == len(measured) - 3
    assert len(dumps) == len(set(dumps)) == 3
    assert len(asked) == 1


def test_analysis_opens_nothing(run: Path) -> None:
    """T10: 16 modules of analysis read files."""
    loaded = Run.load(run)
    with watched(run.parent) as opened:
        found = assess_run(analyze_run(loaded))
        assert found.comparisons[0].validity is not None
        assert found.tracer_costs
    assert not opened


def test_a_trace_of_the_same_program_and_mode_feeds_the_experiment(tmp_path: Path) -> None:
    """T3: a kernel_trace experiment was measured and ignored."""
    run = write_run(tmp_path / "run", on_off_run())
    before = assess_run(analyze_run(Run.load(run))).insight.of("android_sme2")
    assert not before.has_kernel_trace
    own = run / "counting"
    own.mkdir()
    trace = own / "known_counting_t1_kernels.json"
    trace.write_text(json.dumps(kernel_trace("android_sme2", ON_OPS)))
    insight = assess_run(analyze_run(Run.load(run))).insight
    assert insight.of("android_sme2").has_kernel_trace
    assert {"A"} == {d.evidence.grade for d in insight.of("android_sme2").details if d.kernels}
    assert not insight.of("android_off").has_kernel_trace


@pytest.mark.parametrize(
    ("name", "method", "mode"),
    [
        ("known_counting_t2", "forward", "android_sme2"),
        ("known_counting_t1", "encode", "android_sme2"),
        ("known_counting_t1", "forward", "android_off"),
    ],
)
def test_a_trace_of_something_else_does_not(
    tmp_path: Path, name: str, method: str, mode: str
) -> None:
    """T3: other threads, another method, another mode."""
    run = write_run(tmp_path / "run", on_off_run())
    own = run / "counting"
    own.mkdir()
    document = {**kernel_trace(mode, ON_OPS), "method": method}
    (own / f"{name}_kernels.json").write_text(json.dumps(document))
    insight = assess_run(analyze_run(Run.load(run))).insight
    assert not insight.of("android_sme2").has_kernel_trace


@pytest.fixture(name="emulated")
def emulated_run_of_the_first_edition(tmp_path: Path) -> Path:
    """It was timed, and says in both of its documents that this is no performance."""
    return write_run(tmp_path / "e", replace(on_off_run(), platform="emulator", meaningful=False))


@pytest.mark.parametrize("lost", [None, "manifest.json", "metrics.json"])
def test_an_untimed_run_has_no_block_whichever_file_says_so(
    emulated: Path, lost: str | None
) -> None:
    """T8, A-D1: without metrics.json, every emulated time was shown."""
    if lost:
        (emulated / lost).unlink()
    found = Run.load(emulated)
    assert not found.is_timed
    assert not any(each.blocks for each in found.timed.values())


@pytest.mark.parametrize("lost", [None, "manifest.json", "metrics.json"])
def test_an_etdump_of_an_untimed_run_is_untimed_alone_too(emulated: Path, lost: str | None) -> None:
    """A-D1: `etprof analyze out/runs/emulator/x/x.etdump` showed all of its times."""
    etdump = next(emulated.glob("*/*.etdump"))
    if lost:
        (emulated / lost).unlink()
    assert not Run.load(etdump).is_timed
    beside = emulated / etdump.name
    etdump.rename(beside)
    assert not Run.load(beside).is_timed
    (emulated / "elsewhere" / "deeper" / "still").mkdir(parents=True)
    elsewhere = emulated / "elsewhere" / "deeper" / "still" / etdump.name
    beside.rename(elsewhere)
    (elsewhere.parent / "metrics.json").write_text("[1]")  # another program's
    assert Run.load(elsewhere).is_timed


def test_an_emulated_median_is_in_no_note(emulated: Path) -> None:
    """B-D8: an experiment that had no ETDump was told with its median."""
    next(emulated.glob("*/*.etdump")).unlink()
    notes = analyze_run(Run.load(emulated)).notes
    assert not [note for note in notes if "median" in note or "operator split" in note]


def test_no_emulated_value_enters_a_history(emulated: Path) -> None:
    """B-D10: rows of emulated runs had medians, for exports and pages to show."""
    assert [run.metrics for run in read_run_directory(emulated)] == [[], []]
