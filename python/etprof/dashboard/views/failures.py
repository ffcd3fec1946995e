"""Runs that failed, the newest first: failures are results, not gaps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.dashboard.addresses import FIND, Page, matches_search
from etprof.dashboard.parts import View, facts_of, filter_form, paginate
from etprof.dashboard.queries import list_failures

if TYPE_CHECKING:
    from etprof.dashboard.visit import Visit

MOST: Final = 2_000
"""Older failures are in the store and not listed."""


def show(visit: Visit) -> View:
    """Returns what the template shows."""
    filters = dict(visit.address.filters)
    find = filters.pop(FIND, "")
    failures = list_failures(visit.session, filters, limit=MOST)
    matching = [run for run in failures if matches_search(find, facts_of(run))]
    visible, pager = paginate(visit, matching, "failed run")
    facts = [facts_of(series.run) | {"branch": ""} for series in visit.catalogue.series()]
    branches = [{"branch": branch} for branch in visit.catalogue.branches]
    return {
        "title": "Failures",
        "form": filter_form(visit, [*facts, *branches]),
        "runs": visible,
        "pager": pager,
        "most": MOST if len(failures) == MOST else None,
    }


PAGE = Page(
    show=show,
    menu=(3, "Failures"),
    filters=("find", "model", "device", "precision", "backend", "branch"),
)
