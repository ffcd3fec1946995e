"""A run of the history in memory and in exports: what the store keeps, field by field, checked."""

from __future__ import annotations

import hashlib
import json
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, Field

from etprof.base.records import Count, Name, Named, Record
from etprof.history.schema import FAILED
from etprof.statistics.order_statistics import median_interval
from etprof.targets.registry import TARGETS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

SCHEMA_VERSION = 1
_FIRST_YEAR, _LAST_YEAR = 1970, 9000
Small = Annotated[int, Field(ge=0, lt=2**31)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


def _check_year(moment: datetime) -> datetime:
    """Refuses what no clock said, and what has no name in another time zone."""
    if not _FIRST_YEAR <= moment.year <= _LAST_YEAR:
        msg = f"not a year from {_FIRST_YEAR} to {_LAST_YEAR}"
        raise ValueError(msg)
    return moment


def _check_device_kind(name: str) -> str:
    known = [each.history_name for each in TARGETS]
    if name not in known:
        msg = f"not one of {', '.join(known)}"
        raise ValueError(msg)
    return name


_UNTIMED = {each.history_name for each in TARGETS if not each.policy.proves_times}
DeviceKind = Annotated[str, AfterValidator(_check_device_kind)]
Moment = Annotated[AwareDatetime, AfterValidator(_check_year)]


class MetricDocument(Record):
    """One metric of a run; `samples` has one value per block (process launch)."""

    name: Name
    unit: Literal["ns", "bytes", "1/s"]
    higher_is_better: bool
    value: Number
    low: Number | None = None
    high: Number | None = None
    count: Small
    samples: tuple[Number, ...] = ()


class Artefact(Record):
    """A file by its content."""

    sha256: Name
    size_bytes: Count | None = None


class RunDocument(Record):
    """One experiment of one run directory, as `schema.Run` describes it."""

    key: Digest
    run_name: Name
    run_path: Name | None = None
    manifest_sha256: Digest | None = None
    manifest_run_id: Name | None = None
    experiment: Name
    measured_at: Moment
    status: Literal["ok", "failed"]
    failure: Name | None = None
    model: Name
    precision: Name | None = None
    backend: Name | None = None
    method: Name | None = None
    device: Name
    device_kind: DeviceKind
    soc: Name | None = None
    sme_mode: Name
    threads: Small | None = None
    variant: Name | None = None
    revision: Name | None = None
    git_commit: Name | None = None
    git_branch: Name | None = None
    git_dirty: bool | None = None
    executorch_version: Name | None = None
    pins: Named[Name | None] = Field(default_factory=dict)
    artefacts: Named[Artefact] = Field(default_factory=dict)
    representative: bool
    metrics: tuple[MetricDocument, ...] = ()
    categories: Named[Number] = Field(default_factory=dict)
    raw: dict[str, Any] | None = None
    """The experiment's object in metrics.json, with the bytes of changed names (`RAW_NAMES`)."""

    @property
    def series(self) -> str:
        """The trend this run belongs to; the same wherever it was added."""
        return short_hash(
            self.model, self.precision, self.backend, self.method,
            self.device, self.sme_mode, self.threads, self.variant,
        )  # fmt: skip


def failed_run(
    *, run_name: str, experiment: str, measured_at: datetime, failure: str, **facts: object
) -> RunDocument:
    """A run that left no run directory, so that the history has a failure and not a gap.

    `facts` are further fields of RunDocument; model, device, device_kind and sme_mode are needed.
    """
    told = [facts.get(name) for name in ("model", "device", "precision", "backend", "sme_mode")]
    fixed = {
        "key": full_hash(run_name, experiment, measured_at.isoformat(), failure, *told),
        "run_name": run_name,
        "experiment": experiment,
        "measured_at": measured_at,
        "status": FAILED,
        "failure": failure,
        "representative": facts.get("device_kind") not in _UNTIMED,
    }
    return RunDocument.model_validate({**facts, **fixed})


def metric_document(
    name: str, unit: str, samples: Sequence[float], *, higher_is_better: bool
) -> MetricDocument:
    """Reduces block values to their median with its interval."""
    interval = median_interval(samples)
    return MetricDocument.model_validate(
        {
            "name": name,
            "unit": unit,
            "higher_is_better": higher_is_better,
            "value": median(samples),
            "low": interval.low if interval else None,
            "high": interval.high if interval else None,
            "count": len(samples),
            "samples": tuple(samples),
        }
    )


def short_hash(*parts: object) -> str:
    """Names a combination of facts in 16 hexadecimal digits."""
    return full_hash(*parts)[:16]


def full_hash(*parts: object) -> str:
    """SHA-256 of JSON data; what is equal has the same hash on every machine."""
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
