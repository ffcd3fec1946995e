"""Measures a program against itself while only the length of `--out` changes (N3-1).

    python benchmarks/layout.py [--model toy_cnn] [--lengths 17] [--repeats 2] [--outdir DIR]

Both sides are one file, so each operator called faster or slower is a false verdict. Prints a row
for each operator: the share of tables that call it so, and the median of its ratios with its 95 %
interval. Returns 1 where more than 5 % of the tables have a false verdict, or where a median is certainly
outside 0.98 to 1.02: a noisy machine needs hundreds of tables to know it that well.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from quiet_command import require

import etprof
from etprof.base.units import format_share
from etprof.statistics.order_statistics import median_interval

MOST_FALSE = 0.05
RATIO_RANGE = (0.98, 1.02)
VERDICTS = ("faster", "slower")


def main() -> int:
    """Prints the table; returns 1 where names decide."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="toy_cnn")
    parser.add_argument("--lengths", type=int, default=17, help="of --out, from 1 on")
    parser.add_argument("--repeats", type=int, default=2, help="of each length")
    parser.add_argument("--outdir", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.outdir or Path(temporary)
        program = folder / "program.pte"
        if not program.exists():
            require(["export", arguments.model, "--dtype", "fp32", "--out", str(program)])
        ratios: dict[str, list[float]] = defaultdict(list)
        false_verdicts: dict[str, int] = defaultdict(int)
        false_tables = tables = 0
        for repeat in range(arguments.repeats):
            for length in range(1, arguments.lengths + 1):
                run = folder / f"r{repeat}" / ("o" * length)
                if not run.exists():
                    # The seed draws the order: one order for all runs would be one trial.
                    seed = ["--seed", str(100 * repeat + length)]
                    require(["profile", str(program), "--against", str(program),
                             "--out", str(run), *seed])  # fmt: skip
                changes = etprof.load_run(run).table("operator_changes")
                is_false = changes["verdict"].isin(VERDICTS)
                tables += 1
                false_tables += bool(is_false.any())
                for row in changes[changes["match"] == "same"].to_dict("records"):
                    ratios[row["baseline_label"]].append(row["speed_up"])
                    false_verdicts[row["baseline_label"]] += row["verdict"] in VERDICTS
    print("| operator | false verdicts | median ratio | its 95 % interval |\n|---|---|---|---|")
    intervals = {label: median_interval(values) for label, values in ratios.items()}
    for label, interval in intervals.items():
        ends = f"{interval.low:.3f} to {interval.high:.3f}" if interval else "too few"
        median = statistics.median(ratios[label])
        print(f"| {label} | {false_verdicts[label]} of {tables} | {median:.3f} | {ends} |")
    print(f"{false_tables} of {tables} tables have a false verdict "
          f"({format_share(false_tables / tables)})")  # fmt: skip
    low, high = RATIO_RANGE
    fits = all(
        interval is not None and interval.low <= high and interval.high >= low
        for interval in intervals.values()
    )
    return 0 if fits and false_tables <= MOST_FALSE * tables else 1


if __name__ == "__main__":
    sys.exit(main())
