"""Exports for PyTorch's dashboard are records of version 3, and nothing else passes as one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from etprof.history.connection import DamagedValueError
from etprof.history.exchange import run_records
from etprof.history.ingest import read_run_directory
from etprof.history.schema import Metric, RawSamples
from tests.hud_schema import HudRecord
from tests.measured_runs import START, MeasuredRun, write_measured


def records_of(folder: Path, run: MeasuredRun) -> list[dict[str, Any]]:
    (document,) = read_run_directory(write_measured(folder, run))
    found = run_records(document)
    for record in found:
        HudRecord.model_validate(record)
    return found


def test_a_run_becomes_one_record_per_metric(tmp_path: Path) -> None:
    records = records_of(tmp_path / "run", MeasuredRun(blocks_us=(1, 2, 3)))
    values = {r["metric"]["name"]: r["metric"]["benchmark_values"] for r in records}
    assert values["median_inference_latency(ms)"] == pytest.approx([0.001, 0.002, 0.003])
    assert len(values["avg_inference_latency(ms)"]) == 9
    assert values["load_status"] == [1.0]
    for record in records:
        assert record["schema_version"] == "v3"
        assert record["timestamp"] == int(START.timestamp())
        assert (record["head_branch"], record["head_sha"]) == ("main", "c" * 40)
        assert record["model"]["extra_info"] == {"sha256": "b" * 64}
        assert record["runners"][0]["name"] == "Known CPU, 2 cores, Linux"


def test_a_language_model_has_the_names_of_the_llm_benchmark(tmp_path: Path) -> None:
    (document,) = read_run_directory(write_measured(tmp_path / "run", MeasuredRun()))
    document.metrics.append(Metric(name="decode_tokens_per_second", value=20.0, samples=(20.0,)))
    records = run_records(document)
    assert all(HudRecord.model_validate(record) for record in records)
    names = {record["metric"]["name"] for record in records}  # type: ignore[index]
    assert {"llm_model_load_time(ms)", "generate_time(ms)", "token_per_sec"} <= names
    assert not {"model_load_time(ms)", "avg_inference_latency(ms)"} & names


def test_a_value_that_the_table_does_not_take_is_damage(tmp_path: Path) -> None:
    """S1: an import may bring a number that is none there; it ended in rc 70."""
    (document,) = read_run_directory(write_measured(tmp_path / "run", MeasuredRun()))
    document.metrics.append(Metric(name="decode_tokens_per_second", value=1e39, samples=()))
    with pytest.raises(DamagedValueError, match=r"token_per_sec: beyond what a float32 holds"):
        run_records(document)


@pytest.mark.parametrize("blocks", [[[0, 0]], [{"method_ns": [1]}], "none"])
def test_raw_values_that_are_none_are_damage(blocks: object, tmp_path: Path) -> None:
    """S1: an import may bring what no run writes."""
    (document,) = read_run_directory(write_measured(tmp_path / "run", MeasuredRun()))
    document.raw_row = RawSamples(document={**(document.raw or {}), "blocks": blocks})
    with pytest.raises(DamagedValueError, match=r"raw values of run .*blocks"):
        run_records(document)


def test_a_failed_run_is_reported_as_executorch_does(tmp_path: Path) -> None:
    (record,) = records_of(tmp_path / "run", MeasuredRun(failing={"off": "lost"}))
    assert record["metric"]["name"] == "FAILURE_REPORT"
    assert record["metric"]["benchmark_values"] == [0.0]
    assert record["benchmark"]["extra_info"]["job_conclusion"] == "FAILURE"
    assert record["benchmark"]["extra_info"]["failure"] == "timing: lost"


def test_emulated_times_are_no_benchmark(tmp_path: Path) -> None:
    assert records_of(tmp_path / "run", MeasuredRun(platform="emulator")) == []


@pytest.mark.parametrize(
    "change",
    [
        {"unknown_column": 1},
        {"timestamp": "today"},
        {"timestamp": -1},
        {"schema_version": "v2"},
        {"metric": {"name": "m", "benchmark_values": 0.0}},
        {"metric": {"name": "m", "benchmark_values": []}},
        {"metric": {"name": "m", "benchmark_values": [float("nan")]}},
        {"metric": {"name": "m", "benchmark_values": [1e39]}},
        {"metric": {"name": "m", "benchmark_values": ["1"]}},
        {"model": {"name": "m", "extra_info": {"threads": 1}}},
        {"runners": [{"cpu_count": 2**32}]},
    ],
)
def test_what_the_table_would_not_take_is_refused(
    tmp_path: Path, change: dict[str, object]
) -> None:
    record = records_of(tmp_path / "run", MeasuredRun())[0]
    HudRecord.model_validate(record)
    with pytest.raises(ValidationError):
        HudRecord.model_validate({**record, **change})
