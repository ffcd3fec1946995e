"""A run of the history in memory and in exports: what the store keeps, field by field, checked."""

from __future__ import annotations

import hashlib
import json
from statistics import median
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, AwareDatetime, Field

from etprof.history.schema import FAILED
from etprof.order_statistics import median_interval
from etprof.records import Count, Record

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

SCHEMA_VERSION = 1
_LONGEST_TEXT = 2000


def clean_text(text: str) -> str:
    """Makes any text one that every database and terminal takes: one line, no controls."""
    line = " ".join(text.encode("utf-8", "replace").decode().split())
    return "".join(letter for letter in line if letter.isprintable())[:_LONGEST_TEXT]


Text = Annotated[str, AfterValidator(clean_text)]
Small = Annotated[int, Field(ge=0, lt=2**31)]
Number = Annotated[float, Field(allow_inf_nan=False)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class MetricDocument(Record):
    """One metric of a run; `samples` has one value per block (process launch)."""

    name: Text
    unit: Literal["ns", "bytes", "1/s"]
    higher_is_better: bool
    value: Number
    low: Number | None = None
    high: Number | None = None
    count: Small
    samples: tuple[Number, ...] = ()


class Artefact(Record):
    """A file by its content."""

    sha256: str
    size_bytes: Count | None = None


class RunDocument(Record):
    """One experiment of one run directory, as `schema.Run` describes it."""

    key: Digest
    run_name: Text
    run_path: Text | None = None
    experiment: Text
    measured_at: AwareDatetime
    status: Literal["ok", "failed"]
    failure: Text | None = None
    model: Text
    precision: Text | None = None
    backend: Text | None = None
    method: Text | None = None
    device: Text
    device_kind: Literal["local", "macos", "android", "emulator"]
    soc: Text | None = None
    sme_mode: Text
    threads: Small | None = None
    variant: Text | None = None
    revision: Text | None = None
    git_commit: Text | None = None
    git_branch: Text | None = None
    git_dirty: bool | None = None
    executorch_version: Text | None = None
    pins: dict[Text, Text | None] = Field(default_factory=dict)
    artefacts: dict[Text, Artefact] = Field(default_factory=dict)
    representative: bool
    metrics: tuple[MetricDocument, ...] = ()
    categories: dict[Text, Number] = Field(default_factory=dict)
    raw: dict[str, Any] | None = None
    """The experiment's object in metrics.json."""

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
        "representative": facts.get("device_kind") != "emulator",
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
