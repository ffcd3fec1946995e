"""Eight writers at once, killed at random: nothing is lost, nothing doubled, nothing half."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import event, func, select

from etprof.history.ingest import read_run_directory
from etprof.history.schema import Metric, RawSamples, Run
from etprof.history.store import Store, open_store
from tests.measured_runs import MeasuredRun, write_measured

WRITERS, RUNS, OVERLAP = 8, 400, 10
CONTEXT = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Death:
    """A SIGKILL some time after a writer starts, or before its so-manieth statement."""

    after_s: float | None = None
    at_statement: int = 0


def add_share(target: str, run_dirs: list[str], death: Death | None) -> None:
    """A writer; one that is to die does so in the middle of its work, or at the latest after it."""
    if death is not None and death.after_s is not None:
        threading.Timer(death.after_s, die).start()
    store = open_store(target)
    if death is not None and death.after_s is None:
        die_at_statement(store, death.at_statement)
    for run_dir in run_dirs:
        store.add_run_directory(Path(run_dir))
    while death is not None:
        time.sleep(1)


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at_statement(store: Store, last: int) -> None:
    """Lets this process die, most likely within a transaction."""
    statements = itertools.count()

    def count(*_: object) -> None:
        if next(statements) == last:
            die()

    event.listen(store.engine, "before_cursor_execute", count)


def supervise(target: str, share: list[str], seed: int) -> list[int]:
    """Starts a writer, again after each death; returns the exit codes."""
    chooser = random.Random(seed)  # noqa: S311 - moments of death, no secrets
    opening = Death(after_s=chooser.uniform(0.0, 0.3))
    adding = [Death(at_statement=chooser.randrange(2 * len(share))) for _ in range(2)]
    codes = []
    for death in (opening, *adding, None):
        writer = CONTEXT.Process(target=add_share, args=(target, share, death))
        writer.start()
        writer.join()
        codes.append(writer.exitcode or 0)
    return codes


def test_eight_killed_writers_lose_and_double_nothing(target: str, tmp_path: Path) -> None:
    run_dirs = [
        write_measured(tmp_path / f"run{minute}", MeasuredRun(minute=minute, blocks_us=(9, 9, 9)))
        for minute in range(RUNS)
    ]
    size = RUNS // WRITERS
    shares = [
        [str(path) for path in run_dirs[first : first + size + OVERLAP]]
        for first in range(0, RUNS, size)
    ]
    CONTEXT.set_forkserver_preload(["etprof.history.ingest", "etprof.history.store"])
    codes: dict[int, list[int]] = {}
    threads = [
        threading.Thread(target=lambda i=i: codes.update({i: supervise(target, shares[i], i)}))
        for i in range(WRITERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    ends = {i: [code == 0 for code in codes[i]] for i in codes}
    assert ends == {i: [False, False, False, True] for i in range(WRITERS)}
    expected = {document.key for path in run_dirs for document in read_run_directory(path)}
    with open_store(target) as store, store.session() as session:
        keys = session.scalars(select(Run.key)).all()
        metrics = session.execute(
            select(Run.id, func.count(Metric.name)).outerjoin(Metric).group_by(Run.id)
        )
        assert len(keys) == RUNS
        assert set(keys) == expected
        assert {number for _, number in metrics} == {6}
        assert session.scalar(select(func.count()).select_from(RawSamples)) == RUNS
