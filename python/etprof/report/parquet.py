"""The report's tables as Parquet, with their units; needs the optional package pyarrow."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from etprof.errors import UsageError

if TYPE_CHECKING:
    from etprof.report.records import Table


def encode_parquet(name: str, table: Table) -> bytes:
    """Returns one table as a Parquet file; raises UsageError when pyarrow is not installed."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        msg = f"Parquet needs pyarrow ({error}); `pip install etprof[parquet]`, or use --format csv"
        raise UsageError(msg) from error
    columns = pa.Table.from_pylist(table)
    columns = columns.replace_schema_metadata({"etprof_table": name, "time_unit": "ns"})
    stream = io.BytesIO()
    parquet.write_table(columns, stream)
    return stream.getvalue()
