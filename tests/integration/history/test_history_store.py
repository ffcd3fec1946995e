"""What goes into a store comes out again; the same twice changes nothing. Both databases."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import func, select, text

from etprof.base.files import hash_file
from etprof.history import migrations
from etprof.history.connection import StoreError
from etprof.history.ingest import read_run_directory
from etprof.history.migrations import alembic_config
from etprof.history.schema import (
    CategoryTime,
    Metric,
    RawSamples,
    Run,
    TableBase,
    make_run,
    record_of,
)
from etprof.history.store import Store, iterate_runs, open_store
from tests.known_runs import on_off_run, write_run
from tests.measured_runs import MeasuredRun, write_measured


def count(store: Store, table: type[TableBase]) -> int:
    with store.session() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


def contents(store: Store) -> list[Run]:
    with store.session() as session:
        return list(iterate_runs(session, select(Run)))


def test_a_run_comes_out_as_it_went_in(store: Store, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", on_off_run())
    added = store.add_run_directory(run)
    assert [entry.is_new for entry in added] == [True, True]
    kept = [record_of(entry) for entry in contents(store)]
    assert kept == [record_of(entry) for entry in read_run_directory(run)]
    off, on = contents(store)
    assert (off.sme_mode, on.sme_mode) == ("off", "sme2")
    assert off.categories["Convolution"] == pytest.approx(750_000)
    assert on.raw is not None
    assert len(on.raw["blocks"]) == 10


def test_adding_twice_changes_nothing(store: Store, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", on_off_run())
    first = store.add_run_directory(run)
    before = [count(store, table) for table in (Run, Metric, CategoryTime, RawSamples)]
    (tmp_path / "elsewhere").mkdir()
    again = store.add_run_directory(run.rename(tmp_path / "elsewhere" / "moved"))
    assert [entry.is_new for entry in again] == [False, False]
    assert [entry.run_id for entry in again] == [entry.run_id for entry in first]
    assert [count(store, table) for table in (Run, Metric, CategoryTime, RawSamples)] == before


def test_a_failed_experiment_is_a_row_beside_the_measured_one(store: Store, tmp_path: Path) -> None:
    run = MeasuredRun(experiments=("off", "sme2"), failing={"sme2": "the device went away"})
    store.add_run_directory(write_measured(tmp_path / "run", run))
    measured, failed = contents(store)
    assert (measured.status, measured.failure) == ("ok", None)
    assert (failed.status, failed.failure) == ("failed", "timing: the device went away")
    assert not failed.metrics


def test_hostile_names_are_only_names(store: Store, tmp_path: Path) -> None:
    hostile = "'; DROP TABLE runs; --\x00\x1b[31m\u202e<script>"
    git = {"commit": "c" * 40, "branch": hostile, "dirty": False}
    run = write_measured(tmp_path / "run", MeasuredRun(model=hostile, git=git))
    store.add_run_directory(run)
    (document,) = contents(store)
    assert (
        document.model
        == document.git_branch
        == "'; DROP TABLE runs; --\\x00\\x1b[31m\\u202e<script>"
    )


def test_nothing_of_a_failed_transaction_stays(store: Store, tmp_path: Path) -> None:
    (run,) = read_run_directory(write_measured(tmp_path / "run", MeasuredRun()))
    facts = record_of(run).model_dump()
    broken = make_run({**facts, "key": "f" * 64, "metrics": facts["metrics"][:1] * 2})
    with pytest.raises(Exception, match=r"(?i)unique|duplicate"):
        store.add([run, broken])
    assert count(store, Run) == count(store, Metric) == 0


def test_migrations_make_exactly_the_tables_of_the_schema(store: Store) -> None:
    with store.engine.connect() as connection:
        options = {"compare_type": True, "compare_server_default": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, TableBase.metadata) == []
        scripts = ScriptDirectory.from_config(alembic_config(connection))
        assert scripts.get_heads() == [migrations.HEAD]
        assert context.get_current_revision() == migrations.HEAD


def test_migrations_can_be_taken_back(store: Store) -> None:
    from alembic import command

    with store.engine.begin() as connection:
        command.downgrade(alembic_config(connection), "base")
    with store.engine.begin() as connection:
        command.upgrade(alembic_config(connection), "head")
    assert count(store, Run) == 0


def test_a_store_of_an_older_etprof_is_brought_up(
    store: Store, target: str, tmp_path: Path
) -> None:
    """T14: schema 0001 kept no identity of a run's directory."""
    from alembic import command

    run = write_measured(tmp_path / "run", MeasuredRun())
    store.add_run_directory(run)
    with store.engine.begin() as connection:
        command.downgrade(alembic_config(connection), "0001")
    with open_store(target) as opened:
        (kept,) = contents(opened)
        assert (kept.experiment, kept.manifest_sha256) == ("off", None)
        opened.add_run_directory(run)
        (known,) = contents(opened)
        assert known.manifest_sha256 == hash_file(run / "manifest.json")


def test_a_store_of_a_newer_etprof_is_refused(store: Store, target: str) -> None:
    with store.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(StoreError, match=r"has schema 9999, made by a newer etprof; .* update"):
        open_store(target)


def test_a_database_of_something_else_is_left_alone(store: Store, target: str) -> None:
    with store.engine.begin() as connection:
        connection.execute(text("DROP TABLE alembic_version"))
    with pytest.raises(StoreError, match="belongs to something else"):
        open_store(target)


def test_runs_differ_where_anything_of_them_does(store: Store, tmp_path: Path) -> None:
    base = MeasuredRun()
    variants = [
        replace(base, minute=1), replace(base, blocks_us=(1, 2, 3)), replace(base, program="e" * 64)
    ]  # fmt: skip
    for number, run in enumerate([base, *variants]):
        store.add_run_directory(write_measured(tmp_path / str(number), run))
    assert count(store, Run) == 4


def test_a_manifest_that_was_written_anew_is_the_same_run(store: Store, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", on_off_run())
    launch = {"experiment": "android_off", "purpose": "timing", "block": 0, "duration_s": 1.0}
    launches = [{**launch, "started_at": "2026-11-21T05:00:01+00:00"}]
    for moment in ("2026-11-21T05:00:00+00:00", "2026-11-22T07:00:00+00:00"):
        manifest = json.loads((run / "manifest.json").read_text())
        changed = {"created_at": moment, "updated_at": moment, "launches": launches}
        (run / "manifest.json").write_text(json.dumps({**manifest, **changed}))
        store.add_run_directory(run)
    with store.session() as session:
        names = session.scalars(select(Run.experiment)).all()
    # An experiment without launches has nothing but the manifest's time to be told apart by.
    assert sorted(names) == ["android_off", "android_sme2", "android_sme2"]
