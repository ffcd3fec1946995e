"""Exports and imports: JSON and Parquet hold everything, so that a store can be made again."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from pydantic import Field, ValidationError
from sqlalchemy import select

from etprof.base.atomic import replacing
from etprof.base.errors import InputFileError
from etprof.base.files import open_regular, read_bounded
from etprof.base.json_input import parse_json
from etprof.base.records import Name, Record, first_problem
from etprof.base.text import escape_unfit_json
from etprof.history.columns import Moment, TypedColumn
from etprof.history.connection import DamagedValueError
from etprof.history.metric_names import METRICS
from etprof.history.schema import (
    FAILED,
    METRIC_RECORD,
    RUN_RECORD,
    Acceptance,
    Alarm,
    Baseline,
    Digest,
    Metric,
    Run,
    make_run,
    record_of,
)
from etprof.history.selection import choose_runs
from etprof.history.store import batches, iterate_runs
from etprof.run.directory import ExperimentMetrics
from etprof.views.files import require_pyarrow
from etprof.views.formats.hud import HudSubject, hud_metrics, hud_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from sqlalchemy.orm import Session

    from etprof.history.schema import TableBase
    from etprof.history.store import Store

FORMAT: Final = "etprof-history"
SCHEMA_VERSION: Final = 1
_MOST_BYTES: Final = 2**30
"""Of a JSON export, which is read as a whole; Parquet is read in parts."""


PARQUET_MAGIC: Final = b"PAR1"
_HEADER: Final = b"etprof_history"
_ROWS: Final = 500
"""Of a Parquet file that are read at once."""
_AS_JSON: Final = ("pins", "artefacts", "work", "exact_facts", "categories", "raw")
"""Columns whose keys differ from run to run: JSON text."""
_FAILURE: Final = "FAILURE_REPORT"
"""The metric by which ExecuTorch's own workflows report a job that failed."""
_GENERATION_NAMES: Final = {
    "model_load_time(ms)": "llm_model_load_time(ms)",
    "avg_inference_latency(ms)": "generate_time(ms)",
    "trimmean_inference_latency(ms)": "trimmean_generate_time(ms)",
    "median_inference_latency(ms)": "median_generate_time(ms)",
}
"""An inference is a whole generation then."""


_LARGEST_FLOAT32: Final = 3.4028234663852886e38


class MarkedRun(Record):
    """A run that the store says more of, by its key."""

    key: Digest


class PinnedRun(MarkedRun):
    """A baseline."""

    name: Name
    pinned_at: Moment


class RaisedAlarm(MarkedRun):
    """What a check called worse."""

    metric: Name
    raised_at: Moment


class AcceptedRun(MarkedRun):
    """A run whose level is meant."""

    accepted_at: Moment
    accepted_by: Name
    why: Name


class Header(Record):
    """What an export says of itself."""

    format: Literal["etprof-history"]
    schema_version: int
    baselines: tuple[PinnedRun, ...] = ()
    alarms: tuple[RaisedAlarm, ...] = ()
    acceptances: tuple[AcceptedRun, ...] = ()


class _Document(Header):
    """A whole JSON export."""

    runs: tuple[dict[str, Any], ...] = Field(default=())


Marked = TypeVar("Marked", bound=MarkedRun)


@dataclass(frozen=True)
class Export:
    """An export that was opened."""

    header: Header
    runs: Iterator[Run]


@dataclass(frozen=True)
class ImportCounts:
    """What an import did."""

    added: int
    known: int
    """Runs that the store had already."""
    baselines: int


def export_runs(session: Session, path: Path, kind: str, filters: Mapping[str, str]) -> int:
    """Writes the runs that `filters` let through, oldest first; returns how many."""
    counted = itertools.count()
    runs = (run for run in iterate_runs(session, choose_runs(filters)) if next(counted) >= 0)
    if kind == "hud":
        _write_list(
            path,
            "[",
            (record for run in runs for record in _hud_records(run)),
            "]\n",
        )
        return next(counted)
    header = Header(
        format=FORMAT,
        schema_version=SCHEMA_VERSION,
        baselines=_marked_runs(session, Baseline, PinnedRun),
        alarms=_marked_runs(session, Alarm, RaisedAlarm),
        acceptances=_marked_runs(session, Acceptance, AcceptedRun),
    )
    records = map(_record, runs)
    if kind == "parquet":
        _write_parquet(path, records, header.model_dump_json())
        return next(counted)
    opening = header.model_dump_json()[:-1] + ',"runs":['
    _write_list(path, opening, (record.model_dump(mode="json") for record in records), "]}\n")
    return next(counted)


