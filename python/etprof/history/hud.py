"""Runs of the history as records of PyTorch's dashboard, failures included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pydantic import ValidationError

from etprof.base.records import first_problem
from etprof.history.connection import DamagedValueError
from etprof.history.hud_schema import HudRecord
from etprof.history.metric_names import METRICS
from etprof.history.schema import FAILED
from etprof.report.hud_records import HudSubject, hud_metrics, hud_record
from etprof.run.directory import ExperimentMetrics

if TYPE_CHECKING:
    from etprof.history.documents import RunDocument

_FAILURE: Final = "FAILURE_REPORT"
"""The metric by which ExecuTorch's own workflows report a job that failed."""
_GENERATION_NAMES: Final = {
    "model_load_time(ms)": "llm_model_load_time(ms)",
    "avg_inference_latency(ms)": "generate_time(ms)",
    "trimmean_inference_latency(ms)": "trimmean_generate_time(ms)",
    "median_inference_latency(ms)": "median_generate_time(ms)",
}
"""An inference is a whole generation then."""


def run_records(document: RunDocument) -> list[dict[str, object]]:
    """Returns one valid record per metric; one failure record for a failed run; none if emulated.

    Raises pydantic's ValidationError for a record that is not version 3: a defect of ours.
    """
    if not document.representative:
        return []
    known = {
        "timestamp": int(document.measured_at.timestamp()),
        "schema_version": "v3",
        "head_branch": document.git_branch,
        "head_sha": document.git_commit,
    }
    head = {name: value for name, value in known.items() if value is not None}
    records = [
        {**head, **hud_record(_subject(document), name, values)}
        for name, values in _values(document).items()
    ]
    for record in records:
        if document.status == FAILED:
            _mark_failed(record, document)
        HudRecord.model_validate(record)
    return records


def _values(document: RunDocument) -> dict[str, list[float]]:
    """Values by the dashboard's metric names: raw samples where they are, else block values."""
    if document.status == FAILED:
        return {_FAILURE: [0.0]}
    values = {
        METRICS[metric.name].hud_name: [
            value * METRICS[metric.name].hud_scale for value in metric.samples or (metric.value,)
        ]
        for metric in document.metrics
        if metric.name in METRICS
    }
    return _named_for_generation({**values, **_raw_values(document)})


def _raw_values(document: RunDocument) -> dict[str, list[float]]:
    if document.raw is None:
        return {}
    try:
        return hud_metrics(ExperimentMetrics.model_validate(document.raw))
    except ValidationError as error:
        msg = f"raw values of run {document.key}: {first_problem(error)}"
        raise DamagedValueError(msg) from None


def _named_for_generation(values: dict[str, list[float]]) -> dict[str, list[float]]:
    """Names load and inference of a language model as ExecuTorch's LLM benchmark does."""
    if METRICS["decode_tokens_per_second"].hud_name not in values:
        return values
    return {_GENERATION_NAMES.get(name, name): values[name] for name in values}


def _subject(document: RunDocument) -> HudSubject:
    program = document.artefacts.get("program")
    return HudSubject(
        experiment=document.experiment,
        model=document.model,
        precision=document.precision,
        backend=document.backend,
        program_sha256=program.sha256 if program else None,
        sme=document.sme_mode,
        threads=document.threads,
        device=document.device,
        platform=document.device_kind,
        cpu=document.soc,
        cores=None,
        pins=document.pins,
    )


def _mark_failed(record: dict[str, object], document: RunDocument) -> None:
    """Says that and why the run failed, where ExecuTorch's workflows say it."""
    benchmark = record["benchmark"]
    if isinstance(benchmark, dict):
        benchmark["extra_info"] |= {
            "job_conclusion": "FAILURE",
            "failure_type": "RUN",
            "failure": document.failure or "unknown",
        }
