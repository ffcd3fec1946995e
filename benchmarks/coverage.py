"""Do intervals cover, and verdicts err, as often as they say? Simulated, by noise and launches.

Every figure comes from the product's own functions on values whose truth is known: the order of
launches is the planner's, the estimates are those of reports. Nothing is measured, so the machine
does not matter. Exit code 1 when a target is missed by more than three standard errors of the
simulation; rows outside their target carry `<`.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
from coverage_gate import false_alarms, stories
from coverage_noises import autoregressive, gate_noises, level_noises
from coverage_rows import Row, Section, Share, show

from etprof.analysis.compare.comparison import judge_changes
from etprof.analysis.split.operators import PartTimes
from etprof.measuring.plan import Experiment, Settings, draw_blocks, draw_rounds
from etprof.statistics.change_points import LEAST_RUNS, find_change_points
from etprof.statistics.effect import DEFAULT_MARGIN, effect_of_runs, estimate_effect, took_turns
from etprof.statistics.order_statistics import LEAST_VALUES
from etprof.statistics.summary import summarise_blocks
from etprof.statistics.two_samples import pooled_spread

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etprof.analysis.compare.comparison import Change

Noise = Callable[[np.random.Generator, int], "NDArray[np.float64]"]
"""Log slow-downs of so many launches, in their order of time."""

LAUNCHES = (6, 10, 20, 40, 60)
SPREAD = 0.02
EFFECT = 1.05
"""A true speedup, of which the power is told."""
OPERATOR_LAUNCHES = (5, 6, 8, 12, 20, 40)
COVERS = (0.93, 0.97)
"""What intervals of 95 % should cover."""
OPERATORS = 20
CLASS_EFFECT = 1.2
SIDES = [Experiment(name="one"), Experiment(name="other")]


def _normal(random: np.random.Generator, count: int) -> NDArray[np.float64]:
    return SPREAD * random.normal(size=count)


def _states(stay: float) -> Noise:
    """Three of ten launches are 15 % slower; each keeps the state before it with `stay`."""

    def draw(random: np.random.Generator, count: int) -> NDArray[np.float64]:
        fresh = random.random(count) < 0.3
        for i in range(1, count):
            fresh[i] = fresh[i - 1] if random.random() < stay else fresh[i]
        return 0.15 * fresh + _normal(random, count) / 4

    return draw


def _autoregressive(rho: float) -> Noise:
    return lambda random, count: autoregressive(rho, SPREAD)(random, count, 1)[:, 0]


def _every(period: int) -> Noise:
    """Every so-manieth launch is 30 % slower, in step with the first."""
    return lambda random, count: 0.3 * (np.arange(count) % period == 0) + _normal(random, count)


NOISES: dict[str, Noise] = {
    "normal": _normal,
    "lognormal": lambda r, n: SPREAD * np.exp(r.normal(size=n)),
    "heavy tails": lambda r, n: SPREAD * r.standard_t(2, size=n),
    "disturbed launches": lambda r, n: _normal(r, n) + 0.4 * (r.random(n) < 0.1),
    "two states": _states(0.0),
    "two states, lasting": _states(0.9),
    "drift of 10 %": lambda r, n: _normal(r, n) + np.linspace(0, 0.1, n),
    "throttle": lambda r, n: _normal(r, n) + 0.3 * (np.arange(n) >= n * r.uniform(0.3, 0.9)),
    **{f"AR(1) {rho}": _autoregressive(rho) for rho in (0.3, 0.6, 0.9)},
    **{f"period {period}": _every(period) for period in range(2, 9)},
}
ONE_MIDDLE = {name for name in NOISES if not name.startswith(("drift", "throttle", "period"))}
"""Those whose launches have one median that does not depend on when the run was."""
INDEPENDENT = {"normal", "lognormal", "heavy tails", "disturbed launches", "two states"}
"""Whose launches owe nothing to those before them, so that a side's interval has to cover."""
DISCRETE = "period 2"
"""Each pair has one slow launch, so that only the number of one side's tells, in coarse steps; and an
order that always begins with one side is never drawn: intervals cover more than they say."""


