"""Everything that is known of a run as one JSON document, and what several are together."""

from __future__ import annotations

from etprof.views.documents import assessment_document, runs_document
from etprof.views.formats import Format

FORMAT = Format(
    of_run=lambda run: {"report.json": assessment_document(run)},
    of_all=lambda runs: {"runs.json": document} if (document := runs_document(runs)) else {},
)
