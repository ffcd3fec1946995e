"""Synthetic histories: no figure here was ever measured; seeded, so that the truth is known."""

from __future__ import annotations

import hashlib
import itertools
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from etprof.base.files import hash_file
from etprof.dashboard.queries import find_runs_before, list_series, load_runs
from etprof.history.ingest import metric_of
from etprof.history.schema import FAILED, OK, Baseline, Run, full_hash, make_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from sqlalchemy.orm import Session

    from etprof.history.store import Store

START: Final = datetime(2026, 9, 1, 3, 0, tzinfo=UTC)
BLOCKS: Final = 10
SHARES: Final = {"Convolution": 0.55, "GEMM": 0.25, "Elementwise": 0.12, "Data movement": 0.08}
EMULATOR: Final = "emulated Cortex-A (synthetic)"
REGRESSED, IMPROVED, FAILING = "mobilenet_v2", "toy_transformer", "toy_cnn"
"""Models of which the history knows a regression, an improvement, and failures at the end."""
HOSTILE: Final = "<img src=x onerror=alert(1)>"
HOSTILE_DEVICE: Final = '"><script>alert(2)</script>'
HOSTILE_BRANCH: Final = "javascript:alert(3)"
HOSTILE_PRECISION: Final = "../../../../etc/passwd"
HOSTILE_FAILURE: Final = "'; DROP TABLE runs; --</td></script><script>alert(4)</script>"

_BASE_NS: Final = {"toy_cnn": 0.2e6, "mobilenet_v2": 9e6, "toy_transformer": 2.4e6}
_PRECISION_FACTOR: Final = {"fp32": 1.0, "fp16": 0.62, "int8": 0.4}


@dataclass(frozen=True)
class KnownHistory:
    """What a synthetic history has; every commit is measured everywhere."""

    commits: int = 12
    rounds: int = 1
    """How many times in a row each commit is measured: repeated runs tell a device's noise."""
    models: tuple[str, ...] = ("toy_cnn", "mobilenet_v2", "toy_transformer")
    devices: tuple[str, ...] = ("Phone A (synthetic)", "Phone B (synthetic)")
    precisions: tuple[str, ...] = ("fp32", "fp16", "int8")
    threads: tuple[int, ...] = (1,)
    sme_modes: tuple[str, ...] = ("off", "sme2")
    branches: tuple[str, ...] = ("main", "main", "main", "wip/faster-conv")
    """One after the other by commit."""
    noise: float = 0.004
    run_path: str | None = None
    seed: int = 0
    hostile: bool = False
    emulated: bool = False
    all_metrics: bool = True


def fill(store: Store, known: KnownHistory) -> int:
    """Adds the history to an empty store; returns how many runs it has."""
    builder = _Builder(known)
    counts = [len(store.add(runs)) for runs in builder.batches()]
    return sum(counts)


def pages(store: Store) -> dict[str, dict[str, str]]:
    """Returns pages of every view, with what makes them expensive."""
    with store.session() as session:
        entry = max(list_series(session), key=lambda e: e.run.id)
        runs = load_runs(session, [entry.run.id]).values()
        (before,) = find_runs_before(session, runs).values()
    newest = {"id": str(entry.latest_id)}
    trend = {"config": entry.config}
    pair = {"baseline": str(before), "candidate": str(entry.latest_id)}
    return {
        "overview": {},
        "overview, second part": {"page": "2"},
        "overview, one branch": {"branch": "wip/faster-conv"},
        "overview, one model": {"model": entry.run.model, "metric": "latency_ns"},
        "overview, no such branch": {"branch": "none"},
        "trend": trend,
        "trend, one branch": {**trend, "branch": "main"},
        "trend, by commits": {**trend, "axis": "commits"},
        "sides, precisions": {"model": entry.run.model},
        "sides, backends": {"model": entry.run.model, "by": "backend"},
        "models": {},
        "models, one device": {"device": entry.run.device},
        "run": newest,
        "compare": pair,
        "failures": {},
        "failures, one model": {"model": entry.run.model},
    }


def pin(store: Store, name: str, run_id: int) -> None:
    """Pins one run as a baseline of its series."""

    def write(session: Session) -> None:
        run = session.get_one(Run, run_id)
        session.add(Baseline(name=name, series=run.series, run_id=run_id, pinned_at=START))

    store.write(write)