def _in_run(trials: int) -> Iterator[Row]:
    """One run of two experiments: their speedup, and the first one's own latency."""
    for name, noise in NOISES.items():
        wide = noise(np.random.default_rng(0), 200_001)
        truth = float(np.median(wide)) if name in ONE_MIDDLE else None
        for launches in LAUNCHES:
            random = np.random.default_rng([launches, *name.encode()])
            yield _simulate_run(name, noise, launches, trials, random, truth)


def _simulate_run(  # noqa: PLR0913, PLR0917 - one cell of a table
    name: str,
    noise: Noise,
    launches: int,
    trials: int,
    random: np.random.Generator,
    truth: float | None,
) -> Row:
    covered = wrong = found = shown = inside = claimed = wrongly = 0
    for seed in range(trials):
        one, other = _launch(noise, launches, random, seed)
        same = estimate_effect(one, other)
        better = estimate_effect(one, [value / EFFECT for value in other])
        assert same.interval is not None
        covered += same.interval.low <= 1 <= same.interval.high
        wrong += same.verdict in {"faster", "slower"}
        found += better.verdict == "faster"
        side = summarise_blocks([[value] for value in one])
        if truth is None:
            continue
        is_in = side.interval is not None and (
            side.interval.low <= math.exp(truth) <= side.interval.high
        )
        shown += side.interval is not None
        inside += is_in
        claimed += not side.doubt
        wrongly += not side.doubt and not is_in
    told = 0 if truth is None else trials
    least, most = COVERS if name in INDEPENDENT else (0.0, 1.0)
    most_covered = 1.0 if name == DISCRETE else COVERS[1]
    return Row(
        name,
        str(launches),
        (
            Share("speedup covers", covered, trials, COVERS[0], most_covered),
            Share("false verdicts", wrong, trials, 0.0, 0.05),
            Share("+5 % found", found, trials),
            Share("side covers", inside, shown, least, most),
            Share("side shown", shown, told),
            Share("claims 95 %", claimed, told),
            Share("claims and errs", wrongly, told, 0.0, 0.05),
        ),
    )


def _launch(
    noise: Noise, launches: int, random: np.random.Generator, seed: int
) -> tuple[list[float], list[float]]:
    """Measures the same thing under two names, in the planner's order."""
    blocks = draw_blocks(SIDES, Settings(blocks=launches, seed=seed))
    order = [launch.experiment.name for block in blocks for launch in block]
    values = np.exp(noise(random, len(order))).tolist()
    sides: dict[str, list[float]] = {each.name: [] for each in SIDES}
    for side, value in zip(order, values, strict=True):
        sides[side].append(value)
    return sides["one"], sides["other"]


def _separate_runs(trials: int) -> Iterator[Row]:
    """Runs of their own, as `compare` has them: alone, repeated, with the device's history."""
    for spread in (0.0, 0.01, 0.02, 0.05):
        for label, runs, history in (
            ("one run a side", 1, 0),
            ("one run, history of 5", 1, 5),
            ("one run, history of 20", 1, 20),
            ("3 against 3 runs", 3, 0),
            ("5 against 5 runs", 5, 0),
        ):
            random = np.random.default_rng([runs, history, round(1000 * spread)])
            yield _compare_runs(
                f"{label}, spread {spread:.0%}", runs, history, spread, random, trials
            )
    for order in ("AAABBB", "ABABAB", "ABBAAB", "AAAAABBBBB"):
        for session in (0.01, 0.02):
            yield _compare_sessions(order, session, trials)


