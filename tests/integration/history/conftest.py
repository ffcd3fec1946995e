"""Stores to test with: each test runs on SQLite and, where it is installed, on PostgreSQL."""

from __future__ import annotations

import itertools
import os
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, make_url, text

from etprof.history.store import Store, open_store
from tests.postgres_cluster import find_programs, running_cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_REQUIRED = "ETPROF_POSTGRES_REQUIRED"


@pytest.fixture(scope="session")
def new_database() -> Iterator[Callable[[], str]]:
    """Makes an empty PostgreSQL database at each call, and returns its URL."""
    programs = find_programs()
    if programs is None:
        reason = "PostgreSQL is not installed: `apt install postgresql`"
        if os.environ.get(_REQUIRED):
            pytest.fail(f"{_REQUIRED} is set, but {reason}")
        pytest.skip(reason)
    numbers = itertools.count()
    with running_cluster(programs) as server:
        url = make_url(server).set(drivername="postgresql+psycopg")
        engine = create_engine(url, isolation_level="AUTOCOMMIT")

        def create() -> str:
            name = f"history_{next(numbers)}"
            with engine.connect() as connection:
                connection.execute(text(f"CREATE DATABASE {name}"))
            return url.set(drivername="postgresql", database=name).render_as_string()

        yield create
        engine.dispose()


@pytest.fixture(params=["sqlite", "postgresql"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place for a store: a path or a URL."""
    if request.param == "sqlite":
        return str(tmp_path / "history.sqlite")
    create: Callable[[], str] = request.getfixturevalue("new_database")
    return create()


@pytest.fixture
def store(target: str) -> Iterator[Store]:
    """An open, empty store."""
    with open_store(target) as opened:
        yield opened
