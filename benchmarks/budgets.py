"""Every budget of the foundation, side by side, in one run: reader, analysis, runner, command line.

usage: python benchmarks/budgets.py [--inferences N] [--pairs N] [--json FILE]

Runs what reader_vs_inspector.py and runner_overhead.py measure, times `etprof --help`, and prints
each figure beside its limit. Takes five to fifteen minutes; let the machine do nothing else.
Exit code 1 when a budget is not kept.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import reader_vs_inspector
import runner_overhead
from etdump_samples import record
from fresh_process import Row, run_etprof_quickest

from etprof.base.errors import EtprofError

GROWTH_SLACK = 1.5
"""Ten times the events may cost this much more than ten times the time."""


@dataclass(frozen=True)
class Budget:
    """One figure and its limit."""

    what: str
    measured: float
    relation: str
    """`<` or `≥`: how the measured figure has to stand to the limit."""
    limit: float
    unit: str
    detail: str = ""

    @property
    def kept(self) -> bool:
        """Whether the figure is within its limit."""
        return self.measured < self.limit if self.relation == "<" else self.measured >= self.limit

    def __str__(self) -> str:
        """One line of the table."""
        verdict = "kept" if self.kept else "NOT KEPT"
        limit = f"{self.relation} {self.limit:g} {self.unit}"
        return (
            f"{self.what:44}{self.measured:>10.4g} {limit:>14}  {verdict:9} {self.detail}".rstrip()
        )


def judge_reader(results: Row) -> list[Budget]:
    """The reader's and the analysis' budgets."""
    analyze = results["analyze"]
    once, ten, hundred = (row["warm_s"] for row in results["growth"])
    analyzed = [row["analyze"]["cpu_s"] for row in results["growth"]]
    detail = ", ".join(f"{seconds * 1e3:.1f}" for seconds in (once, ten, hundred))
    return [
        Budget(
            "reader, first reading: faster than Inspector", results["ratio_first"], "≥", 300, "×"
        ),
        Budget("reader, warm: faster than Inspector", results["ratio_warm"], "≥", 300, "×"),
        Budget("reader, warm", results["warm_gb_per_s"], "≥", 1, "GB/s"),
        Budget("etprof analyze, whole process", analyze["whole_s"], "<", 1, "s"),
        Budget("etprof analyze, peak memory", analyze["peak_mb"], "<", 200, "MB"),
        Budget(
            "reader: time of 100 × to 10 × the events",
            hundred / ten,
            "<",
            10 * GROWTH_SLACK,
            "×",
            f"({detail} ms for 1, 10, 100 ×)",
        ),
        Budget(
            "analyze: CPU time of 100 × to 10 × the events",
            analyzed[2] / analyzed[1],
            "<",
            10 * GROWTH_SLACK,
            "×",
            f"({', '.join(f'{seconds:.2f}' for seconds in analyzed)} s for 1, 10, 100 ×)",
        ),
    ]


def judge_runner(overheads: list[runner_overhead.Ratio]) -> list[Budget]:
    """The runner's budget for each model, with the interval."""
    return [
        Budget(
            f"runner ÷ bare Method::execute loop, {overhead.subject}",
            overhead.ratio,
            "<",
            runner_overhead.BUDGET,
            "×",
            f"[{overhead.low:.4f}, {overhead.high:.4f}], {overhead.pairs} pairs",
        )
        for overhead in overheads
    ]


def judge_help() -> list[Budget]:
    """The command line's budgets."""
    row = run_etprof_quickest("--help")
    heavy = row["heavy"]
    return [
        Budget("etprof --help, whole process", row["whole_s"], "<", 0.3, "s"),
        Budget("etprof --help: heavy modules imported", len(heavy), "<", 1, "", ", ".join(heavy)),
    ]


def measure(inferences: int, pairs: int) -> list[Budget]:
    """Measures everything; prints what the parts print on the way."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = reader_vs_inspector.measure(record(folder, inferences), folder)
    reader_vs_inspector.show(results)
    print()
    overheads = runner_overhead.measure(pairs, subjects=("toy_cnn", "mobilenet_v2"))
    return [*judge_reader(results), *judge_runner(overheads), *judge_help()]


def main() -> int:
    """Returns 1 when a budget is not kept."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--inferences", type=int, default=1000, help="in the ETDump (default: 1000)"
    )
    parser.add_argument(
        "--pairs", type=int, default=runner_overhead.MOST_PAIRS, help="of launches, at most"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table there as well")
    arguments = parser.parse_args()
    try:
        budgets = measure(arguments.inferences, arguments.pairs)
    except EtprofError as error:
        sys.exit(str(error))
    print(f"\n{'budget':44}{'measured':>10} {'limit':>14}")
    print("\n".join(map(str, budgets)))
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(budget) for budget in budgets], indent=2))
    return 0 if all(budget.kept for budget in budgets) else 1


if __name__ == "__main__":
    sys.exit(main())