class _Builder:
    """Draws numbers, run by run."""

    def __init__(self, known: KnownHistory) -> None:
        self._known = known
        self._random = np.random.default_rng(known.seed)
        self._count = 0
        manifest = Path(known.run_path) / "manifest.json" if known.run_path else None
        self._manifest_sha256 = hash_file(manifest) if manifest else None

    def batches(self) -> Iterator[list[Run]]:
        """Yields the runs of one commit at a time, in the order of measuring."""
        for number in range(self._known.commits * self._known.rounds):
            yield [self._make_run(number, place) for place in self._places()]

    def _places(self) -> Iterator[dict[str, Any]]:
        known = self._known
        devices = [*known.devices, *([EMULATOR] if known.emulated else [])]
        facts = itertools.product(
            known.models, devices, known.precisions, known.threads, known.sme_modes
        )
        hostile = ((HOSTILE, HOSTILE_DEVICE, HOSTILE_PRECISION, 1, sme) for sme in known.sme_modes)
        names = ("model", "device", "precision", "threads", "sme_mode")
        for place in itertools.chain(facts, hostile if known.hostile else ()):
            yield dict(zip(names, place, strict=True))

    def _make_run(self, number: int, place: dict[str, Any]) -> Run:
        known, hostile = self._known, place["model"] == HOSTILE
        self._count += 1
        runs, turn = known.commits * known.rounds, number // known.rounds
        failed = _has_failed(place, number, runs)
        commit = hashlib.sha1(f"{known.seed} {turn}".encode()).hexdigest()  # noqa: S324
        reason = HOSTILE_FAILURE if hostile else "etprof-runner: cannot load method (synthetic)"
        samples = None if failed else self._samples(place, number)
        run = make_run({
            **place,
            "key": full_hash(known.seed, self._count),
            "run_name": f"run_{number}_{place['model']}_{place['precision']}",
            "run_path": known.run_path, "manifest_sha256": self._manifest_sha256,
            "experiment": f"sme_{place['sme_mode']}_t{place['threads']}",
            "measured_at": START + timedelta(hours=24 * number),
            "status": FAILED if failed else OK, "failure": reason if failed else None,
            "backend": "xnnpack", "method": "forward", "soc": "Synthetic SoC",
            "device_kind": "android", "representative": True,
            "revision": commit[:16], "git_commit": commit,
            "git_branch": HOSTILE_BRANCH if hostile else known.branches[turn % len(known.branches)],
            "git_dirty": False, "executorch_version": "1.5.1",
            "pins": {"xnnpack": "synthetic", "kleidiai": "synthetic"},
            "artefacts": {"program.pte": {"sha256": "0" * 64, "size_bytes": 1_234_567}},
            "metrics": [] if samples is None else self._metrics(place, samples),
            "categories": {} if samples is None else {
                name: share * float(np.mean(samples)) for name, share in SHARES.items()
            },
        })  # fmt: skip
        if place["device"] == EMULATOR:
            # As stores of older editions have it: with figures that mean nothing.
            run.device_kind, run.representative = "emulator", False
        return run

    def _samples(self, place: dict[str, Any], number: int) -> NDArray[np.float64]:
        """Latencies of blocks: the truth, under noise of the run and of each block."""
        latency = _latency_ns(place, number, self._known.commits * self._known.rounds)
        run_noise = 1 + self._random.normal(0, self._known.noise)
        blocks: NDArray[np.float64] = 1 + self._random.normal(0, self._known.noise, BLOCKS)
        return latency * run_noise * blocks

    def _metrics(self, place: dict[str, Any], samples: NDArray[np.float64]) -> list[dict[str, Any]]:
        found = {"latency_ns": samples}
        if self._known.all_metrics:
            level = float(np.median(samples))
            jitter = 1 + self._random.normal(0, 2 * self._known.noise, BLOCKS)
            found |= {"load_ns": 30 * level * jitter, "first_inference_ns": 3 * level * jitter}
            found |= {"peak_rss_bytes": 5e7 * jitter}
        if self._known.all_metrics and "transformer" in place["model"]:
            found["decode_tokens_per_second"] = 1e9 / samples
        return [metric_of(name, values.tolist()) for name, values in found.items()]


def _latency_ns(place: dict[str, Any], number: int, runs: int) -> float:
    """The truth: what noise is laid over."""
    value = _BASE_NS.get(place["model"], 1e6 * (1 + len(place["model"]) % 7))
    value *= _PRECISION_FACTOR.get(place["precision"], 1.0)
    value /= {1: 1.0, 2: 1.8, 4: 2.9}.get(place["threads"], 1.0)
    if place["sme_mode"] == "sme2":
        value /= 2.5
    late = number >= runs - 1
    if place["model"] == REGRESSED and place["sme_mode"] == "sme2" and late:
        value *= 1.25
    if place["model"] == IMPROVED and number >= runs // 2:
        value *= 0.8
    return value


def _has_failed(place: dict[str, Any], number: int, runs: int) -> bool:
    """int8 of one model fails at the end; the hostile one fails half-way."""
    if place["model"] == HOSTILE:
        return number == runs // 2
    return (place["model"], place["precision"]) == (FAILING, "int8") and number == runs - 1
