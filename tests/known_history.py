"""Synthetic histories: no figure here was ever measured; seeded, so that the truth is known."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from sqlalchemy import insert

from etprof.base.files import hash_file
from etprof.history.schema import FAILED, OK, Baseline, CategoryTime, Metric, Run

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
    extra: dict[str, Any] = field(default_factory=dict)


def fill(store: Store, known: KnownHistory) -> int:
    """Writes the history into an empty store; returns how many runs it has."""
    builder = _Builder(known)

    def write(session: Session) -> int:
        count = 0
        for rows in builder.batches():
            for table, entries in zip((Run, Metric, CategoryTime), rows, strict=True):
                if entries:
                    session.execute(insert(table), entries)
            count += len(rows[0])
        return count

    return store.write(write)


def pin(store: Store, name: str, run_id: int) -> None:
    """Pins one run as a baseline of its series."""

    def write(session: Session) -> None:
        run = session.get_one(Run, run_id)
        session.add(Baseline(name=name, series=run.series, run_id=run_id, pinned_at=START))

    store.write(write)


Rows = tuple[list[dict[str, Any]], list[dict[str, Any]], list[dict[str, Any]]]


class _Builder:
    """Counts ids and draws numbers."""

    def __init__(self, known: KnownHistory) -> None:
        self._known = known
        self._random = np.random.default_rng(known.seed)
        self._next_id = 1
        manifest = Path(known.run_path) / "manifest.json" if known.run_path else None
        self._manifest_sha256 = hash_file(manifest) if manifest else None

    def batches(self) -> Iterator[Rows]:
        """Yields the rows of one commit at a time, in the order of measuring."""
        for number in range(self._known.commits * self._known.rounds):
            rows: Rows = ([], [], [])
            for place in self._places():
                self._add_run(rows, number, place)
            yield rows

    def _places(self) -> Iterator[dict[str, Any]]:
        known = self._known
        devices = [(name, "android", True) for name in known.devices]
        devices += [(EMULATOR, "emulator", False)] if known.emulated else []
        for model in known.models:
            for device, kind, representative in devices:
                for precision in known.precisions:
                    for threads in known.threads:
                        for sme in known.sme_modes:
                            yield {
                                "model": model, "device": device, "device_kind": kind,
                                "precision": precision, "threads": threads, "sme_mode": sme,
                                "representative": representative,
                            }  # fmt: skip
        if known.hostile:
            for sme in known.sme_modes:
                yield {
                    "model": HOSTILE, "device": HOSTILE_DEVICE, "device_kind": "android",
                    "precision": HOSTILE_PRECISION, "threads": 1, "sme_mode": sme,
                    "representative": True,
                }  # fmt: skip

    def _add_run(self, rows: Rows, number: int, place: dict[str, Any]) -> None:
        known, run_id = self._known, self._next_id
        self._next_id += 1
        hostile = place["model"] == HOSTILE
        runs = known.commits * known.rounds
        failed = _has_failed(place, number, runs)
        branch = (
            HOSTILE_BRANCH
            if hostile
            else known.branches[number // known.rounds % len(known.branches)]
        )
        commit = hashlib.sha1(f"{known.seed} {number // known.rounds}".encode()).hexdigest()  # noqa: S324
        text = "|".join(str(value) for value in place.values())
        reason = HOSTILE_FAILURE if hostile else "etprof-runner: cannot load method (synthetic)"
        rows[0].append({
            **place, **known.extra, "id": run_id, "key": f"{known.seed}-{run_id}",
            "run_name": f"run_{number}_{place['model']}_{place['precision']}",
            "run_path": known.run_path, "manifest_sha256": self._manifest_sha256, "experiment": f"sme_{place['sme_mode']}_t{place['threads']}",
            "measured_at": START + timedelta(hours=24 * number), "added_at": START,
            "status": FAILED if failed else OK, "failure": reason if failed else None,
            "backend": "xnnpack", "method": "forward", "soc": "Synthetic SoC",
            "series": hashlib.sha256(text.encode()).hexdigest()[:16],
            "revision": commit[:16], "git_commit": commit, "git_branch": branch,
            "git_dirty": False, "executorch_version": "1.5.1",
            "pins": {"xnnpack": "synthetic", "kleidiai": "synthetic"},
            "artefacts": {"program.pte": {"sha256": "0" * 64, "size_bytes": 1_234_567}},
        })  # fmt: skip
        if not failed:
            self._add_values(rows, run_id, place, number)

    def _add_values(self, rows: Rows, run_id: int, place: dict[str, Any], number: int) -> None:
        latency = _latency_ns(place, number, self._known.commits * self._known.rounds)
        run_noise = 1 + self._random.normal(0, self._known.noise)
        samples = latency * run_noise * (1 + self._random.normal(0, self._known.noise, BLOCKS))
        rows[1].append(_metric(run_id, "latency_ns", "ns", samples))
        if self._known.all_metrics:
            jitter = 1 + self._random.normal(0, 2 * self._known.noise, BLOCKS)
            rows[1].append(_metric(run_id, "load_ns", "ns", 30 * latency * jitter))
            rows[1].append(_metric(run_id, "first_inference_ns", "ns", 3 * latency * jitter))
            rows[1].append(_metric(run_id, "peak_rss_bytes", "bytes", 5e7 * jitter))
        if self._known.all_metrics and "transformer" in place["model"]:
            rates = 1e9 / samples
            rows[1].append(_metric(run_id, "decode_tokens_per_second", "1/s", rates))
        if place["representative"]:
            rows[2].extend(
                {"run_id": run_id, "category": name, "time_ns": share * float(np.mean(samples))}
                for name, share in SHARES.items()
            )


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


def _metric(run_id: int, name: str, unit: str, samples: NDArray[np.float64]) -> dict[str, Any]:
    """A row of `metrics`; the interval is from the second to the last but one of ten blocks."""
    ordered = np.sort(samples)
    return {
        "run_id": run_id, "name": name, "unit": unit, "higher_is_better": unit == "1/s",
        "value": float(np.median(samples)), "low": float(ordered[1]), "high": float(ordered[-2]),
        "count": len(samples), "samples": tuple(samples.tolist()),
    }  # fmt: skip