def _compare_sessions(order: str, session: float, trials: int) -> Row:
    """Runs of 0.5 % spread, and of two sessions: the first half of them and the second."""
    random = np.random.default_rng([*order.encode(), round(1000 * session)])
    moments = {side: [f"{i:03}" for i, s in enumerate(order) if s == side] for side in "AB"}
    in_turns = took_turns(moments["A"], moments["B"])
    wrong = found = 0
    for _ in range(trials):
        levels = np.repeat(session * random.normal(size=2), len(order) // 2)
        noise = 0.005 * random.normal(size=(len(order), 1)) + 0.01 * random.normal(
            size=(len(order), 10)
        )
        runs = np.exp(levels[:, None] + noise)
        before, after = (runs[np.array([*order]) == side] for side in "AB")
        same, better = (
            effect_of_runs(before.tolist(), other.tolist(), in_turns=in_turns)
            for other in (after, after / 1.2)
        )
        wrong += same.verdict in {"faster", "slower"}
        found += better.verdict == "faster"
    shares = Share("false verdicts", wrong, trials, 0.0, 0.01), Share("+20 % found", found, trials)
    return Row(f"{order}, two sessions, {session:.0%}", "10", shares)


def _compare_runs(  # noqa: PLR0913, PLR0917 - one cell of a table
    label: str, runs: int, history: int, spread: float, random: np.random.Generator, trials: int
) -> Row:
    def measured(count: int, level: float = 1.0) -> list[list[float]]:
        state = spread * random.normal(size=(count, 1))
        launches = 0.01 * random.normal(size=(count, 10))
        found: list[list[float]] = (level * np.exp(state + launches)).tolist()
        return found

    covered = wrong = found = shown = 0
    for _ in range(trials):
        known = None
        if history:
            known = pooled_spread([[math.log(np.median(run)) for run in measured(history)]])
        before, after = measured(runs), measured(runs)
        same = effect_of_runs(before, after, prior=known)
        faster = [[value / 1.2 for value in run] for run in after]
        wrong += same.verdict in {"faster", "slower"}
        found += effect_of_runs(before, faster, prior=known).verdict == "faster"
        if same.p_value is not None and same.interval is not None:
            shown += 1
            covered += same.interval.low <= 1 <= same.interval.high
    return Row(
        label,
        "10",
        (
            Share("99 % covers", covered, shown, 0.98),
            Share("false verdicts", wrong, trials, 0.0, 0.01),
            Share("+20 % found", found, trials),
        ),
    )


def _operators(trials: int) -> Iterator[Row]:
    """The operator launches of one run: a table of operators on two sides, and their class."""
    for name, noise in NOISES.items():
        for launches in OPERATOR_LAUNCHES:
            random = np.random.default_rng([launches, 7, *name.encode()])
            yield _simulate_table(name, noise, launches, trials, random)


def _simulate_table(
    name: str, noise: Noise, launches: int, trials: int, random: np.random.Generator
) -> Row:
    """Operators share the noise of their launch, and each has a quarter of it of its own."""
    covered = wrong = of_class = found = 0
    for seed in range(trials):
        rounds = draw_rounds(SIDES, Settings(seed=seed), launches)
        order = np.array([launch.experiment.name for piece in rounds for launch in piece])
        own = SPREAD / 4 * random.normal(size=(order.size, OPERATORS))
        common = noise(random, order.size)[:, None]
        values = np.arange(1, OPERATORS + 1) * np.exp(common + own)
        one, other = (values[order == side.name] for side in SIDES)
        same = _judge(one, other)
        covered += sum(_holds(change, 1.0) for change in same)
        wrong += any(change.verdict in {"faster", "slower"} for change in same)
        (whole,) = _judge(one.sum(axis=1)[:, None], other.sum(axis=1)[:, None] / CLASS_EFFECT)
        of_class += _holds(whole, CLASS_EFFECT)
        found += whole.verdict == "faster"
    # Five pairs have no exact interval: Student's t covers too much or follows a period.
    least, most = COVERS if launches >= LEAST_VALUES else (0.93, 1.0)
    most = 1.0 if name == DISCRETE else most
    false = 0.05
    if launches < LEAST_VALUES and name.startswith("period"):
        least, false = 0.0, 1.0
    # Operators share the noise of their launch, so they are as sure as a single one.
    return Row(
        name,
        str(launches),
        (
            Share("operator covers", round(covered / OPERATORS), trials, least, most),
            Share("class covers", of_class, trials, least, most),
            Share("table errs", wrong, trials, 0.0, false),
            Share("+20 % found", found, trials),
        ),
    )


def _judge(one: NDArray[np.float64], other: NDArray[np.float64]) -> list[Change]:
    """Judges a table as comparisons do: a row per launch, a column per operator."""
    parts = [
        [PartTimes(float(c.sum()), tuple(c.tolist()), float(c.mean()), 0.1) for c in side.T]
        for side in (one, other)
    ]
    every = range(one.shape[0])
    return list(judge_changes(zip(*parts, strict=True), (every, every), DEFAULT_MARGIN))


def _holds(change: Change, truth: float) -> bool:
    return change.interval is not None and change.interval.low <= truth <= change.interval.high


LENGTHS = (6, 9, 12, 15, 20, 50, 100, 250, 450)
"""Runs of a series; more than 200 are looked through in windows."""
CLEAR_STEP, CLEAR_SPREAD = 1.2, 0.004


def _changes(trials: int) -> Iterator[Row]:
    """Series without a change of level, with one of +10 %, and with one of many times the noise."""
    for rho in (0.0, 0.5, 0.9):
        for count in LENGTHS:
            random = np.random.default_rng([count, round(10 * rho)])
            noise = _autoregressive(rho)
            false = found = inside = clear = 0
            for _ in range(trials):
                place = int(random.integers(LEAST_RUNS, count - LEAST_RUNS + 1))
                is_after = np.arange(count) >= place
                false += bool(find_change_points(np.exp(noise(random, count)).tolist()))
                values = np.exp(noise(random, count)) * np.where(is_after, 1.1, 1)
                near = [
                    change
                    for change in find_change_points(values.tolist())
                    if abs(change.start - place) <= count // 4
                ]
                found += bool(near)
                inside += any(change.earliest <= place <= change.latest for change in near)
                quiet = CLEAR_SPREAD / SPREAD * noise(random, count)
                values = np.exp(quiet) * np.where(is_after, CLEAR_STEP, 1)
                clear += place in {each.start for each in find_change_points(values.tolist())}
            yield Row(
                f"AR(1) {rho}",
                str(count),
                (
                    Share("false changes", false, trials, 0.0, 0.05),
                    Share("+10 % found", found, trials),
                    Share("place inside", inside, found, 0.93),
                    Share("+20 % at 0.4 %", clear, trials, 0.95),
                ),
            )


SECTIONS: dict[str, Section] = {
    "run": Section("Two experiments of one run, launched in turns; in %", _in_run),
    "compare": Section("Separate runs of ten launches that differ by 1 %; in %", _separate_runs),
    "operators": Section(
        "Operator launches of one run, in turns; in %", _operators, cost=2
    ),
    "gate": Section(
        "Checks of 12 series by 10 metrics, drifts included, nothing changed; in %",
        false_alarms, "runs", cost=5,
    ),
    "stories": Section(
        "One of 120 comparisons becomes slower, after 12 runs, window 7; in %",
        stories, "checks", cost=20,
    ),
    "changes": Section(
        "Change points in series of 2 % spread; in %", _changes, "runs", cost=5
    ),
    "noises": Section(
        "Run after run checked and kept, 12 series by 10 metrics, window 7, nothing changed; in %",
        gate_noises, "runs", cost=10,
    ),
    "levels": Section(
        "Change points in series of the same noises; in %", level_noises, "runs", cost=5
    ),
}  # fmt: skip


def main() -> int:
    """Prints the sections asked for, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", help=f"of {', '.join(SECTIONS)}; default: all")
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--quick", action="store_true", help="100 trials")
    given = parser.parse_args()
    trials = 100 if given.quick else given.trials
    if unknown := [name for name in given.sections if name not in SECTIONS]:
        parser.error(f"there is no section {unknown[0]}; there are {', '.join(SECTIONS)}")
    good = [show(SECTIONS[name], trials) for name in given.sections or SECTIONS]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
