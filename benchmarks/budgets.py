"""Every budget of the foundation, side by side, in one run: reader, analysis, runner, command line.

usage: python benchmarks/budgets.py [--inferences N] [--pairs N] [--largest N] [--json FILE]

Runs what reader_vs_inspector.py, report_speed.py and runner_overhead.py measure, times
`etprof --help`, and prints each figure beside its limit. Times are CPU seconds, of a whole process
where a command is meant, the least of some repeats: another process cannot add seconds to them, but
takes caches and so makes them longer by half. What it takes to leave no doubt is a machine that
does nothing else. Peaks are the process's own, file pages included. Takes five to fifteen minutes
and 4.3 GB in the folder for temporary files, for the largest ETDump there can be: its offsets have
32 bits. Exit code 1 when a budget is not kept.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import reader_vs_inspector
import report_speed
import runner_overhead
from etdump_samples import record, repeat_blocks
from fresh_process import Row, run_etprof, run_etprof_quickest

from etprof.base.errors import EtprofError

_INFERENCES: Final = 1000
LARGEST: Final = 700
"""Copies of an ETDump of 1000 inferences of MobileNetV2 that fit in 4 GiB: 49 million events."""
LIMITS: Final[dict[str, tuple[str, float, str]]] = {
    "reader, first reading: faster than Inspector": ("≥", 300, "×"),
    "reader, warm: faster than Inspector": ("≥", 800, "×"),
    "reader, warm": ("≥", 2, "GB/s"),
    "reader: time of 100 × to 10 × the events": ("<", 15, "×"),
    "analyze of 1 000 inferences": ("<", 0.4, "s"),
    "analyze of 1 000 inferences, peak memory": ("<", 75, "MB"),
    "analyze of 100 000 inferences": ("<", 2, "s"),
    "analyze of 100 000 inferences, peak memory": ("<", 300, "MB"),
    "analyze of the largest ETDump, peak memory": ("<", 300, "MB"),
    "analyze of a run directory, peak memory": ("<", 300, "MB"),
    "analyze: time of an event, largest to 100 ×": ("<", 1.5, "×"),
    "runner ÷ bare Method::execute loop": ("<", 1 + runner_overhead.LIMIT, "×"),
    "report.html": ("<", 2, "MB"),
    "etprof --help": ("<", 0.15, "s"),
    "etprof --help: heavy modules imported": ("<", 1, ""),
}
"""How each figure has to stand to its limit, and the unit: the budgets."""


@dataclass(frozen=True)
class Budget:
    """One figure and its limit."""

    what: str
    """A key of `LIMITS`."""
    measured: float
    detail: str = ""
    judged: str = ""
    """By what measured it, where that is more than a figure beside a limit."""

    @property
    def kept(self) -> bool:
        """Whether the figure is within its limit."""
        if self.judged:
            return self.judged == "kept"
        relation, limit, _ = LIMITS[self.what]
        return self.measured < limit if relation == "<" else self.measured >= limit

    def __str__(self) -> str:
        """One line of the table."""
        verdict = self.judged.upper() if self.judged not in {"", "kept"} else ""
        verdict = verdict or ("kept" if self.kept else "NOT KEPT")
        limit = "{} {:g} {}".format(*LIMITS[self.what])
        return (
            f"{self.what:44}{self.measured:>10.4g} {limit:>14}  {verdict:9} {self.detail}".rstrip()
        )


def judge_reader(results: Row) -> list[Budget]:
    """The reader's budgets."""
    reader, inspector = results["reader"], results["inspector"]
    once, ten, hundred = (row["warm_cpu_s"] for row in results["growth"])
    detail = ", ".join(f"{seconds * 1e3:.1f}" for seconds in (once, ten, hundred))
    speed = results["warm_gb_per_cpu_s"]
    return [
        Budget("reader, first reading: faster than Inspector", results["ratio_first"], "elapsed"),
        Budget(
            "reader, warm: faster than Inspector",
            inspector["cpu_s"] / reader["warm_cpu_s"],
            f"{results['ratio_warm']:,.0f} × elapsed; without the CPU time of Inspector's flatc",
        ),
        Budget("reader, warm", speed, f"{results['warm_gb_per_s']:.2f} elapsed"),
        Budget(
            "reader: time of 100 × to 10 × the events",
            hundred / ten,
            f"({detail} ms for 1, 10, 100 ×)",
        ),
    ]


