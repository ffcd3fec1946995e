"""Damaged containers: SQLite stores, Parquet exports, tar and zip archives."""

from __future__ import annotations

import functools
import gzip
import io
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.hostile.damage import damage_bytes
from tests.hostile.values import CANARY, TEXTS, VALUES, mutate_json

_SQL_VALUES: Final[tuple[object, ...]] = (
    None, -1, 0, 2**63 - 1, -(2**63), 1e308, 5e-324, float("inf"), float("nan"), b"", b"\xff\xfe\x00",
    b"x" * 100_000, b"x\x9c" * 40, "\udc80", *TEXTS.values(), "[" * 10_000, "{}", "NaN", "2026",
    "2026-13-45 99:99:99.000000", "-1-01-01 00:00:00.000000",
)  # fmt: skip
_SQL_STATEMENTS: Final = (
    "DROP TABLE {table}",
    "DELETE FROM {table}",
    "ALTER TABLE {table} RENAME TO other",
    "ALTER TABLE {table} RENAME COLUMN {column} TO other",
    "UPDATE alembic_version SET version_num = '9999'",
    "DELETE FROM alembic_version",
    "INSERT INTO alembic_version VALUES ('0001'), ('x')",
    "PRAGMA user_version = 2147483647",
    "PRAGMA journal_mode = DELETE",
    "CREATE TRIGGER t AFTER INSERT ON {table} BEGIN DELETE FROM {table}; END",
    "ALTER TABLE {table} RENAME TO old; CREATE VIEW {table} AS SELECT * FROM old",
    (
        "ALTER TABLE {table} RENAME TO old; CREATE VIEW {table} AS SELECT * FROM old, "
        "(WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x FROM c)"
    ),
    "UPDATE {table} SET {column} = load_extension('x')",
)


def mutate_store(path: Path, random: Random) -> str:
    """Changes a SQLite store in place: its bytes, a value, or its schema."""
    if random.random() < 0.35:
        data, told = damage_bytes(path.read_bytes(), random)
        path.write_bytes(data)
        return told
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        table, columns = _choose_table(connection, random)
        column = random.choice(columns)
        if random.random() < 0.25:
            statement = random.choice(_SQL_STATEMENTS).format(table=table, column=column)
            try:
                connection.executescript(statement)
            except sqlite3.Error:
                return f"{statement} (refused)"
            return statement
        value = _as_sql(random.choice(_SQL_VALUES))
        rows = connection.execute(f"SELECT rowid FROM {table}").fetchall() or [(0,)]  # noqa: S608
        chosen = random.choice(rows)[0]
        where = "" if random.random() < 0.3 else f" WHERE rowid = {chosen}"
        try:
            connection.execute(f"UPDATE {table} SET {column} = ?{where}", (value,))  # noqa: S608
        except sqlite3.IntegrityError:
            connection.execute(f"DELETE FROM {table} WHERE rowid = {chosen}")  # noqa: S608
        return f"{table}.{column}{where} = {str(value)[:40]!r}"


def _choose_table(connection: sqlite3.Connection, random: Random) -> tuple[str, Sequence[str]]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
    tables = sorted(row[0] for row in connection.execute(query))
    table = random.choice(tables)
    return table, [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]


