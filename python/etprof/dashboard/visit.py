"""What a page is made from: the store, where the visitor is, and how links are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from etprof.dashboard.queries import (
    count_runs,
    list_branches,
    list_metrics,
    list_series,
)
from etprof.errors import InputFileError
from etprof.history.metric_names import METRICS
from etprof.history.noise import noise_floor

if TYPE_CHECKING:
    from datetime import datetime

    from sqlalchemy.orm import Session

    from etprof.dashboard.addresses import Address, Links
    from etprof.dashboard.queries import Series
    from etprof.history.noise import NoiseFloor
    from etprof.history.schema import Run


class NoSuchPageError(InputFileError):
    """An address that no page has."""


Floors = dict[tuple[str, str, "datetime | None", int], "NoiseFloor | None"]
"""Noise floors that a server keeps from page to page."""
_MOST_FLOORS: Final = 10_000


def metric_key(name: str) -> tuple[int, str]:
    """Sorts metrics, the headline first."""
    known = list(METRICS)
    return (known.index(name) if name in METRICS else len(known), name)


class Catalogue:
    """The store's series, metrics and branches, each read once."""

    def __init__(
        self, session: Session, *, most_branches: int = 100, floors: Floors | None = None
    ) -> None:
        self.session = session
        self._floors = {} if floors is None else floors
        self._most_branches = most_branches
        self._series: dict[str, list[Series]] = {}
        self._metrics: list[str] | None = None
        self._branches: list[str] | None = None
        self._count: int | None = None

    def series(self, branch: str = "") -> list[Series]:
        """All series, or those with recent runs of a branch."""
        if branch not in self._series:
            self._series[branch] = list_series(self.session, branch=branch)
        return self._series[branch]

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics on offer."""
        if self._metrics is None:
            found = list_metrics(self.session, self.series())
            self._metrics = sorted(found, key=metric_key)
        return self._metrics

    @property
    def branches(self) -> list[str]:
        """Branches on offer."""
        if self._branches is None:
            self._branches = list_branches(self.session, self._most_branches)
        return self._branches

    @property
    def run_count(self) -> int:
        """How many runs the store has."""
        if self._count is None:
            self._count = count_runs(self.session)
        return self._count

    def noise_floor(self, device: str, metric: str, before: Run | None) -> NoiseFloor | None:
        """The noise floor of a device from runs older than `before`, read again after new runs."""
        moment = before.measured_at if before else None
        key = (device, metric, moment, self.run_count)
        if key not in self._floors:
            if len(self._floors) >= _MOST_FLOORS:
                self._floors.clear()
            self._floors[key] = noise_floor(self.session, device, metric, before=before)
        return self._floors[key]


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
