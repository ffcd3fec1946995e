"""From an address to the text of its page: the same for the server and for exported files."""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import etprof
from etprof.base.html_template import template_environment
from etprof.base.units import count_of
from etprof.dashboard.addresses import make_address
from etprof.dashboard.assets import POLICY, read_template

if TYPE_CHECKING:
    import jinja2

    from etprof.dashboard.addresses import Address, Links
    from etprof.dashboard.visit import Visit

PAGES: Final = ("overview", "trend", "sides", "models", "run", "compare", "failures")
"""Views that are pages; each is a module of `views` and a template."""
_MENU: Final = {
    "overview": "Overview",
    "models": "Models",
    "failures": "Failures",
    "compare": "Two runs",
}
_SERVED_ONLY: Final = {"compare"}
"""Any two of all runs: an exported site has those that its pages lead to."""


def render_page(visit: Visit) -> str:
    """Returns the page at the visit's address; raises NoSuchPageError where there is none."""
    view = importlib.import_module(f"etprof.dashboard.views.{visit.address.view}")
    page = view.show(visit)
    return _render(visit.address.view, visit.address, visit.links, page, visit.catalogue.run_count)


def render_problem(address: Address, links: Links, title: str, message: str) -> str:
    """Returns a page that says why there is no other."""
    return _render("problem", address, links, {"title": title, "message": message}, None)


def _render(
    template: str, address: Address, links: Links, page: dict[str, Any], runs: int | None
) -> str:
    return (
        _environment()
        .get_template(f"{template}.html.j2")
        .render(
            page=page,
            href=links.href,
            is_exported=links.is_exported,
            menu=_menu(address, links),
            policy=POLICY,
            run_count="" if runs is None else count_of(runs, "run"),
            version=etprof.__version__,
        )
    )


def _menu(here: Address, links: Links) -> list[dict[str, object]]:
    return [
        {"label": label, "address": make_address(view, {}), "is_here": view == here.view}
        for view, label in _MENU.items()
        if not (links.is_exported and view in _SERVED_ONLY)
    ]


@cache
def _environment() -> jinja2.Environment:
    return template_environment(read_template)
