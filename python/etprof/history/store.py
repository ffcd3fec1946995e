"""The store: a SQLite file, or a PostgreSQL database by its URL."""

from __future__ import annotations

import itertools
import os
import random
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeVar

from sqlalchemy import event, insert, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import Session, selectinload

from etprof.base.errors import InputFileError
from etprof.base.files import check_regular
from etprof.history.connection import (
    WRITES,
    StoreError,
    create_store_engine,
    display_name,
    explained,
    is_transient,
    parse_target,
)
from etprof.history.migrations import bring_up_to_date
from etprof.history.schema import CategoryTime, Metric, RawSamples, Run
from etprof.history.sqlite_schema import check_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sqlalchemy import Engine, Select

    from etprof.history.schema import TableBase

DEFAULT_STORE: Final = "etprof_history.sqlite"
VARIABLE: Final = "ETPROF_HISTORY"
"""Environment variable that names the store where no flag does."""
_HEADER_BYTES: Final = 100
"""Of every SQLite file (https://www.sqlite.org/fileformat.html, section 1.3)."""
_PATIENCE_S: Final = 60.0
_LONGEST_PAUSE_S: Final = 1.0

_INSERTS: Final[dict[str, Callable[[type[Run]], sqlite.Insert | postgresql.Insert]]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}
_BATCH: Final = 200

Result = TypeVar("Result")
Entry = TypeVar("Entry")


@dataclass(frozen=True)
class AddedRun:
    """A run that is in the store now."""

    run_id: int
    run: Run
    is_new: bool
    """False when the store had it already; nothing was changed then."""


class Store:
    """An open history; its schema is this etprof's."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._writing = engine.execution_options(**{WRITES: True})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes all connections; the next use opens them again."""
        self.engine.dispose()

    @property
    def name(self) -> str:
        """The store for people, without password."""
        return display_name(self.engine.url)

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Opens a session for reading; the database's errors come out as EtprofError."""
        with explained(self.engine.url), Session(self.engine) as session:
            yield session

    def add_run_directory(self, run: Path, *, device: str | None = None) -> list[AddedRun]:
        """Adds all experiments of a run directory at once; those that are there already stay.

        `device` is the name its owner gives the device. Raises InputFileError for anything else
        than a run directory.
        """
        from etprof.history.ingest import read_run_directory

        return self.add(read_run_directory(run, device=device), moves=True)

    def add(self, runs: Sequence[Run], *, moves: bool = False) -> list[AddedRun]:
        """Adds runs in one transaction: all of them or, when it fails, none.

        With `moves`, known runs lie from now on where `runs` say.
        """
        return self.write(lambda session: [_add(session, run, moves=moves) for run in runs])

    def write(self, work: Callable[[Session], Result]) -> Result:
        """Runs `work` in one transaction of its own, again when others were in the way.

        `work` must give the same outcome when it is run twice.
        """
        with explained(self.engine.url):
            return retry_transient(lambda: self._write_once(work))

    def _write_once(self, work: Callable[[Session], Result]) -> Result:
        with Session(self._writing) as session, session.begin():
            return work(session)


def _add(session: Session, run: Run, *, moves: bool) -> AddedRun:
    facts = run.facts()
    del facts["id"]
    statement = (
        _INSERTS[session.get_bind().dialect.name](Run)
        .values({**facts, "added_at": datetime.now(UTC)})
        .on_conflict_do_nothing(index_elements=["key"])
        .returning(Run.id)
    )
    run_id: int | None = session.execute(statement).scalar()
    if run_id is not None:
        _insert(session, Metric, run.metrics, run_id)
        _insert(session, CategoryTime, run.category_rows, run_id)
        _insert(session, RawSamples, [run.raw_row] if run.raw_row else [], run_id)
        return AddedRun(run_id, run, is_new=True)
    stored = session.scalars(select(Run).where(Run.key == run.key)).one()
    if moves:
        for name in ("run_name", "run_path", "manifest_sha256", "manifest_run_id"):
            setattr(stored, name, getattr(run, name))
    return AddedRun(stored.id, run, is_new=False)


