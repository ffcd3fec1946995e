"""`etprof import`: other programs' files become runs; nothing is assumed, and what lacks is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import etprof as api
from etprof.etdump.reader import load_etdump, open_etdump
from etprof.run.load import Run
from etprof.run.validation import validate_run, worst_level
from tests.etdump_writer import etdump, event_block, write_etdump
from tests.known_etdumps import EXECUTE_US, US, foreign_etdump, span
from tests.recorded_etdumps import record
from tests.upstream_files import minibench_json, runner_log, xctest_log
from tests.world.host import Done, etprof

EXECUTIONS = 4
LOGGED_MS = (1.30, 0.13, 0.126, 0.127, 0.128)
"""Of `foreign_etdump(4)`: the first takes ten times as long, and brackets are around each."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model.etdump").write_bytes(foreign_etdump(EXECUTIONS))
    (tmp_path / "runner.log").write_text(runner_log(LOGGED_MS, threads=2))
    (tmp_path / "bench.json").write_text(minibench_json())
    (tmp_path / "ios.log").write_text(xctest_log([0.012, 0.0125, 0.0118]))
    return tmp_path


def imported(folder: Path, *words: object) -> dict[str, Any]:
    done = etprof(folder, "import", *words, "--out", "run", "--json")
    assert done.exit_code == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def inference_ns(run: api.Run) -> float:
    """What the parts of an inference add up to."""
    return float(run.table("categories")["mean_ns"].sum())


def refused(folder: Path, *words: object, code: int) -> str:
    done: Done = etprof(folder, "import", *words, "--out", "run")
    assert done.exit_code == code, done.stdout + done.stderr
    assert not (folder / "run").exists(), "nothing is made of what is refused"
    return done.stderr


def test_a_log_and_its_etdump_become_a_run_that_everything_takes(folder: Path) -> None:
    told = imported(folder, "model.etdump", "runner.log", "--sme", "off", "--platform", "linux")
    assert [each["kind"] for each in told["sources"]] == ["ETDump", "log of executor_runner"]
    assert told["ns_per_tick"] == 1.0
    assert "what the log says" in told["clock"]
    assert "its inferences were timed with the event tracer on" in told["missing"]
    run = api.load_run(folder / "run")
    assert inference_ns(run) == EXECUTE_US * US
    metrics = Run.load(folder / "run").timed["off"]
    (block,) = metrics.blocks
    assert (metrics.sme, metrics.threads) == ("off", 2)
    assert block.first_inference_ns == 1_300_000
    assert block.latency_ns == [130_000, 126_000, 127_000, 128_000]
    assert block.load.total_ns == 13_629_218
    assert block.memory.planned_buffers_bytes == (28736,)
    assert worst_level(validate_run(folder / "run")) == "note"
    for words in (["analyze", "run"], ["report", "run"], ["history", "add", "run"]):
        done = etprof(folder, *words)
        assert done.exit_code == 0, done.stderr
    page = (folder / "run/report.html").read_text()
    assert "imported, not measured by etprof: model.etdump (ETDump)" in page
    assert "there is no ETRecord" in page
    assert "event tracer on" in page


def test_a_changed_file_of_an_imported_run_is_seen(folder: Path) -> None:
    imported(folder, "model.etdump", "runner.log")
    log = next((folder / "run").glob("*/*_source_00.txt"))
    log.write_text(runner_log([1.0, 0.001]))
    assert worst_level(validate_run(folder / "run")) == "damaged"


def test_nothing_says_what_the_clock_is_without_a_flag(folder: Path) -> None:
    """One delegate's operators of 60 and 20 µs would not be known by chance; here they are few."""
    (folder / "one.etdump").write_bytes(foreign_etdump(1))
    error = refused(folder, "one.etdump", code=2)
    assert "--time-scale" in error
    assert imported(folder, "one.etdump", "--time-scale", "us")["ns_per_tick"] == 1000


@pytest.mark.parametrize("operators", [4, 5])
def test_five_operators_of_whole_steps_are_no_chance(folder: Path, operators: int) -> None:
    events = [
        span(None, 10 * i * US, 7 + i, instruction_id=0, delegate_debug_id_str=f"Copy (NC, F32) #{i}".encode())
        for i in range(operators)
    ]  # fmt: skip
    events.append(span(b"Method::execute", 0, 60))
    blocks = [event_block(b"Execute", events)]
    (folder / "few.etdump").write_bytes(write_etdump(etdump(blocks)).data)
    if operators < 5:
        assert "--time-scale" in refused(folder, "few.etdump", code=2)
    else:
        clock = imported(folder, "few.etdump")["clock"]
        assert clock == "ns: XNNPACK's times are whole steps of 1000 of its ticks"


