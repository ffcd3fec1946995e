"""The store's tables: runs, their metrics, categories and raw samples, and pinned baselines.

A row of `runs` is one experiment of a run directory: one model, precision, backend, method, device,
SME mode and thread count. What is not known is NULL, never a guess. The columns are the one
declaration of a run: imports and exports, filters, and the facts on pages come from here.
"""

from __future__ import annotations

import hashlib
import json
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field, create_model
from sqlalchemy import ForeignKey, Index, MetaData
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from etprof.analysis.exact_facts import ExactFacts
from etprof.base.records import Count, Name, Named, Record
from etprof.history.columns import (
    CheckedBoolean,
    CheckedFloat,
    CheckedInteger,
    CheckedObject,
    CheckedText,
    Number,
    PackedObject,
    Samples,
    TypedColumn,
    UtcDateTime,
)
from etprof.targets.registry import TARGETS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlalchemy.orm import MappedColumn

OK: Final = "ok"
FAILED: Final = "failed"
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]

_NAMES = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}


def _check_device_kind(name: str) -> str:
    names = [target.history_name for target in TARGETS]
    if name not in names:
        msg = f"not one of {', '.join(names)}"
        raise ValueError(msg)
    return name


def _proves_times(device_kind: str) -> bool:
    return any(e.policy.proves_times for e in TARGETS if e.history_name == device_kind)


class Artefact(Record):
    """A file by its content."""

    sha256: Name
    size_bytes: Count | None = None


class OperatorWork(Record):
    """What one operator asks of the machine in one inference; 0 for none, as of what is no SME."""

    calls: Count
    """Of microkernels, packing included."""
    macs: Count = 0
    """Multiply-accumulates that outputs of products on SME need."""
    padded_macs: Count = 0
    """Those that tiles and packing add."""
    steps: Count = 0
    bytes: Count = 0
    """Of both packed sides, as often as they are read, and of the output."""
    instructions: Count = 0
    """Inside the delegate's library."""


class RunWork(Record):
    """All operators of a run that call microkernels."""

    svl_bits: Count | None = None
    has_instructions: bool = False
    """Whether they were counted; else those of all operators are 0."""
    operators: Named[OperatorWork]


class TableBase(DeclarativeBase):
    """What all tables have in common."""

    metadata = MetaData(naming_convention=_NAMES)
    type_annotation_map: ClassVar = {
        datetime: UtcDateTime(),
        dict[str, Any]: CheckedObject(),
        float: CheckedFloat(),
        str: CheckedText(),
        int: CheckedInteger(),
        bool: CheckedBoolean(),
    }

    def facts(self) -> dict[str, Any]:
        """Returns the row's own columns by name."""
        return {column.key: getattr(self, column.key) for column in self.__table__.columns}


def _fact(
    title: str | None = None,
    *,
    accepts: object = None,
    flag: str | None = None,
    tells_apart: bool = False,
    **options: Any,  # noqa: ANN401 - whatever mapped_column takes
) -> MappedColumn[Any]:
    """Declares a column: its title for people, what an import must be, and how it filters.

    `flag` is the word that chooses runs by it; runs that differ where `tells_apart` are not two
    runs of the same thing.
    """
    info = {"title": title, "accepts": accepts, "flag": flag, "tells_apart": tells_apart}
    return mapped_column(info=info, **options)


def _measured(table: str, **options: Any) -> Any:  # noqa: ANN401 - whatever relationship takes
    """Declares the rows of a run that a clock had a part in."""
    condition = f"and_(Run.id == {table}.run_id, Run.representative)"
    return relationship(table, primaryjoin=condition, passive_deletes=True, **options)


