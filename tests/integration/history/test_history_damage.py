"""S5, S6: a history that is damaged, foreign or no file ends in exit code 8 and one line."""

from __future__ import annotations

import os
import shutil
import sqlite3
import zlib
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text

from etprof.cli import main
from etprof.history.columns import decompress, unpack_samples
from etprof.history.connection import DamagedValueError
from etprof.history.store import open_store
from tests.known_history import pin
from tests.measured_runs import MeasuredRun, write_measured

COMMANDS = {
    "list": ["list"],
    "show": ["show", "1"],
    "check": ["check", "--baseline", "window:3"],
    "changes": ["changes"],
    "export": ["export", "out.json"],
}
BLOB = b"\xff\x00\xfe"


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history with a few runs, and baselines."""
    path = tmp_path_factory.mktemp("sound") / "h.sqlite"
    with open_store(path) as store:
        for minute in range(4):
            run_dir = path.with_name(str(minute))
            store.add_run_directory(write_measured(run_dir, MeasuredRun(minute=minute)))
        pin(store, "release", 1)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return path


@pytest.fixture
def history(sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copy(sound, tmp_path / "h.sqlite"))


def run(capsys: pytest.CaptureFixture[str], history: Path, name: str) -> tuple[int, str]:
    """Runs an action of `etprof history`; what it says of an error is one line."""
    Path("out.json").unlink(missing_ok=True)
    code = main(["history", *COMMANDS[name], "--store", str(history)])
    error = capsys.readouterr().err
    assert error.count("\n") <= 1, error
    return code, error


def change(history: Path, statement: str, *values: object) -> None:
    # Closed whatever happens: Python 3.13 warns of a connection that is left to the collector.
    with closing(sqlite3.connect(history)) as connection:
        connection.execute("PRAGMA ignore_check_constraints=ON")
        connection.execute("PRAGMA foreign_keys=OFF")
        with connection:
            connection.execute(statement, values)


def columns(history: Path, table: str) -> list[str]:
    connection = sqlite3.connect(history)
    found = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    connection.close()
    return found


@pytest.mark.parametrize("value", [BLOB, "not this", 1e999, 2**62, '{"a": NaN}'])
def test_a_value_of_another_kind_is_told_wherever_it_stands(
    value: object, history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = history.read_bytes()
    told = 0
    for table in ("runs", "metrics", "categories", "raw_samples", "baselines"):
        for column in columns(history, table):
            history.write_bytes(sound)
            try:
                change(history, f"UPDATE {table} SET {column} = ? WHERE rowid % 2", value)  # noqa: S608
            except sqlite3.IntegrityError:
                continue  # a key that must differ from row to row
            for name in COMMANDS:
                code, error = run(capsys, history, name)
                # Another word in a text is no damage, and may be a regression or nothing to judge.
                assert code in {0, 1, 2, 4, 8, 9}, (table, column, name, error)
                told += code == 8
                assert code != 8 or str(history) in error
    assert told > 10


def test_a_text_that_is_a_blob_is_named(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(history, "UPDATE runs SET model = ?", BLOB)
    code, error = run(capsys, history, "list")
    assert code == 8
    assert error == (
        f"etprof: {history} is damaged (a value has type bytes instead of str); restore a copy, or "
        "import an export\n"
    )


def test_every_damaged_page_ends_in_one_line(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = history.read_bytes()
    generator = np.random.default_rng(7)
    codes = set()
    for page in range(0, len(sound), 4096):
        damaged = bytearray(sound)
        for place in generator.integers(page, page + 4096, 40):
            damaged[place] = int(generator.integers(256))
        history.write_bytes(damaged)
        for name in ("list", "check", "export"):
            code, error = run(capsys, history, name)
            assert code in {0, 1, 2, 4, 8, 9}, (page, name, error)
            codes.add(code)
    assert 8 in codes


@pytest.mark.parametrize("length", [100, 4096, 5000])
def test_a_history_that_was_cut_off(
    length: int, history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history.write_bytes(history.read_bytes()[:length])
    assert run(capsys, history, "list")[0] == 8


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE runs DROP COLUMN soc",
        "DROP TABLE metrics",
        "DELETE FROM alembic_version",
        "UPDATE alembic_version SET version_num = x'ff'",
        "ALTER TABLE alembic_version RENAME COLUMN version_num TO other",
    ],
)
def test_another_schema(statement: str, history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(history, statement)
    code, error = run(capsys, history, "show" if "metrics" in statement else "list")
    assert code == 8
    assert str(history) in error


def test_a_view_that_never_ends_is_not_read(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(history, "ALTER TABLE runs RENAME TO other")
    change(history, "CREATE VIEW runs AS WITH RECURSIVE n(id) AS "
                    "(SELECT 1 UNION ALL SELECT id + 1 FROM n) SELECT * FROM n")  # fmt: skip
    code, error = run(capsys, history, "list")
    assert (code, "has a view runs" in error) == (8, True)


def make_pipe(path: Path) -> None:
    os.mkfifo(path)


def make_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [make_pipe, make_device, Path.mkdir])
@pytest.mark.parametrize("suffix", ["", "-wal", "-journal"])
def test_what_is_no_file(
    make: Callable[[Path], None], suffix: str, history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not suffix:
        history.unlink()
    make(history.with_name(f"{history.name}{suffix}"))
    code, error = run(capsys, history, "list")
    assert (code, "; choose another --store" in error) == (8, True)


@pytest.mark.parametrize("number", ["9" * 19, "9" * 5000, "0", "²"])
def test_numbers_that_no_run_has(
    number: str, history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["history", "show", number, "--store", str(history)]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_bomb_is_not_unpacked() -> None:
    bomb = zlib.compress(bytes(2**27))
    assert len(bomb) < 2**18
    for damaged in (bomb, bomb[:-1], b"", b"no zlib", zlib.compress(b"1234567")):
        with pytest.raises(DamagedValueError):
            unpack_samples(damaged)
    with pytest.raises(DamagedValueError, match="not a finite number"):
        unpack_samples(zlib.compress(np.array([np.nan]).tobytes()))
    assert decompress(zlib.compress(b"1234"), 4) == b"1234"


def test_an_artefact_that_is_none_is_damage_and_hides_nothing(tmp_path: Path) -> None:
    """A stranger's store: what is exported is checked, what is shown leaves it out."""
    path = tmp_path / "h.sqlite"
    with open_store(path) as store:
        store.add_run_directory(write_measured(tmp_path / "run", MeasuredRun()))
        damage = text("""UPDATE runs SET artefacts = '{"program": 1}'""")
        store.write(lambda session: session.execute(damage))
    for kind in ("hud", "json"):
        out = str(tmp_path / f"out.{kind}")
        words = ["history", "export", out, "--format", kind, "--store", str(path)]
        assert main(words) == 8
    assert main(["history", "show", "1", "--store", str(path)]) == 0
