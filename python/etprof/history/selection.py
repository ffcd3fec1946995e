"""Finds runs by what a user writes: a number, a name, a folder, filters, a baseline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Select, delete, func, select

from etprof.base.errors import UsageError
from etprof.base.text import clean, command_line, suggest
from etprof.history.schema import FLAGS, OK, Acceptance, Baseline, Run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from sqlalchemy.orm import Session

BRANCH: Final = "branch:"
WINDOW: Final = "window:"
_MOST_RUNS: Final = 100
_SHOWN_NAMES: Final = 20
"""Of branches and baselines, in a message."""
_MOST_DIGITS: Final = 18
"""Of a run's number: those of a 64-bit integer."""
NEWEST_FIRST: Final = (Run.measured_at.desc(), Run.id.desc())
SOUND: Final = (Run.status == OK, Run.wrong_outputs.is_(None))
"""Conditions of a run whose times count."""


def choose_runs(filters: Mapping[str, str]) -> Select[Run]:
    """Returns the query of the runs that `filters` let through, by the words of `FLAGS`.

    A commit may be the first digits of one.
    """
    query = select(Run)
    for flag, value in filters.items():
        column = getattr(Run, FLAGS[flag])
        is_same = column.startswith(value, autoescape=True) if flag == "commit" else column == value
        query = query.where(is_same)
    return query


def sound_runs(series: str, branch: str | None) -> Any:  # noqa: ANN401 - a query of three columns
    """Selects sound runs of a series on a branch, newest first."""
    return (
        select(Run.id, Run.git_commit, Run.git_dirty)
        .where(Run.series == series, *SOUND)
        .where(Run.git_branch.is_not_distinct_from(branch))
        .order_by(*NEWEST_FIRST)
    )


def earlier_runs(run: Run, branch: str | None) -> Any:  # noqa: ANN401 - a query of three columns
    """Selects sound runs of a run's series on a branch, newest first; of its own, earlier ones."""
    query = sound_runs(run.series, branch).where(Run.id != run.id)
    if branch == run.git_branch:
        query = query.where(Run.measured_at <= run.measured_at)
    return query


def newest_runs(session: Session, filters: Mapping[str, str], limit: int) -> Sequence[Run]:
    """Returns up to `limit` runs, newest first."""
    query = choose_runs(filters).order_by(*NEWEST_FIRST).limit(limit)
    return session.scalars(query).all()


def newest_of_each_series(session: Session, filters: Mapping[str, str]) -> Sequence[Run]:
    """Returns the newest run of every series that has one under `filters`."""
    rank = func.row_number().over(partition_by=Run.series, order_by=NEWEST_FIRST)
    matching = choose_runs(filters)
    ranked = matching.with_only_columns(Run.id, rank.label("rank")).subquery()
    newest = select(ranked.c.id).where(ranked.c.rank == 1)
    query = select(Run).where(Run.id.in_(newest))
    return session.scalars(query.order_by(Run.model, Run.precision, Run.series)).all()


def find_runs(session: Session, text: str) -> Sequence[Run]:
    """Returns the runs that `text` names: by number, run directory, or name of one.

    A run directory has one run per experiment. Raises UsageError when there is none.
    """
    if text.isascii() and text.isdigit():
        number = int(text) if len(text) <= _MOST_DIGITS else 0
        runs: Sequence[Run] = session.scalars(select(Run).where(Run.id == number)).all()
    elif Path(text).is_dir():
        from etprof.history.ingest import read_run_directory

        keys = [document.key for document in read_run_directory(Path(text))]
        runs = session.scalars(select(Run).where(Run.key.in_(keys)).order_by(Run.id)).all()
    else:
        named = select(Run).where(Run.run_name == text)
        newest = session.scalar(named.with_only_columns(func.max(Run.measured_at)))
        runs = session.scalars(named.where(Run.measured_at == newest).order_by(Run.id)).all()
    if not runs:
        msg = f"no run {text} in the history; `etprof history list` shows them, `add` adds one"
        raise UsageError(msg)
    return runs


