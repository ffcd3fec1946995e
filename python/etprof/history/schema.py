"""The store's tables: runs, their metrics, categories and raw samples, and pinned baselines.

A row of `runs` is one experiment of a run directory: one model, precision, backend, method, device,
SME mode and thread count. What is not known is NULL, never a guess.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, ClassVar, Final

from sqlalchemy import (
    JSON,
    Boolean,
    DateTime,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    TypeDecorator,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from etprof.base.text import clean, clean_data
from etprof.history.connection import DamagedValueError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Dialect

OK: Final = "ok"
FAILED: Final = "failed"
_INFINITE: Final = (math.inf, -math.inf)

_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


class _Checked(TypeDecorator[Any]):
    """A value that is read only if it is of its kind: SQLite's columns hold anything."""

    kinds: ClassVar[tuple[type, ...]]
    fit: ClassVar[Callable[[Any], Any]] = staticmethod(lambda value: value)
    """Makes of a value of the right kind what is handed out."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Returns what reads a value; it raises DamagedValueError for one of another kind."""
        read, kinds, fit = super().result_processor(dialect, coltype), self.kinds, type(self).fit

        def process(value: object) -> object:
            try:
                found = value if read is None else read(value)
            except (TypeError, ValueError, OverflowError) as error:
                msg = f"a value is no {kinds[0].__name__}: {error}"
                raise DamagedValueError(msg) from None
            if found is None:
                return None
            if type(found) in kinds and found not in _INFINITE:
                return fit(found)
            msg = f"a value is a {type(found).__name__} where a {kinds[0].__name__} belongs"
            raise DamagedValueError(msg)

        return process


class CheckedText(_Checked):
    """A text that is shown: a store may be a stranger's file, so it is cleaned when it is read."""

    impl = String
    cache_ok = True
    kinds = (str,)
    fit: ClassVar[Callable[[Any], Any]] = staticmethod(clean)


class CheckedInteger(_Checked):
    """A whole number."""

    impl = Integer
    cache_ok = True
    kinds = (int,)


class CheckedBoolean(_Checked):
    """True or False."""

    impl = Boolean
    cache_ok = True
    kinds = (bool,)


class CheckedFloat(_Checked):
    """A finite number."""

    impl = Float
    cache_ok = True
    kinds = (float, int)


class CheckedBytes(_Checked):
    """Bytes."""

    impl = LargeBinary
    cache_ok = True
    kinds = (bytes,)


class CheckedObject(_Checked):
    """A JSON object, whose texts are shown."""

    impl = JSON
    cache_ok = True
    kinds = (dict,)
    fit: ClassVar[Callable[[Any], Any]] = staticmethod(clean_data)


class UtcDateTime(_Checked):
    """A moment in UTC, stored without a zone and always read with one."""

    impl = DateTime
    cache_ok = True
    kinds = (datetime,)

    def process_bind_param(self, value: datetime | None, dialect: object) -> datetime | None:  # noqa: ARG002
        """Turns a moment of any zone into UTC; refuses one without a zone."""
        if value is None:
            return None
        if value.tzinfo is None:
            msg = f"{value} has no time zone"
            raise ValueError(msg)
        return value.astimezone(UTC).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: object) -> datetime | None:  # noqa: ARG002
        """Gives the moment its zone back."""
        return None if value is None else value.replace(tzinfo=UTC)


class Table(DeclarativeBase):
    """What all tables have in common."""

    metadata = MetaData(naming_convention=_NAMES)
    type_annotation_map: ClassVar = {
        datetime: UtcDateTime(),
        dict[str, Any]: CheckedObject(),
        bytes: CheckedBytes(),
        float: CheckedFloat(),
        str: CheckedText(),
        int: CheckedInteger(),
        bool: CheckedBoolean(),
    }


