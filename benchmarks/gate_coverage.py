"""How often is the gate right? Simulated histories of which the truth is known; takes a minute.

Runs of a series vary by a given spread; a check compares 12 series by 10 metrics, drifts included,
with the functions that `etprof history check` calls. `--checks N` sets how many checks each figure
is of.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from etprof.history.run_spread import DEFAULT_THRESHOLD
from etprof.statistics.change_points import find_change_points
from etprof.statistics.order_statistics import CONFIDENCE
from etprof.statistics.runs import (
    departure,
    find_drift,
    fit_prior,
    spread_of_neighbours,
    standing_level,
)
from etprof.statistics.two_samples import holm

if TYPE_CHECKING:
    from numpy.typing import NDArray

SERIES, METRICS = 12, 10
WINDOWS = (3, 5, 7, 10)
SPREADS = (0.01, 0.03, 0.05, 0.08)
THRESHOLD = math.log1p(DEFAULT_THRESHOLD)
Place = tuple[int, int]
"""A series and a metric."""
History = dict[Place, list[float]]
PLACES = [(series, metric) for series in range(SERIES) for metric in range(METRICS)]


@dataclass(frozen=True)
class Row:
    """What a check says of one series and metric."""

    is_red: bool
    is_called: bool
    """Red or green."""
    covers: bool
    """Whether the interval has the truth, where nothing has changed."""


def check(history: History, candidates: Mapping[Place, float], window: int) -> dict[Place, Row]:
    """Judges as `etprof.history.gate` does: steps and drifts, adjusted together."""
    tests = []
    for metric in {metric for _, metric in history}:
        places = [place for place in history if place[1] == metric]
        spreads = (spread_of_neighbours(history[place]) for place in places)
        prior = fit_prior([spread for spread in spreads if spread is not None])
        for place in places:
            logs, value = history[place], candidates[place]
            level = standing_level(logs, worse=1, threshold=THRESHOLD, prior=prior)
            members = level.members[-window:]
            tests.append((place, departure([logs[i] for i in members], value, level.spread), False))
            drift = find_drift([*logs, value], prior)
            if drift is not None:
                tests.append((place, drift.total, not drift.is_steady))
    rows: dict[Place, Row] = {}
    adjusted = holm([found.p_value for _, found, _ in tests])
    for (place, found, is_left_out), p_value in zip(tests, adjusted, strict=True):
        is_called = p_value <= 1 - CONFIDENCE and abs(found.change) > THRESHOLD and not is_left_out
        is_drift = place in rows
        before = rows.get(place, Row(False, False, found.interval.low <= 0 <= found.interval.high))
        is_red = is_called and found.change > 0
        rows[place] = Row(
            before.is_red or is_red,
            before.is_called or (is_red if is_drift else is_called),
            before.covers,
        )
    return rows


def spreads_of(kind: float | str, random: np.random.Generator) -> dict[Place, float]:
    """One spread for all, or each its own between 1 and 8 %."""
    if isinstance(kind, float):
        return dict.fromkeys(PLACES, kind)
    return {place: math.exp(random.uniform(math.log(0.01), math.log(0.08))) for place in PLACES}


def draw(
    spreads: Mapping[Place, float], runs: int, random: np.random.Generator
) -> tuple[History, dict[Place, float]]:
    """Draws histories of `runs` runs and a candidate of each."""
    history = {place: random.normal(0, spread, runs).tolist() for place, spread in spreads.items()}
    return history, {place: float(random.normal(0, spread)) for place, spread in spreads.items()}


def false_alarms(checks: int, random: np.random.Generator) -> Iterator[str]:
    """Family-wise false alarms and coverage, by spread and window, with short and long histories."""
    yield "nothing has changed: checks with a red row, with any call; coverage of the interval"
    for kind in (*SPREADS, "1 to 8 %"):
        for window in WINDOWS:
            for runs in (window, 20):
                red = called = inside = 0
                for _ in range(checks):
                    rows = check(*draw(spreads_of(kind, random), runs, random), window).values()
                    red += any(row.is_red for row in rows)
                    called += any(row.is_called for row in rows)
                    inside += sum(row.covers for row in rows)
                name = kind if isinstance(kind, str) else f"{kind:.0%}"
                yield (
                    f"  spread {name:8} window {window:2} of {runs:2} runs: red {red / checks:6.1%}"
                    f"  called {called / checks:6.1%}"
                    f"  covers {inside / checks / len(PLACES):6.1%}"
                )


def power(checks: int, random: np.random.Generator) -> Iterator[str]:
    """How often one slower series of 120 comparisons is red."""
    yield "one of 120 comparisons is slower, window 7 of 20 runs: red"
    for rise in (0.05, 0.1, 0.2):
        told = []
        for spread in SPREADS:
            red = 0
            for _ in range(checks):
                history, values = draw(spreads_of(spread, random), 20, random)
                values[0, 0] += math.log1p(rise)
                red += check(history, values, 7)[0, 0].is_red
            told.append(f"{spread:.0%}: {red / checks:6.1%}")
        yield f"  +{rise:.0%}, spread " + "  ".join(told)


def follow(
    checks: int,
    spread: float,
    factors: Sequence[float],
    random: np.random.Generator,
    *,
    keep: bool = True,
) -> list[list[bool]]:
    """Checks run after run of one series that goes through `factors`; red or not, for each."""
    found = []
    for _ in range(checks):
        history, _ = draw(spreads_of(spread, random), 12, random)
        answers = []
        for factor in factors:
            _, values = draw(spreads_of(spread, random), 0, random)
            values[0, 0] += math.log(factor)
            answers.append(check(history, values, 7)[0, 0].is_red)
            for place, logs in history.items():
                # The gate leaves runs of the candidate's own commit out.
                if keep or place != (0, 0):
                    logs.append(values[place])
        found.append(answers)
    return found


def stories(checks: int, random: np.random.Generator) -> Iterator[str]:
    """Lasting steps, repetitions of one commit, and creeps."""
    yield "stories of one series of 120 comparisons, window 7, after 12 runs"
    lasting = follow(checks, 0.01, [1.1] * 20, random)
    yield f"  +10 % that lasts, 1 % spread: {np.mean(lasting):.2%} of 20 checks red"
    again = follow(checks, 0.01, [1.1] * 8, random, keep=False)
    yield f"  +10 % run eight times at one commit: {np.mean(again):.2%} red"
    for spread in (0.01, 0.03):
        creep = follow(checks, spread, [1.03**n for n in range(1, 9)], random)
        first = [answers.index(True) + 1 if any(answers) else math.inf for answers in creep]
        yield (
            f"  +3 % a run, {spread:.0%} spread: found within 8 runs {np.mean(np.isfinite(first)):.1%},"
            f" in the middle after {np.median(first):g}"
        )


def autocorrelated(count: int, rho: float, random: np.random.Generator) -> NDArray[np.float64]:
    """An AR(1) process of variance 1."""
    values = random.normal(size=count)
    for i in range(1, count):
        values[i] = rho * values[i - 1] + math.sqrt(1 - rho**2) * values[i]
    return values


def changes(trials: int, random: np.random.Generator) -> Iterator[str]:
    """False changes of level, and where the true ones are put."""
    yield "changes of level, 2 % spread, one step of +10 %: false in series without one; found; inside"
    for rho in (0.0, 0.5, 0.9):
        for count in (20, 50, 100):
            false = found = inside = exact = 0
            for _ in range(trials):
                values = 0.02 * autocorrelated(count, rho, random)
                false += bool(find_change_points(np.exp(values).tolist()))
                place = int(random.integers(5, count - 4))
                values = 0.02 * autocorrelated(count, rho, random)
                values[place:] += math.log(1.1)
                near = [
                    change
                    for change in find_change_points(np.exp(values).tolist())
                    if abs(change.start - place) <= count // 4
                ]
                found += bool(near)
                inside += any(change.earliest <= place <= change.latest for change in near)
                exact += any(change.start == place for change in near)
            share = f"{inside / found:6.1%}  exact {exact / found:6.1%}" if found else "   –"
            yield (
                f"  AR(1) {rho:3.1f}, {count:3} runs: false {false / trials:6.1%}"
                f"  found {found / trials:6.1%}  place inside {share}"
            )


SECTIONS: tuple[Callable[[int, np.random.Generator], Iterator[str]], ...] = (
    false_alarms, power, stories, changes,
)  # fmt: skip


def main() -> None:
    """Prints all sections."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checks", type=int, default=100)
    checks = parser.parse_args().checks
    for number, section in enumerate(SECTIONS):
        # Stories are of many checks each.
        count = max(checks // 10, 1) if section is stories else checks
        for line in section(count, np.random.default_rng(number)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
