"""Tables for programs: CSV, JSON records, Parquet, pandas frames. All columns, raw values.

Names come from files that others wrote, and spreadsheets run cells that look like formulas, so in
CSV a text that starts like one gets an apostrophe before it.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any, Final

from etprof.base.errors import BuildError

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pandas as pd

    from etprof.tables.table import Table, Value

_FORMULA_STARTS: Final = ("=", "+", "-", "@")
"""Tabs and line ends, which count as well, are in no name."""


def safe_cell(value: Value) -> Value:
    """Defuses text that a spreadsheet would run as a formula; numbers stay numbers."""
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value


def encode_csv(table: Table) -> str:
    """Returns a header, and one line per row; missing values are empty."""
    return csv_text([column.name for column in table.columns], table.rows)


def csv_text(header: Iterable[str] | None, rows: Iterable[Iterable[Value]]) -> str:
    """Returns lines of cells, each defused, under a header if one is given."""
    stream = io.StringIO()
    writer = csv.writer(stream)
    if header is not None:
        writer.writerow(header)
    writer.writerows([safe_cell(value) for value in row] for row in rows)
    return stream.getvalue()


def json_records(table: Table) -> list[dict[str, Value]]:
    """Returns one object per row, without the columns that are deprecated.

    A table that holds no times has null in their places.
    """
    leaving = {column.name for column in table.columns if column.goes_with}
    return [
        {name: value for name, value in record.items() if name not in leaving}
        for record in table.records()
    ]


def build_frame(table: Table) -> pd.DataFrame:
    """Returns a pandas frame in the declared dtypes."""
    import pandas as pd  # 0.3 s, which only users of frames pay

    names = [column.name for column in table.columns]
    frame = pd.DataFrame(list(table.rows), columns=names, dtype=object)
    return frame.astype({column.name: column.dtype for column in table.columns})


def require_pyarrow() -> Any:  # noqa: ANN401 - an untyped package
    """Returns pyarrow; raises BuildError when it is not installed."""
    try:
        import pyarrow as pa
        import pyarrow.parquet
    except ImportError as error:
        raise BuildError(
            f"Parquet needs pyarrow ({error}); `pip install pyarrow`, or use --format csv"
        ) from error
    return pa


def encode_parquet(table: Table) -> bytes:
    """Returns a Parquet file with units, bases and meanings; raises BuildError without pyarrow."""
    pa = require_pyarrow()
    kinds = {
        "string": pa.string(),
        "Int64": pa.int64(),
        "boolean": pa.bool_(),
        "float64": pa.float64(),
    }
    fields = [
        pa.field(
            c.name,
            kinds[c.dtype],
            metadata={"unit": c.unit, "basis": table.basis_of(c), "says": c.says},
        )
        for c in table.columns
    ]
    about = {"etprof_table": table.name, "time_unit": "ns"}
    columns = pa.Table.from_pylist(table.records(), pa.schema(fields, metadata=about))
    stream = io.BytesIO()
    pa.parquet.write_table(columns, stream)
    return stream.getvalue()
