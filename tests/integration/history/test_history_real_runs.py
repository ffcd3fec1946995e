"""Real launches through the gate, once: that equal runs pass is tested with simulated clocks.

What a busy machine says of the same program measured twice is noise, and a test may not rest on it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from etprof.export.request import ExportRequest
from etprof.history.check import CheckRequest, check_history
from etprof.history.selection import find_runs, pin_runs
from etprof.history.store import Store, open_store
from etprof.measuring.pipeline import measure
from etprof.measuring.plan import Experiment, Settings, plan
from etprof.run.program import Program, describe_program
from etprof.targets.local import LocalTarget

if TYPE_CHECKING:
    from tests.integration.conftest import Exports

GATE_MODEL = Path(__file__).parents[2] / "gate_model"


@pytest.fixture(scope="module")
def programs(exports: Exports) -> dict[str, Program]:
    """The model as it is, and with operators that are ten times slower."""
    found = {}
    for variant in ("steady", "stalled"):
        request = ExportRequest(f"{GATE_MODEL}/{variant}.py:GateModel", precision="fp32")
        found[variant] = describe_program(exports.get(request).pte)
    return found


def add_run(store: Store, program: Program, run: Path) -> str:
    """Measures the program with the real runner and adds the run; returns its number."""
    measure(
        program=program,
        target=LocalTarget(),
        run=run,
        planned=plan(
            [Experiment(name="one", iterations=5, warmup=2)],
            Settings(blocks=6, min_seconds=0.01, operator_iterations=1),
            LocalTarget(),
        ),
        progress=lambda *_: None,
    )
    (added,) = store.add_run_directory(run)
    return str(added.run_id)


def outcomes(store: Store, number: str) -> dict[str | None, str]:
    """Judges a run against the pinned one; returns the outcomes by metric."""
    with store.session() as session:
        result = check_history(session, CheckRequest(baseline="first", runs=(number,)))
    return {entry.metric: entry.outcome for entry in result.entries}


def test_operators_that_are_slower_by_far_are_found(
    programs: dict[str, Program], tmp_path: Path
) -> None:
    with open_store(tmp_path / "history.sqlite") as store:
        first = add_run(store, programs["steady"], tmp_path / "first")
        store.write(lambda s: pin_runs(s, "first", find_runs(s, first), datetime.now(UTC)))
        slower = add_run(store, programs["stalled"], tmp_path / "slower")
        found = outcomes(store, slower)
    assert {"latency_ns", "load_ns", "first_inference_ns", "peak_rss_bytes"} <= set(found)
    assert found["latency_ns"] == "regression"
