"""A search for a better program as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etprof.tables.optimize import headline, sections
from etprof.views.formats.html import render_sections

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.run.optimization import Optimization


def optimize_page(search: Optimization, other_searches: Sequence[Optimization]) -> str:
    """Returns the page of a search; `other_searches` are those of the same model in other precisions."""
    return render_sections(headline(search).partition(":")[0], sections(search, other_searches))
