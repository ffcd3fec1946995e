"""Draws fewer points than there are without losing what the eye would see."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def choose_points(values: Sequence[float], most: int) -> list[int]:
    """Returns the indices of at most `most` values (three or more) that keep a line's shape.

    Largest triangle three buckets (Steinarsson, "Downsampling Time Series for Visual
    Representation", 2013): the first and the last stay, and of every bucket between the value
    that spans the largest triangle with its neighbours, so single peaks survive.
    """
    if len(values) <= most:
        return list(range(len(values)))
    levels = np.asarray(values, float)
    edges = np.linspace(1, len(values) - 1, most - 1).astype(int)
    chosen = [0]
    for number in range(most - 2):
        bucket = np.arange(edges[number], edges[number + 1])
        following = np.arange(
            edges[number + 1], edges[number + 2] if number + 2 < most - 1 else len(values)
        )
        chosen.append(int(bucket[np.argmax(_areas(levels, chosen[-1], bucket, following))]))
    return [*chosen, len(values) - 1]


def _areas(
    levels: NDArray[np.float64],
    last: int,
    bucket: NDArray[np.int_],
    following: NDArray[np.int_],
) -> NDArray[np.float64]:
    """Twice the areas of the triangles over a bucket's points."""
    x, y = float(following.mean()), float(levels[following].mean())
    doubled = (last - x) * (levels[bucket] - levels[last]) - (last - bucket) * (y - levels[last])
    areas: NDArray[np.float64] = np.abs(doubled)
    return areas
