"""The gate and the change points under noise that is not normal, not of one state, or not independent."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from coverage_gate import PLACES, WATCHED, Fleet, is_red
from coverage_rows import Row, Share
from numpy.typing import NDArray

from etprof.history.metric_names import worse_side
from etprof.statistics.change_points import LEAST_RUNS, find_change_points

Noise = Callable[[np.random.Generator, int, int], NDArray[np.float64]]
"""Log slow-downs of so many runs of so many series, shape (runs, series), in the order of time."""

SPREAD = 0.01
SLOW, SLOW_SHARE = math.log(1.15), 0.2
"""The second state, and the share of runs that are in it."""
OUTLIERS = 0.05
KNOWN = (3, 8, 20)
"""Earlier runs of each series when a check is judged."""
AFTERWARDS = 8
"""Checks after a change that lasts."""
RISE = 1.1
LENGTHS = (8, 20, 40, 120)


def _normal(random: np.random.Generator, runs: int, series: int) -> NDArray[np.float64]:
    return SPREAD * random.normal(size=(runs, series))


def _two_states(stay: float, *, shared: bool = False) -> Noise:
    """One run of five is 15 % slower; each keeps the state before it with `stay`."""

    def draw(random: np.random.Generator, runs: int, series: int) -> NDArray[np.float64]:
        columns = 1 if shared else series
        slow = random.random((runs, columns)) < SLOW_SHARE
        stays = random.random((runs, columns)) < stay
        for i in range(1, runs):
            slow[i] = np.where(stays[i], slow[i - 1], slow[i])
        return SLOW * slow + _normal(random, runs, series)

    return draw


def _outliers(random: np.random.Generator, runs: int, series: int) -> NDArray[np.float64]:
    """One run of twenty is 10 to 60 % slower."""
    size = runs, series
    slower = np.log1p(random.uniform(0.1, 0.6, size)) * (random.random(size) < OUTLIERS)
    values: NDArray[np.float64] = _normal(random, runs, series) + slower
    return values


def autoregressive(rho: float, spread: float) -> Noise:
    """AR(1), of that spread around its level."""

    def draw(random: np.random.Generator, runs: int, series: int) -> NDArray[np.float64]:
        values = spread * random.normal(size=(runs, series))
        for i in range(1, runs):
            values[i] = rho * values[i - 1] + math.sqrt(1 - rho**2) * values[i]
        return values

    return draw


NOISES: dict[str, Noise] = {
    "normal": _normal,
    "two states, each its own": _two_states(0.0),
    "two states, shared": _two_states(0.0, shared=True),
    "5 % outlier runs": _outliers,
    "Student t2": lambda r, n, m: SPREAD * r.standard_t(2, size=(n, m)),
    **{
        f"AR(1) {rho}, spread {spread:.0%}": autoregressive(rho, spread)
        for rho in (0.5, 0.9)
        for spread in (0.01, 0.03)
    },
}
STICKY = {"two states, stay .9": _two_states(0.9)}
"""A change of state is a change of level there, until the state is seen to come again."""


def gate_noises(trials: int) -> Iterator[Row]:
    """Fleets that are checked run after run from the first on; then one series gets slower."""
    for name, noise in NOISES.items():
        random = np.random.default_rng([*name.encode()])
        red = dict.fromkeys(KNOWN, 0)
        delays = [_follow(noise, random, red) for _ in range(trials)]
        for known in KNOWN:
            shares = [Share("red checks", red[known], trials, 0.0, 0.05)]
            if known == max(KNOWN):
                shares += [
                    Share(f"+10 % in {within}", sum(d <= within for d in delays), trials)
                    for within in (1, 3, AFTERWARDS)
                ]
            yield Row(name, str(known), tuple(shares))


def _follow(noise: Noise, random: np.random.Generator, red: dict[int, int]) -> int:
    """Counts red checks; returns after how many checks a lasting change was found."""
    rounds = max(KNOWN) + AFTERWARDS + 1
    signs = np.array([worse_side(metric) for _, metric in PLACES])
    is_watched = np.array([place == WATCHED for place in PLACES])
    slower = noise(random, rounds, len(PLACES))
    fleet = Fleet({place: [] for place in PLACES})
    for number in range(rounds):
        values = slower[number] + math.log(RISE) * is_watched * (number > max(KNOWN))
        runs = dict(zip(PLACES, (signs * values).tolist(), strict=True))
        if number == 0:
            fleet.keep(runs, {place: [] for place in PLACES})
            continue
        (found,) = fleet.check(runs, [7])
        if number in red:
            red[number] += any(map(is_red, found.values()))
        if number > max(KNOWN) and is_red(found[WATCHED]):
            return number - max(KNOWN)
        fleet.keep(runs, found)
    return rounds


def level_noises(trials: int) -> Iterator[Row]:
    """Series without a change of level, and with one of +10 % that lasts."""
    for name, noise in (NOISES | STICKY).items():
        for count in LENGTHS:
            random = np.random.default_rng([count, *name.encode()])
            false = found = 0
            for _ in range(trials):
                false += bool(find_change_points(np.exp(noise(random, count, 1)[:, 0]).tolist()))
                place = int(random.integers(LEAST_RUNS, count - LEAST_RUNS + 1))
                values = np.exp(noise(random, count, 1)[:, 0])
                values[place:] *= RISE
                changes = find_change_points(values.tolist())
                found += any(abs(change.start - place) <= max(count // 4, 2) for change in changes)
            most = 1.0 if name in STICKY else 0.05
            shares = (
                Share("false changes", false, trials, 0.0, most),
                Share("+10 % found", found, trials),
            )
            yield Row(name, str(count), shares)
