"""What the pages ask of the store. Every query follows an index; none reads the whole table.

Lists start from one row per series (some hundreds), never from the runs (some hundred thousands).
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import and_, func, or_, select, union_all
from sqlalchemy.orm import aliased, defer

from etprof.history.schema import FAILED, OF_A_SERIES, Baseline, Metric, Run
from etprof.history.selection import NEWEST_FIRST, choose_runs
from etprof.history.store import batches

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sqlalchemy import ScalarSelect, Select, Subquery
    from sqlalchemy.orm import InstrumentedAttribute, Session

Entry = TypeVar("Entry")
_OF_A_CONFIG: Final = tuple(name for name in OF_A_SERIES if name != "sme_mode")
_SERIES_AT_ONCE: Final = 100
_LARGEST_ID: Final = 2**63 - 1
"""In one statement; SQLite joins 500 at most."""
RECENT_RUNS: Final = 5_000
"""Branches on offer, and what is latest on one, are of this many newest runs."""


@dataclass(frozen=True)
class Series:
    """One line of a trend and where it stands."""

    run: Run
    """The newest, without pins and artefacts."""
    latest_id: int | None
    """The newest run that did not fail."""

    @property
    def config(self) -> str:
        """Identifies what the series is of, its SME mode apart."""
        return config_key(self.run)


def config_key(run: Run) -> str:
    """Identifies what a run is of, its SME mode apart."""
    facts = (getattr(run, name) for name in _OF_A_CONFIG)
    texts = ("" if fact is None else str(fact) for fact in facts)
    return hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class TrendPoint:
    """One run in a trend."""

    run_id: int
    measured_at: datetime
    commit: str | None
    branch: str | None
    value: float | None
    """None for a failed run."""
    low: float | None
    high: float | None
    failure: str | None = None


def list_series(session: Session, *, model: str = "", branch: str = "") -> list[Series]:
    """Returns every series with its newest run, of one model where it is given.

    With a branch, only series that have a run of that branch among the recent ones.
    """
    names = select(Run.series).where(*([Run.model == model] if model else [])).distinct().subquery()
    scope = _branch_scope(session, branch)
    newest = _newest_id(names, scope)
    latest = _newest_id(names, scope, succeeded=True)
    newest_ids = (
        select(newest.label("newest"), latest.label("latest")).select_from(names).subquery()
    )
    statement = (
        select(Run, newest_ids.c.latest)
        .join(newest_ids, Run.id == newest_ids.c.newest)
        .options(defer(Run.pins), defer(Run.artefacts))
    )
    return sorted(
        (Series(run, latest) for run, latest in session.execute(statement)), key=_sort_key
    )


def _sort_key(series: Series) -> tuple[object, ...]:
    """Where a series stands in lists; thread counts in the order of numbers."""
    run = series.run
    identity = (run.model, run.device, run.precision or "", run.backend or "", run.method or "")
    return (*identity, run.threads or 0, run.variant or "", run.sme_mode)


BranchScope = tuple[str, datetime]
"""A branch, and when the oldest of the recent runs was measured."""


def _branch_scope(session: Session, branch: str) -> BranchScope | None:
    """Where to look for a branch's runs: without an end, a rare branch would read every run."""
    if not branch:
        return None
    moments = select(Run.measured_at).order_by(Run.measured_at.desc())
    oldest = session.scalar(moments.offset(RECENT_RUNS - 1).limit(1))
    return branch, oldest or datetime.min.replace(tzinfo=UTC)


def _newest_id(
    names: Subquery, scope: BranchScope | None, *, succeeded: bool = False
) -> ScalarSelect[int]:
    """The newest run of each series: a walk down one index."""
    run = aliased(Run)
    conditions = [run.series == names.c.series]
    if scope is not None:
        conditions += [run.git_branch == scope[0], run.measured_at >= scope[1]]
    # Written as a difference, so that no database takes the index of the status.
    conditions += [run.status != FAILED] if succeeded else []
    newest_first = (run.measured_at.desc(), run.id.desc())
    newest = select(run.id).where(*conditions).order_by(*newest_first).limit(1)
    return newest.correlate(names).scalar_subquery()


