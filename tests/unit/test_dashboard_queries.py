"""What the dashboard asks of a history, against a real SQLite file whose truth is known."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import numpy as np
import pytest
from rich.console import Console
from sqlalchemy import event, select, text, update

from etprof.dashboard.chart import choose_points
from etprof.dashboard.judging import Judge
from etprof.dashboard.queries import (
    Series,
    config_key,
    find_runs_before,
    find_sme_sides,
    list_branches,
    list_failures,
    list_keys,
    list_metrics,
    list_newest,
    list_series,
    load_runs,
    load_trend,
)
from etprof.dashboard.visit import Catalogue
from etprof.history.schema import FAILED, Run
from etprof.history.store import Store, open_store
from etprof.history.tables import METRICS_OF_A_RUN, brief_run
from etprof.views.brief import render_full
from tests.known_history import (
    EMULATOR,
    FAILING,
    HOSTILE,
    SHARES,
    START,
    KnownHistory,
    fill,
    pin,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy.orm import Session

KNOWN = KnownHistory(commits=8, devices=("Phone A",), precisions=("fp32", "int8"), emulated=True)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    opened = open_store(tmp_path_factory.mktemp("history") / "known.sqlite")
    fill(opened, KNOWN)
    yield opened
    opened.engine.dispose()


@pytest.fixture
def session(store: Store) -> Iterator[Session]:
    with store.session() as opened:
        yield opened


def series_of(session: Session, model: str, precision: str, sme: str) -> Series:
    (found,) = (
        entry
        for entry in list_series(session)
        if (entry.run.model, entry.run.precision, entry.run.sme_mode, entry.run.device)
        == (model, precision, sme, "Phone A")
    )
    return found


def test_every_series_is_listed_once_with_its_newest_run(session: Session) -> None:
    series = list_series(session)
    # THEN three models on two devices at two precisions with SME off and on
    assert len(series) == 3 * 2 * 2 * 2
    assert {entry.run.measured_at for entry in series} == {START + timedelta(days=7)}
    assert {entry.run.representative for entry in series if entry.run.device == EMULATOR} == {False}
    assert [entry.run.model for entry in list_series(session, model=FAILING)] == [FAILING] * 8


def test_a_failed_newest_run_leaves_the_latest_value_standing(session: Session) -> None:
    entry = series_of(session, FAILING, "int8", "off")
    assert entry.run.status == FAILED
    assert entry.latest_id is not None
    latest = load_runs(session, [entry.latest_id])[entry.latest_id]
    assert latest.measured_at == START + timedelta(days=6)


def test_a_branch_has_its_own_latest_runs(session: Session) -> None:
    # GIVEN every fourth commit on a side branch, THEN its newest is the fourth day's second round
    on_branch = list_series(session, branch="wip/faster-conv")
    assert {entry.run.measured_at for entry in on_branch} == {START + timedelta(days=7)}
    on_main = list_series(session, branch="main")
    assert {entry.run.measured_at for entry in on_main} == {START + timedelta(days=6)}
    assert list_series(session, branch="no such branch") == []
    assert list_branches(session, 10) == ["main", "wip/faster-conv"]
    assert list_branches(session, 1) == ["wip/faster-conv"]


def test_the_run_before_is_of_the_same_series_and_branch(session: Session) -> None:
    entry = series_of(session, FAILING, "fp32", "sme2")
    assert entry.latest_id is not None
    newest = load_runs(session, [entry.latest_id])[entry.latest_id]
    before = load_runs(session, find_runs_before(session, [newest]).values())
    (other,) = before.values()
    assert (other.series, other.git_branch) == (newest.series, "wip/faster-conv")
    assert newest.measured_at - other.measured_at == timedelta(days=4)
    # WHEN there is none, THEN nothing is made up
    assert find_runs_before(session, [other]) == {}


def test_sme_sides_are_of_the_same_run_directory(session: Session) -> None:
    entry = series_of(session, FAILING, "fp32", "sme2")
    run = load_runs(session, [entry.run.id])[entry.run.id]
    (side,) = find_sme_sides(session, run)
    assert (side.sme_mode, side.run_name, side.device) == ("off", run.run_name, run.device)
    assert config_key(side) == config_key(run) == entry.config


def test_trend_is_in_order_of_time_and_keeps_failures(session: Session) -> None:
    entry = series_of(session, FAILING, "int8", "off")
    points = load_trend(session, entry.run.series, "latency_ns", branch="", limit=100)
    assert [point.measured_at for point in points] == [START + timedelta(days=i) for i in range(8)]
    assert [point.value is None for point in points] == [False] * 7 + [True]
    assert points[-1].failure == "etprof-runner: cannot load method (synthetic)"
    # WHEN limited, THEN the newest stay
    newest = load_trend(session, entry.run.series, "latency_ns", branch="", limit=3)
    assert newest == points[-3:]
    main = load_trend(session, entry.run.series, "latency_ns", branch="main", limit=100)
    assert {point.branch for point in main} == {"main"}
    assert len(main) == 6


def test_metrics_values_and_categories_are_what_was_written(session: Session) -> None:
    entry = series_of(session, "toy_transformer", "fp32", "off")
    run = load_runs(session, [entry.run.id])[entry.run.id]
    values = {value.name: value for value in run.metrics}
    assert set(list_metrics(session, [entry])) == set(values)
    assert values["decode_tokens_per_second"].higher_is_better
    assert values["latency_ns"].count == 10
    assert set(run.categories) == set(SHARES)
    assert sum(run.categories.values()) == pytest.approx(values["latency_ns"].value, rel=0.02)


def test_an_untimed_run_of_an_older_store_hands_out_no_figure(session: Session) -> None:
    """B-D10, I2: what older editions kept of an emulator's times was shown and exported."""
    kept = session.execute(
        text("SELECT run_id FROM metrics JOIN runs ON id = run_id WHERE device = :d"),
        {"d": EMULATOR},
    )
    numbers = {row[0] for row in kept}
    assert numbers
    runs = session.scalars(select(Run).where(Run.id.in_(numbers))).all()
    console = Console(width=160)
    for run in runs:
        assert (run.metrics, run.categories, run.raw) == ([], {}, None)
        with console.capture() as capture:
            console.print(*render_full(brief_run(run)))
        shown = capture.get()
        assert not re.search(r"\d (ns|µs|ms|s)\b", shown)
        assert METRICS_OF_A_RUN.columns[0].heading not in shown
    timed = session.scalars(select(Run).where(Run.device != EMULATOR, Run.status != FAILED)).first()
    assert timed is not None
    assert timed.metrics
    assert list_metrics(session, [Series(runs[0], runs[0].id)]) == []


