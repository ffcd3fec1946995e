"""Every page has an address: its view, what it is about, and its filters. Links come from here."""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlencode

from etprof.base.text import clean

_PLAIN = re.compile(r"[a-z0-9_]{1,48}")
_UNSAFE = re.compile(r"[^A-Za-z0-9_]+")
ALL: Final = "all"
"""Stands for "no choice" in file names."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """What a module of `views` says of its page, as its `PAGE`."""

    show: Callable[[Any], Any]
    """Makes of a visit what the page's template shows; or the bytes of a file, shown as they are."""
    subject: tuple[str, ...] = ()
    """What the page is about, in the order in which links name it: an exported site has one file
    for each."""
    filters: tuple[str, ...] = ()
    """What narrows the page down: an exported page does that itself."""
    menu: tuple[int, str] | None = None
    """Its place and its name in the menu."""
    is_served_only: bool = False
    """Of any two of all runs, say: an exported site has those that its pages lead to."""


@cache
def pages() -> dict[str, Page]:
    """Returns every page by its view, those of the menu first and in its order."""
    names = [module.name for module in pkgutil.iter_modules([str(Path(__file__).parent / "views")])]
    pages_by_view = {n: importlib.import_module(f"etprof.dashboard.views.{n}").PAGE for n in names}
    return dict(
        sorted(
            pages_by_view.items(), key=lambda item: item[1].menu or (len(pages_by_view), item[0])
        )
    )


PART: Final = "page"
"""The one parameter that every list has: which part of it is shown."""
FIND: Final = "find"
"""The filter that is text: a row shows if its facts have every word."""
_RUNS: Final = ("id", "baseline", "candidate")
"""What names a run: by its number in this store, or, in links, by its key."""
DEFAULTS: Final = {"metric": "latency_ns", "by": "precision", "axis": "time"}


@dataclass(frozen=True)
class Address:
    """One page with its filters; values that are defaults or empty are not part of it."""

    view: str
    values: Mapping[str, str] = field(default_factory=dict)

    def __getitem__(self, name: str) -> str:
        return self.values.get(name, DEFAULTS.get(name, ""))

    def without_filters(self) -> Address:
        """Returns the address of the whole page."""
        subject = pages()[self.view].subject
        return Address(self.view, {n: v for n, v in self.values.items() if n in subject})

    @property
    def filters(self) -> dict[str, str]:
        """The filters in force, without defaults."""
        return {n: v for n, v in self.values.items() if n in pages()[self.view].filters}

    @property
    def part(self) -> int:
        """Which part of a list is shown, from 1."""
        text = self.values.get(PART, "")
        return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 7 else 1


def make_address(view: str, values: Mapping[str, str]) -> Address:
    """Returns the address of a view; unknown parameters are dropped, as of a mistyped link.

    Texts are cleaned as names are, so that a link shows nothing else and finds what it names.
    Those are dropped as well that have a zero character: no name has one, and PostgreSQL refuses to look for it.
    """
    rule = pages()[view]
    names = (*rule.subject, *rule.filters, PART)
    parameters = {name: values[name] for name in names if "\0" not in (values.get(name) or "\0")}
    return Address(view, {n: clean(v) for n, v in parameters.items() if v != DEFAULTS.get(n)})


def _as_linked(address: Address, link_of: Callable[[int], str]) -> Address:
    """Returns the address with runs by their keys, which are the same in every store."""
    values = address.values
    named = {n: link_of(int(values[n])) for n in _RUNS if values.get(n, "").isdecimal()}
    return Address(address.view, {**values, **named}) if named else address


class Links(Protocol):
    """Turns addresses into links: to a server, or to files beside each other."""

    is_exported: bool

    def href(self, address: Address) -> str | None:
        """Returns a relative link; None where there is no such page."""

    def pattern(self, address: Address) -> str:
        """Returns where a filter form leads, with {name} for each choice of a subject."""


class ServedLinks:
    """Links to the dashboard's server."""

    is_exported = False

    def __init__(self, link_of: Callable[[int], str] = str) -> None:
        self._link_of = link_of

    def href(self, address: Address) -> str | None:
        """Every address has a page."""
        address = _as_linked(address, self._link_of)
        query = urlencode(address.values)
        return f"{address.view}?{query}" if query else address.view

    def pattern(self, address: Address) -> str:
        """A form sends its fields as the query string."""
        return address.view


class ExportedLinks:
    """Links among exported files; remembers which pages they need."""

    is_exported = True

    def __init__(
        self, accepts: Callable[[Address], bool], link_of: Callable[[int], str] = str
    ) -> None:
        self._accepts, self._link_of = accepts, link_of
        self.pages: dict[str, Address] = {}
        """The pages that were linked to, by file, in the order in which they came up."""

    def href(self, address: Address) -> str | None:
        """The file of the address, with the filters as its query string."""
        name = file_name(_as_linked(address, self._link_of))
        if name not in self.pages:
            if not self._accepts(address):
                return None
            self.pages[name] = address.without_filters()
        return f"{name}?{urlencode(address.filters)}" if address.filters else name

    def pattern(self, address: Address) -> str:
        """The page's script fills in the names."""
        return (
            "-".join([address.view, *(f"{{{n}}}" for n in pages()[address.view].subject)]) + ".html"
        )


def file_name(address: Address) -> str:
    """Returns the exported file of a page: safe on every file system, whatever the names are."""
    slugs = (file_word(address[name]) for name in pages()[address.view].subject)
    return "-".join([address.view, *slugs]) + ".html"


def matches_search(find: str, facts: Mapping[str, str]) -> bool:
    """Whether facts have every word that is looked for, in any spelling of capitals."""
    text = " ".join(facts.values()).lower()
    return all(term in text for term in find.lower().split())


def file_word(value: str) -> str:
    """Makes part of a file name of any text; different texts never make the same."""
    if not value:
        return ALL
    if _PLAIN.fullmatch(value) and value != ALL:
        return value
    digest = hashlib.sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    # A dot keeps these apart from plain words, which have none.
    return f"{_UNSAFE.sub('_', value)[:32]}.{digest}"