def list_metrics(session: Session, all_series: Iterable[Series]) -> list[str]:
    """Returns the names of the metrics that the latest runs have."""
    ids = {series.latest_id for series in all_series if series.latest_id is not None}
    timed = select(Metric.name).join(Metric.run).where(Run.representative).distinct()
    return list(set(_select(session, timed, Metric.run_id, ids)))


def list_branches(session: Session, limit: int) -> list[str]:
    """Returns the branches that were measured last, sorted by name."""
    recent = select(Run.id).order_by(Run.measured_at.desc()).limit(RECENT_RUNS).subquery()
    statement = (
        select(Run.git_branch)
        .join(recent, Run.id == recent.c.id)
        .where(Run.git_branch.is_not(None), Run.git_branch != "")
        .group_by(Run.git_branch)
        .order_by(func.max(Run.measured_at).desc())
        .limit(limit)
    )
    return sorted(branch for branch in session.scalars(statement) if branch)


def list_newest(session: Session, limit: int) -> list[int]:
    """Returns the newest runs."""
    statement = select(Run.id).order_by(*NEWEST_FIRST).limit(limit)
    return list(session.scalars(statement))


def count_runs(session: Session) -> tuple[int, int]:
    """Returns how many runs the store has, and the one that was added last; 0 for none."""
    count, newest = session.execute(select(func.count(), func.max(Run.id)).select_from(Run)).one()
    return count, newest or 0


def list_keys(session: Session, first: int, count: int) -> dict[int, str]:
    """Returns the keys of the runs with the numbers from `first` on, `count` of them at most."""
    # A damaged store may name any number, and SQLite is asked for none that is larger than its own.
    last = min(first + count - 1, _LARGEST_ID)
    statement = select(Run.id, Run.key).where(Run.id >= first, Run.id <= last)
    return {row.id: row.key for row in session.execute(statement)}


def find_by_key(session: Session, begin: str) -> Run | None:
    """Returns the run whose key begins so; None for none."""
    between = select(Run).where(Run.key >= begin, Run.key < f"{begin}g").limit(1)
    return session.scalar(between)


def load_runs(session: Session, ids: Iterable[int]) -> dict[int, Run]:
    """Returns runs by id."""
    return {run.id: run for run in _select(session, select(Run), Run.id, set(ids))}


def load_values(session: Session, runs: Iterable[Run], metric: str) -> dict[int, Metric]:
    """Returns one metric of each run that has it, by run."""
    timed = select(Metric).join(Metric.run).where(Run.representative, Metric.name == metric)
    ids = {run.id for run in runs}
    return {row.run_id: row for row in _select(session, timed, Metric.run_id, ids)}


def load_latest(
    session: Session, all_series: Iterable[Series], metric: str
) -> tuple[dict[int, Run], dict[int, Metric]]:
    """Returns the latest run of each series, and the metric of each that has it, by run."""
    runs = load_runs(session, (series.latest_id for series in all_series if series.latest_id))
    return runs, load_values(session, runs.values(), metric)


def load_newest_values(
    session: Session, all_series: Iterable[Series], metric: str, *, branch: str, limit: int
) -> dict[str, list[float]]:
    """Returns the newest values of each series, the oldest first, by series."""
    scope = _branch_scope(session, branch)
    values_by_series = defaultdict[str, list[tuple[datetime, float]]](list)
    for names in batches(sorted({series.run.series for series in all_series}), _SERIES_AT_ONCE):
        selects = [select(_newest_values(name, metric, scope, limit).subquery()) for name in names]
        for row in session.execute(union_all(*selects)):
            values_by_series[row.series].append((row.measured_at, row.value))
    return {name: [value for _, value in sorted(rows)] for name, rows in values_by_series.items()}


def _newest_values(
    series: str, metric: str, scope: BranchScope | None, limit: int
) -> Select[str, datetime, float]:
    conditions = [Run.series == series, Run.representative]
    if scope is not None:
        conditions += [Run.git_branch == scope[0], Run.measured_at >= scope[1]]
    return (
        select(Run.series, Run.measured_at, Metric.value)
        .join(Metric, and_(Metric.run_id == Run.id, Metric.name == metric))
        .where(*conditions)
        .order_by(*NEWEST_FIRST)
        .limit(limit)
    )


