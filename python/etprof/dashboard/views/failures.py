"""Runs that failed, the newest first: failures are results, not gaps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.dashboard.addresses import make_address
from etprof.dashboard.parts import (
    View,
    filter_form,
    format_commit,
    format_moment,
    series_facts,
    sme_label,
    take_part,
)
from etprof.dashboard.queries import list_failures

if TYPE_CHECKING:
    from etprof.dashboard.visit import Visit
    from etprof.history.schema import Run

MOST: Final = 2_000
"""Older failures are in the store and not listed."""


def show(visit: Visit) -> View:
    """Returns what the template shows."""
    found = list_failures(visit.session, visit.address.filters, limit=MOST)
    shown, pager = take_part(visit, found, "failed run")
    branches = [{"branch": branch} for branch in visit.catalogue.branches]
    return {
        "title": "Failures",
        "form": filter_form(visit, [*map(series_facts, visit.catalogue.series()), *branches]),
        "rows": [_row(run) for run in shown],
        "pager": pager,
        "most": MOST if len(found) == MOST else None,
    }


def _row(run: Run) -> View:
    return {
        "run": make_address("run", {"id": str(run.id)}),
        "name": run.run_name,
        "facts": {
            "model": run.model,
            "device": run.device,
            "precision": run.precision or "",
            "backend": run.backend or "",
            "branch": run.git_branch or "",
        },
        "sme": sme_label(run.sme_mode),
        "threads": run.threads,
        "failure": run.failure or "no reason was recorded",
        "when": format_moment(run.measured_at),
        "commit": format_commit(run.git_commit),
    }
