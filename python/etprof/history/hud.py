"""Runs of the history as records of PyTorch's dashboard, version 3, failures included.

The record is as its table declares it: `clickhouse_db_schema/benchmark.oss_ci_benchmark_v3/schema.sql`
of pytorch/test-infra (2026), columns, types and order of nesting. What has a default there may be
left out; a column that the table does not have is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from etprof.base.records import first_problem
from etprof.history.connection import DamagedValueError
from etprof.history.metric_names import METRICS
from etprof.history.schema import FAILED
from etprof.run.directory import ExperimentMetrics
from etprof.views.formats.hud import HudSubject, hud_metrics, hud_record

if TYPE_CHECKING:
    from etprof.history.schema import Run

_FAILURE: Final = "FAILURE_REPORT"
"""The metric by which ExecuTorch's own workflows report a job that failed."""
_GENERATION_NAMES: Final = {
    "model_load_time(ms)": "llm_model_load_time(ms)",
    "avg_inference_latency(ms)": "generate_time(ms)",
    "trimmean_inference_latency(ms)": "trimmean_generate_time(ms)",
    "median_inference_latency(ms)": "median_generate_time(ms)",
}
"""An inference is a whole generation then."""


_FLOAT32_MAX = 3.4028234663852886e38

Texts = dict[str, str]
UInt32 = Annotated[int, Field(ge=0, lt=2**32, strict=True)]
UInt64 = Annotated[int, Field(ge=0, lt=2**64, strict=True)]
Float32 = Annotated[
    float, Field(ge=-_FLOAT32_MAX, le=_FLOAT32_MAX, allow_inf_nan=False, strict=True)
]


class _Tuple(BaseModel):
    """A ClickHouse tuple: no further fields, no conversions."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class HudRunner(_Tuple):
    """A machine that ran the benchmark."""

    name: str = ""
    type: str = ""
    cpu_info: str = ""
    cpu_count: UInt32 = 0
    mem_info: str = ""
    avail_mem_in_gb: UInt32 = 0
    gpu_info: str = ""
    gpu_count: UInt32 = 0
    gpu_mem_info: str = ""
    avail_gpu_mem_in_gb: UInt32 = 0
    extra_info: Texts = Field(default_factory=dict)


class HudBenchmark(_Tuple):
    """The benchmark."""

    name: str
    mode: str = ""
    dtype: str = ""
    extra_info: Texts = Field(default_factory=dict)


class HudModel(_Tuple):
    """The model."""

    name: str
    type: str = ""
    backend: str = ""
    origins: list[str] = Field(default_factory=list)
    extra_info: Texts = Field(default_factory=dict)


class HudInput(_Tuple):
    """An input."""

    dtype: str = ""
    extra_info: Texts = Field(default_factory=dict)


class HudDependency(_Tuple):
    """Something the benchmark depends on."""

    repo: str = ""
    branch: str = ""
    sha: str = ""
    version: str = ""
    extra_info: Texts = Field(default_factory=dict)


class HudMetric(_Tuple):
    """The metric: the only part that the dashboard's uploader insists on."""

    name: str
    benchmark_values: Annotated[list[Float32], Field(min_length=1)]
    target_value: Float32 = 0.0
    extra_info: Texts = Field(default_factory=dict)


class HudRecord(_Tuple):
    """One record; the uploader adds repository, workflow and job."""

    timestamp: UInt64 | None = None
    schema_version: Literal["v3"] = "v3"
    name: str | None = None
    repo: str | None = None
    head_branch: str | None = None
    head_sha: str | None = None
    workflow_id: UInt64 | None = None
    run_attempt: UInt32 | None = None
    job_id: UInt64 | None = None
    runners: list[HudRunner] = Field(default_factory=list)
    benchmark: HudBenchmark
    model: HudModel
    inputs: dict[str, HudInput] = Field(default_factory=dict)
    dependencies: dict[str, HudDependency] = Field(default_factory=dict)
    metric: HudMetric


def run_records(run: Run) -> list[dict[str, object]]:
    """Returns one valid record per metric; one failure record for a failed run; none if emulated.

    Raises pydantic's ValidationError for a record that is not version 3: a defect of ours.
    """
    if not run.representative:
        return []
    known = {
        "timestamp": int(run.measured_at.timestamp()),
        "schema_version": "v3",
        "head_branch": run.git_branch,
        "head_sha": run.git_commit,
    }
    head = {name: value for name, value in known.items() if value is not None}
    records = [
        {**head, **hud_record(_subject(run), name, values)} for name, values in _values(run).items()
    ]
    for record in records:
        if run.status == FAILED:
            _mark_failed(record, run)
        HudRecord.model_validate(record)
    return records


def _values(run: Run) -> dict[str, list[float]]:
    """Values by the dashboard's metric names: raw samples where they are, else block values."""
    if run.status == FAILED:
        return {_FAILURE: [0.0]}
    values = {
        METRICS[metric.name].hud_name: [
            value * METRICS[metric.name].hud_scale for value in metric.samples or (metric.value,)
        ]
        for metric in run.metrics
        if metric.name in METRICS
    }
    return _named_for_generation({**values, **_raw_values(run)})


def _raw_values(run: Run) -> dict[str, list[float]]:
    if run.raw is None:
        return {}
    try:
        return hud_metrics(ExperimentMetrics.model_validate(run.raw))
    except ValidationError as error:
        msg = f"raw values of run {run.key}: {first_problem(error)}"
        raise DamagedValueError(msg) from None


def _named_for_generation(values: dict[str, list[float]]) -> dict[str, list[float]]:
    """Names load and inference of a language model as ExecuTorch's LLM benchmark does."""
    if METRICS["decode_tokens_per_second"].hud_name not in values:
        return values
    return {_GENERATION_NAMES.get(name, name): values[name] for name in values}


def _subject(run: Run) -> HudSubject:
    program = run.artefacts.get("program")
    return HudSubject(
        experiment=run.experiment,
        model=run.model,
        precision=run.precision,
        backend=run.backend,
        program_sha256=program["sha256"] if program else None,
        sme=run.sme_mode,
        threads=run.threads,
        device=run.device,
        platform=run.device_kind,
        cpu=run.soc,
        cores=None,
        pins=run.pins,
    )


def _mark_failed(record: dict[str, object], run: Run) -> None:
    """Says that and why the run failed, where ExecuTorch's workflows say it."""
    benchmark = record["benchmark"]
    if isinstance(benchmark, dict):
        benchmark["extra_info"] |= {
            "job_conclusion": "FAILURE",
            "failure_type": "RUN",
            "failure": run.failure or "unknown",
        }