def _hud_records(run: Run) -> list[dict[str, object]]:
    _record(run)
    return run_records(run)


def _record(run: Run) -> Record:
    try:
        return record_of(run)
    except ValidationError as error:
        msg = f"run {run.id}: {first_problem(error)}"
        raise DamagedValueError(msg) from None


def _marked_runs(
    session: Session, table: type[TableBase], record: type[Marked]
) -> tuple[Marked, ...]:
    """Reads what a table says of runs, each by its key."""
    query = select(table, Run.key).join(Run).order_by(Run.key)
    try:
        marked = [
            record.model_validate({
                name: fact for name, fact in {**row.facts(), "key": key}.items()
                if name in record.model_fields
            })
            for row, key in session.execute(query)
        ]  # fmt: skip
    except ValidationError as error:
        msg = f"{table.__tablename__}: {first_problem(error)}"
        raise DamagedValueError(msg) from None
    return tuple(sorted(marked, key=repr))


def _write_list(path: Path, opening: str, items: Iterable[object], closing: str) -> None:
    """Writes a JSON list, one item per line, without holding all of them."""
    with replacing(path) as stream:
        stream.write(opening.encode())
        for number, item in enumerate(items):
            text = json.dumps(item, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            stream.write((",\n" if number else "\n").encode() + escape_unfit_json(text).encode())
        stream.write(b"\n" + closing.encode())


def open_export(path: Path) -> Export:
    """Opens a JSON or Parquet export; its runs are checked as they are taken from it.

    Raises InputFileError for a file of another kind, a newer one, or a damaged one.
    """
    try:
        header, rows = _open(path)
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}; `etprof history export` writes such files"
        raise InputFileError(msg) from error
    except ValidationError as error:
        raise _not_an_export(path, first_problem(error)) from None
    except ValueError as error:
        raise _not_an_export(path, f"document: Invalid JSON: {error}") from None
    if header.schema_version > SCHEMA_VERSION:
        msg = f"{path} is of a newer etprof (schema {header.schema_version}); update etprof"
        raise InputFileError(msg)
    return Export(header, _checked(path, rows))


def _open(path: Path) -> tuple[Header, Iterable[dict[str, Any]]]:
    with open_regular(path) as stream:
        is_parquet = stream.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
    if is_parquet:
        text, rows = read_parquet(path)
        return Header.model_validate(parse_json(text)), rows
    document = _Document.model_validate(parse_json(read_bounded(path, _MOST_BYTES)))
    return document, document.runs


def import_runs(store: Store, export: Export) -> ImportCounts:
    """Adds the runs of an export; those that the store has stay as they are.

    Runs before a damaged one are in the store then.
    """
    added = duplicates = 0
    for batch in batches(export.runs):
        results = store.add(batch)
        added += sum(result.is_new for result in results)
        duplicates += sum(not result.is_new for result in results)
    return ImportCounts(
        added, duplicates, store.write(lambda session: _mark(session, export.header))
    )


def _not_an_export(path: Path, problem: str) -> InputFileError:
    return InputFileError(
        f"{path} is not an export of a history: {problem}; write one with `etprof history export`"
    )


def _checked(path: Path, rows: Iterable[dict[str, Any]]) -> Iterator[Run]:
    for number, row in enumerate(rows):
        try:
            yield make_run(row)
        except ValidationError as error:
            problem = first_problem(error)
            msg = f"{path} is damaged: runs.{number}.{problem}; export it again"
            raise InputFileError(msg) from None


