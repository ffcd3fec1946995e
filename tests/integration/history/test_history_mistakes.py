"""A user's mistake is one line that names the cause and the way out; passwords stay secret."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import make_url

from etprof.base.errors import EtprofError
from etprof.cli import main
from etprof.history import store as store_module
from etprof.history.connection import display_name, parse_target
from etprof.history.store import open_store
from tests.measured_runs import MeasuredRun, write_measured

SECRET = "s3cr3t/@:x"  # noqa: S105 - must not be printed
QUOTED = "s3cr3t%2F%40%3Ax"


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str]:
    """Runs `etprof history`; returns exit code and the error, which is one line."""
    code = main(["history", *map(str, words)])
    error = capsys.readouterr().err
    assert error.count("\n") == 1, error
    return code, error.strip()


def test_a_missing_history(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ETPROF_HISTORY", raising=False)
    missing = (
        "etprof: etprof_history.sqlite does not exist; `etprof history add RUN_DIR` makes a history"
    )
    assert run(capsys, "check", "--baseline", "window:3") == (4, missing)
    assert not (tmp_path / "etprof_history.sqlite").exists()


def test_the_environment_names_the_history(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ETPROF_HISTORY", str(tmp_path / "mine.sqlite"))
    assert main(["history", "add", str(write_measured(tmp_path / "run", MeasuredRun()))]) == 0
    assert " ".join(capsys.readouterr().out.split()) == f"added #1 {tmp_path}/run off"
    assert (tmp_path / "mine.sqlite").exists()


def test_good_directories_are_added_beside_a_bad_one(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    good = write_measured(tmp_path / "good", MeasuredRun())
    (tmp_path / "bad").mkdir()
    words = ["history", "add", "--store", str(tmp_path / "h.sqlite"), str(tmp_path / "bad")]
    assert main([*words, str(good)]) == 4
    said = " ".join(capsys.readouterr().out.split())
    # What asks for something comes first.
    assert said.startswith(f"not added: {tmp_path}/bad is not a run directory")
    assert said.endswith(f"added #1 {good} off")


def test_a_file_that_is_no_database(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("these are notes, and they are long enough to be looked at" * 100)
    code, error = run(capsys, "list", "--store", path)
    assert (code, error) == (8, f"etprof: {path} is not a SQLite file; choose another --store")


@pytest.mark.parametrize("length", [1, 4, 99])
def test_a_file_shorter_than_a_database_is_kept(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, length: int
) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("n" * length)
    code, error = run(capsys, "list", "--store", path)
    assert (code, error) == (8, f"etprof: {path} is not a SQLite file; choose another --store")
    assert path.read_text() == "n" * length


def test_a_damaged_history(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "h.sqlite"
    for number in range(20):
        run_dir = write_measured(tmp_path / str(number), MeasuredRun(minute=number))
        assert main(["history", "add", "--store", str(path), str(run_dir)]) == 0
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xa5" * (len(content) - 4096)
    path.write_bytes(content)
    capsys.readouterr()
    code, error = run(capsys, "list", "--store", path)
    assert code == 8
    assert error.startswith(f"etprof: {path} is damaged")


def test_a_locked_history(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "h.sqlite"
    monkeypatch.setattr(store_module, "_PATIENCE_S", 0.0)
    monkeypatch.setattr("etprof.history.connection._BUSY_TIMEOUT_S", 0.01)
    open_store(path).close()
    run_dir = write_measured(tmp_path / "run", MeasuredRun())
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    code, error = run(capsys, "add", "--store", path, run_dir)
    assert code == 8
    assert error == (f"etprof: {path} is locked by another process; try again when that has ended")
    assert main(["history", "list", "--store", str(path)]) == 0
    other.close()


def test_a_folder_that_does_not_exist(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    run_dir = write_measured(tmp_path / "run", MeasuredRun())
    code, error = run(capsys, "add", "--store", tmp_path / "no" / "h.sqlite", run_dir)
    assert code == 8
    assert "unable to open database file; check that its folder exists" in error


def test_an_unreachable_server(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    # A folder without a socket: nothing outside of this test can make it answer.
    url = f"postgresql://u:{QUOTED}@/db?host={tmp_path}&password={QUOTED}"
    code, error = run(capsys, "list", "--store", url)
    assert code == 8
    assert "is the server up, and may this user connect?" in error
    assert SECRET not in error
    assert QUOTED not in error


def test_a_host_that_is_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    """U3-13: an overlong name, as of a path that was cut at a comma, was a defect of etprof's."""
    code, error = run(capsys, "list", "--store", f"postgresql://u@{'x' * 64}/db")
    assert code == 8
    assert "its host can be no computer's name" in error


