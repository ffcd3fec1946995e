"""Pairs two sequences of kinds in order, where either may have entries that the other lacks.

Global alignment after Needleman and Wunsch (1970), in a band around the diagonal. A longest common
block, as difflib finds it, is not enough: networks repeat themselves, and one block may fit the
wrong repetition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

# One unlike pair costs less than two gaps; a pair of equals is worth more than any of them.
_SAME: Final = 2.0
_UNLIKE: Final = -0.5
_GAP: Final = -0.6
_NEVER: Final = float("-inf")
_BAND: Final = 100
"""Cells off the diagonal, beyond the difference in length, that are looked at."""


class _AlignmentStep(NamedTuple):
    """A step into a cell: the score it gives, and the cell it comes from."""

    score: float
    i: int
    j: int


@dataclass
class _Alignment:
    first: Sequence[str]
    second: Sequence[str]
    unmistakable: frozenset[str]
    scores: dict[tuple[int, int], float] = field(default_factory=lambda: {(0, 0): 0.0})

    def fill(self) -> None:
        """Computes the best score of every cell in the band."""
        width = _BAND + abs(len(self.first) - len(self.second))
        for i in range(len(self.first) + 1):
            for j in range(max(0, i - width), min(len(self.second), i + width) + 1):
                if i or j:
                    self.scores[i, j] = max(self._steps(i, j)).score

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yields the pairs of the best alignment, last one first."""
        i, j = len(self.first), len(self.second)
        while i or j:
            step = max(self._steps(i, j))
            if step.i < i and step.j < j:
                yield step.i, step.j
            i, j = step.i, step.j

    def _steps(self, i: int, j: int) -> Iterator[_AlignmentStep]:
        pair = self._score(i - 1, j - 1) if i and j else _NEVER
        for before_i, before_j, score in ((i - 1, j - 1, pair), (i - 1, j, _GAP), (i, j - 1, _GAP)):
            yield _AlignmentStep(
                self.scores.get((before_i, before_j), _NEVER) + score, before_i, before_j
            )

    def _score(self, i: int, j: int) -> float:
        kinds = {self.first[i], self.second[j]}
        if len(kinds) == 1:
            return _SAME
        return _NEVER if kinds & self.unmistakable else _UNLIKE


def align(
    first: Sequence[str], second: Sequence[str], *, unmistakable: frozenset[str]
) -> list[tuple[int, int]]:
    """Returns the positions of the pairs, in order.

    A kind in `unmistakable` is only paired with its equal; others may be paired by order alone.
    """
    alignment = _Alignment(first, second, unmistakable)
    alignment.fill()
    return list(alignment.pairs())[::-1]
