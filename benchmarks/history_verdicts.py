"""Is the gate right on this machine? The same model twice, then with two operators more.

Each repetition is a new history: six matrix runs, of which the first is pinned, tell how much runs
of this machine differ; then the same model again, then the slower one. The same model must never be
called a regression or an improvement and stay grey in the dashboard, the slower one must always be
a regression and red. Exit code 1 when that is not so.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from etprof.base.units import format_change
from etprof.bench.combinations import expand
from etprof.bench.matrix import parse_matrix
from etprof.bench.session import MatrixSession, Request
from etprof.dashboard.export import export_site
from etprof.history.check import CheckRequest, check_history
from etprof.history.selection import find_runs, pin_runs
from etprof.history.store import open_store

if TYPE_CHECKING:
    from etprof.bench.combinations import Unit
    from etprof.bench.execution import UnitOutcome
    from etprof.history.check import CheckedMetric
    from etprof.history.store import Store

PINNED = "first"
STEADY_RUNS = 6
GATE_MODEL = Path(__file__).parents[1] / "tests" / "gate_model"


class Silent:
    """A reporter for whom no news is good news."""

    def say(self, text: str) -> None:
        """Says nothing."""

    def step(self, unit: Unit, text: str, done: int, total: int) -> None:
        """Says nothing."""

    def finished(self, outcome: UnitOutcome) -> None:
        """Ends the benchmark when a run failed."""
        if outcome.errors:
            sys.exit(f"{outcome.unit.text}: {outcome.errors[0]}")


def measure(folder: Path, store: Store, variant: str, blocks: int) -> None:
    """Measures one variant of the model into the store."""
    document = {
        "models": [f"{GATE_MODEL}/{variant}.py:GateModel"],
        "measurement": {"blocks": blocks, "etdump_runs": 5},
    }
    units, _ = expand(parse_matrix(json.dumps(document), variant))
    MatrixSession(units, Request(folder / variant), store, Silent()).run()


def check(store: Store) -> CheckedMetric:
    """Compares the newest run with the pinned one, by its latency."""
    with store.session() as session:
        result = check_history(session, CheckRequest(PINNED, metrics=("latency_ns",)))
    entry, *_ = result.entries
    return entry


def colour(store: Store, folder: Path) -> str:
    """Returns what the dashboard's overview of latencies makes of the newest run."""
    export_site(store, folder, newest_runs=3)
    page = (folder / "overview-latency_ns-all.html").read_text(encoding="utf-8")
    found = re.findall(r'<span class="change (\w+)"', page)
    return {"worse": "red", "better": "green", "same": "grey"}.get("".join(found), str(found))


def repeat(folder: Path, number: int, blocks: int) -> dict[str, tuple[CheckedMetric, str]]:
    """Returns what gate and dashboard make of the same model and of the slower one."""
    store = open_store(folder / f"history{number}.sqlite")
    for _ in range(STEADY_RUNS):
        measure(folder, store, "steady", blocks)
    store.write(
        lambda session: pin_runs(session, PINNED, find_runs(session, "1"), datetime.now(UTC))
    )
    found = {}
    for label, variant in (("the same", "steady"), ("two operators more", "slowed")):
        measure(folder, store, variant, blocks)
        found[label] = (check(store), colour(store, folder / f"site{number}"))
    return found


def main() -> int:
    """Prints one line per check, the counts, and says whether all verdicts are right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=10)
    parser.add_argument("--blocks", type=int, default=10)
    arguments = parser.parse_args()
    counts: dict[str, Counter[str]] = {}
    with tempfile.TemporaryDirectory() as name:
        for number in range(1, arguments.repetitions + 1):
            results = repeat(Path(name), number, arguments.blocks)
            for label, (entry, shown) in results.items():
                counts.setdefault(label, Counter()).update((entry.outcome, shown))
                change = format_change(entry.judgement.change if entry.judgement else None)
                print(
                    f"{number:2}  {label:18} {change:>9}  {entry.outcome:12}  {shown}", flush=True
                )
    for label, outcomes in counts.items():
        print(f"{label}: {', '.join(f'{n} {outcome}' for outcome, n in outcomes.items())}")
    return 0 if all_right(counts) else 1


def all_right(counts: dict[str, Counter[str]]) -> bool:
    """Whether nothing was found where nothing is, and what is there was found every time."""
    same, slower = counts["the same"], counts["two operators more"]
    wrong = same.keys() & {"regression", "improvement", "red", "green"}
    return not wrong and slower.keys() == {"regression", "red"}


if __name__ == "__main__":
    sys.exit(main())
