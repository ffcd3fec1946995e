"""A SQLite store has the tables and indexes that etprof makes, and nothing else.

A file from elsewhere may bring triggers, views, generated columns, checks and virtual tables: all
of them are code that SQLite runs when etprof reads and writes.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Final

from etprof.base.text import clean
from etprof.history.connection import UnknownObjectError
from etprof.history.schema import TableBase

if TYPE_CHECKING:
    from sqlalchemy import Connection

VERSIONS: Final = "alembic_version"
"""The table that says which revision the store is of."""
_LONGEST: Final = 300
"""Of a message, in characters: the names are a stranger's."""
_QUERY: Final = "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type DESC"
_SQLITES_OWN: Final = "sqlite_"
"""How names begin that only SQLite can make: indexes of keys, statistics."""
_TOKEN: Final = re.compile(
    r"""\s+|"(?P<name>[^"]+)"|(?P<word>\w+)|(?P<mark>[(),])|(?P<other>.)""", re.DOTALL
)
_WORDS: Final = frozenset((
    "create", "table", "index", "on", "not", "null", "constraint", "primary", "unique", "foreign",
    "key", "references", "delete", "cascade",
    "integer", "varchar", "float", "datetime", "boolean", "json", "blob",
    # Of Alembic's own table: VARCHAR(32).
    "version_num", "alembic_version", "alembic_version_pkc", "32",
))  # fmt: skip
"""What a definition of etprof's consists of beside names; not generated, as, check, default,
collate, conflict, where, using, update."""


def check_schema(connection: Connection) -> None:
    """Raises UnknownObjectError for what no etprof made.

    In the transaction that has just begun: nobody can add to the schema while that lasts.
    """
    for kind, name, table, sql in connection.exec_driver_sql(_QUERY):
        article = "an" if kind == "index" else "a"
        problem = _problem(f"{article} {kind}", str(name), str(table), sql)
        if problem is not None:
            raise UnknownObjectError(clean(problem, _LONGEST))


def _problem(kind: str, name: str, table: str, sql: object) -> str | None:
    if kind in {"a trigger", "a view"}:
        where = f" on {table}" if kind == "a trigger" else ""
        return f"has {kind} {name}{where}, which SQLite would run and no etprof made; drop it"
    if name.startswith(_SQLITES_OWN) and table in {name, *_objects()}:
        return None
    if name not in _objects():
        return f"belongs to something else (it has {kind} {name}); restore a copy"
    odd = _odd_token(str(sql))
    if odd is not None:
        return f"has {kind} {name} that no etprof made (its definition has {odd!r}); restore a copy"
    return None


def _odd_token(sql: str) -> str | None:
    """Returns the first part of a definition that none of etprof's has."""
    names = _names()
    for token in _TOKEN.finditer(sql):
        name, keyword = token["name"], token["word"]
        if token["other"] is not None:
            return token["other"]
        if (name is not None and name not in names) or (
            keyword is not None and keyword.lower() not in _WORDS and keyword not in names
        ):
            return name or keyword
    return None


@cache
def _objects() -> frozenset[str]:
    """Returns the names of all tables and indexes of this etprof's schema."""
    tables = TableBase.metadata.tables.values()
    indexes = (str(index.name) for table in tables for index in table.indexes)
    return frozenset((VERSIONS, *(table.name for table in tables), *indexes))


@cache
def _names() -> frozenset[str]:
    """Returns those, and the names of their columns and constraints."""
    names = set(_objects())
    for table in TableBase.metadata.tables.values():
        names |= {column.name for column in table.columns}
        names |= {str(constraint.name) for constraint in table.constraints}
    return frozenset(names)