def _as_sql(value: object) -> object:
    """Text that is no UTF-8 has to be cast from bytes; SQLite stores it all the same."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-8", "surrogateescape")
    return value


def mutate_parquet(data: bytes, random: Random) -> tuple[bytes, str]:
    """Changes a Parquet export: its bytes, or a column within a sound file."""
    if random.random() < 0.6:
        return damage_bytes(data, random)
    import pyarrow as pa
    import pyarrow.parquet

    table = pa.parquet.read_table(io.BytesIO(data))
    name = random.choice(table.column_names)
    values, told = _other_column(pa, table, name, random)
    at = table.column_names.index(name)
    changed = table.remove_column(at)
    if values is not None:
        changed = changed.add_column(at, name, values)
    if random.random() < 0.2:
        text = random.choice(list(VALUES.values())).encode()
        changed = changed.replace_schema_metadata({b"etprof_history": text})
        told += ", header"
    stream = io.BytesIO()
    pa.parquet.write_table(changed, stream)
    return stream.getvalue(), f"{name}: {told}"


def _other_column(pa: Any, table: Any, name: str, random: Random) -> tuple[Any, str]:  # noqa: ANN401
    """Returns a column in the place of one, and what it is; None where it is left out."""
    size = table.num_rows
    text = random.choice(list(TEXTS.values())).replace("\ud800", "")
    choices: dict[str, Callable[[], Any]] = {
        "left out": lambda: None,
        "null": lambda: pa.nulls(size),
        "numbers": lambda: pa.array([random.choice((-1, 0, 2**63 - 1))] * size),
        "not finite": lambda: pa.array([float("nan"), float("inf")] * size).slice(0, size),
        "text": lambda: pa.array([text] * size),
        "JSON": lambda: pa.array([random.choice(list(VALUES.values()))[:200_000]] * size),
        "bytes": lambda: pa.array([b"\xff\xfe"] * size),
        "lists": lambda: pa.array([[]] * size, pa.list_(pa.int64())),
        "moments": lambda: pa.array([2**62] * size, pa.timestamp("us", tz="UTC")),
    }
    told = random.choice(list(choices))
    return choices[told](), told


def mutate_tar(data: bytes, random: Random) -> tuple[bytes, str]:
    """Changes a gzipped archive of a run directory: its bytes, or what is in it."""
    if random.random() < 0.4:
        return damage_bytes(data, random)
    told = random.choice(list(_MEMBERS))
    stream = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(data)) as old,
        tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1) as new,
    ):
        if told != "no members":
            for member in old:
                if not (told == "no manifest" and member.name.endswith("manifest.json")):
                    new.addfile(*_copied(old, member, told, random))
        for member, content in _MEMBERS[told]:
            new.addfile(member, io.BytesIO(content))
    return stream.getvalue(), told


def _copied(
    old: tarfile.TarFile, member: tarfile.TarInfo, told: str, random: Random
) -> tuple[tarfile.TarInfo, io.BytesIO]:
    stream = old.extractfile(member) if member.isfile() else None
    content = stream.read() if stream else b""
    if told == "manifest" and member.name.endswith("manifest.json"):
        content = mutate_json(content.decode(), random)[0].encode("utf-8", "replace")
        member.size = len(content)
    return member, io.BytesIO(content)


def _member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> Any:  # noqa: ANN401
    member = tarfile.TarInfo(name)
    member.type, member.linkname, member.size, member.mode = kind, link, size, 0o777
    return member, b"\0" * size


_MEMBERS: Final[dict[str, list[Any]]] = {
    "manifest": [],
    "no manifest": [],
    "no members": [],
    "path upwards": [_member(f"../../{CANARY}", size=3)],
    "absolute path": [_member(f"/{CANARY}", size=3)],
    "link upwards": [_member("run/up", tarfile.SYMTYPE, "../../..")],
    "file through a link": [
        _member("run/up", tarfile.SYMTYPE, "../../../outside"), _member(f"run/up/{CANARY}", size=1),
    ],
    "hard link": [_member("run/hard", tarfile.LNKTYPE, "../../../outside/report.html")],
    "device": [_member("run/zero", tarfile.CHRTYPE)],
    "pipe": [_member("run/manifest.json", tarfile.FIFOTYPE)],
    "link in a file's place": [_member("run/manifest.json", tarfile.SYMTYPE, "/dev/zero")],
    "folder in a file's place": [_member("run/manifest.json", tarfile.DIRTYPE)],
    "long name": [_member("run/" + "n" * 5000, size=1)],
    "odd name": [_member("run/\x1b[2J\u202ea\nb", size=1)],
    "many members": [_member(f"run/many/{number}") for number in range(3000)],
}  # fmt: skip


@functools.cache
def bomb() -> bytes:
    """A small archive that unpacks to 512 MiB; twice what a case may write."""
    size = 2**29
    header = tarfile.TarInfo("run/manifest.json")
    header.size = size
    stream = io.BytesIO()
    with gzip.GzipFile(fileobj=stream, mode="wb", compresslevel=1) as packed:
        packed.write(header.tobuf())
        block = bytes(2**24)
        for _ in range(size // len(block)):
            packed.write(block)
    return stream.getvalue()


def mutate_zip(data: bytes, random: Random) -> tuple[bytes, str]:
    """Changes an ETRecord: its bytes, a member's, or a member's JSON."""
    if random.random() < 0.3:
        return damage_bytes(data, random)
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(stream, "w") as new:
        names = old.namelist()
        chosen = random.choice(names)
        told = "left out"
        for name in names:
            content = old.read(name)
            if name == chosen:
                if random.random() < 0.15:
                    continue
                content, told = _mutate_member(content, random)
            new.writestr(name, content)
    return stream.getvalue(), f"{chosen}: {told}"


def _mutate_member(content: bytes, random: Random) -> tuple[bytes, str]:
    if content.startswith((b"{", b"[")) and random.random() < 0.8:
        text, told = mutate_json(content.decode(), random)
        return text.encode("utf-8", "replace"), told
    return damage_bytes(content, random)