def test_a_refused_login_does_not_repeat_the_password(
    capsys: pytest.CaptureFixture[str], postgresql: str
) -> None:
    url = make_url(postgresql).set(database="missing", password=SECRET)
    code, error = run(capsys, "list", "--store", url.render_as_string(hide_password=False))
    assert code == 8
    assert 'database "missing" does not exist' in error
    assert SECRET not in error
    assert QUOTED not in error


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("mysql://u:pw@h/db", "--store mysql://…: a history is a SQLite file or a PostgreSQL URL"),
        ("postgresql://u:pw@h:port/db", "--store: not a database URL; write postgresql://"),
        ("://", "--store: not a database URL"),
    ],
)
def test_urls_of_other_databases(target: str, message: str) -> None:
    with pytest.raises(EtprofError) as caught:
        parse_target(target)
    assert str(caught.value).startswith(message)
    assert "pw" not in str(caught.value)


def test_names_of_stores_have_no_password() -> None:
    url = parse_target(f"postgres://me:{QUOTED}@host/db?sslpassword=abc&connect_timeout=3")
    assert url.drivername == "postgresql+psycopg"
    assert display_name(url) == "postgresql://me:***@host/db?connect_timeout=3"
    assert display_name(parse_target("sqlite:////tmp/x.sqlite")) == "/tmp/x.sqlite"  # noqa: S108


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.json", b"[]", "is not an export of a history: document: "),
        ("x.json", b'{"format": "etprof-history", "schema_version": 9}', "is of a newer etprof"),
        (
            "x.json",
            b'{"format": "etprof-history", "schema_version": 1, "runs": [{"key": "x"}]}',
            "is damaged: runs.0.run_name: ",
        ),
        ("x.parquet", b"PAR1 and then nothing", "is damaged: "),
    ],
)
def test_other_files_are_not_imported(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    code, error = run(capsys, "import", "--store", tmp_path / "h.sqlite", path)
    assert code == 4
    assert error.startswith(f"etprof: {path} {message}")


def test_other_parquet_files_are_not_imported(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pa = pytest.importorskip("pyarrow")
    path = tmp_path / "x.parquet"
    pytest.importorskip("pyarrow.parquet").write_table(pa.table({"a": [1]}), path)
    code, error = run(capsys, "import", "--store", tmp_path / "h.sqlite", path)
    assert (code, error.startswith(f"etprof: {path} is not an export of a history")) == (4, True)


def test_an_export_never_overwrites(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("mine")
    store = tmp_path / "h.sqlite"
    open_store(store).close()
    code, error = run(capsys, "export", "--store", store, path)
    assert code == 7
    assert "exists and is not overwritten" in error
    assert path.read_text() == "mine"


def test_without_a_driver_the_way_out_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "psycopg", None)
    with pytest.raises(EtprofError, match=r"needs psycopg: `pip install 'psycopg\[binary\]'`"):
        open_store("postgresql://u@h/db")


def test_a_schema_that_is_no_text(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """S1: sqlite3 quotes a damaged schema, and cannot decode what it quotes."""
    path = tmp_path / "h.sqlite"
    assert (
        main(
            [
                "history",
                "add",
                str(write_measured(tmp_path / "r", MeasuredRun())),
                "--store",
                str(path),
            ]
        )
        == 0
    )
    capsys.readouterr()
    data = path.read_bytes()
    path.write_bytes(data.replace(b"CREATE TABLE runs", b"CREATE TABL\xed runs"))
    code, error = run(capsys, "list", "--store", path)
    assert code == 8
    assert str(path) in error


@pytest.mark.parametrize("words", [("import", "gone.json"), ("add", "gone"), ("add", "a", "b")])
def test_no_history_is_made_for_nothing(words: tuple[str, ...], tmp_path: Path) -> None:
    """A missing export or run directory once left an empty store behind."""
    store = tmp_path / "h.sqlite"
    paths = [str(tmp_path / name) for name in words[1:]]
    code = main(["history", words[0], "--store", str(store), *paths])
    assert (code, store.exists()) == (4, False)