def judge_analysis(results: Row, largest: Row, copies: int, inferences: int) -> list[Budget]:
    """The budgets of `etprof analyze` as a whole process, which are for 1 000 `inferences`."""
    once, hundred = results["analyze"], results["growth"][-1]["analyze"]
    found = []
    for count, row in (("1 000", once), ("100 000", hundred)):
        name = f"analyze of {count} inferences"
        other = "" if inferences == _INFERENCES else f", of {inferences} here for each 1 000"
        found.append(Budget(name, row["cpu_s"], f"{row['whole_s']:.2f} s elapsed{other}"))
        found.append(Budget(f"{name}, peak memory", row["peak_mb"]))
    start_s = once["cpu_s"]  # which is not for its events
    growth = (largest["cpu_s"] - start_s) / copies / ((hundred["cpu_s"] - start_s) / 100)
    detail = f"{largest['cpu_s']:.1f} s for {copies} ×"
    return [
        *found,
        Budget("analyze of the largest ETDump, peak memory", largest["peak_mb"]),
        Budget("analyze: time of an event, largest to 100 ×", growth, detail),
    ]


def judge_runner(overheads: list[runner_overhead.Ratio]) -> list[Budget]:
    """The runner's budget for each model, with the interval."""
    return [
        Budget(
            "runner ÷ bare Method::execute loop",
            overhead.ratio,
            f"{overhead.subject} [{overhead.low:.4f}, {overhead.high:.4f}], {overhead.pairs} pairs",
            overhead.verdict,
        )
        for overhead in overheads
        if overhead.what == runner_overhead.BARE
    ]


def judge_report(folder: Path, inferences: int) -> Budget:
    """The size of a report of a run of MobileNetV2 with two experiments."""
    run = report_speed.record(folder, inferences)
    run_etprof("report", run)
    return Budget("report.html", (run / "report.html").stat().st_size / 1e6)


def judge_directory(folder: Path, source: Path) -> Budget:
    """What it takes to write all of a long file: summary, tables and timeline."""
    run = folder / "long"
    run.mkdir()
    repeat_blocks(source.read_bytes(), 100, run / "a.etdump")
    row = run_etprof("analyze", run, "--quiet")
    detail = f"{row['cpu_s']:.1f} s for 100 ×, a timeline with it"
    return Budget("analyze of a run directory, peak memory", row["peak_mb"], detail)


def judge_help() -> list[Budget]:
    """The command line's budgets."""
    row = run_etprof_quickest("--help", repeats=10)
    heavy = row["heavy"]
    return [
        Budget("etprof --help", row["cpu_s"], f"{row['whole_s']:.2f} s elapsed"),
        Budget("etprof --help: heavy modules imported", len(heavy), ", ".join(heavy)),
    ]


def measure(inferences: int, pairs: int, copies: int) -> list[Budget]:
    """Measures everything; prints what the parts print on the way."""
    # First, though used last: without tools to build with, minutes would be measured for nothing.
    runner_overhead.build(runner_overhead.BUILD)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = record(folder, inferences)
        results = reader_vs_inspector.measure(source, folder)
        path = folder / "largest.etdump"
        repeat_blocks(source.read_bytes(), copies, path)
        largest = run_etprof("analyze", path)
        path.unlink()
        report = judge_report(folder, inferences)
        directory = judge_directory(folder, source)
    reader_vs_inspector.show(results)
    print()
    overheads = runner_overhead.measure(pairs, subjects=("toy_cnn", "mobilenet_v2"))
    return [
        *judge_reader(results),
        *judge_analysis(results, largest, copies, inferences),
        *judge_runner(overheads),
        report,
        directory,
        *judge_help(),
    ]


def main() -> int:
    """Returns 1 when a budget is not kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--inferences", type=int, default=_INFERENCES, help="in the ETDump (default: 1000)"
    )
    parser.add_argument(
        "--pairs", type=int, default=runner_overhead.MOST_PAIRS, help="of launches, at most"
    )
    parser.add_argument(
        "--largest", type=int, default=LARGEST, help="copies of it in the largest (default: 700)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there as well")
    arguments = parser.parse_args()
    try:
        budgets = measure(arguments.inferences, arguments.pairs, arguments.largest)
    except EtprofError as error:
        sys.exit(str(error))
    print(f"\n{'budget':44}{'measured':>10} {'limit':>14}")
    print("\n".join(map(str, budgets)))
    if arguments.json:
        rows = [{**asdict(each), "limit": LIMITS[each.what], "kept": each.kept} for each in budgets]
        arguments.json.write_text(json.dumps(rows, indent=2))
    return 0 if all(budget.kept for budget in budgets) else 1


if __name__ == "__main__":
    sys.exit(main())