def pin_runs(session: Session, name: str, runs: Sequence[Run], moment: datetime) -> None:
    """Makes `runs` the baseline `name` of their series; what it was before is replaced."""
    if not name or name != clean(name) or name.startswith((BRANCH, WINDOW, "-")):
        msg = f"a baseline cannot be called {name!r}; choose a plain name, such as release-1.2"
        raise UsageError(msg)
    _refuse_failed(runs)
    for run in runs:
        session.merge(Baseline(name=name, series=run.series, run_id=run.id, pinned_at=moment))


def accept_runs(session: Session, runs: Sequence[Run], acceptance: Mapping[str, Any]) -> None:
    """Says of runs that they may be worse than those before them: their level is meant.

    Args:
        session: One that writes.
        runs: What is accepted.
        acceptance: `accepted_at`, `accepted_by` and `why`.
    """
    _refuse_failed(runs)
    for run in runs:
        session.merge(Acceptance(run_id=run.id, **acceptance))


def accepted_runs(session: Session) -> Sequence[tuple[Acceptance, Run]]:
    """Returns every acceptance with its run, the newest first."""
    query = select(Acceptance, Run).join(Run, Run.id == Acceptance.run_id)
    newest_first = query.order_by(Acceptance.accepted_at.desc(), Run.id)
    return [(acceptance, run) for acceptance, run in session.execute(newest_first)]


def _refuse_failed(runs: Sequence[Run]) -> None:
    unfit = [run for run in runs if run.status != OK]
    if unfit:
        msg = f"run {unfit[0].id} failed ({unfit[0].failure}); choose one that was measured"
        raise UsageError(msg)


def pinned_runs(session: Session) -> Sequence[tuple[Baseline, Run]]:
    """Returns every baseline with its run, by name."""
    query = select(Baseline, Run).join(Run, Run.id == Baseline.run_id)
    return [
        (baseline, run) for baseline, run in session.execute(query.order_by(Baseline.name, Run.id))
    ]


def unpin(session: Session, name: str) -> int:
    """Removes the baseline `name`; returns of how many series. Raises UsageError for none."""
    series = session.scalars(select(Baseline.series).where(Baseline.name == name)).all()
    if not series:
        raise UsageError(_unknown_baseline(session, name))
    session.execute(delete(Baseline).where(Baseline.name == name))
    return len(series)


def check_baseline(session: Session, baseline: str) -> None:
    """Raises UsageError, naming the nearest there is, when `baseline` cannot be one."""
    if baseline.startswith(WINDOW):
        window_size(baseline)
    elif baseline.startswith(BRANCH):
        branch = baseline.removeprefix(BRANCH)
        if session.scalar(select(Run.id).where(Run.git_branch == branch).limit(1)) is None:
            names = session.scalars(select(Run.git_branch).distinct()).all()
            branches = sorted(name for name in names if name)
            shown = ", ".join(branches[:_SHOWN_NAMES]) or "none"
            msg = (
                f"--baseline {baseline}: no run of that branch{suggest(branch, branches)}; "
                f"branches with runs: {shown}"
            )
            raise UsageError(msg)
    elif session.scalar(select(Baseline.name).where(Baseline.name == baseline).limit(1)) is None:
        raise UsageError(_unknown_baseline(session, baseline))


def window_size(baseline: str) -> int:
    """Returns the N of window:N; raises UsageError."""
    text = baseline.removeprefix(WINDOW)
    if not text.isdecimal() or len(text) > _MOST_DIGITS or not 1 <= int(text) <= _MOST_RUNS:
        msg = f"--baseline {baseline}: write window:N with N from 1 to {_MOST_RUNS}"
        raise UsageError(msg)
    return int(text)


def _unknown_baseline(session: Session, name: str) -> str:
    names = session.scalars(select(Baseline.name).distinct().order_by(Baseline.name)).all()
    pinned = ", ".join(names[:_SHOWN_NAMES]) or "none"
    pin = command_line("history", "pin", name, "RUN")
    kind, separator, rest = name.partition(":")
    kinds = [f"{prefix}{rest}" for prefix in (WINDOW, BRANCH)] if separator else []
    meant = suggest(name, [*names, *kinds]) or suggest(kind, (WINDOW[:-1], BRANCH[:-1]))
    return (
        f"no baseline {name} is pinned{meant} (pinned: {pinned}); `{pin}` pins one, branch:NAME "
        "and window:N need none"
    )