def _mark(session: Session, header: Header) -> int:
    """Takes over alarms, acceptances and baselines; returns how many runs were pinned.

    Names that the store uses already stay as they are.
    """
    marks = (*header.alarms, *header.acceptances, *header.baselines)
    keys = {mark.key for mark in marks}
    runs = {
        run.key: run
        for batch in batches(sorted(keys))
        for run in session.scalars(select(Run).where(Run.key.in_(batch)))
    }
    for table, records in ((Alarm, header.alarms), (Acceptance, header.acceptances)):
        for record in records:
            if record.key in runs:
                facts = record.model_dump(exclude={"key"})
                session.merge(table(run_id=runs[record.key].id, **facts))
    pinned_series = set(session.execute(select(Baseline.name, Baseline.series)))
    count = 0
    for pinned in header.baselines:
        run = runs.get(pinned.key)
        if run is None or (pinned.name, run.series) in pinned_series:
            continue
        session.add(
            Baseline(name=pinned.name, series=run.series, run_id=run.id, pinned_at=pinned.pinned_at)
        )
        count += 1
    return count


def _write_parquet(path: Path, records: Iterable[Record], header: str) -> None:
    """Writes runs batch by batch; `header` goes into the file's metadata."""
    pa = require_pyarrow()
    schema = _schema(pa).with_metadata({_HEADER: header.encode()})
    with replacing(path) as stream, pa.parquet.ParquetWriter(stream, schema) as writer:
        for batch in batches(records):
            rows = [record.model_dump() for record in batch]
            encoded = [row | {name: json.dumps(row[name]) for name in _AS_JSON} for row in rows]
            writer.write_table(pa.Table.from_pylist(encoded, schema=schema))


def read_parquet(path: Path) -> tuple[str, Iterator[dict[str, Any]]]:
    """Returns the header and the runs, not checked; raises InputFileError for other files."""
    pa = require_pyarrow()
    try:
        file = pa.parquet.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error
    header = (file.schema_arrow.metadata or {}).get(_HEADER)
    if header is None:
        msg = f"{path} is not an export of a history; write one with `etprof history export`"
        raise InputFileError(msg)
    return header.decode(), _rows(path, file)


def _rows(path: Path, file: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    pa = require_pyarrow()
    try:
        for batch in file.iter_batches(_ROWS):
            for row in batch.to_pylist():
                yield row | {name: parse_json(row[name]) for name in _AS_JSON}
    # OSError is pyarrow's word for data that cannot be decompressed; OverflowError, for a date after
    # the year 9999.
    except (
        pa.ArrowException, KeyError, OSError, OverflowError, TypeError, ValueError
    ) as error:  # fmt: skip
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> InputFileError:
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return InputFileError(f"{path} is damaged: {reason}; export it again")


def _schema(pa: Any) -> Any:  # noqa: ANN401
    """The columns: one per field of a run's record, nested as that is."""
    kinds = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}
    kinds |= {datetime: pa.timestamp("us", tz="UTC"), bytes: pa.list_(pa.float64())}

    text = pa.string()

    def fields(table: type[TableBase], record: type[Record]) -> list[tuple[str, Any]]:
        typed_columns = {
            c.key: c.type for c in table.__table__.columns if isinstance(c.type, TypedColumn)
        }
        return [
            (name, kinds.get(typed_columns[name].kinds[0], text) if name in typed_columns else text)
            for name in record.model_fields
        ]

    metric = pa.struct(fields(Metric, METRIC_RECORD))
    run_fields = [(name, kind) for name, kind in fields(Run, RUN_RECORD) if name != "metrics"]
    return pa.schema([*run_fields, ("metrics", pa.list_(metric))])


def run_records(run: Run) -> list[dict[str, object]]:
    """Returns one record per metric; one failure record for a failed run; none if emulated.

    Raises DamagedValueError for a value that the dashboard's table does not take.
    """
    if not run.representative:
        return []
    facts = {
        "timestamp": int(run.measured_at.timestamp()),
        "schema_version": "v3",
        "head_branch": run.git_branch,
        "head_sha": run.git_commit,
    }
    head = {name: value for name, value in facts.items() if value is not None}
    records = []
    for name, values in _values(run).items():
        if not all(abs(value) <= _LARGEST_FLOAT32 for value in values):
            msg = f"raw values of run {run.key}: {name}: beyond what a float32 holds"
            raise DamagedValueError(msg)
        record = {**head, **hud_record(_subject(run), name, values)}
        if run.status == FAILED:
            _mark_failed(record, run)
        records.append(record)
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
