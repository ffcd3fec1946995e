"""S3-2: a history is data. What SQLite would run of it is refused by its name, and nothing lasts."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
from pathlib import Path

import pytest
from sqlalchemy import text

from etprof.base.interruption import Interrupted, interruptible
from etprof.cli import main
from etprof.history import connection
from etprof.history.connection import StoreError
from etprof.history.store import open_store
from tests.measured_runs import MeasuredRun, write_measured

ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
OBJECTS = {
    "CREATE TRIGGER halve AFTER INSERT ON metrics BEGIN UPDATE metrics SET value = value * 0.5 "
    "WHERE run_id = new.run_id AND name = new.name; END": "has a trigger halve on metrics",
    f"CREATE TRIGGER endless BEFORE INSERT ON runs BEGIN {ENDLESS}; END":
        "has a trigger endless on runs",
    "CREATE TRIGGER gone AFTER INSERT ON runs BEGIN DELETE FROM runs; END":
        "has a trigger gone on runs",
    f"CREATE VIEW more AS {ENDLESS}": "has a view more",
    "CREATE VIRTUAL TABLE calibrations USING fts5(device)": "a table calibrations that no etprof",
    "CREATE TABLE notes (text)": "belongs to something else (it has a table notes)",
    "CREATE TABLE value (id INTEGER)": "belongs to something else (it has a table value)",
    "CREATE INDEX slow ON runs (model)": "belongs to something else (it has an index slow)",
    "CREATE INDEX ix_runs_measured_at ON runs (hex(zeroblob(1000000)))":
        "has an index ix_runs_measured_at that no etprof made (its definition has 'hex')",
    "CREATE TABLE calibrations (id INTEGER CHECK (id > 1))": "(its definition has 'CHECK')",
    "CREATE TABLE calibrations (id INTEGER DEFAULT 7)": "(its definition has 'DEFAULT')",
    "CREATE TABLE calibrations (id INTEGER, runs INTEGER AS (id))": "(its definition has 'AS')",
    "CREATE TABLE calibrations (id INTEGER UNIQUE ON CONFLICT REPLACE)": "has 'CONFLICT'",
    "CREATE TABLE calibrations (id INTEGER COLLATE nocase)": "(its definition has 'COLLATE')",
    "CREATE TABLE calibrations (id INTEGER REFERENCES runs ON UPDATE CASCADE)": "has 'UPDATE'",
}  # fmt: skip
ACTIONS = (["list"], ["show", "1"], ["check"], ["export", "out.json"], ["changes"])


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A history with one run, and another run beside it."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "h.sqlite"
    with open_store(path) as store:
        store.add_run_directory(write_measured(tmp_path / "0", MeasuredRun(minute=0)))
    write_measured(tmp_path / "1", MeasuredRun(minute=1))
    return path


def plant(history: Path, statement: str) -> bytes:
    """Adds an object to the store, in place of one of its name; returns the whole file."""
    planted = sqlite3.connect(history)
    for kind, name in (("TABLE", "calibrations"), ("INDEX", "ix_runs_measured_at")):
        if f"{kind} {name}" in statement:
            planted.execute(f"DROP {kind} {name}")
    planted.execute(statement)
    planted.commit()
    planted.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    planted.close()
    return history.read_bytes()


@pytest.mark.parametrize("statement", OBJECTS, ids=lambda text: text[7:40])
def test_what_no_etprof_made_is_named_and_nothing_is_written(
    history: Path, capsys: pytest.CaptureFixture[str], statement: str
) -> None:
    before = plant(history, statement)
    for words in (["add", "1"], *ACTIONS):
        assert main(["history", *words, "--store", str(history)]) == 8, words
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{history} " in line
        assert OBJECTS[statement] in line
    assert history.read_bytes() == before
    assert not Path("out.json").exists()


def test_an_object_that_comes_while_the_store_is_open_is_noticed(history: Path) -> None:
    """Nothing of a store that changes hands while it is open is run either."""
    run = write_measured(history.with_name("2"), MeasuredRun(minute=2))
    with open_store(history) as store:
        plant(history, next(iter(OBJECTS)))
        with pytest.raises(StoreError, match="has a trigger halve on metrics"):
            store.add_run_directory(run)


def test_a_statement_that_does_not_end_is_ended(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "_MOST_LOOKS", 20)
    with open_store(history) as store:
        endless = pytest.raises(StoreError, match=r"h\.sqlite keeps SQLite busy without end")
        with endless, store.session() as session:
            session.execute(text(ENDLESS)).all()
        # The bound is of one statement, not of a connection.
        with store.session() as session:
            for _ in range(5):
                rows = ENDLESS.replace("FROM n)", "FROM n WHERE i < 100000)")
                assert session.execute(text(rows)).scalar_one() == 100_000


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda each: each.name)
def test_a_signal_ends_a_statement(history: Path, number: signal.Signals) -> None:
    """SIGTERM and SIGINT did nothing: SQLite's own code never came back to Python."""
    timer = threading.Timer(0.3, os.kill, (os.getpid(), number))
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with open_store(history) as store:
            timer.start()
            caught = pytest.raises(Interrupted)
            with store.session() as session, caught as error, interruptible():
                session.execute(text(ENDLESS)).all()
    finally:
        signal.signal(signal.SIGINT, before)
    assert error.value.signal == number


def test_settings_that_keep_a_strangers_file_from_running(history: Path) -> None:
    with open_store(history) as store, store.session() as session:
        wanted = {"trusted_schema": 0, "cell_size_check": 1, "mmap_size": 0, "foreign_keys": 1}
        for name, value in wanted.items():
            assert session.execute(text(f"PRAGMA {name}")).scalar() in {value, None}, name