def test_every_file_is_a_launch_of_its_kind_and_number(folder: Path) -> None:
    (folder / "second.etdump").write_bytes(foreign_etdump(3))
    (folder / "second.log").write_text(runner_log((1.2, 0.2, 0.3), threads=2))
    files = ("model.etdump", "runner.log", "second.etdump", "second.log")
    imported(folder, *files, "--time-scale", "ns")
    manifest = Run.load(folder / "run").manifest
    assert manifest is not None
    assert [(e.purpose, e.block, e.error) for e in manifest.launches] == [
        ("operators", 0, None), ("operators", 1, None), ("timing", 0, None), ("timing", 1, None),
    ]  # fmt: skip
    timed = [launch.duration_s for launch in manifest.launches if launch.purpose == "timing"]
    assert timed == pytest.approx([sum(LOGGED_MS) / 1000, 1.7 / 1000])


def test_whole_microseconds_of_a_delegate_show_that_ticks_are_ns(folder: Path) -> None:
    told = imported(folder, "model.etdump")
    assert told["ns_per_tick"] == 1.0
    assert "XNNPACK" in told["clock"]


def test_cycles_need_their_frequency_and_are_never_ns(folder: Path) -> None:
    assert "--clock-hz" in refused(folder, "model.etdump", "--time-scale", "cycles", code=2)
    told = imported(folder, "model.etdump", "--clock-hz", "250e6")
    assert told["ns_per_tick"] == 4.0
    run = api.load_run(folder / "run")
    assert inference_ns(run) == 4 * EXECUTE_US * US
    assert "250,000,000 a second" in (etprof(folder, "analyze", "run").stdout)


@pytest.mark.parametrize("bits", [64, 32])
def test_ticks_become_ns_where_the_clock_wraps_too(tmp_path: Path, bits: int) -> None:
    """Cycle counters of microcontrollers have 32 bits, and begin again every few seconds."""
    start = 2**32 - 1_500_000
    for name in ("in_ns", "in_cycles"):
        (tmp_path / name).write_bytes(record(24, start=start, bits=bits).data)
        scale = "ns" if name == "in_ns" else "cycles"
        words = ["--clock-hz", "5e8"] if scale == "cycles" else []
        done = etprof(
            tmp_path, "import", name, "--time-scale", scale, *words, "--out", f"run_{name}"
        )
        assert done.exit_code == 0, done.stderr
    one, other = (
        api.load_run(tmp_path / f"run_{name}").event_blocks() for name in ("in_ns", "in_cycles")
    )
    compared = 0
    for before, after in zip(one, other, strict=True):
        for event, scaled in zip(before.events, after.events, strict=True):
            np.testing.assert_allclose(scaled.raw_ns, 2 * event.raw_ns, atol=1)
            compared += event.count
    assert compared > 100


def test_a_log_in_microseconds_of_ticks_is_told_from_ns(tmp_path: Path) -> None:
    blocks = [event_block(b"Execute", [span(b"Method::execute", 0, 1)])]
    (tmp_path / "us.etdump").write_bytes(write_etdump(etdump(blocks)).data)
    (tmp_path / "us.log").write_text(runner_log([1.01]))
    assert imported(tmp_path, "us.etdump", "us.log")["ns_per_tick"] == 1000


def test_minibench_keeps_a_mean_and_says_so(folder: Path) -> None:
    told = imported(folder, "bench.json", "--inferences", "50")
    assert (told["model"], told["platform"]) == ("mv2", "android")
    assert any("how they spread is not known" in each for each in told["missing"])
    assert any("ram_pss_usage(mb)" in each for each in told["missing"])
    run = Run.load(folder / "run", strict=False)
    (block,) = run.timed["imported"].blocks
    assert (block.latency_ns, block.inferences_per_sample) == ([4_250_000], 50)
    assert block.load.total_ns == 31_500_000
    assert block.first_inference_ns is None
    assert run.manifest is not None
    assert run.manifest.model.precision == "q8"
    assert run.manifest.target["model"] == "SM-S921B"
    done = etprof(folder, "history", "add", "run")
    assert done.exit_code == 0, done.stderr
    assert "added #1" in done.stdout


def test_the_ios_app_keeps_every_inference(folder: Path) -> None:
    told = imported(folder, "ios.log")
    assert (told["model"], told["platform"]) == ("mv2", "ios")
    run = Run.load(folder / "run", strict=False)
    (block,) = run.timed["imported"].blocks
    assert block.latency_ns == [12_000_000, 12_500_000, 11_800_000]
    assert block.load.total_ns == 40_000_000
    assert block.memory.peak_rss_bytes == 24576 * 1024
    assert run.manifest is not None
    assert run.manifest.target == {"model": "iPhone15,4", "system": "iOS 17.2.1"}


