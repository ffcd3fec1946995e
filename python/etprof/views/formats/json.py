"""Everything that is known of a run as one JSON document."""

from __future__ import annotations

from etprof.views.documents import assessment_document
from etprof.views.formats import Format

FORMAT = Format(of_run=lambda run: {"report.json": assessment_document(run)})
