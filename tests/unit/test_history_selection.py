"""Which runs a verdict rests on: none that came later, failed, or was emulated (mutants 27-36)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import update

from etprof.history.gate import Gate
from etprof.history.run_spread import device_spreads
from etprof.history.schema import FAILED, Run
from etprof.history.store import Store, open_store
from etprof.history.trend import find_changes
from tests.measured_runs import MeasuredRun, scaled, write_measured

if TYPE_CHECKING:
    from sqlalchemy.orm import Session


class History:
    """A store to which runs are added in any order of their times."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store, self.folder = store, folder

    def add(self, minute: int, factor: float = 1.0, **facts: Any) -> int:  # noqa: ANN401
        """Adds one run of this minute; returns its number."""
        run = MeasuredRun(**{"blocks_us": scaled(factor), "minute": minute, **facts})
        place = write_measured(self.folder / f"run{minute}", run)
        (added,) = self.store.add_run_directory(place)
        return added.run_id

    def baseline_of(self, run_id: int, name: str) -> list[int]:
        """The numbers of the runs that a run is compared with, the newest first."""
        with self.store.session() as session:
            gate = Gate(session)
            found = gate.compare(name, session.get_one(Run, run_id), "latency_ns")
            return [metric.run_id for metric in found.baseline] if found else []


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with open_store(tmp_path / "h.sqlite") as store:
        yield History(store, tmp_path)


def commit(letter: str, branch: str = "main") -> dict[str, object]:
    return {"commit": letter * 40, "branch": branch, "dirty": False}


@pytest.mark.parametrize("name", ["window:9", "branch:main"])
def test_a_baseline_has_no_later_run(history: History, name: str) -> None:
    """Mutants 27 and 28: a run that is checked again must not be compared with its future."""
    earlier = history.add(1, git=commit("a"))
    candidate = history.add(2, git=commit("b"))
    later = history.add(3, git=commit("c"))
    assert history.baseline_of(candidate, name) == [earlier]
    assert history.baseline_of(earlier, name) == []
    assert history.baseline_of(later, "window:9") == [candidate, earlier]
    assert history.baseline_of(later, "branch:main") == [candidate]


@pytest.mark.parametrize("name", ["window:9", "branch:main"])
def test_a_baseline_has_no_failed_run(history: History, name: str) -> None:
    """Mutant 29: a failure has nothing to be compared with, and would take a place."""
    measured = history.add(1, git=commit("a"))
    failed = history.add(2, git=commit("b"), failing={"off": "lost"})
    candidate = history.add(3, git=commit("c"))
    with history.store.session() as session:
        assert session.get_one(Run, failed).status == FAILED
    assert history.baseline_of(candidate, name) == [measured]
    with history.store.session() as session:
        session.delete(session.get_one(Run, measured))
        assert not Gate(session).has_baseline(name, session.get_one(Run, candidate))


def test_a_noise_floor_has_no_emulated_run(history: History) -> None:
    """Mutant 31: what an emulator repeats says nothing of a device, whatever it is called."""
    for minute, factor in enumerate((1.0, 1.1, 0.9)):
        history.add(minute, factor)
    history.store.write(lambda session: _call_all_representative(session, answer=False))
    with history.store.session() as session:
        assert device_spreads(session) == []
    history.store.write(lambda session: _call_all_representative(session, answer=True))
    with history.store.session() as session:
        (found,) = (each for each in device_spreads(session) if each.metric == "latency_ns")
        assert (found.runs, found.series) == (3, 1)
    emulated = history.add(3, 3.0)
    history.store.write(lambda session: _call_emulated(session, emulated))
    with history.store.session() as session:
        assert found in device_spreads(session)


def _call_emulated(session: Session, number: int) -> None:
    session.execute(update(Run).where(Run.id == number).values(representative=False))


def _call_all_representative(session: Session, *, answer: bool) -> None:
    session.execute(update(Run).values(representative=answer))


def test_a_change_of_level_lies_between_the_commits_around_it(history: History) -> None:
    """Mutants 35 and 36: the last run of the old level, the first of the new, and both levels."""
    factors = (1.0, 1.001, 0.999, 1.002, 1.4, 1.402, 1.398, 1.404)
    numbers = [
        history.add(minute, factor, git=commit("abcdef01"[minute]))
        for minute, factor in enumerate(factors)
    ]
    with history.store.session() as session:
        (change,), _ = find_changes(session, "latency_ns", {})
        assert (change.previous.id, change.run.id) == (numbers[3], numbers[4])
        sides = change.previous.git_commit, change.run.git_commit
        assert sides == ("d" * 40, "e" * 40)
    assert change.before == pytest.approx(100_050, rel=2e-4)
    assert change.after == pytest.approx(140_100, rel=2e-4)
    assert change.is_worse
