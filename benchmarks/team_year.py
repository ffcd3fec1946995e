"""A year of a team that measures every commit, simulated through the gate's own commands.

    python benchmarks/team_year.py [--seeds 3]

250 commits in twelve configurations on three devices, with device states, a phone that is replaced,
a new system, merges that arrive out of order and a second branch. Eight regressions of 3 to 30 % and
three improvements are planted. Red jobs are run again, regressions are repaired ten days after they
were found, and what a device changed is accepted. Prints what was found, missed and wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np

from etprof.dashboard.export import export_site
from etprof.history.check import CheckRequest, CheckResult, check_history, raise_alarms
from etprof.history.ingest import metric_of
from etprof.history.schema import OK, Run, full_hash, make_run, short_hash
from etprof.history.selection import accept_runs
from etprof.history.store import Store, open_store

START: Final = datetime(2026, 1, 5, 2, 0, tzinfo=UTC)
COMMITS: Final = 250
DAYS_A_COMMIT: Final = 365 / COMMITS
MODELS: Final = ("detector", "speech", "segmenter", "classifier")
DEVICES: Final = {"Phone A": 0.008, "Phone B": 0.015, "Board": 0.004}
"""Each with the spread of its runs; with four models, twelve configurations."""
WARM: Final = 0.06
"""How much slower a warm phone is; it is warm in one run of forty."""
REPLACED_AT, SYSTEM_AT = 90, 170
"""Commits at which Phone A is replaced and Phone B gets a new system, which is 8 % slower."""
SYSTEM: Final = 1.08
REPAIRED_AFTER: Final = 7
"""Commits from the first alarm for a planted regression to its repair."""
_COUNTS: Final = {"checks red for a reason", "wrong alarms in twelve months"}
LEVEL_METRICS: Final = ("latency_ns", "load_ns", "peak_rss_bytes")


@dataclass
class PlantedChange:
    """What a commit does to one model's latency, and when that was noticed."""

    commit: int
    model: str
    factor: float
    found_at: dict[str, int] = field(default_factory=dict)
    """By device, the commit whose check was the first to be red, or green for an improvement."""
    named: dict[str, int] = field(default_factory=dict)
    """The commit that the alarm was for."""
    repaired_at: int | None = None

    @property
    def is_worse(self) -> bool:
        """Whether it is a regression."""
        return self.factor > 1

    @property
    def is_large(self) -> bool:
        """Whether it is 10 % or more: it has to be found, and found again by a rerun."""
        return abs(self.factor - 1) > 0.099


def plant() -> list[PlantedChange]:
    """Eight regressions of 3 to 30 % and three improvements."""
    plan = (
        (22, 0, 1.10), (48, 1, 1.30), (70, 2, 1.05), (115, 3, 1.15), (140, 0, 1.03),
        (160, 1, 1.20), (195, 2, 1.12), (225, 3, 1.25),
        (60, 3, 0.85), (130, 2, 0.90), (210, 0, 0.80),
    )  # fmt: skip
    return [PlantedChange(commit, MODELS[model], factor) for commit, model, factor in plan]


@dataclass
class YearTally:
    """What came of a year."""

    right: int = 0
    """Checks that were red because of a planted regression or a device that changed."""
    wrong: list[int] = field(default_factory=list)
    """Commits at which a series turned red and nothing had happened to it."""
    green_reruns: int = 0
    reruns: int = 0
    seconds: list[float] = field(default_factory=list)


