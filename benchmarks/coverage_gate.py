"""The gate of `history check`, simulated: whole checks of a device on values whose truth is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import numpy as np
from coverage_rows import Row, Share

from etprof.history.gate import (
    Judgement,
    MetricComparison,
    judge_all,
)
from etprof.history.ingest import metric_of
from etprof.history.metric_names import HEADLINE, HIGHER_IS_BETTER, METRICS, worse_side
from etprof.history.run_spread import DEFAULT_THRESHOLD, NOISE_RUNS, SeriesPoint, find_level
from etprof.history.schema import Metric
from etprof.statistics.departures import weigh_departure
from etprof.statistics.device_noise import DeviceNoise
from etprof.statistics.runs import (
    RunMarks,
    departure,
    find_drift,
    fit_prior,
    spread_of_neighbours,
)
from etprof.statistics.states import remove_states

if TYPE_CHECKING:
    from etprof.statistics.two_samples import Spread

SERIES = 12
MOMENT = datetime(2026, 9, 1, tzinfo=UTC)
"""When all runs were measured: their order alone counts."""
Place = tuple[int, str]
"""A series and a metric."""
History = dict[Place, list[float]]
"""Log values, oldest first."""
PLACES = [(series, metric) for metric in METRICS for series in range(SERIES)]
WATCHED = (0, HEADLINE)
"""The one series that something happens to."""
SPREADS: dict[str, Callable[[np.random.Generator], float]] = {
    "1 %": lambda _: 0.01,
    "3 %": lambda _: 0.03,
    "5 %": lambda _: 0.05,
    "8 %": lambda _: 0.08,
    "1 to 8 %": lambda random: math.exp(random.uniform(math.log(0.01), math.log(0.08))),
    "1 %, one of six 8 %": lambda random: 0.08 if random.random() < 1 / 6 else 0.01,
}
"""Of a run, by what it is called; drawn for each series and metric."""
WORSE = {"regression", "drift"}
FEW, MANY = (3, 5, 7), 20
"""Runs of a history."""


Found = dict[Place, list[tuple[MetricComparison, Judgement]]]
"""What a check says of a series and metric: of a step, then of a drift where there is a test."""


@dataclass(frozen=True)
class DeviceFacts:
    """What is known of a device in one metric."""

    prior: Spread | None
    noise: DeviceNoise
    noise_within_states: DeviceNoise


@dataclass
class Fleet:
    """The series of one device, and which of their runs a check called worse."""

    history: History
    alarms: dict[Place, set[int]] = field(default_factory=dict)
    """Indices of runs, as `history check` keeps them."""

    def check(self, candidates: Mapping[Place, float], windows: Sequence[int]) -> list[Found]:
        """Makes a whole check, steps and drifts, for each window; the judge is the product's."""
        made: dict[int, list[tuple[Place, MetricComparison]]] = {each: [] for each in windows}
        places_by_metric = {
            metric: [place for place in self.history if place[1] == metric] for metric in METRICS
        }
        # Of a device as many runs are read for this as fall on each series here.
        newest = slice(-(NOISE_RUNS // SERIES), None)
        logs = {
            metric: {place[0]: self.history[place][newest] for place in places}
            for metric, places in places_by_metric.items()
        }
        steady = {
            metric: {
                place[0]: remove_states(self.history[place], self.alarms.get(place, ()))
                for place in places
            }
            for metric, places in places_by_metric.items()
        }
        noise = DeviceNoise(logs, HIGHER_IS_BETTER)
        noise_within = DeviceNoise(
            {
                metric: {key: values[newest] for key, values in series.items()}
                for metric, series in steady.items()
            },
            HIGHER_IS_BETTER,
        )
        for metric, places in places_by_metric.items():
            spreads = [spread_of_neighbours(steady[metric][place[0]]) for place in places]
            prior = fit_prior([spread for spread in spreads if spread is not None])
            for place in places:
                self._compare(
                    place, candidates[place], DeviceFacts(prior, noise, noise_within), made
                )
        found = []
        for comparisons in made.values():
            rows: Found = {}
            for (place, comparison), judgement in zip(
                comparisons, judge_all([each for _, each in comparisons]), strict=True
            ):
                rows.setdefault(place, []).append((comparison, judgement))
            found.append(rows)
        return found

    def _compare(
        self,
        place: Place,
        value: float,
        device: DeviceFacts,
        made: Mapping[int, list[tuple[Place, MetricComparison]]],
    ) -> None:
        """Adds the step and the drift of one series and metric to what is judged together."""
        logs, metric, prior = self.history[place], place[1], device.prior
        after = Metric(**metric_of(metric, [math.exp(value)]))
        points = [SeriesPoint(i, MOMENT, (None, None), logs[i]) for i in range(len(logs))]
        level = find_level(
            points, RunMarks(alarmed=self.alarms.get(place, ()), dependence=device.noise.dependence),
            worse=worse_side(metric), threshold=math.log1p(DEFAULT_THRESHOLD), prior=prior,
        ).of_state(value)  # fmt: skip
        line = find_drift(remove_states([*logs, value]), prior, device.noise.dependence)
        standing = (
            ()
            if level.departure is None or level.departure.is_over(value, level.spread)
            else level.departure.members
        )
        for window, comparisons in made.items():
            members = [logs[i] for i in level.members[-window:]]
            step = departure(members, value, level.spread, device.noise.dependence)
            before = math.exp(value - step.change)
            departed = level.departed(metric, value, step.change)
            noise = device.noise_within_states if level.is_of_worse_state else device.noise
            step, share = weigh_departure(step, noise, departed)
            comparison = MetricComparison(
                after, (), before, DEFAULT_THRESHOLD, step,
                departed=standing or level.outside, is_standing=bool(standing), lone_share=share,
                group=metric, runs_before=len(logs), outside=len(level.outside),
            )  # fmt: skip
            comparisons.append((place, comparison))
            if line is not None:
                drift = MetricComparison(
                    after, (), math.exp(line.start), DEFAULT_THRESHOLD, line.total, drift=line,
                    departed=tuple(range(len(logs) + 1 - line.runs // 2, len(logs))),
                )  # fmt: skip
                comparisons.append((place, drift))

    def keep(self, candidates: Mapping[Place, float], found: Found) -> None:
        """Adds the runs that were checked, and keeps what was called worse as `history check` does."""
        for place, logs in self.history.items():
            for comparison, judgement in found[place]:
                if judgement.verdict in WORSE:
                    alarms = self.alarms.setdefault(place, set())
                    alarms.update({len(logs), *comparison.departed})
            logs.append(candidates[place])


def is_red(found: Sequence[tuple[MetricComparison, Judgement]]) -> bool:
    """Whether a series and metric fails the build."""
    return any(judgement.verdict in WORSE for _, judgement in found)


def _draw(spreads: Mapping[Place, float], random: np.random.Generator) -> dict[Place, float]:
    """Draws a run of every series."""
    return {place: float(random.normal(0, spread)) for place, spread in spreads.items()}


def _history(
    kind: str, runs: int, random: np.random.Generator
) -> tuple[History, dict[Place, float]]:
    """Draws histories of `runs` runs; returns them with the spread of each."""
    spreads = {place: SPREADS[kind](random) for place in PLACES}
    return {p: random.normal(0, spread, runs).tolist() for p, spread in spreads.items()}, spreads


def false_alarms(trials: int) -> Iterator[Row]:
    """Whole checks in which nothing has changed."""
    for kind in SPREADS:
        for runs, windows in (*((few, [few]) for few in FEW), (MANY, [3, 7])):
            random = np.random.default_rng([runs, *kind.encode()])
            red, called, inside = ([0] * len(windows) for _ in range(3))
            for _ in range(trials):
                history, spreads = _history(kind, runs, random)
                checks = Fleet(history).check(_draw(spreads, random), windows)
                for number, rows in enumerate(checks):
                    red[number] += any(map(is_red, rows.values()))
                    verdicts = {each.verdict for row in rows.values() for _, each in row}
                    called[number] += bool(verdicts & {*WORSE, "improvement"})
                    inside[number] += sum(
                        step.low <= 0 <= step.high  # type: ignore[operator]
                        for (_, step), *_ in rows.values()
                    )
            for number, window in enumerate(windows):
                yield Row(
                    f"spread {kind}, window {window}",
                    str(runs),
                    (
                        Share("red checks", red[number], trials, 0.0, 0.05),
                        Share("red or green", called[number], trials, 0.0, 0.05),
                        Share("95 % covers", inside[number], trials * len(PLACES), 0.93),
                    ),
                )


def stories(trials: int) -> Iterator[Row]:
    """One of 120 comparisons gets slower, after twelve runs; window 7."""
    for rise in (0.05, 0.1, 0.2):
        for kind in ("1 %", "3 %", "5 %"):
            answers = _follow(trials, kind, [1 + rise])
            red = Share("red", sum(map(sum, answers)), trials)
            yield Row(f"one run {rise:.0%} slower, spread {kind}", "1", (red,))
    for title, factors, keeps in (
        ("+10 % that lasts, spread 1 %", [1.1] * 20, True),
        ("+10 %, one commit again and again", [1.1] * 8, False),
    ):
        answers = _follow(trials, "1 %", factors, keeps=keeps)
        red = Share("red", sum(map(sum, answers)), trials * len(factors), 1.0)
        yield Row(title, str(len(factors)), (red,))
    for kind, least in (("1 %", 1.0), ("3 %", 0.0)):
        answers = _follow(trials, kind, [1.03**n for n in range(1, 9)])
        found = Share("found within 8", sum(map(any, answers)), trials, least)
        yield Row(f"+3 % a run, spread {kind}", "8", (found,))


def _follow(
    trials: int, kind: str, factors: Sequence[float], *, keeps: bool = True
) -> list[list[bool]]:
    """Checks run after run of the watched series as it goes through `factors`: red or not.

    Without `keeps` they are of one commit, whose runs are in no baseline.
    """
    found = []
    random = np.random.default_rng([len(factors), keeps, *kind.encode()])
    for _ in range(trials):
        history, spreads = _history(kind, 12, random)
        answers = []
        for factor in factors:
            values = _draw(spreads, random)
            values[WATCHED] += math.log(factor)
            (rows,) = Fleet(history).check(values, [7])
            answers.append(is_red(rows[WATCHED]))
            for place, logs in history.items():
                if keeps or place != WATCHED:
                    logs.append(values[place])
        found.append(answers)
    return found
