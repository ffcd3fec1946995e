"""What a page is made from: the store, where the visitor is, and how links are written."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

from etprof.base.errors import InputFileError
from etprof.dashboard.queries import (
    count_runs,
    find_by_key,
    list_branches,
    list_keys,
    list_metrics,
    list_series,
    load_runs,
)
from etprof.history.check import CHECKED
from etprof.history.gate import Gate
from etprof.history.metric_names import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.orm import Session

    from etprof.dashboard.addresses import Address, Links
    from etprof.dashboard.queries import Series
    from etprof.history.run_spread import Known
    from etprof.history.schema import Run


LINK_DIGITS: Final = 16
"""Of a run's key, in links."""


class NoSuchPageError(InputFileError):
    """An address that no page has."""


Kind = TypeVar("Kind")
PageCache = dict[tuple[Hashable, ...], Any]
"""What a server caches between requests; the state of the store is part of every key."""
_MOST_CACHED: Final = 500
_BLOCK: Final = 512
"""Runs whose keys are read together; a page's links are mostly to neighbours."""
_LONGEST_ID: Final = 10
"""Digits of a number that every database takes."""


def metric_key(name: str) -> tuple[int, str]:
    """Sorts metrics, the headline first."""
    names = list(METRICS)
    return (names.index(name) if name in METRICS else len(names), name)


class Catalogue:
    """The store's series, metrics, branches and what devices vary by, read once for each of its states.

    Runs are added and never changed, so their number and the newest one's tell states apart.
    """

    def __init__(
        self, session: Session, *, most_branches: int = 100, cache: PageCache | None = None
    ) -> None:
        self.session = session
        self._cache = {} if cache is None else cache
        self._most_branches = most_branches
        self.run_count, self._newest = count_runs(session)

    def series(self, branch: str = "") -> list[Series]:
        """All series, or those with recent runs of a branch."""
        return self.cached(lambda: list_series(self.session, branch=branch), "series", branch)

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics on offer, the headline first."""
        return self.cached(
            lambda: sorted(list_metrics(self.session, self.series()), key=metric_key), "metrics"
        )

    @property
    def branches(self) -> list[str]:
        """Branches on offer."""
        return self.cached(lambda: list_branches(self.session, self._most_branches), "branches")

    def gate(self) -> Gate:
        """The gate of this store, with what it knows of devices kept from page to page."""
        of_devices: Known = self.cached(dict, "devices")
        return Gate(self.session, of_devices=of_devices)

    @property
    def family(self) -> int:
        """How many comparisons a check of the whole store makes, drifts included, at most."""
        return 2 * len(self.series()) * len({*self.metrics} & {*CHECKED})

    def link_of(self, number: int) -> str:
        """Returns what links call a run: the beginning of its key, which no store changes."""
        block = number // _BLOCK
        keys = self.cached(lambda: list_keys(self.session, block * _BLOCK, _BLOCK), "keys", block)
        return keys.get(number, str(number))[:LINK_DIGITS]

    def cached(self, load: Callable[[], Kind], *name: Hashable) -> Kind:
        """Returns the cached object of this name and state of the store, else loads it."""
        key = (self.run_count, self._newest, *name)
        with suppress(KeyError):
            cached: Kind = self._cache[key]
            return cached
        if len(self._cache) >= _MOST_CACHED:
            self._cache.clear()
        self._cache[key] = loaded = load()
        return loaded


@dataclass(frozen=True)
class Visit:
    """One request for one page."""

    address: Address
    links: Links
    catalogue: Catalogue

    @property
    def session(self) -> Session:
        """The store, for reading."""
        return self.catalogue.session


def find_run(visit: Visit, text: str) -> Run:
    """Returns the run with this number in the store, or whose key begins so; raises NoSuchPageError."""
    if len(text) == LINK_DIGITS:
        run = find_by_key(visit.session, text)
    else:
        number = int(text) if text.isascii() and text.isdigit() and len(text) < _LONGEST_ID else 0
        run = load_runs(visit.session, [number]).get(number)
    if run is None:
        msg = f"no run {text[:40]} in this history"
        raise NoSuchPageError(msg)
    return run