class Run(Table):
    """One experiment of one run directory."""

    __tablename__ = "runs"
    __table_args__ = (
        Index(None, "series", "measured_at"),
        Index(None, "status", "measured_at"),
        Index(None, "model", "measured_at"),
        Index(None, "device", "measured_at"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(unique=True)
    """Hash of program, experiment, launches and samples: the same run is added once."""
    run_name: Mapped[str]
    """Name of the run directory."""
    run_path: Mapped[str | None]
    """Where it was when it was added; `whereabouts` tells whether it is there still."""
    manifest_sha256: Mapped[str | None]
    """Of manifest.json when it was added: what tells its directory from others at the same path.
    NULL where an etprof of schema 0001 added it, or where there is no directory."""
    manifest_run_id: Mapped[str | None]
    """The manifest's own name for the run; NULL for older manifests, too."""
    experiment: Mapped[str]
    measured_at: Mapped[datetime] = mapped_column(index=True)
    added_at: Mapped[datetime]
    status: Mapped[str]
    """OK or FAILED."""
    failure: Mapped[str | None]
    """Why it failed, or what part of it did; one line."""
    model: Mapped[str]
    precision: Mapped[str | None]
    backend: Mapped[str | None]
    method: Mapped[str | None]
    device: Mapped[str]
    device_kind: Mapped[str]
    """local, macos, android or emulator."""
    soc: Mapped[str | None]
    sme_mode: Mapped[str]
    threads: Mapped[int | None]
    variant: Mapped[str | None]
    """What else was set for it, such as CPUs, a launcher, or how many tokens; NULL for nothing."""
    series: Mapped[str]
    """Short hash of model, precision, backend, method, device, SME mode, threads and variant: runs
    with the same are one trend."""
    revision: Mapped[str | None]
    """Short hash of what was measured: commit, program, pins, runner. Runs of one series with the
    same revision repeat each other (A/A); NULL where that cannot be known, as in a dirty tree."""
    git_commit: Mapped[str | None]
    git_branch: Mapped[str | None]
    git_dirty: Mapped[bool | None]
    executorch_version: Mapped[str | None]
    pins: Mapped[dict[str, Any]]
    artefacts: Mapped[dict[str, Any]]
    """{name: {"sha256": …, "size_bytes": …}}"""
    representative: Mapped[bool]
    """False for emulated times, which are never judged."""

    metrics: Mapped[list[Metric]] = relationship(order_by="Metric.name", passive_deletes=True)
    categories: Mapped[list[CategoryTime]] = relationship(passive_deletes=True)


def _run_key(*, primary: bool = True) -> Mapped[int]:
    """Returns the column that says which run a row belongs to."""
    return mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=primary)


class Metric(Table):
    """One metric of one run, over its blocks (process launches)."""

    __tablename__ = "metrics"

    run_id: Mapped[int] = _run_key()
    name: Mapped[str] = mapped_column(primary_key=True)
    unit: Mapped[str]
    """ns, bytes or 1/s."""
    higher_is_better: Mapped[bool]
    value: Mapped[float]
    """Median over blocks."""
    low: Mapped[float | None]
    """Interval of the median, 95 %; NULL below six blocks."""
    high: Mapped[float | None]
    count: Mapped[int]
    """Blocks."""
    samples: Mapped[bytes | None]
    """One value per block: zlib of little-endian float64 (`values.unpack_samples`)."""


class CategoryTime(Table):
    """Time of an inference spent in a category of operators, from the ETDump pass."""

    __tablename__ = "categories"

    run_id: Mapped[int] = _run_key()
    category: Mapped[str] = mapped_column(primary_key=True)
    time_ns: Mapped[float]


class RawSamples(Table):
    """Everything that was measured, as in metrics.json: kept apart, for it is seldom read."""

    __tablename__ = "raw_samples"

    run_id: Mapped[int] = _run_key()
    document: Mapped[bytes]
    """zlib of the experiment's JSON object."""


class Baseline(Table):
    """A run that others are compared with by name, one per series."""

    __tablename__ = "baselines"

    name: Mapped[str] = mapped_column(primary_key=True)
    series: Mapped[str] = mapped_column(primary_key=True)
    run_id: Mapped[int] = _run_key(primary=False)
    pinned_at: Mapped[datetime]