def test_an_untimed_run_in_a_timed_series_has_no_point(tmp_path: Path) -> None:
    """B-D10, I2: a run whose target proves no times, by whatever name its device goes."""
    store = open_store(tmp_path / "mixed.sqlite")
    fill(store, replace(KNOWN, models=("m",), emulated=False, commits=3, sme_modes=("off",)))
    untimed = update(Run).where(Run.measured_at == START + timedelta(days=1))
    store.write(lambda session: session.execute(untimed.values(representative=False)))
    with store.session() as session:
        for entry in list_series(session):
            points = load_trend(session, entry.run.series, "latency_ns", branch="", limit=9)
            days = {(point.measured_at - START).days for point in points}
            assert days == {0, 2}
    store.close()


def test_failures_are_the_newest_first_and_filtered(session: Session) -> None:
    assert {run.model for run in list_failures(session, {}, limit=100)} == {FAILING}
    assert list_failures(session, {"model": HOSTILE}, limit=100) == []
    assert len(list_failures(session, {"device": "Phone A"}, limit=100)) == 2
    assert len(list_failures(session, {}, limit=1)) == 1
    assert list_newest(session, 2) == sorted(list_newest(session, 2), reverse=True)


def test_pinned_baselines_come_before_the_run_before(tmp_path: Path) -> None:
    store = open_store(tmp_path / "pinned.sqlite")
    fill(store, replace(KNOWN, models=("toy_transformer",), emulated=False, commits=5))
    with store.session() as session:
        entries = list_series(session)
        runs = list(load_runs(session, (entry.run.id for entry in entries)).values())
        found = Judge(Catalogue(session), "latency_ns").references(runs).values()
        # Three of the four commits before are of the same branch.
        assert {reference.change["against"] for reference in found} == {"the 3 runs before"}
    pin(store, "release", 1)
    with store.session() as session:
        runs = list(load_runs(session, (entry.run.id for entry in entries)).values())
        found = Judge(Catalogue(session), "latency_ns").references(runs).values()
        labels = [reference.change["against"] for reference in found]
        assert sorted(labels) == ["baseline release", *["the 3 runs before"] * 3]
        assert {r.run_id for r in found if "release" in r.change["against"]} == {1}
    store.engine.dispose()


