"""The report's tables as Parquet, with their units; needs the optional package pyarrow."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from etprof.base.errors import UsageError

if TYPE_CHECKING:
    from etprof.report.records import Table


def require_pyarrow() -> Any:  # noqa: ANN401 - an untyped package
    """Returns pyarrow; raises UsageError when it is not installed."""
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError as error:
        msg = f"Parquet needs pyarrow ({error}); `pip install etprof[parquet]`, or use --format csv"
        raise UsageError(msg) from error
    return pa


def encode_parquet(name: str, table: Table) -> bytes:
    """Returns one table as a Parquet file; raises UsageError when pyarrow is not installed."""
    pa = require_pyarrow()
    columns = pa.Table.from_pylist(table)
    columns = columns.replace_schema_metadata({"etprof_table": name, "time_unit": "ns"})
    stream = io.BytesIO()
    pa.parquet.write_table(columns, stream)
    return stream.getvalue()