def _insert(
    session: Session, table: type[TableBase], rows: Sequence[TableBase], run_id: int
) -> None:
    """Inserts what belongs to a run."""
    if rows:
        session.execute(insert(table), [{**row.facts(), "run_id": run_id} for row in rows])


def iterate_runs(session: Session, query: Select[Run]) -> Iterator[Run]:
    """Yields the runs of `query` with all they have, in order of their numbers, batch by batch."""
    last = -1
    relations = (
        selectinload(relation) for relation in (Run.metrics, Run.category_rows, Run.raw_row)
    )
    query = query.order_by(Run.id).limit(_BATCH).options(*relations)
    while batch := session.scalars(query.where(Run.id > last)).all():
        last = batch[-1].id
        yield from batch
        session.expunge_all()


def batches(elements: Iterable[Entry], size: int = _BATCH) -> Iterator[list[Entry]]:
    """Cuts entries so that no transaction is long, and no statement has too many parameters."""
    remaining = iter(elements)
    while batch := list(itertools.islice(remaining, size)):
        yield batch


def retry_transient(work: Callable[[], Result]) -> Result:
    """Repeats `work` while the database says that others are in the way, for up to a minute."""
    deadline = time.monotonic() + _PATIENCE_S
    pause_s = 0.01
    while True:
        try:
            return work()
        except DatabaseError as error:
            if not is_transient(error) or time.monotonic() > deadline:
                raise
        time.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - keeps writers apart
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


def open_store(target: str | Path | None = None, *, create: bool = True) -> Store:
    """Opens the store at a path or URL, by default $ETPROF_HISTORY or ./etprof_history.sqlite.

    A store that is not there yet is made, with `create`; an older schema is brought up to date.
    Raises InputFileError for a missing store, StoreError for one that is foreign, damaged, newer or
    cannot be reached, UsageError for a URL of another database.
    """
    url = parse_target(target or os.environ.get(VARIABLE) or DEFAULT_STORE)
    if url.get_backend_name() == "sqlite" and not create and not Path(str(url.database)).exists():
        msg = f"{url.database} does not exist; `etprof history add RUN_DIR` makes a history"
        raise InputFileError(msg)
    if url.get_backend_name() == "sqlite":
        _refuse_scrap(Path(str(url.database)))
    engine = create_store_engine(url)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "begin", check_schema)
    try:
        with explained(url):
            retry_transient(lambda: bring_up_to_date(engine))
    except BaseException:
        engine.dispose()
        raise
    return Store(engine)


def is_new_in_git() -> bool:
    """Whether the usual store would be a new file in a git working tree, which its owner commits or not."""
    path = Path(DEFAULT_STORE).absolute()
    is_usual = os.environ.get(VARIABLE) is None and not path.exists()
    return is_usual and any((folder / ".git").exists() for folder in path.parents)


def find_store(target: str | Path | None = None, *, create: bool = False) -> Store | None:
    """Opens the store that is named, else the usual one where it is there."""
    url = parse_target(target or os.environ.get(VARIABLE) or DEFAULT_STORE)
    is_file = url.get_backend_name() == "sqlite"
    if target is None and is_file and not Path(str(url.database)).exists():
        return None
    return open_store(target, create=create)


def _refuse_scrap(path: Path) -> None:
    """Refuses what is no file, and a file that SQLite would write over: too short for its header."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        try:
            check_regular(path.with_name(f"{path.name}{suffix}"))
        except OSError as error:
            msg = f"{error.filename}: {error.strerror}; choose another --store"
            raise StoreError(msg) from error
    if path.is_file() and 0 < path.stat().st_size < _HEADER_BYTES:
        msg = f"{path} is not a SQLite file; choose another --store"
        raise StoreError(msg)
