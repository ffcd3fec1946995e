"""Every table of a run, and of several together, as CSV."""

from __future__ import annotations

from etprof.tables.alternatives import tables_together
from etprof.tables.report import report_tables
from etprof.views.files import encode_csv
from etprof.views.formats import Format

FORMAT = Format(
    of_run=lambda run: {
        f"report_{name}.csv": encode_csv(table) for name, table in report_tables(run).items()
    },
    of_all=lambda runs: {f"{t.name}.csv": encode_csv(t) for t in tables_together(runs)},
)
