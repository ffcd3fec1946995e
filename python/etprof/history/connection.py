"""Opens SQLite files and PostgreSQL databases, and says in words what goes wrong with them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Final

from sqlalchemy import URL, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError

from etprof.errors import EtprofError, InputFileError, UsageError

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Connection, Engine

WRITES: Final = "etprof_writes"
"""Execution option of connections that will write."""
_BUSY_TIMEOUT_S: Final = 30.0
_SECRETS: Final = ("password", "passfile", "sslpassword")
_EXAMPLE: Final = "postgresql://user@host/database"


class StoreError(EtprofError):
    """The store cannot be used now, or does not answer: no verdict, so not 1, a regression's code."""

    exit_code: ClassVar[int] = 8


def parse_target(target: str | Path) -> URL:
    """Returns the URL of a file's path or of a URL; raises UsageError for other databases."""
    text = str(target)
    if "://" not in text:
        return URL.create("sqlite", database=text)
    try:
        url = make_url(text)
    except (ArgumentError, ValueError) as error:
        msg = f"--store: not a database URL; write {_EXAMPLE} or the path of a file"
        raise UsageError(msg) from error
    kind = url.drivername.partition("+")[0]
    if kind in ("postgresql", "postgres"):
        return url.set(drivername="postgresql+psycopg")
    if kind == "sqlite" and url.database:
        return url.set(drivername="sqlite")
    msg = f"--store {kind}://…: a history is a SQLite file or a PostgreSQL URL ({_EXAMPLE})"
    raise UsageError(msg)


def display_name(url: URL) -> str:
    """Names the store for people; never with its password."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    plain = url.set(drivername="postgresql")
    return plain.difference_update_query(_SECRETS).render_as_string()


def create_store_engine(url: URL) -> Engine:
    """Returns the engine; nothing is opened yet."""
    if url.get_backend_name() == "sqlite":
        engine = create_engine(url, connect_args={"timeout": _BUSY_TIMEOUT_S})
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    try:
        return create_engine(url, connect_args={"connect_timeout": 10}, pool_pre_ping=True)
    except (ImportError, NoSuchModuleError) as error:
        msg = "a PostgreSQL history needs psycopg: `pip install 'etprof[postgresql]'`"
        raise UsageError(msg) from error


def _prepare_sqlite(connection: sqlite3.Connection, _: object) -> None:
    """Lets readers and one writer work at once; transactions are begun by `_begin_sqlite`."""
    connection.isolation_level = None
    for setting in ("foreign_keys=ON", "synchronous=NORMAL"):
        connection.execute(f"PRAGMA {setting}")


def _begin_sqlite(connection: Connection) -> None:
    """Takes the write lock at once where a write follows: upgrading a read lock can fail."""
    writes = connection.get_execution_options().get(WRITES, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def is_transient(error: DatabaseError) -> bool:
    """Whether the same transaction may succeed when it is tried again."""
    text = str(error.orig)
    return error.connection_invalidated or any(
        sign in text
        for sign in ("database is locked", "database table is locked", "deadlock detected")
    )


@contextmanager
def explained(url: URL) -> Iterator[None]:
    """Turns a database's errors into ones that name the store and the way out."""
    try:
        yield
    except DatabaseError as error:
        raise _explain(url, error) from None


def _explain(url: URL, error: DatabaseError) -> EtprofError:
    """Says what is wrong with the store; the driver's text never brings a password along."""
    name, text = display_name(url), _first_line(error)
    if url.get_backend_name() != "sqlite":
        secrets = [url.password, *(url.query.get(key) for key in _SECRETS)]
        for secret in secrets:
            text = text.replace(str(secret), "***") if secret else text
        return StoreError(f"{name}: {text}; is the server up, and may this user connect?")
    if "not a database" in text:
        return InputFileError(f"{name} is not a SQLite file; choose another --store")
    if "malformed" in text:
        return InputFileError(f"{name} is damaged ({text}); restore a copy, or import an export")
    if "locked" in text:
        return StoreError(f"{name} is locked by another process; try again when that has ended")
    if "unable to open" in text or "readonly" in text:
        return StoreError(f"{name}: {text}; check that its folder exists and may be written")
    return StoreError(f"{name}: {text}; check the disk and the file")


def _first_line(error: DatabaseError) -> str:
    lines = str(error.orig).strip().splitlines()
    return lines[0] if lines else type(error.orig).__name__
