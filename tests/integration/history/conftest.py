"""Stores to test with: each test runs on SQLite and, where it is installed, on PostgreSQL."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url, text

from etprof.history.store import Store, open_store
from tests.postgres_cluster import find_programs, running_cluster

_REQUIRED = "ETPROF_POSTGRES_REQUIRED"


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """URL of a database in a server of our own, started once."""
    programs = find_programs()
    if programs is None:
        reason = "PostgreSQL is not installed: `apt install postgresql`"
        if os.environ.get(_REQUIRED):
            pytest.fail(f"{_REQUIRED} is set, but {reason}")
        pytest.skip(reason)
    with running_cluster(programs) as url:
        yield url


def empty(url: str) -> str:
    """Empties the database, which is quicker than another one, and returns its URL."""
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))
    engine.dispose()
    return url


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place for a store: a path or a URL."""
    if request.param == "sqlite":
        return str(tmp_path / "history.sqlite")
    return empty(request.getfixturevalue("postgresql"))


@pytest.fixture
def store(target: str) -> Iterator[Store]:
    """An open, empty store."""
    with open_store(target) as opened:
        yield opened
