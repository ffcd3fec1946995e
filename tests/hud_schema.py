"""What PyTorch's dashboard takes, version 3: whatever is exported for it is compared with this.

The record is as its table declares it: `clickhouse_db_schema/benchmark.oss_ci_benchmark_v3/schema.sql`
of pytorch/test-infra (2026), columns, types and order of nesting. What has a default there may be
left out; a column that the table does not have is refused.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

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
