"""How much does a run owe to the run before it, and what does that cost a comparison of runs?

A machine that is warm stays warm, so neighbouring runs are alike. The share of turning points tells
how much: of three runs in a row the middle one is the largest or smallest two times in three, whatever
the distribution of independent runs (Bienaymé 1874; Kendall and Stuart, The Advanced Theory of
Statistics 3, 45.18). Steps, outliers and heavy tails hardly touch it. Of an AR(1) process the share is
1/2 - arcsin(r)/π with r = -(1 - ρ)/2, the correlation of neighbouring differences.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

_LEAST_TRIPLES: Final = 30
"""Of fewer, a dependence is not told from chance: independent runs are assumed."""
_TURNING: Final = 2 / 3
_TURNING_VARIANCE: Final = 16 / 90
"""Of the number of turning points among independent values, by triple."""
_BEYOND_CHANCE: Final = 2.326
"""One-sided quantile of the normal distribution, 99 %."""
_MOST: Final = 0.97


def estimate_dependence(series: Iterable[Sequence[float]]) -> float:
    """Returns the lag-1 autocorrelation that series share, 0 to 0.97.

    0 where their turning points are as many as independent runs have, in 99 of 100 cases. `series` are values in the order of time.
    """
    turns = triples = 0
    for values in series:
        steps = np.diff(np.asarray(values, float))
        products = steps[1:] * steps[:-1]
        turns += int(np.sum(products < 0))
        triples += int(np.sum(products != 0))
    if triples < _LEAST_TRIPLES:
        return 0.0
    share, error = turns / triples, math.sqrt(_TURNING_VARIANCE / triples)
    if (_TURNING - share) / error <= _BEYOND_CHANCE:
        return 0.0
    between = math.sin(math.pi * (0.5 - max(share, 0.5)))
    return round(min(1 + 2 * between, _MOST), 2)


@dataclass(frozen=True)
class FitFactors:
    """What a fit to AR(1) values of variance 1 leaves, and how well it is known."""

    squares: float
    """Mean sum of squared deviations from the fit."""
    freedom: float
    """Degrees of freedom of these (Box 1954, "Some theorems on quadratic forms", I)."""
    error: float
    """Standard deviation of what was fitted."""


@cache
def level_factors(dependence: float, runs: int) -> FitFactors:
    """Factors of a mean; `error` is that of the next run's distance from it."""
    following = _correlations(dependence, runs + 1)
    weights = np.append(np.full(runs, -1 / runs), 1.0)
    error = math.sqrt(float(weights @ following @ weights))
    return FitFactors(*_left_by(np.ones((runs, 1)), following[:runs, :runs]), error)


@cache
def line_factors(dependence: float, runs: int) -> FitFactors:
    """Factors of a line; `error` is that of its rise from the first run to the last."""
    offsets = np.arange(runs) - (runs - 1) / 2
    correlations = _correlations(dependence, runs)
    weights = offsets / (offsets @ offsets) * (runs - 1)
    error = math.sqrt(float(weights @ correlations @ weights))
    design = np.column_stack([np.ones(runs), offsets])
    return FitFactors(*_left_by(design, correlations), error)


def _correlations(
    dependence: float, runs: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Correlations of AR(1) values, shape (runs, runs)."""
    lags = np.abs(np.subtract.outer(np.arange(runs), np.arange(runs)))
    correlations: np.ndarray[tuple[int, ...], np.dtype[np.float64]] = dependence ** lags.astype(
        float
    )
    return correlations


def _left_by(
    design: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
    correlations: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> tuple[float, float]:
    """Mean of the squares that least squares leave, and their degrees of freedom.

    Args:
        design: Shape (runs, parameters).
        correlations: Of the values, shape (runs, runs).
    """
    runs = correlations.shape[0]
    residual = (np.eye(runs) - design @ np.linalg.pinv(design)) @ correlations
    squares = float(np.trace(residual))
    return (
        (squares, squares**2 / float(np.sum(residual * residual.T))) if squares > 0 else (0.0, 0.0)
    )