class Run(TableBase):
    """One experiment of one run directory."""

    __tablename__ = "runs"
    __table_args__ = (
        Index(None, "series", "measured_at"),
        Index(None, "status", "measured_at"),
        Index(None, "model", "measured_at"),
        Index(None, "device", "measured_at"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    run_name: Mapped[str] = _fact("run")
    """Name of the run directory."""
    experiment: Mapped[str] = _fact("experiment")
    measured_at: Mapped[datetime] = mapped_column(index=True)
    added_at: Mapped[datetime]
    status: Mapped[str] = _fact(accepts=Literal["ok", "failed"], flag="status")
    """OK or FAILED."""
    failure: Mapped[str | None]
    """Why it failed, or what part of it did; one line."""
    model: Mapped[str] = _fact("model", flag="model", tells_apart=True)
    precision: Mapped[str | None] = _fact("precision", flag="precision", tells_apart=True)
    backend: Mapped[str | None] = _fact("backend", flag="backend", tells_apart=True)
    method: Mapped[str | None] = _fact("method", tells_apart=True)
    device: Mapped[str] = _fact("device", flag="device", tells_apart=True)
    device_kind: Mapped[str] = _fact(
        "kind of device", accepts=Annotated[Name, AfterValidator(_check_device_kind)]
    )
    """A target's name in the history."""
    soc: Mapped[str | None] = _fact("SoC")
    sme_mode: Mapped[str] = _fact("SME", flag="sme", tells_apart=True)
    threads: Mapped[int | None] = _fact("threads", flag="threads", tells_apart=True)
    variant: Mapped[str | None] = _fact("variant", tells_apart=True)
    """What else was set for it, such as CPUs, a launcher, or how many tokens; NULL for nothing."""
    git_commit: Mapped[str | None] = _fact("commit", flag="commit", tells_apart=True)
    git_branch: Mapped[str | None] = _fact("branch", flag="branch", tells_apart=True)
    git_dirty: Mapped[bool | None] = _fact("files were changed")
    executorch_version: Mapped[str | None] = _fact("ExecuTorch", tells_apart=True)
    pins: Mapped[dict[str, Any]] = _fact(
        "pins", accepts=Named[Name | None], tells_apart=True, default={}
    )
    artefacts: Mapped[dict[str, Any]] = _fact(
        "artefacts", accepts=Named[Artefact], tells_apart=True, default={}
    )
    """{name: {"sha256": …, "size_bytes": …}}"""
    revision: Mapped[str | None] = _fact("revision")
    """Short hash of what was measured: commit, program, pins, runner. Runs of one series with the
    same revision repeat each other (A/A); NULL where that cannot be known, as in a dirty tree."""
    series: Mapped[str] = _fact("series")
    """Short hash of model, precision, backend, method, device, SME mode, threads and variant: runs
    with the same are one trend."""
    run_path: Mapped[str | None] = _fact("run directory")
    """Where it was when it was added; `whereabouts` tells whether it is there still."""
    manifest_run_id: Mapped[str | None] = _fact("run id")
    """The manifest's own name for the run; NULL for older manifests."""
    manifest_sha256: Mapped[str | None] = _fact("SHA-256 of the manifest", accepts=Digest)
    """Of manifest.json when it was added: what tells its directory from others at the same path.
    NULL where an etprof of schema 0001 added it, or where there is no directory."""
    key: Mapped[str] = _fact("key", accepts=Digest, unique=True)
    """Hash of program, experiment, launches and samples: the same run is added once."""
    wrong_outputs: Mapped[str | None] = _fact("wrong outputs")
    """What its verdicts say against its outputs; NULL for nothing, or where nobody knows. No time of
    a wrong answer counts."""
    work: Mapped[dict[str, Any] | None] = _fact(accepts=RunWork)
    """What was counted, by operator; None where nothing was."""
    exact_facts: Mapped[dict[str, Any] | None] = _fact(accepts=ExactFacts)
    """What no noise changes; NULL of runs from before schema 0006."""
    representative: Mapped[bool]
    """Whether its target proves times. One that does not has none: no row of it is written, and
    those that older stores hold are never handed out."""

    metrics: Mapped[list[Metric]] = _measured(
        "Metric", order_by="Metric.name", back_populates="run"
    )
    category_rows: Mapped[list[CategoryTime]] = _measured("CategoryTime")
    raw_row: Mapped[RawSamples | None] = _measured("RawSamples")

    @property
    def categories(self) -> dict[str, float]:
        """Time of an inference by category of operators, in ns; empty where no ETDump was read."""
        return {row.category: row.time_ns for row in self.category_rows}

    @property
    def raw(self) -> dict[str, Any] | None:
        """The experiment's object in metrics.json, with the bytes of changed names (`RAW_NAMES`)."""
        return self.raw_row.document if self.raw_row else None


def _run_key(*, primary: bool = True) -> Mapped[int]:
    """Returns the column that says which run a row belongs to."""
    return mapped_column(ForeignKey("runs.id", ondelete="CASCADE"), primary_key=primary)


class Metric(TableBase):
    """One metric of one run, over its blocks (process launches)."""

    __tablename__ = "metrics"

    run_id: Mapped[int] = _run_key()
    name: Mapped[str] = mapped_column(primary_key=True)
    unit: Mapped[str] = _fact(accepts=Literal["ns", "bytes", "1/s"])
    higher_is_better: Mapped[bool]
    value: Mapped[float]
    """Median over blocks."""
    low: Mapped[float | None]
    """Interval of the median, 95 %; NULL below six blocks."""
    high: Mapped[float | None]
    count: Mapped[int]
    """Blocks."""
    samples: Mapped[tuple[float, ...]] = mapped_column(Samples, nullable=True)
    """One value per block."""

    run: Mapped[Run] = relationship(back_populates="metrics")


class CategoryTime(TableBase):
    """Time of an inference spent in a category of operators, from the ETDump pass."""

    __tablename__ = "categories"

    run_id: Mapped[int] = _run_key()
    category: Mapped[str] = mapped_column(primary_key=True)
    time_ns: Mapped[float]


class RawSamples(TableBase):
    """Everything that was measured, as in metrics.json: kept apart, for it is seldom read."""

    __tablename__ = "raw_samples"

    run_id: Mapped[int] = _run_key()
    document: Mapped[dict[str, Any]] = mapped_column(PackedObject)


class Baseline(TableBase):
    """A run that others are compared with by name, one per series."""

    __tablename__ = "baselines"

    name: Mapped[str] = mapped_column(primary_key=True)
    series: Mapped[str] = mapped_column(primary_key=True)
    run_id: Mapped[int] = _run_key(primary=False)
    pinned_at: Mapped[datetime]


class Alarm(TableBase):
    """A metric of a run that a check called worse: it is in no baseline until it is accepted."""

    __tablename__ = "alarms"

    run_id: Mapped[int] = _run_key()
    metric: Mapped[str] = mapped_column(primary_key=True)
    raised_at: Mapped[datetime]


class Acceptance(TableBase):
    """A run that may be worse than those before it, because somebody says so."""

    __tablename__ = "acceptances"

    run_id: Mapped[int] = _run_key()
    accepted_at: Mapped[datetime]
    accepted_by: Mapped[str]
    why: Mapped[str]


class DeviceCalibration(TableBase):
    """What a device was found to tell apart, when it measured one thing against itself."""

    __tablename__ = "calibrations"
    __table_args__ = (Index(None, "device", "measured_at"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    device: Mapped[str]
    measured_at: Mapped[datetime]
    model: Mapped[str]
    pairs: Mapped[int]
    """Blocks of a comparison."""
    smallest: Mapped[float | None]
    """Least true speedup, minus one, that 80 % of comparisons in a run find, with its interval;
    NULL above 100 %."""
    smallest_low: Mapped[float | None]
    smallest_high: Mapped[float | None]
    runs: Mapped[int]
    run_spread: Mapped[float | None]
    """Standard deviation of a run's log latency; NULL where one run was measured."""


def _columns_with(key: str) -> dict[str, Any]:
    columns = Run.__table__.columns
    return {column.key: column.info[key] for column in columns if column.info.get(key)}


TITLES: Final[Mapping[str, str]] = _columns_with("title")
"""What pages and terminals say of a run, column by column."""
TELLS_APART: Final = tuple(_columns_with("tells_apart"))
FLAGS: Final[Mapping[str, str]] = {flag: name for name, flag in _columns_with("flag").items()}
"""The column that each word chooses runs by."""
OF_A_SERIES: Final = (
    "model", "precision", "backend", "method", "device", "sme_mode", "threads", "variant"
)  # fmt: skip
_OF_THE_STORE: Final = {"id", "run_id", "added_at", "series"}


def _record_of(table: type[TableBase], **further: Any) -> type[Record]:  # noqa: ANN401
    """Returns what checks an import of a table's rows: a field per column."""
    fields: dict[str, Any] = {}
    for column in table.__table__.columns:
        if column.key not in _OF_THE_STORE and isinstance(column.type, TypedColumn):
            kind = column.info.get("accepts") or column.type.accepts
            if column.nullable and column.type.missing is None:
                kind = kind | None
            optional = column.nullable or column.default is not None
            default = column.default.arg if column.default is not None else column.type.missing
            fields[column.key] = (kind, default if optional else ...)
    return create_model(f"{table.__name__}Record", __base__=Record, **fields, **further)


METRIC_RECORD: Final = _record_of(Metric)
RUN_RECORD: Final = _record_of(
    Run,
    metrics=(tuple[METRIC_RECORD, ...], ()),  # type: ignore[valid-type]  # made of its columns
    categories=(Named[Number], {}),
    raw=(dict[str, Any] | None, None),
)
"""A run as exports have it, and as anything is checked that becomes one."""


def make_run(facts: Mapping[str, Any]) -> Run:
    """Makes a run of facts as an export has them; raises pydantic's ValidationError."""
    checked = RUN_RECORD.model_validate(facts).model_dump()
    metrics, categories, raw = (checked.pop(name) for name in ("metrics", "categories", "raw"))
    if not (checked["representative"] and _proves_times(checked["device_kind"])):
        checked["representative"], metrics, categories, raw = False, (), {}, None
    return Run(
        **checked,
        series=short_hash(*(checked[name] for name in OF_A_SERIES)),
        metrics=[Metric(**metric) for metric in metrics],
        category_rows=[CategoryTime(category=n, time_ns=t) for n, t in categories.items()],
        raw_row=None if raw is None else RawSamples(document=raw),
    )


def record_of(run: Run) -> Record:
    """Undoes `make_run`; raises pydantic's ValidationError for what no etprof has written."""
    facts = {
        **run.facts(),
        "metrics": [metric.facts() for metric in run.metrics],
        "categories": run.categories,
        "raw": run.raw,
    }
    return RUN_RECORD.model_validate(facts)


def short_hash(*facts: object) -> str:
    """Names a combination of facts in 16 hexadecimal digits."""
    return full_hash(*facts)[:16]


def full_hash(*facts: object) -> str:
    """SHA-256 of JSON data; what is equal has the same hash on every machine."""
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()
