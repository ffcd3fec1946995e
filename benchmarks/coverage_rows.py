"""Tables of simulated shares, and whether each is within its target: what `coverage.py` prints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple


class Share(NamedTuple):
    """How often something happened, and within which bounds it should."""

    title: str
    hits: int
    of: int
    least: float = 0.0
    most: float = 1.0

    @property
    def misses(self) -> bool:
        """Whether it is outside by more than chance makes likely."""
        if not self.of:
            return False
        found = self.hits / self.of
        return any(
            beyond > 3 * math.sqrt(max(limit * (1 - limit), 1e-9) / self.of)
            for beyond, limit in ((self.least - found, self.least), (found - self.most, self.most))
        )

    def __str__(self) -> str:
        found = f"{100 * self.hits / self.of:.1f}" if self.of else "-"
        return found + ("<" if self.misses else "")


@dataclass(frozen=True)
class Row:
    """One line of a section."""

    label: str
    count: str
    shares: tuple[Share, ...]


@dataclass(frozen=True)
class Section:
    """One table: its rows are simulated when they are asked for."""

    title: str
    rows: Callable[[int], Iterator[Row]]
    each: str = "launches"
    """What the second column counts."""
    cost: int = 1
    """One trial for so many that are asked for."""


def show(section: Section, trials: int) -> bool:
    """Prints a section as it is simulated; returns whether every row is within its target."""
    started, is_good, titles = time.monotonic(), True, None
    trials = max(trials // section.cost, 1)
    print(f"\n{section.title} ({trials} trials)")
    for row in section.rows(trials):
        if titles != (titles := [share.title for share in row.shares]):
            print(f"{'':38}{section.each:>9}" + "".join(f"{title:>17}" for title in titles))
        print(
            f"{row.label:38}{row.count:>9}" + "".join(f"{s!s:>17}" for s in row.shares),
            flush=True,
        )
        is_good &= not any(share.misses for share in row.shares)
    print(f"{time.monotonic() - started:.0f} s")
    return is_good
