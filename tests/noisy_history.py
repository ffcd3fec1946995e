"""Histories of which the truth is known: runs of several series that vary by a given spread."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np

from etprof.history.ingest import metric_of
from etprof.history.metric_names import METRICS
from etprof.history.schema import OK, full_hash, make_run, short_hash

if TYPE_CHECKING:
    from etprof.history.schema import Run
    from etprof.history.store import Store

START = datetime(2026, 9, 1, 3, 0, tzinfo=UTC)
LATENCY = ("latency_ns",)
BLOCKS = 3


@dataclass
class NoisyHistory:
    """A store to which one run of every series is added at a time."""

    store: Store
    spread: float
    """Of a run's value, relative; its blocks agree ten times better."""
    series: int = 1
    metrics: Sequence[str] = LATENCY
    seed: int = 0
    minute: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.seed)

    def add(
        self,
        factor: float | Sequence[float] = 1.0,
        *,
        commit: str | None = "",
        branch: str = "main",
        only: int | None = None,
        values: Mapping[str, float] | None = None,
        wrong_outputs: str | None = None,
    ) -> list[int]:
        """Adds a run of every series, `factor` times as slow (of series `only`); returns their ids.

        Several factors are those of the series, one each.
        `commit` is one of its own by default. `values` are exact, the same in every launch.
        """
        self.minute += 1
        known = short_hash("commit", self.minute) if commit == "" else commit
        facts = {"git_commit": known, "git_branch": branch, "wrong_outputs": wrong_outputs}
        factors = [factor] * self.series if isinstance(factor, float) else factor
        runs = [
            self._run(i, factors[i] if only in (None, i) else 1.0, facts, values or {})
            for i in range(self.series)
        ]
        return [added.run_id for added in self.store.add(runs)]

    def _run(
        self, number: int, factor: float, facts: Mapping[str, str | None],
        values: Mapping[str, float],
    ) -> Run:  # fmt: skip
        metrics = [
            metric_of(name, self._samples(name, factor))
            for name in self.metrics
            if name not in values
        ] + [metric_of(name, [value] * BLOCKS) for name, value in values.items()]
        return make_run({
            "key": full_hash(self.seed, self.minute, number), "run_name": f"run{self.minute}",
            "experiment": "off", "measured_at": START + timedelta(minutes=self.minute),
            "status": OK, "failure": None, "model": f"model{number}", "precision": "fp32",
            "backend": "xnnpack", "method": "forward", "device": "Phone", "device_kind": "android",
            "sme_mode": "off", "threads": 1, "git_dirty": False, "representative": True,
            "metrics": metrics, **facts,
        })  # fmt: skip

    def _samples(self, name: str, factor: float) -> list[float]:
        slower = 1 / factor if METRICS[name].higher_is_better else factor
        level = 1e6 * slower * math.exp(self._random.normal(0, self.spread))
        jitter = np.exp(self._random.normal(0, self.spread / 10, BLOCKS))
        return [float(value) for value in level * jitter]
