"""Runs as Parquet, nested as they are; needs the optional package pyarrow."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from etprof.base.atomic import replacing
from etprof.base.errors import InputFileError, UsageError
from etprof.base.json_input import parse_json

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from etprof.history.documents import RunDocument

PARQUET_MAGIC: Final = b"PAR1"
_HEADER: Final = b"etprof_history"
_BATCH: Final = 500
_AS_JSON: Final = ("pins", "artefacts", "categories", "raw")
"""Columns whose keys differ from run to run: JSON text."""


def _pyarrow() -> Any:  # noqa: ANN401 - an untyped package
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError as error:
        msg = f"Parquet needs pyarrow ({error}); `pip install 'etprof[parquet]'`, or use JSON"
        raise UsageError(msg) from error
    return pa


def write_parquet(path: Path, documents: Iterable[RunDocument], header: str) -> None:
    """Writes runs batch by batch; `header` goes into the file's metadata."""
    pa = _pyarrow()
    schema = _schema(pa).with_metadata({_HEADER: header.encode()})
    with replacing(path) as stream, pa.parquet.ParquetWriter(stream, schema) as writer:
        for rows in _batches(documents):
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def read_parquet(path: Path) -> tuple[str, Iterator[dict[str, Any]]]:
    """Returns the header and the runs, not checked; raises InputFileError for other files."""
    pa = _pyarrow()
    try:
        file = pa.parquet.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error
    header = (file.schema_arrow.metadata or {}).get(_HEADER)
    if header is None:
        msg = f"{path} is not an export of a history; write one with `etprof history export`"
        raise InputFileError(msg)
    return header.decode(), _rows(path, file)


def _rows(path: Path, file: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401
    pa = _pyarrow()
    try:
        for batch in file.iter_batches(_BATCH):
            for row in batch.to_pylist():
                yield row | {name: parse_json(row[name]) for name in _AS_JSON}
    # OSError is pyarrow's word for data that cannot be decompressed; OverflowError, for a date after
    # the year 9999.
    except (
        pa.ArrowException, KeyError, OSError, OverflowError, TypeError, ValueError
    ) as error:  # fmt: skip
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> InputFileError:
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return InputFileError(f"{path} is damaged: {reason}; export it again")


def _batches(documents: Iterable[RunDocument]) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    for document in documents:
        row = document.model_dump(mode="json", exclude={"measured_at"})
        row["measured_at"] = document.measured_at
        rows.append(row | {name: json.dumps(row[name]) for name in _AS_JSON})
        if len(rows) == _BATCH:
            yield rows
            rows = []
    if rows:
        yield rows


def _schema(pa: Any) -> Any:  # noqa: ANN401
    """The columns: one per field of RunDocument."""
    text, maybe = pa.string(), ("run_path", "failure", "precision", "backend", "method", "soc")
    identity = ("manifest_sha256", "manifest_run_id")
    sure = ("key", "run_name", "experiment", "status", "model", "device", "device_kind", "sme_mode")
    git = ("variant", "revision", "git_commit", "git_branch", "executorch_version")
    metric = pa.struct(
        [
            ("name", text), ("unit", text), ("higher_is_better", pa.bool_()),
            ("value", pa.float64()), ("low", pa.float64()), ("high", pa.float64()),
            ("count", pa.int64()), ("samples", pa.list_(pa.float64())),
        ]
    )  # fmt: skip
    return pa.schema(
        [
            *((name, text) for name in (*sure, *maybe, *identity, *git, *_AS_JSON)),
            ("measured_at", pa.timestamp("us", tz="UTC")),
            ("threads", pa.int64()),
            ("git_dirty", pa.bool_()),
            ("representative", pa.bool_()),
            ("metrics", pa.list_(metric)),
        ]
    )
