"""The event tracer's own cost: recording against timing, a traced build against a bare one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import etprof
from etprof.analysis.assessment import assess_run
from etprof.analysis.run_analysis import analyze_run
from etprof.analysis.split.tracer_cost import find_tracer_costs
from etprof.api import COLUMNS
from etprof.cli import run_command_line
from etprof.run.load import Run as LoadedRun
from etprof.views.formats.html import render_html
from etprof.views.markdown import render_markdown
from tests.known_runs import Experiment, Op, Run, analyze, write_run
from tests.unit.test_kernel_evidence import make_trace
from tests.world.results import result_document

OPS = [Op("Convolution (NHWC, F32) IGEMM #1", 150)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """100 µs without events, 150 µs with; 80 µs in a runner without event tracer."""
    traced = Experiment("traced", OPS, latency_us=[100 + i % 2 for i in range(8)])
    bare = Experiment("bare", OPS, latency_us=[80 + i % 2 for i in range(8)])
    folder = write_run(tmp_path / "r", Run([traced, bare]))
    (etdump,) = (folder / "bare").glob("*.etdump")
    document = result_document(80_000)
    runner = {"version": "0.1.0", "build": {"event_tracer": False}}
    etdump.with_name(f"{etdump.stem}_b00_result.json").write_text(
        json.dumps(document | {"runner": runner})
    )
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics["experiments"]["bare"]["etdump"] = etdump.relative_to(folder).as_posix()
    (folder / "metrics.json").write_text(json.dumps(metrics))
    etdump.unlink()
    return folder


def test_recording_and_compiling_in_are_two_costs(run: Path) -> None:
    recording, compiled = find_tracer_costs(analyze_run(LoadedRun.load(run)))
    assert (recording.experiment, recording.kind) == ("traced", "recording events")
    assert (recording.without_ns, recording.with_ns) == (100_500, 150_000)
    assert recording.effect is None
    assert (compiled.experiment, compiled.kind) == ("traced beside bare", "tracer compiled in")
    assert (compiled.without_ns, compiled.with_ns) == (80_500, 100_500)
    assert compiled.effect is not None
    assert compiled.effect.speed_up == pytest.approx(1.25, rel=0.01)
    assert compiled.effect.interval is not None


@pytest.mark.slow
def test_every_report_shows_it(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assessment = assess_run(analyze_run(LoadedRun.load(run)))
    assert "Profiling overhead" in render_html([assessment])
    row = "| traced | recording events | 100 µs | 150 µs | 1.49× |"
    assert row in render_markdown([assessment])
    assert run_command_line(["analyze", str(run), "--full"]) == 0
    assert "Profiling overhead" in capsys.readouterr().out
    summary = json.loads((run / "analysis_summary.json").read_text())
    assert summary["tracer_costs"][0]["ratio"] == pytest.approx(150 / 100.5)
    frame = etprof.load_run(run).tracer_costs()
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == COLUMNS["tracer_costs"]
    assert frame["kind"].tolist() == ["recording events", "tracer compiled in"]


def test_the_operator_clock_is_held_against_launches_without(tmp_path: Path) -> None:
    """T11, C3: what it costs is measured, with all that is counted; not told from empty marks."""
    trace = make_trace("off", []).model_dump(mode="json")
    for execution, duration_ns in zip(trace["executions"], (900_000, 104_000), strict=True):
        execution["duration_ns"] = duration_ns
    traced = Experiment("traced", OPS, latency_us=[100] * 8, kernels=trace)
    recording, clock = find_tracer_costs(analyze(tmp_path / "c", Run([traced])))
    assert (recording.kind, clock.kind) == ("recording events", "operator clock")
    assert (clock.without_ns, clock.with_ns) == (100_000, 104_000)


def test_other_threads_failed_splits_and_emulators_say_nothing(run: Path, tmp_path: Path) -> None:
    # GIVEN a bare experiment at another thread count
    metrics = json.loads((run / "metrics.json").read_text())
    metrics["experiments"]["bare"]["threads"] = 4
    (run / "metrics.json").write_text(json.dumps(metrics))
    assert [c.kind for c in find_tracer_costs(analyze_run(LoadedRun.load(run)))] == [
        "recording events"
    ]
    # GIVEN one whose split failed although its runner has the tracer
    metrics["experiments"]["bare"]["threads"] = 1
    (run / "metrics.json").write_text(json.dumps(metrics))
    (result,) = (run / "bare").glob("*_b00_result.json")
    result.write_text(json.dumps(result_document(80_000)))
    assert [c.kind for c in find_tracer_costs(analyze_run(LoadedRun.load(run)))] == [
        "recording events"
    ]
    result.unlink()
    assert [c.kind for c in find_tracer_costs(analyze_run(LoadedRun.load(run)))] == [
        "recording events"
    ]
    # GIVEN emulated times
    emulated = write_run(tmp_path / "e", replace(Run([Experiment("e", OPS)]), meaningful=False))
    assert find_tracer_costs(analyze_run(LoadedRun.load(emulated))) == ()
