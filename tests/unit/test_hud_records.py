"""HUD records have the fields of the dashboard's table, and every raw sample."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from etprof.analysis.run_analysis import analyze_run
from etprof.measuring.pipeline import measure
from etprof.measuring.plan import Experiment, Settings, plan
from etprof.run.load import Run
from etprof.run.program import Program
from etprof.statistics.summary import trimmed_mean
from etprof.views.formats.hud import hud_records
from tests.world.sim_target import SimTarget
from tests.world.spec import plain


@pytest.fixture
def records(tmp_path: Path) -> list[dict[str, object]]:
    model = tmp_path / "m.pte"
    model.write_bytes(b"program")
    measure(
        program=Program(name="m", label="m", model=model),
        target=SimTarget(plain()),
        run=tmp_path / "run",
        planned=plan(
            [Experiment(name="off", sme="off")],
            Settings(blocks=2, operator_launches=1),
            SimTarget(plain()),
        ),
        progress=lambda *_: None,
    )
    return hud_records(analyze_run(Run.load(tmp_path / "run")))


def test_every_metric_has_its_values(records: list[dict[str, object]]) -> None:
    values = {r["metric"]["name"]: r["metric"]["benchmark_values"] for r in records}  # type: ignore[index]
    assert values["model_load_time(ms)"] == [0.091, 0.092]
    assert values["avg_inference_latency(ms)"] == [0.001] * 10 + [0.001001] * 10
    assert values["trimmean_inference_latency(ms)"] == [pytest.approx(0.0010005)]
    assert values["peak_inference_mem_usage(mb)"] == [4.194304, 5.24288]
    assert values["peak_load_mem_usage(mb)"] == [2.097152] * 2
    assert values["ram_pss_usage(mb)"] == [1.048576] * 2


def test_extra_info_takes_texts_only(records: list[dict[str, object]]) -> None:
    for record in records:
        for part in ("benchmark", "model", "metric"):
            extra = record[part]["extra_info"]  # type: ignore[index]
            assert all(isinstance(value, str) for value in extra.values())
        (runner,) = cast("list[dict[str, object]]", record["runners"])
        assert runner["cpu_count"] == 8


def test_trimmed_mean() -> None:
    assert trimmed_mean([1, 2, 3, 4, 5, 6, 7, 8, 9, 1000]) == 5.5
    assert trimmed_mean([1, 1000]) == 500.5