def test_queries_follow_indexes(store: Store, session: Session) -> None:
    asked: list[tuple[str, object]] = []

    def note(_: object, __: object, statement: str, parameters: object, *___: object) -> None:
        asked.append((statement, parameters))

    event.listen(store.engine, "before_cursor_execute", note)
    try:
        entry = list_series(session, branch="main")[0]
        run = load_runs(session, [entry.run.id])[entry.run.id]
        find_runs_before(session, [run])
        find_sme_sides(session, run)
        assert run.metrics
        assert run.categories
        load_trend(session, entry.run.series, "latency_ns", branch="main", limit=10)
        list_failures(session, {}, limit=10)
        list_branches(session, 10)
    finally:
        event.remove(store.engine, "before_cursor_execute", note)
    plans = [
        row[3]
        for statement, parameters in asked
        if statement.startswith("SELECT")
        for row in session.connection().exec_driver_sql(
            f"EXPLAIN QUERY PLAN {statement}",
            parameters,  # type: ignore[arg-type]
        )
    ]
    # THEN no table of runs or metrics is read from end to end, but by an index alone
    read_whole = [plan for plan in plans if plan.startswith("SCAN") and "runs" in plan]
    assert all("COVERING INDEX" in plan for plan in read_whole), read_whole
    assert not [plan for plan in plans if plan.startswith("SCAN metrics")]
    # THEN only the list of failures goes by status: half of all runs would have the same
    assert len([plan for plan in plans if "ix_runs_status" in plan]) == 1


def test_thinning_keeps_ends_and_peaks() -> None:
    values = [1.0 + 0.001 * (i % 7) for i in range(5_000)]
    values[3_210] = 9.0
    chosen = choose_points(values, 100)
    assert len(chosen) == 100
    assert chosen == sorted(set(chosen))
    assert (chosen[0], chosen[-1]) == (0, 4_999)
    assert 3_210 in chosen
    assert choose_points([3.0, 1.0, 2.0], 3) == [0, 1, 2]
    assert choose_points(values[:4], 3)[0::2] == [0, 3]


def test_runs_of_unknown_precision_or_threads_are_listed(tmp_path: Path) -> None:
    store = open_store(tmp_path / "unknown.sqlite")
    fill(store, replace(KNOWN, models=("m",), emulated=False, commits=1))
    store.write(lambda s: s.execute(update(Run).values(precision=None, threads=None, backend=None)))
    with store.session() as session:
        assert {(e.run.precision, e.run.threads, e.run.backend) for e in list_series(session)} == {
            (None,) * 3
        }
    store.engine.dispose()


def test_keys_are_asked_for_up_to_the_largest_number(session: Session) -> None:
    """A damaged store that pins a run of that number ended the dashboard as a fault of etprof's own."""
    assert list_keys(session, 2**63 - 8, 1000) == {}
    assert len(list_keys(session, 1, 2)) == 2


def largest_triangles(values: list[float], most: int) -> list[int]:
    """Steinarsson's algorithm, a loop at a time; `edges` are the first points of the buckets."""
    edges = np.linspace(1, len(values) - 1, most - 1).astype(int).tolist()
    chosen = [0]
    for first, end, after in zip(edges, edges[1:], [*edges[2:], len(values)], strict=False):
        following = range(end, after)
        x, y = np.mean(following), np.mean([values[i] for i in following])
        last = chosen[-1]

        def area(i: int, last: int = last, x: float = float(x), y: float = float(y)) -> float:
            return abs((last - x) * (values[i] - values[last]) - (last - i) * (y - values[last]))

        chosen.append(max(range(first, end), key=area))
    return [*chosen, len(values) - 1]


@pytest.mark.parametrize("most", [3, 4, 7, 20])
def test_points_are_those_of_the_largest_triangles(most: int) -> None:
    for seed in range(5):
        values = np.random.default_rng(seed).normal(size=61).cumsum().tolist()
        assert choose_points(values, most) == largest_triangles(values, most)
    # AND as many as there may be are all of them
    assert choose_points(values[:most], most) == list(range(most))
