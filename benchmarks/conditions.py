"""How often is a verdict false whose conditions were not met? A program against itself, beside load.

    python benchmarks/conditions.py [--model toy_cnn] [--runs 40] [--busy 0,1,2] [--outdir DIR]

Both sides are one file, so "faster" and "slower" are false. `--busy` other processes take a core for half
of the time each. Prints a row for each set of conditions that were not met. Returns 1 where more than
5 % of the verdicts are false although nothing but the load and the warm-up speaks against them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from quiet_command import require

from etprof.analysis.assessment import assess_run
from etprof.analysis.run_analysis import analyze_run
from etprof.base.units import format_share
from etprof.run.load import Run

MOST_FALSE = 0.05
FALSE_VERDICTS = ("faster", "slower")
_BUSY = """
import time
while True:
    end = time.perf_counter() + .05
    while time.perf_counter() < end:
        pass
    time.sleep(.05)
"""


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Runs processes that each take a core for half of the time."""
    processes = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


class Judged(NamedTuple):
    """One run of a program against itself."""

    conditions: str
    """Those that were not met."""
    verdict: str
    holds: bool
    """Whether the interval holds the true ratio of 1."""


def judge(folder: Path) -> Judged:
    """Reads a run's conditions, verdict and interval."""
    comparison = assess_run(analyze_run(Run.load(folder))).primary_comparison
    if comparison is None or comparison.times is None or comparison.latency is None:
        sys.exit(f"{folder} holds no timed comparison")
    validity = comparison.times.validity
    failed = [check.name for check in validity.checks if check.state == "failed"]
    kind = "questionable: " if validity.objection else ""
    interval = comparison.latency.interval
    return Judged(
        kind + (", ".join(failed) or "all known ones met"),
        comparison.latency.verdict,
        interval is None or interval.low <= 1 <= interval.high,
    )


def main() -> int:
    """Prints the table; returns 1 where a condition that is passed over is none to pass over."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="toy_cnn")
    parser.add_argument("--runs", type=int, default=40, help="for each number of processes")
    parser.add_argument("--busy", type=lambda text: [*map(int, text.split(","))], default=[0, 1, 2])
    parser.add_argument("--outdir", type=Path)
    arguments = parser.parse_args()
    verdicts: dict[str, Counter[str]] = {}
    holding: Counter[bool] = Counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.outdir or Path(temporary)
        program = folder / "program.pte"
        if not program.exists():
            require(["export", arguments.model, "--dtype", "fp32", "--out", str(program)])
        for count in arguments.busy:
            with busy(count):
                for number in range(arguments.runs):
                    run = folder / f"busy{count}_{number}"
                    if not (run / "metrics.json").exists():
                        # The seed draws the order: one order for all runs would be one trial.
                        seed = ["--seed", str(number)]
                        require(["profile", str(program), "--against", str(program),
                                 "--out", str(run), *seed])  # fmt: skip
                    judged = judge(run)
                    verdicts.setdefault(judged.conditions, Counter())[judged.verdict] += 1
                    holding[judged.holds] += 1
    print("| conditions not met | runs | false verdicts |\n|---|---|---|")
    passed_over: Counter[bool] = Counter()
    for conditions, counts in sorted(verdicts.items()):
        false = sum(counts[verdict] for verdict in FALSE_VERDICTS)
        print(f"| {conditions} | {counts.total()} | {false} |")
        if not conditions.startswith(("questionable", "all")):
            passed_over += Counter({True: false, False: counts.total() - false})
    share = passed_over[True] / passed_over.total() if passed_over else 0.0
    print(
        f"{passed_over[True]} of {passed_over.total()} verdicts that stand although a condition was "
        f"not met are false ({format_share(share)})"
    )
    print(f"{holding[True]} of {holding.total()} intervals of 95 % hold the true ratio of 1")
    return 1 if share > MOST_FALSE else 0


if __name__ == "__main__":
    sys.exit(main())
