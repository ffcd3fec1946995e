"""Opens SQLite files and PostgreSQL databases, and says in words what goes wrong with them."""

from __future__ import annotations

import sqlite3
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Final

from sqlalchemy import URL, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError, SQLAlchemyError

from etprof.base.errors import EtprofError, UsageError
from etprof.base.json_input import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Connection, Engine
    from sqlalchemy.pool import ConnectionPoolEntry

WRITES: Final = "etprof_writes"
"""Execution option of connections that will write."""
_BUSY_TIMEOUT_S: Final = 30.0
_MOST_VALUE_BYTES: Final = 256 * 2**20
"""Of a text or BLOB that is read."""
_SETTINGS: Final = (
    "foreign_keys=ON",
    "synchronous=NORMAL",
    # The file may be a stranger's: functions in its schema may do nothing but compute.
    "trusted_schema=OFF",
    # Pages whose sizes contradict each other are told, not followed; files are read, not mapped.
    "cell_size_check=ON",
    "mmap_size=0",
)
_STATEMENT: Final = "etprof_statement"
_STEPS_A_LOOK: Final = 200_000
"""Of SQLite's virtual machine; some milliseconds."""
_MOST_LOOKS: Final = 25_000
"""Five billion steps: a minute or two. Reading a million runs takes a hundredth of it."""
_SECRETS: Final = ("password", "passfile", "sslpassword")
_SIGNS_OF_DAMAGE: Final = ("malformed", "too big", "decode")
_SQLITE_PROBLEMS: Final = (
    ("interrupted", "keeps SQLite busy without end; restore a copy, or choose another --store"),
    ("not a database", "is not a SQLite file; choose another --store"),
    ("no such table", "is not an etprof history ({text}); choose another --store"),
    ("no such column", "is not an etprof history ({text}); choose another --store"),
    ("locked", "is locked by another process; try again when that has ended"),
    ("unable to open", "cannot be used: {text}; check that its folder exists and may be written"),
    ("readonly", "cannot be used: {text}; check that its folder exists and may be written"),
)
"""What SQLite says, and what that means for the user."""
_OTHER_PROBLEM: Final = "cannot be used: {text}; check the disk and the file"
_EXAMPLE: Final = "postgresql://user@host/database"


class StoreError(EtprofError):
    """The store cannot be used now, or does not answer: no verdict, so not 1, a regression's code."""

    exit_code: ClassVar[int] = 8


class DamagedValueError(StoreError):
    """A value in the store that no etprof wrote there; the message names its kind."""


class UnknownObjectError(StoreError):
    """Something in the store that no etprof made; the message says what, and not yet where."""


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
        engine = create_engine(
            url, connect_args={"timeout": _BUSY_TIMEOUT_S}, json_deserializer=parse_json
        )
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "before_cursor_execute", _begin_statement)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    try:
        return create_engine(url, connect_args={"connect_timeout": 10}, pool_pre_ping=True)
    except (ImportError, NoSuchModuleError) as error:
        msg = "a PostgreSQL history needs psycopg: `pip install 'psycopg[binary]'`"
        raise UsageError(msg) from error


def _prepare_sqlite(connection: sqlite3.Connection, record: ConnectionPoolEntry) -> None:
    """Lets readers and one writer work at once; transactions are begun by `_begin_sqlite`."""
    connection.isolation_level = None
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_VALUE_BYTES)
    if sys.version_info >= (3, 12):
        connection.setconfig(sqlite3.SQLITE_DBCONFIG_DEFENSIVE, True)
    # Python hears of signals in it, and the error that follows becomes the signal's.
    statement = record.info[_STATEMENT] = _Statement()
    connection.set_progress_handler(statement.is_endless, _STEPS_A_LOOK)
    for setting in _SETTINGS:
        try:
            connection.execute(f"PRAGMA {setting}")
        # Of sqlite3, whose message about a damaged schema quotes the damage.
        except UnicodeDecodeError as error:
            msg = f"its schema: {error.reason}"
            raise DamagedValueError(msg) from None


class _Statement:
    """Counts how long the statement of a connection goes on."""

    def __init__(self) -> None:
        self.looks = 0

    def is_endless(self) -> bool:
        """Counts one look; whether SQLite has to end the statement."""
        self.looks += 1
        return self.looks > _MOST_LOOKS


def _begin_statement(connection: Connection, *_: object) -> None:
    connection.info[_STATEMENT].looks = 0


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
    except DamagedValueError as error:
        raise _damaged(url, str(error)) from None
    except UnknownObjectError as error:
        raise StoreError(f"{display_name(url)} {error}, or choose another --store") from None
    except DatabaseError as error:
        raise _explain(url, error) from None
    # Of the resolver: a name of a computer has no part that is empty or over 63 characters.
    except UnicodeError as error:
        if isinstance(error, UnicodeDecodeError):
            raise
        msg = f"{display_name(url)}: its host can be no computer's name ({error}); correct --store"
        raise StoreError(msg) from None
    # Of SQLAlchemy itself: rows that are missing, doubled or gone while they are read.
    except SQLAlchemyError as error:
        raise _damaged(url, str(error).partition("\n")[0]) from None


def _damaged(url: URL, reason: str) -> StoreError:
    return StoreError(
        f"{display_name(url)} is damaged ({reason}); restore a copy, or import an export"
    )


def _explain(url: URL, error: DatabaseError) -> EtprofError:
    """Says what is wrong with the store; the driver's text never brings a password along."""
    name, text = display_name(url), _first_line(error)
    if url.get_backend_name() != "sqlite":
        secrets = [url.password, *(url.query.get(key) for key in _SECRETS)]
        for secret in secrets:
            text = text.replace(str(secret), "***") if secret else text
        return StoreError(f"{name}: {text}; is the server up, and may this user connect?")
    if any(sign in text for sign in _SIGNS_OF_DAMAGE):
        return _damaged(url, text)
    problem = next((problem_text for sign, problem_text in _SQLITE_PROBLEMS if sign in text), None)
    return StoreError(f"{name} {(problem or _OTHER_PROBLEM).format(text=text)}")


def _first_line(error: DatabaseError) -> str:
    lines = str(error.orig).strip().splitlines()
    return lines[0] if lines else type(error.orig).__name__
