"""Documents to rows and back: the only place that knows how a run lies in the tables."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError
from sqlalchemy import insert, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import selectinload

from etprof.base.json_input import MOST_JSON_BYTES, parse_json
from etprof.base.records import first_problem
from etprof.history.connection import DamagedValueError
from etprof.history.documents import MetricDocument, RunDocument
from etprof.history.schema import CategoryTime, Metric, RawSamples, Run
from etprof.history.values import decompress, pack_samples, unpack_samples

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from sqlalchemy import Select
    from sqlalchemy.orm import Session

_ELSEWHERE: Final = {"metrics", "categories", "raw"}
_INSERTS: Final[dict[str, Callable[[type[Run]], sqlite.Insert | postgresql.Insert]]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}
_BATCH: Final = 200
_COLUMNS: Final = sorted(set(RunDocument.model_fields) - _ELSEWHERE)


def insert_run(session: Session, document: RunDocument, added_at: datetime) -> int | None:
    """Inserts a run with all that belongs to it; None when the store has it already."""
    facts = document.model_dump(exclude=_ELSEWHERE)
    statement = (
        _INSERTS[session.get_bind().dialect.name](Run)
        .values(**facts, series=document.series, added_at=added_at)
        .on_conflict_do_nothing(index_elements=["key"])
        .returning(Run.id)
    )
    run_id: int | None = session.execute(statement).scalar()
    if run_id is not None:
        _insert_parts(session, run_id, document)
    return run_id


def _insert_parts(session: Session, run_id: int, document: RunDocument) -> None:
    """Inserts metrics, categories and raw samples of a run."""
    metrics = [
        {
            **metric.model_dump(exclude={"samples"}),
            "run_id": run_id,
            "samples": pack_samples(metric.samples),
        }
        for metric in document.metrics
    ]
    categories = [
        {"run_id": run_id, "category": name, "time_ns": time_ns}
        for name, time_ns in document.categories.items()
    ]
    raw = [] if document.raw is None else [{"run_id": run_id, "document": _pack(document.raw)}]
    parts: tuple[tuple[type, list[dict[str, Any]]], ...] = (
        (Metric, metrics),
        (CategoryTime, categories),
        (RawSamples, raw),
    )
    for table, rows in parts:
        if rows:
            session.execute(insert(table), rows)


def iterate_runs(session: Session, query: Select[Run]) -> Iterator[RunDocument]:
    """Yields the runs of `query` as they were added, in order of their numbers, batch by batch."""
    last = -1
    while True:
        batch = session.scalars(
            query.where(Run.id > last)
            .order_by(Run.id)
            .limit(_BATCH)
            .options(selectinload(Run.metrics), selectinload(Run.categories))
        ).all()
        if not batch:
            return
        last = batch[-1].id
        numbers = [run.id for run in batch]
        kept = select(RawSamples.run_id, RawSamples.document).where(RawSamples.run_id.in_(numbers))
        raw = dict(session.execute(kept).all())
        for run in batch:
            yield _run_document(run, raw.get(run.id))
        session.expunge_all()


def _run_document(run: Run, raw: bytes | None) -> RunDocument:
    facts = {
        **{name: getattr(run, name) for name in _COLUMNS},
        "metrics": [_metric_facts(metric) for metric in run.metrics],
        "categories": {entry.category: entry.time_ns for entry in run.categories},
        "raw": None if raw is None else _unpack(raw),
    }
    try:
        return RunDocument.model_validate(facts)
    except ValidationError as error:
        msg = f"run {run.id}: {first_problem(error)}"
        raise DamagedValueError(msg) from None


def _metric_facts(row: Metric) -> dict[str, object]:
    names = set(MetricDocument.model_fields) - {"samples"}
    return {**{name: getattr(row, name) for name in names}, "samples": unpack_samples(row.samples)}


def _pack(document: dict[str, Any]) -> bytes:
    return zlib.compress(json.dumps(document, separators=(",", ":")).encode())


def _unpack(data: bytes) -> dict[str, Any]:
    try:
        document = parse_json(decompress(data, MOST_JSON_BYTES))
    except ValueError as error:
        msg = f"raw samples are no JSON: {error}"
        raise DamagedValueError(msg) from None
    if not isinstance(document, dict):
        msg = "raw samples are no JSON object"
        raise DamagedValueError(msg)
    return document
