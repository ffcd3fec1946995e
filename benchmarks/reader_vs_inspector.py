"""The ETDump reader against executorch.devtools.Inspector, on one file, in one run.

usage: python benchmarks/reader_vs_inspector.py [--etdump FILE] [--inferences N] [--json]

Without --etdump, exports MobileNetV2 (random weights) and records N inferences (default 1000) with
etprof-runner. Then, each in a process of its own: import time, first reading, warm reading, peak
memory; `etprof analyze` as a whole process; and both on 1, 10 and 100 times the file, made by
repeating its event blocks. CPU times (flatc's, a child of Inspector, apart) tell more than elapsed
ones when the machine is busy. budgets.py holds the figures to their limits.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from etdump_samples import record, repeat_blocks
from fresh_process import Row, run_code, run_etprof, run_etprof_quickest

from etprof.base.errors import EtprofError

READ = """
import json, statistics, sys, time
start = time.perf_counter()
from etprof.etdump.reader import load_etdump
from etprof import _etdump
path, repeats = sys.argv[1], int(sys.argv[2])
imported = time.perf_counter()
dump = load_etdump(path)
first = time.perf_counter() - imported
row = {"import_s": imported - start, "first_s": first, "peak_mb": peak_mb(),
       "events": int(dump.blocks.event_end[-1]), "size_bytes": dump.size_bytes}
del dump
times, cpu_times = [], []
for _ in range(repeats):
    begin, cpu_begin = time.perf_counter(), time.process_time()
    load_etdump(path)
    times.append(time.perf_counter() - begin)
    cpu_times.append(time.process_time() - cpu_begin)
row["warm_s"], row["warm_cpu_s"] = statistics.median(times), statistics.median(cpu_times)
print(json.dumps(row))
"""

INSPECT = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
start = time.perf_counter()
from executorch.devtools import Inspector
imported = time.perf_counter()
cpu_begin = time.process_time()
inspector = Inspector(etdump_path=sys.argv[1])
first = time.perf_counter() - imported
cpu = time.process_time() - cpu_begin
rows = sum(len(block.events) for block in inspector.event_blocks)
print(json.dumps({"import_s": imported - start, "first_s": first, "cpu_s": cpu,
                  "peak_mb": peak_mb(), "rows": rows}))
"""


def measure_growth(source: Path, folder: Path) -> list[Row]:
    """Reads and analyses 1, 10 and 100 times the file."""
    rows = []
    for copies in (1, 10, 100):
        path = folder / f"times_{copies}.etdump"
        repeat_blocks(source.read_bytes(), copies, path)
        row = run_code(READ, path, "5") | {"copies": copies}
        rows.append(row | {"analyze": run_etprof("analyze", path)})
        path.unlink()
    return rows


def measure(source: Path, folder: Path) -> Row:
    """Measures everything on one file."""
    readings = [run_code(READ, source, "50") for _ in range(3)]
    reader = min(readings, key=lambda row: float(row["warm_cpu_s"]))
    reader["first_s"] = statistics.median(row["first_s"] for row in readings)
    inspections = [run_code(INSPECT, source) for _ in range(3)]
    inspector = min(inspections, key=lambda row: float(row["cpu_s"]))
    return {
        "reader": reader,
        "inspector": inspector,
        "analyze": run_etprof_quickest("analyze", source, repeats=5),
        "ratio_first": inspector["first_s"] / reader["first_s"],
        "ratio_warm": inspector["first_s"] / reader["warm_s"],
        "warm_gb_per_s": reader["size_bytes"] / reader["warm_s"] / 1e9,
        "warm_gb_per_cpu_s": reader["size_bytes"] / reader["warm_cpu_s"] / 1e9,
        "growth": measure_growth(source, folder),
    }


def show(results: Row) -> None:
    """Prints the results as a plain table."""
    reader, inspector, analyze = (results[name] for name in ("reader", "inspector", "analyze"))
    print(f"{reader['size_bytes'] / 1e6:.1f} MB, {reader['events']:,} events\n")
    print(f"{'':24}{'etprof reader':>16}{'Inspector':>16}")
    for label, key, scale, unit in (
        ("import", "import_s", 1, "s"),
        ("first reading", "first_s", 1e3, "ms"),
        ("peak memory", "peak_mb", 1, "MB"),
    ):
        values = (f"{row[key] * scale:,.2f} {unit}" for row in (reader, inspector))
        print(f"{label:24}" + "".join(f"{value:>16}" for value in values))
    print(f"{'warm reading':24}{reader['warm_s'] * 1e3:>13.2f} ms")
    print(
        f"{'CPU time of reading':24}{reader['warm_cpu_s'] * 1e3:>13.2f} ms"
        f"{inspector['cpu_s'] * 1e3:>13,.2f} ms"
    )
    print(f"\nfaster than Inspector     {results['ratio_first']:,.0f} x at the first reading")
    print(f"                          {results['ratio_warm']:,.0f} x warm")
    print(
        f"warm speed                {results['warm_gb_per_s']:.2f} GB/s, "
        f"{results['warm_gb_per_cpu_s']:.2f} GB per CPU second"
    )
    print(f"etprof analyze, whole     {analyze['whole_s']:.2f} s, {analyze['peak_mb']:.0f} MB")
    show_growth(results["growth"])


def show_growth(rows: list[Row]) -> None:
    """Prints a line for each size: the reader's time and peak, then those of `etprof analyze`."""
    heads = ("growth", "file", "events", "reading", "per event", "peak", "analyze", "peak")
    print("\n" + "".join(f"{head:>12}" for head in heads))
    for row in rows:
        analyze = row["analyze"]
        cells = (
            f"{row['copies']} ×",
            f"{row['size_bytes'] / 1e6:.1f} MB",
            f"{row['events']:,}",
            f"{row['warm_s'] * 1e3:.1f} ms",
            f"{row['warm_s'] / row['events'] * 1e9:.1f} ns",
            f"{row['peak_mb']:.0f} MB",
            f"{analyze['whole_s']:.2f} s",
            f"{analyze['peak_mb']:.0f} MB",
        )
        print("".join(f"{cell:>12}" for cell in cells))


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--etdump", type=Path, help="measure on this file")
    parser.add_argument("--inferences", type=int, default=1000, help="how many to record")
    parser.add_argument("--json", action="store_true", help="print the raw results instead")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            source = arguments.etdump or record(folder, arguments.inferences)
        except EtprofError as error:
            sys.exit(str(error))
        results = measure(source, folder)
    if arguments.json:
        print(json.dumps(results, indent=2))
    else:
        show(results)


if __name__ == "__main__":
    main()