def find_runs_before(session: Session, runs: Iterable[Run]) -> dict[int, int]:
    """Returns, for each run, the one before it in its series and on its branch."""
    run, earlier = aliased(Run), aliased(Run)
    before = (
        select(earlier.id)
        .where(
            earlier.series == run.series,
            earlier.status != FAILED,
            earlier.git_branch.is_not_distinct_from(run.git_branch),
            earlier.measured_at <= run.measured_at,
            or_(earlier.measured_at < run.measured_at, earlier.id < run.id),
        )
        .order_by(earlier.measured_at.desc(), earlier.id.desc())
        .limit(1)
        .correlate(run)
        .scalar_subquery()
    )
    predecessors: dict[int, int] = {}
    for batch in batches([later.id for later in runs]):
        rows = session.execute(select(run.id, before).where(run.id.in_(batch)))
        predecessors |= {run_id: before_id for run_id, before_id in rows if before_id is not None}
    return predecessors


def find_sme_sides(session: Session, run: Run) -> list[Run]:
    """Returns the runs of the same run directory that differ from `run` in SME alone."""
    alike = (*_OF_A_CONFIG, "measured_at", "run_name", "run_path", "revision")
    statement = select(Run).where(
        Run.status != FAILED,
        Run.sme_mode != run.sme_mode,
        *(getattr(Run, name) == getattr(run, name) for name in alike),
    )
    return list(session.scalars(statement.order_by(Run.sme_mode)))


def differ_in_sme_only(off: Run, on: Run) -> bool:
    """Whether two runs of one configuration are of the same program, runner and commit."""
    if off.revision is not None or on.revision is not None:
        return off.revision == on.revision
    origins = [(run.run_name, run.run_path, run.measured_at) for run in (off, on)]
    return origins[0] == origins[1]


def load_baselines(session: Session, series: Iterable[str]) -> dict[str, list[Baseline]]:
    """Returns the pinned baselines of each series, the newest first."""
    baselines_by_series: dict[str, list[Baseline]] = {}
    newest_first = select(Baseline).order_by(Baseline.pinned_at.desc(), Baseline.name)
    for row in _select(session, newest_first, Baseline.series, set(series)):
        baselines_by_series.setdefault(row.series, []).append(row)
    return baselines_by_series


def load_trend(
    session: Session, series: str, metric: str, *, branch: str, limit: int
) -> list[TrendPoint]:
    """Returns the newest `limit` runs of a series, oldest first; failed ones have no value."""
    statement = (
        select(
            Run.id, Run.measured_at, Run.git_commit, Run.git_branch,
            Metric.value, Metric.low, Metric.high, Run.failure, Run.status,
        )
        .outerjoin(
            Metric, and_(Metric.run_id == Run.id, Metric.name == metric, Run.representative)
        )
        .where(Run.series == series, *([Run.git_branch == branch] if branch else []))
        .order_by(*NEWEST_FIRST)
        .limit(limit)
    )  # fmt: skip
    rows = session.execute(statement).all()
    return [
        TrendPoint(
            run_id=row.id, measured_at=row.measured_at, commit=row.git_commit,
            branch=row.git_branch, value=row.value, low=row.low, high=row.high,
            failure=(row.failure or "failed") if row.status == FAILED else None,
        )
        for row in reversed(rows)
        if row.status == FAILED or row.value is not None
    ]  # fmt: skip


def list_failures(session: Session, filters: Mapping[str, str], *, limit: int) -> list[Run]:
    """Returns failed runs, the newest first."""
    statement = (
        choose_runs({**filters, "status": FAILED})
        .order_by(*NEWEST_FIRST)
        .limit(limit)
        .options(defer(Run.pins), defer(Run.artefacts))
    )
    return list(session.scalars(statement))


def _select(
    session: Session,
    rows: Select[Entry],
    column: InstrumentedAttribute[Any],
    values: set[Any],
) -> Iterator[Entry]:
    """Yields the rows that have one of the values, in as many statements as a database takes."""
    for batch in batches(sorted(values)):
        yield from session.scalars(rows.where(column.in_(batch)))
