"""The store's schema, revision by revision: brings a store up, once, whoever comes first."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sqlalchemy import inspect, text
from sqlalchemy.exc import DatabaseError

from etprof.history.connection import WRITES, DamagedValueError, StoreError, display_name
from etprof.history.sqlite_schema import VERSIONS

if TYPE_CHECKING:
    from alembic.config import Config
    from sqlalchemy import Connection, Engine

HEAD: Final = "0006"
"""The newest revision, as `versions` ends in; a test compares."""
_ADVISORY_LOCK: Final = 0x6574_7072_6F66
"""The bytes of "etprof": PostgreSQL's lock that openers of a store take in turn."""


def bring_up_to_date(engine: Engine) -> None:
    """Runs the migrations that the store lacks, in one transaction and under a lock.

    Raises StoreError for a store of a newer etprof and for a database of something else.
    """
    with engine.connect() as connection:
        if _current(connection) == HEAD:
            return
    if engine.dialect.name == "sqlite":
        _use_write_ahead_log(engine)
    with engine.connect().execution_options(**{WRITES: True}) as connection, connection.begin():
        if engine.dialect.name == "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))
        current = _current(connection)
        if current != HEAD:
            _check_known(engine, connection, current)
            _upgrade(connection)


def alembic_config(connection: Connection) -> Config:
    """Returns Alembic's settings; `migrations/env.py` takes the connection from them."""
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    folder = str(Path(__file__).parent)
    # In an option, % begins a substitution.
    config.set_main_option("script_location", folder.replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _current(connection: Connection) -> str | None:
    """Returns the store's revision; None when it has none yet."""
    if not inspect(connection).has_table(VERSIONS):
        return None
    revision: str | None = connection.execute(text(f"SELECT version_num FROM {VERSIONS}")).scalar()  # noqa: S608
    return revision


def _check_known(engine: Engine, connection: Connection, current: str | None) -> None:
    from alembic.script import ScriptDirectory

    name = display_name(engine.url)
    if current is None:
        tables = inspect(connection).get_table_names()
        if tables:
            msg = f"{name} belongs to something else (it has a table {tables[0]}); choose another"
            raise StoreError(msg)
        return
    scripts = ScriptDirectory.from_config(alembic_config(connection))
    if current not in {script.revision for script in scripts.walk_revisions()}:
        msg = (
            f"{name} has schema {current}, made by a newer etprof; this one knows "
            f"{HEAD}: update etprof, or choose another --store"
        )
        raise StoreError(msg)


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.util import CommandError

    try:
        command.upgrade(alembic_config(connection), "head")
    except CommandError as error:
        msg = f"its schema cannot be brought up to date: {str(error).partition(chr(10))[0]}"
        raise DamagedValueError(msg) from error


def _use_write_ahead_log(engine: Engine) -> None:
    """Lets readers go on while one writes; the file remembers it."""
    statement = "PRAGMA journal_mode=WAL"
    connection = engine.raw_connection()
    try:
        connection.cursor().execute(statement)
    except sqlite3.Error as error:
        raise DatabaseError(statement, None, error) from error
    finally:
        connection.close()