class TeamYear:
    """One year in a store of its own."""

    def __init__(self, store: Store, seed: int) -> None:
        self._store, self._random = store, np.random.default_rng(seed)
        self._seed, self._count = seed, 0
        self.changes, self.tally = plant(), YearTally()
        self._red: set[tuple[str, str]] = set()
        self._commit_of_run: dict[int, int] = {}

    def run(self) -> None:
        """Measures commit after commit; every twelfth pair arrives in the other order."""
        order = list(range(COMMITS))
        for position in range(11, COMMITS - 1, 12):
            order[position], order[position + 1] = order[position + 1], order[position]
        for position, commit in enumerate(order):
            self._measure_commit(commit, position)
            if commit % 9 == 0:
                self._add(commit, position, branch="wip/next")

    def _measure_commit(self, commit: int, position: int) -> None:
        run_ids = self._add(commit, position)
        result = self._check(run_ids)
        red = self._classify(result, commit, position)
        if red:
            self._rerun(commit, position, red)
        if commit == SYSTEM_AT:
            self._accept([i for i in run_ids if self._device_of(i) == "Phone B"], "new system")
        self._repair(position)

    def _check(self, run_ids: Sequence[int]) -> CheckResult:
        begin = time.perf_counter()
        request = CheckRequest("window:7", runs=tuple(map(str, run_ids)), allows_first_run=True)
        with self._store.session() as session:
            result = check_history(session, request)
        self._store.write(lambda session: raise_alarms(session, result, START))
        self.tally.seconds.append(time.perf_counter() - begin)
        return result

    def _classify(self, result: CheckResult, commit: int, position: int) -> set[tuple[str, str]]:
        """Tells right alarms from wrong ones; returns the series that are red."""
        red = set[tuple[str, str]]()
        for checked in result.entries:
            key = checked.run.model, checked.run.device
            if checked.outcome == "improvement" and checked.metric == "latency_ns":
                self._note(key, commit, position, is_worse=False)
            if checked.outcome not in {"regression", "drift"}:
                continue
            red.add(key)
            first = self._commit_of_run[min(checked.departed, default=checked.run.id)]
            is_planted = self._note(key, first, position, is_worse=True)
            # What the new system costs is accepted with the first run that has it.
            is_system = key[1] == "Phone B" and commit == SYSTEM_AT
            if is_planted or is_system:
                self.tally.right += 1
            elif key not in self._red:
                self.tally.wrong.append(commit)
        self._red = red
        return red

    def _note(self, key: tuple[str, str], commit: int, position: int, *, is_worse: bool) -> bool:
        """Whether a planted change stands behind what a series shows; keeps its first time."""
        model, device = key
        standing = [
            change for change in self.changes
            if change.model == model and change.is_worse == is_worse and change.commit <= commit + 1
            and change.commit <= position + 1 and (change.repaired_at is None or position <= change.repaired_at)
        ]  # fmt: skip
        for change in standing[-1:]:
            change.found_at.setdefault(device, position)
            change.named.setdefault(device, commit)
        return bool(standing)

    def _rerun(self, commit: int, position: int, red: set[tuple[str, str]]) -> None:
        """Runs the red job again, as people do; a large planted regression must not turn green.

        Of a small one below the gate's threshold the first run may be red by noise alone.
        """
        planted = {
            (change.model, self._serial(device, position))
            for change in self.changes for device in DEVICES
            if change.is_worse and change.is_large and change.commit <= commit and change.repaired_at is None
        }  # fmt: skip
        still = self._classify(self._check(self._add(commit, position, only=red)), commit, position)
        self.tally.reruns += len(red & planted)
        self.tally.green_reruns += len((red & planted) - still)

    def _repair(self, position: int) -> None:
        """Repairs what was found some days ago; small ones that nobody found stay."""
        for change in self.changes:
            is_open = change.is_worse and change.repaired_at is None and change.found_at
            if is_open and position - min(change.found_at.values()) >= REPAIRED_AFTER:
                change.repaired_at = position

    def _accept(self, run_ids: Sequence[int], why: str) -> None:
        acceptance = {"accepted_at": START, "accepted_by": "team", "why": why}
        self._store.write(
            lambda session: accept_runs(
                session, [session.get_one(Run, run_id) for run_id in run_ids], acceptance
            )
        )

    def _device_of(self, run_id: int) -> str:
        with self._store.session() as session:
            return session.get_one(Run, run_id).device

    def _add(
        self, commit: int, position: int, *, branch: str = "main",
        only: set[tuple[str, str]] | None = None,
    ) -> list[int]:  # fmt: skip
        runs = [
            self._run(model, device, commit, position, branch)
            for device in DEVICES for model in MODELS
            if only is None or (model, self._serial(device, position)) in only
        ]  # fmt: skip
        run_ids = [added.run_id for added in self._store.add(runs)]
        self._commit_of_run |= dict.fromkeys(run_ids, commit)
        return run_ids

    def _serial(self, device: str, position: int) -> str:
        return "Phone A2" if device == "Phone A" and position >= REPLACED_AT else device

    def _run(self, model: str, device: str, commit: int, position: int, branch: str) -> Run:
        self._count += 1
        level = 4e6 * self._latency_factor(model, commit, position)
        is_warm = device.startswith("Phone") and self._random.random() < 1 / 40
        level *= (1 + WARM) if is_warm else 1
        level *= SYSTEM if device == "Phone B" and commit >= SYSTEM_AT else 1
        scales = {"latency_ns": level, "load_ns": 3e7, "peak_rss_bytes": 6e7}
        metrics = [metric_of(name, self._samples(scales[name], DEVICES[device]))
                   for name in LEVEL_METRICS]  # fmt: skip
        days = position * DAYS_A_COMMIT + 0.001 * self._count / (position + 1)
        return make_run({
            "key": full_hash(self._seed, self._count), "run_name": f"run{self._count}",
            "experiment": "sme2", "measured_at": START + timedelta(days=days), "status": OK,
            "failure": None, "model": model, "precision": "fp16", "backend": "xnnpack",
            "method": "forward", "device": self._serial(device, position),
            "device_kind": "android", "sme_mode": "sme2", "threads": 1,
            "git_commit": short_hash("commit", commit, branch), "git_branch": branch,
            "git_dirty": False, "representative": True, "metrics": metrics,
        })  # fmt: skip

    def _latency_factor(self, model: str, commit: int, position: int) -> float:
        return math.prod(
            change.factor for change in self.changes
            if change.model == model and change.commit <= commit
            and (change.repaired_at is None or position <= change.repaired_at)
        )  # fmt: skip

    def _samples(self, level: float, spread: float) -> list[float]:
        run_level = level * math.exp(self._random.normal(0, spread))
        return [float(v) for v in run_level * np.exp(self._random.normal(0, spread / 5, 5))]


