"""The ETDump reader against executorch.devtools.Inspector, on one file, in one run.

usage: python benchmarks/reader_vs_inspector.py [--etdump FILE] [--inferences N] [--json]

Without --etdump, exports MobileNetV2 (random weights) and records N inferences (default 1000) with
etprof-runner. Then, each in a process of its own: import time, first reading, warm reading, peak
memory; `etprof analyze` as a whole process; and the reader on 1, 10 and 100 times the file, made by
repeating its event blocks. CPU times (flatc's, a child of Inspector, apart) tell more than elapsed
ones when the machine is busy. Budgets: 300 times faster than Inspector, 1 GB/s warm, analysis under
1 s and 200 MB.
"""

from __future__ import annotations

import argparse
import json
import statistics
import struct
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from etprof.errors import EtprofError
from etprof.process import run_command

Row = dict[str, Any]

# VmHWM and not ru_maxrss, which a child inherits from whoever started it.
PEAK = """
def peak_mb():
    try:
        status = open("/proc/self/status").read()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024
    except OSError:
        import resource
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
"""

READ = """
import json, statistics, sys, time
start = time.perf_counter()
from etprof.etdump import load_etdump
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

ANALYZE = """
import contextlib, io, json, sys
from etprof.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    code = main(["analyze", sys.argv[1]])
print(json.dumps({"peak_mb": peak_mb(), "exit_code": code}))
"""


def run_child(code: str, *words: str | Path) -> Row:
    """Runs code in a fresh interpreter; returns the JSON it printed last, with its whole time."""
    begin = time.perf_counter()
    done = run_command([sys.executable, "-c", PEAK + code, *map(str, words)])
    whole_s = time.perf_counter() - begin
    if done.exit_code != 0:
        sys.exit(f"a measurement failed:\n{done.stdout}{done.stderr}")
    row: Row = json.loads(done.stdout.splitlines()[-1])
    return row | {"whole_s": whole_s}


def record(folder: Path, inferences: int) -> Path:
    """Exports MobileNetV2 and records that many inferences; returns the ETDump's path."""
    from etprof import _etdump
    from etprof.export.exporter import export_model
    from etprof.export.request import ExportRequest

    exported = export_model(ExportRequest("mobilenet_v2", "fp32", outdir=folder))
    runner = Path(_etdump.__file__).parent / "bin" / "etprof-runner"
    path = folder / "mobilenet_v2.etdump"
    words = f"--warmup 0 --iterations {inferences - 1} --result {folder / 'result.json'}".split()
    done = run_command([runner, "--model", exported.pte, "--etdump", path, *words])
    if done.exit_code != 0:
        sys.exit(done.stderr)
    return path


def repeat_blocks(source: bytes, copies: int, path: Path) -> None:
    """Writes an ETDump whose event blocks are those of `source`, `copies` times over.

    Offsets in a FlatBuffer are relative, so copies of the whole file keep working anywhere behind a
    new root that lists all their blocks.
    """

    def number(at: int, form: str = "I") -> int:
        return int(struct.unpack_from("<" + form, source, at)[0])

    root = 4 + number(4)
    run_data = root + number(root - number(root, "i") + 6, "H")
    vector = run_data + number(run_data)
    count = number(vector)
    blocks = [at + number(at) for at in range(vector + 4, vector + 4 + 4 * count, 4)]
    body = source + bytes(-len(source) % 8)
    # Size, root offset, identifier, vtable with one field (the second), root, vector.
    slots_at = 32
    first = slots_at + 4 * count * copies
    first += -first % 8
    size = first + copies * len(body)
    head = struct.pack("<II4s", size - 4, 16, b"ED00")
    head += struct.pack("<HHHH", 8, 8, 0, 4) + struct.pack("<iI", 8, 4)
    head += struct.pack("<I", count * copies)
    with path.open("wb") as file:
        file.write(head)
        for copy in range(copies):
            base = first + copy * len(body)
            slots = [slots_at + 4 * (copy * count + index) for index in range(count)]
            offsets = [base + at - slot for at, slot in zip(blocks, slots, strict=True)]
            file.write(struct.pack(f"<{count}I", *offsets))
        file.write(bytes(first - file.tell()))
        for _ in range(copies):
            file.write(body)


def measure_growth(source: Path, folder: Path) -> list[Row]:
    """Reads 1, 10 and 100 times the file."""
    rows = []
    for copies in (1, 10, 100):
        path = folder / f"times_{copies}.etdump"
        repeat_blocks(source.read_bytes(), copies, path)
        rows.append(run_child(READ, path, "5") | {"copies": copies})
        path.unlink()
    return rows


def measure(source: Path, folder: Path) -> Row:
    """Measures everything on one file."""
    readings = [run_child(READ, source, "50") for _ in range(3)]
    reader = min(readings, key=lambda row: float(row["warm_s"]))
    reader["first_s"] = statistics.median(row["first_s"] for row in readings)
    inspector = run_child(INSPECT, source)
    analyze = min((run_child(ANALYZE, source) for _ in range(3)), key=lambda row: row["whole_s"])
    return {
        "reader": reader,
        "inspector": inspector,
        "analyze": analyze,
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
    print(f"                          {results['ratio_warm']:,.0f} x warm (budget: 300 x)")
    print(
        f"warm speed                {results['warm_gb_per_s']:.2f} GB/s, "
        f"{results['warm_gb_per_cpu_s']:.2f} GB per CPU second (budget: 1 GB/s)"
    )
    print(
        f"etprof analyze, whole     {analyze['whole_s']:.2f} s, {analyze['peak_mb']:.0f} MB "
        "(budget: 1 s, 200 MB)"
    )
    print(f"\n{'growth':>8}{'file':>12}{'events':>14}{'warm':>12}{'per event':>12}{'peak':>12}")
    for row in results["growth"]:
        print(
            f"{row['copies']:>6} x{row['size_bytes'] / 1e6:>9.1f} MB{row['events']:>14,}"
            f"{row['warm_s'] * 1e3:>9.1f} ms{row['warm_s'] / row['events'] * 1e9:>9.1f} ns"
            f"{row['peak_mb']:>9.0f} MB"
        )


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
