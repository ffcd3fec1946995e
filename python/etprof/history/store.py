"""The store: a SQLite file, or a PostgreSQL database by its URL."""

from __future__ import annotations

import os
import random
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeVar

from sqlalchemy import select
from sqlalchemy.exc import DatabaseError
from sqlalchemy.orm import Session

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
from etprof.history.migrate import bring_up_to_date
from etprof.history.rows import insert_run
from etprof.history.schema import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Engine

    from etprof.history.documents import RunDocument

DEFAULT_STORE: Final = "etprof_history.sqlite"
VARIABLE: Final = "ETPROF_HISTORY"
"""Environment variable that names the store where no flag does."""
_HEADER_BYTES: Final = 100
"""Of every SQLite file (https://www.sqlite.org/fileformat.html, section 1.3)."""
_PATIENCE_S: Final = 60.0
_LONGEST_PAUSE_S: Final = 1.0

Result = TypeVar("Result")


@dataclass(frozen=True)
class AddedRun:
    """A run that is in the store now."""

    run_id: int
    document: RunDocument
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

    def add(self, documents: Sequence[RunDocument], *, moves: bool = False) -> list[AddedRun]:
        """Adds runs in one transaction: all of them or, when it fails, none.

        With `moves`, known runs lie from now on where `documents` say.
        """
        return self.write(
            lambda session: [_add(session, document, moves=moves) for document in documents]
        )

    def write(self, work: Callable[[Session], Result]) -> Result:
        """Runs `work` in one transaction of its own, again when others were in the way.

        `work` must give the same outcome when it is run twice.
        """
        with explained(self.engine.url):
            return patiently(lambda: self._write_once(work))

    def _write_once(self, work: Callable[[Session], Result]) -> Result:
        with Session(self._writing) as session, session.begin():
            return work(session)


def _add(session: Session, document: RunDocument, *, moves: bool) -> AddedRun:
    run_id = insert_run(session, document, datetime.now(UTC))
    if run_id is not None:
        return AddedRun(run_id, document, is_new=True)
    known = session.scalars(select(Run).where(Run.key == document.key)).one()
    if moves:
        known.run_name, known.run_path = document.run_name, document.run_path
        known.manifest_sha256 = document.manifest_sha256
        known.manifest_run_id = document.manifest_run_id
    return AddedRun(known.id, document, is_new=False)


def patiently(work: Callable[[], Result]) -> Result:
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
    try:
        with explained(url):
            patiently(lambda: bring_up_to_date(engine))
    except BaseException:
        engine.dispose()
        raise
    return Store(engine)


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
