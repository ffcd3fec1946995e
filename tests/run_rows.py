"""Rows of a history, one run each, with the figures that a test asks for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from etprof.history.ingest import metric_of
from etprof.history.schema import FAILED, OK, Run, full_hash, make_run

if TYPE_CHECKING:
    from etprof.history.store import Store

START = datetime(2026, 9, 1, 3, 0, tzinfo=UTC)


def row_of(key: str, /, latency: float | None = 2e6, **facts: Any) -> Run:  # noqa: ANN401
    """A measured run, or, without a latency, a failed one."""
    metrics = [] if latency is None else [metric_of("latency_ns", [latency] * 3)]
    return make_run({
        "key": full_hash(key), "run_name": f"run {key}", "experiment": "off", "measured_at": START,
        "status": FAILED if latency is None else OK,
        "failure": "it crashed" if latency is None else None, "model": "net", "precision": "fp32",
        "backend": "xnnpack", "method": "forward", "device": "Phone", "device_kind": "android",
        "sme_mode": "off", "threads": 1, "git_commit": full_hash("commit", key)[:40],
        "git_branch": "main", "git_dirty": False, "representative": True, "metrics": metrics,
        **facts,
    })  # fmt: skip


def later(minutes: float) -> dict[str, Any]:
    """When a run was measured."""
    return {"measured_at": START + timedelta(minutes=minutes)}


def add(store: Store, *runs: Run) -> list[int]:
    """Adds runs and returns their numbers."""
    return [added.run_id for added in store.add(runs)]
