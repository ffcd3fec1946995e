"""Exports and imports: JSON and Parquet hold everything, so that a store can be made again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field, ValidationError
from sqlalchemy import select

from etprof.base.atomic import replacing
from etprof.base.errors import InputFileError
from etprof.base.files import open_regular, read_bounded
from etprof.base.json_input import parse_json
from etprof.base.records import Name, Record, first_problem
from etprof.base.text import escape_unfit_json
from etprof.history.connection import DamagedValueError
from etprof.history.documents import SCHEMA_VERSION, Digest, Moment, RunDocument
from etprof.history.hud import run_records
from etprof.history.parquet import PARQUET_MAGIC, read_parquet, write_parquet
from etprof.history.rows import iterate_runs
from etprof.history.schema import Baseline, Run

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from sqlalchemy.orm import Session

    from etprof.history.selection import Filters
    from etprof.history.store import Store

Format = Literal["json", "parquet", "hud"]
FORMAT: Final = "etprof-history"
_MOST_BYTES: Final = 2**30
"""Of a JSON export, which is read as a whole; Parquet is read in parts."""
_BATCH: Final = 200
"""Runs that are imported in one transaction."""


class PinnedRun(Record):
    """A baseline, by the key of its run."""

    name: Name
    key: Digest
    pinned_at: Moment


class Header(Record):
    """What an export says of itself."""

    format: Literal["etprof-history"]
    schema_version: int
    baselines: tuple[PinnedRun, ...] = ()


class _Export(Header):
    """A whole JSON export."""

    runs: tuple[dict[str, Any], ...] = Field(default=())


@dataclass(frozen=True)
class Imported:
    """What an import did."""

    added: int
    known: int
    """Runs that the store had already."""
    baselines: int


def export_runs(session: Session, path: Path, kind: Format, filters: Filters) -> int:
    """Writes the runs that `filters` let through, oldest first; returns how many."""
    documents = _Counted(iterate_runs(session, filters.apply(select(Run))))
    if kind == "hud":
        records = (record for document in documents for record in run_records(document))
        _write_list(path, "[", records, "]\n")
        return documents.count
    header = Header(format=FORMAT, schema_version=SCHEMA_VERSION, baselines=_baselines(session))
    if kind == "parquet":
        write_parquet(path, documents, header.model_dump_json())
        return documents.count
    opening = header.model_dump_json()[:-1] + ',"runs":['
    _write_list(path, opening, (d.model_dump(mode="json") for d in documents), "]}\n")
    return documents.count


class _Counted:
    """Counts what is taken from it."""

    def __init__(self, documents: Iterable[RunDocument]) -> None:
        self._documents, self.count = documents, 0

    def __iter__(self) -> Iterator[RunDocument]:
        for document in self._documents:
            self.count += 1
            yield document


def _baselines(session: Session) -> tuple[PinnedRun, ...]:
    query = select(Baseline.name, Run.key, Baseline.pinned_at).join(Run, Run.id == Baseline.run_id)
    rows = session.execute(query.order_by(Baseline.name, Run.key))
    try:
        return tuple(PinnedRun(name=name, key=key, pinned_at=at) for name, key, at in rows)
    except ValidationError as error:
        msg = f"a baseline: {first_problem(error)}"
        raise DamagedValueError(msg) from None


def _write_list(path: Path, opening: str, items: Iterable[object], closing: str) -> None:
    """Writes a JSON list, one item per line, without holding all of them."""
    with replacing(path) as stream:
        stream.write(opening.encode())
        for number, item in enumerate(items):
            text = json.dumps(item, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
            stream.write((",\n" if number else "\n").encode() + escape_unfit_json(text).encode())
        stream.write(b"\n" + closing.encode())


def import_file(store: Store, path: Path) -> Imported:
    """Adds the runs of a JSON or Parquet export; those that the store has stay as they are.

    Raises InputFileError for a file of another kind, a newer one, or a damaged one; runs before
    the damage are in the store then.
    """
    header, documents = _open_export(path)
    if header.schema_version > SCHEMA_VERSION:
        msg = f"{path} is of a newer etprof (schema {header.schema_version}); update etprof"
        raise InputFileError(msg)
    added = known = 0
    for batch in _batches(_checked(path, documents)):
        results = store.add(batch)
        added += sum(result.is_new for result in results)
        known += sum(not result.is_new for result in results)
    return Imported(added, known, store.write(lambda session: _pin(session, header)))


def _open_export(path: Path) -> tuple[Header, Iterable[dict[str, Any]]]:
    """Returns an export's header and its runs, not checked yet."""
    try:
        with open_regular(path) as stream:
            is_parquet = stream.read(len(PARQUET_MAGIC)) == PARQUET_MAGIC
        if is_parquet:
            text, rows = read_parquet(path)
            return Header.model_validate(parse_json(text)), rows
        export = _Export.model_validate(parse_json(read_bounded(path, _MOST_BYTES)))
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}; `etprof history export` writes such files"
        raise InputFileError(msg) from error
    except ValidationError as error:
        raise _not_an_export(path, first_problem(error)) from None
    except ValueError as error:
        raise _not_an_export(path, f"document: Invalid JSON: {error}") from None
    return export, export.runs


def _not_an_export(path: Path, problem: str) -> InputFileError:
    return InputFileError(
        f"{path} is not an export of a history: {problem}; write one with `etprof history export`"
    )


def _checked(path: Path, rows: Iterable[dict[str, Any]]) -> Iterator[RunDocument]:
    for number, row in enumerate(rows):
        try:
            yield RunDocument.model_validate(row)
        except ValidationError as error:
            problem = first_problem(error)
            msg = f"{path} is damaged: runs.{number}.{problem}; export it again"
            raise InputFileError(msg) from None


def _batches(documents: Iterator[RunDocument]) -> Iterator[list[RunDocument]]:
    batch: list[RunDocument] = []
    for document in documents:
        batch.append(document)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _pin(session: Session, header: Header) -> int:
    """Pins the export's baselines; names that the store uses already stay as they are."""
    taken = set(session.execute(select(Baseline.name, Baseline.series)))
    count = 0
    for pinned in header.baselines:
        run = session.scalar(select(Run).where(Run.key == pinned.key))
        if run is None or (pinned.name, run.series) in taken:
            continue
        session.add(
            Baseline(name=pinned.name, series=run.series, run_id=run.id, pinned_at=pinned.pinned_at)
        )
        count += 1
    return count
