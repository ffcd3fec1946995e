"""From an address to the text of its page: the same for the server and for exported files."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from etprof._version import __version__
from etprof.base.html_template import read_package_file, template_environment
from etprof.base.records import sme_label
from etprof.base.units import count_of, format_range, format_value
from etprof.dashboard.addresses import Address, make_address, pages
from etprof.dashboard.parts import config_label, facts_of, variant_label
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


def answer(visit: Visit) -> tuple[bytes, bool]:
    """Returns what stands at the visit's address, and whether that is a file of a run's own.

    Raises NoSuchPageError where there is nothing.
    """
    address = visit.address
    content = pages()[address.view].show(visit)
    if isinstance(content, bytes):
        return content, True
    page = _render(address.view, address, visit.links, content, visit.catalogue.run_count)
    return page.encode(), False


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
            version=__version__,
        )
    )


def _menu(here: Address, links: Links) -> list[dict[str, object]]:
    return [
        {"label": page.menu[1], "address": make_address(view, {}), "is_here": view == here.view}
        for view, page in pages().items()
        if page.menu and not (links.is_exported and page.is_served_only)
    ]


@cache
def _environment() -> jinja2.Environment:
    environment = template_environment(_read_template)
    environment.filters |= {
        "label": metric_label, "sme": sme_label, "moment": format_moment, "commit": format_commit,
    }  # fmt: skip
    environment.globals |= {
        "at": _address, "facts_of": facts_of, "variant_label": variant_label, "config_label": config_label,
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