def summarise_year(year: TeamYear, folder: Path) -> dict[str, object]:
    """Returns a year's figures by their names; what is so many of so many is a pair."""
    tally = year.tally
    pairs = [(change, change.found_at.get(device))
             for change in year.changes for device in _devices_of(change)]  # fmt: skip
    large = [(change, found) for change, found in pairs if change.is_large]
    late = [
        (change, found) for change, found in large if found is None or _runs_to(change, found) > 3
    ]
    delays = [_runs_to(change, found) for change, found in large if found is not None]
    named = [abs(change.named[device] - change.commit) <= 1
             for change in year.changes for device in change.named if change.is_worse]  # fmt: skip
    begin = time.perf_counter()
    with open_store(folder / "year.sqlite") as store:
        site = export_site(store, folder / "pages")
    return {
        "changes of 10 % or more found within 3 runs": (len(large) - len(late), len(large)),
        "smaller ones found": (
            sum(f is not None for c, f in pairs if (c, f) not in large), len(pairs) - len(large)
        ),
        "regression's commit or its neighbour named": (sum(named), len(named)),
        "days to detection, mean": round(float(np.mean(delays)) * DAYS_A_COMMIT, 1),
        "checks red for a reason": tally.right,
        "wrong alarms in twelve months": len(tally.wrong),
        "reruns of regressions of 10 % or more that turned green": (tally.green_reruns, tally.reruns),
        "store, MiB": round((folder / "year.sqlite").stat().st_size / 2**20, 1),
        "seconds a check takes, median and most": [
            round(float(np.median(tally.seconds)), 2), round(max(tally.seconds), 2)
        ],
        "pages of the dashboard": site.pages,
        "seconds to write them": round(time.perf_counter() - begin),
    }  # fmt: skip


def add_years(years: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """Returns the counts of several years together, by their names."""
    summed: dict[str, object] = {"years": len(years)}
    for name, value in years[0].items():
        values = [year[name] for year in years]
        if isinstance(value, tuple):
            summed[name] = tuple(map(sum, zip(*values, strict=True)))
        elif name in _COUNTS:
            summed[name] = sum(values)
    return summed


def render(figures: Mapping[str, object]) -> str:
    """Returns figures as JSON; a pair is so many of so many."""
    texts = {
        name: " of ".join(map(str, value)) if isinstance(value, tuple) else value
        for name, value in figures.items()
    }
    return json.dumps(texts, indent=2)


def _devices_of(change: PlantedChange) -> list[str]:
    return ["Phone A2" if name == "Phone A" and change.commit >= REPLACED_AT else name
            for name in DEVICES]  # fmt: skip


def _runs_to(change: PlantedChange, found: int) -> int:
    """Runs of the configuration from the change to the alarm, the first one included."""
    return max(found - change.commit, 0) + 1


def main() -> None:
    """Simulates years and prints their figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=1, help="years (default %(default)s)")
    years = []
    for seed in range(parser.parse_args().seeds):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            with open_store(folder / "year.sqlite") as store:
                year = TeamYear(store, seed)
                year.run()
            years.append(summarise_year(year, folder))
            print(render({"seed": seed, **years[-1]}), flush=True)
    if len(years) > 1:
        print(render(add_years(years)))


if __name__ == "__main__":
    main()