def test_several_logs_are_launches(folder: Path) -> None:
    (folder / "again.log").write_text(runner_log(LOGGED_MS, threads=2))
    imported(folder, "runner.log", "again.log")
    blocks = Run.load(folder / "run", strict=False).timed["imported"].blocks
    assert [block.block for block in blocks] == [0, 1]


@pytest.mark.parametrize("name", ["QnnBackend", '{conv2d_clamp_s1p1, "dispatch_id": 4}', "coreml"])
def test_a_foreign_delegate_is_one_opaque_row(tmp_path: Path, name: str) -> None:
    """Cycles of a DSP or a GPU's own ns: neither is the file's clock, and no row is in it."""
    inside = [
        span(None, 7 * i, 10**6, instruction_id=0, delegate_debug_id_str=name.encode())
        for i in range(1, 4)
    ]
    calls = [
        [span(b"DELEGATE_CALL", at, 90, instruction_id=0), span(b"Method::execute", at, 100)]
        for at in (0, 10**6, 2 * 10**6)
    ]
    blocks = [event_block(b"Execute", [*inside, *each]) for each in calls]
    (tmp_path / "model.etdump").write_bytes(write_etdump(etdump(blocks)).data)
    imported(tmp_path, "model.etdump", "--time-scale", "ns")
    run = api.load_run(tmp_path / "run")
    rows = run.table("operators").to_dict("records")
    found = [row for row in rows if "unknown delegate" in str(row["label"])]
    assert [row["mean_ns"] for row in found] == [90 * US]
    assert any("a backend that etprof does not know" in note for note in run.notes)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "nothing that etprof can import"),
        (b"hello", "nothing that etprof can import"),
        (b"[]", "metrics"),
        (b"{", "Invalid JSON"),
        (minibench_json(load_status=35.0).encode(), "could not load the model (load_status 35)"),
        (runner_log([1.0, 2.0], finished=False).encode(), "did not finish"),
        (runner_log([1.0, 2.0]).replace("Iteration 1", "Iteration 2").encode(), "one launch"),
        (
            runner_log([1.0, 2.0]).replace("1.0000", "9" * 18).encode(),
            "cannot be a measured number",
        ),
        # Python makes no number of so many digits: etprof said that this was a fault of its own.
        (runner_log([1.0, 2.0]).replace("Iteration 1", "Iteration " + "9" * 5000).encode(), "one"),
        # Each start was searched to the end of the file: minutes.
        (b"Model file " * 300_000 + runner_log([1.0], finished=False).encode(), "did not finish"),
        (xctest_log([0.0, 0.0]).encode(), "Clock Monotonic Time"),
        ((xctest_log([0.1]) + xctest_log([0.1], model="ic4_qnn_q8")).encode(), "several models"),
    ],
)
def test_files_that_are_none_are_refused(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / "file").write_bytes(content)
    assert says in refused(tmp_path, "file", code=4)


def test_flags_that_contradict_the_files_are_refused(folder: Path) -> None:
    (folder / "other.log").write_text(runner_log(LOGGED_MS, threads=4))
    assert "threads" in refused(folder, "runner.log", "other.log", code=2)
    assert "more than one model" in refused(folder, "runner.log", "bench.json", code=2)
    assert "there is none" in refused(folder, "runner.log", "--time-scale", "ns", code=2)
    words = ("model.etdump", "--time-scale", "us", "--clock-hz", "1e6")
    assert "--clock-hz" in refused(folder, *words, code=2)


def test_one_inference_has_no_steady_latency(folder: Path) -> None:
    (folder / "one.log").write_text(runner_log([1.3]))
    told = imported(folder, "one.log", "model.etdump", "--time-scale", "ns")
    assert any("no steady latency" in each for each in told["missing"])
    assert Run.load(folder / "run").timed["imported"].blocks == []


def test_an_earlier_run_is_set_aside(folder: Path) -> None:
    imported(folder, "model.etdump")
    told = imported(folder, "model.etdump")
    assert Path(told["set_aside"]).name.startswith("run_")


def test_what_is_scaled_is_the_file_that_was_given(folder: Path) -> None:
    """The evidence keeps its bytes; only reading makes ns of its ticks."""
    imported(folder, "model.etdump", "--clock-hz", "1e6")
    kept = next((folder / "run").glob("*/*.etdump"))
    assert kept.read_bytes() == (folder / "model.etdump").read_bytes()
    plain, scaled = load_etdump(kept), open_etdump(kept, ns_per_tick=1000.0)
    (piece,) = scaled.pieces()
    assert piece.ns_per_tick == 1000.0
    assert (piece.profile.end_time == plain.profile.end_time).all()
