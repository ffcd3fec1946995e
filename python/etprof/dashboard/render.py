"""From an address to the text of its page: the same for the server and for exported files."""

from __future__ import annotations

import importlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import etprof
from etprof.base.html_template import read_package_file, template_environment
from etprof.base.units import count_of, format_range, format_value
from etprof.dashboard.addresses import Address, make_address
from etprof.dashboard.parts import config_words, facts_of, how_words, sme_label
from etprof.dashboard.run_report import read_report
from etprof.dashboard.views.run import find_run
from etprof.dashboard.visit import NoSuchPageError
from etprof.history.metric_names import metric_label
from etprof.history.tables import format_commit, format_moment

if TYPE_CHECKING:
    import jinja2

    from etprof.dashboard.addresses import Links
    from etprof.dashboard.visit import Visit

POLICY: Final = (
    "default-src 'none'; style-src 'self' file:; script-src 'self' file:; "
    "img-src data:; base-uri 'none'; form-action 'self'"
)
"""In every page. `file:` is for exported pages that are opened from disk; to a served page, no
browser gives files."""
ASSETS: Final = {
    "dashboard.css": "text/css; charset=utf-8",
    "dashboard.js": "text/javascript; charset=utf-8",
}
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


def answer(visit: Visit) -> tuple[bytes, bool]:
    """Returns what stands at the visit's address, and whether that is a run's own report.

    Raises NoSuchPageError where there is nothing.
    """
    if visit.address.view != "report":
        return render_page(visit).encode(), False
    content, reason = read_report(find_run(visit, visit.address["id"]))
    if content is None:
        msg = f"no report of this run: {reason}"
        raise NoSuchPageError(msg)
    return content, True


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
    environment = template_environment(_read_template)
    environment.filters |= {
        "label": metric_label, "sme": sme_label, "moment": format_moment, "commit": format_commit,
    }  # fmt: skip
    environment.globals |= {
        "at": _address, "facts_of": facts_of, "how_words": how_words, "config_words": config_words,
        "number": format_value, "range_of": format_range,
    }  # fmt: skip
    return environment


def _address(view: str, **values: object) -> Address:
    return make_address(view, {name: str(value) for name, value in values.items()})


@cache
def _read_template(name: str) -> str:
    """Returns the text of a template."""
    return read_package_file("etprof.dashboard", "templates", name)


@cache
def read_asset(name: str) -> str:
    """Returns the text of a file that pages load; the style builds on the run report's."""
    text = read_package_file("etprof.dashboard", "static", name)
    return (
        read_package_file("etprof.views", "templates", "report.css") + text
        if name.endswith("css")
        else text
    )
