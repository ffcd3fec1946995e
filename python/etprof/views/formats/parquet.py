"""Every table of a run, and of several together, as Parquet, with units and meanings."""

from __future__ import annotations

from etprof.tables.alternatives import tables_together
from etprof.tables.report import report_tables
from etprof.views.files import encode_parquet, require_pyarrow
from etprof.views.formats import Format

FORMAT = Format(
    of_run=lambda run: {
        f"report_{name}.parquet": encode_parquet(table)
        for name, table in report_tables(run).items()
    },
    of_all=lambda runs: {f"{t.name}.parquet": encode_parquet(t) for t in tables_together(runs)},
    check=require_pyarrow,
)
