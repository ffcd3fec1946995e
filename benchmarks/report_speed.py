"""`etprof analyze` and `etprof report` as whole processes, on real runs of every size.

usage: python benchmarks/report_speed.py [--run RUN_DIR] [--inferences N] [--json]

Without --run, exports MobileNetV2 (random weights) and measures it here with one and with two
threads, N inferences (default 1000) in each ETDump. Then runs both commands in fresh interpreters:
elapsed and CPU time, peak memory, and whether torch was imported. Last, the same on 10 and 100
times the inferences, made by repeating the event blocks of the one-thread ETDump. Budgets: under
2 s each, no torch; time in proportion to inferences. Exit code 1 when one is not kept.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from etdump_samples import MODEL, repeat_blocks
from fresh_process import Row, run_etprof, run_etprof_quickest

from etprof.base.errors import EtprofError
from etprof.run.directory import find_etdumps

BUDGET_S = 2.0
COPIES = (1, 10, 100)
GROWTH_SLACK = 1.5
"""Ten times the events may cost this much more than ten times the CPU time."""
_COMMANDS = {
    "analyze": "etprof analyze",
    "report": "etprof report (HTML, Markdown)",
    "all_formats": "etprof report (six formats)",
}


def record(folder: Path, inferences: int) -> Path:
    """Exports and measures MobileNetV2; returns the run directory."""
    from etprof.export.exporter import export_model
    from etprof.export.request import ExportRequest
    from etprof.measuring.pipeline import measure
    from etprof.measuring.plan import Experiment, Settings, plan
    from etprof.run.program import describe_program
    from etprof.targets.local import LocalTarget

    exported = export_model(ExportRequest(MODEL, "fp32", outdir=folder / "artifacts"))
    run = folder / "run"
    measure(
        program=describe_program(exported.pte),
        target=LocalTarget(),
        run=run,
        planned=plan(
            [Experiment(name=f"linux_t{n}", threads=n) for n in (1, 2)],
            Settings(blocks=4, operator_iterations=inferences),
            LocalTarget(),
        ),
        progress=lambda *_: None,
    )
    return run


def measure_growth(source: Path, folder: Path) -> list[Row]:
    """Analyses and reports ETDumps of 1, 10 and 100 times the events."""
    rows = []
    for copies in COPIES:
        run = folder / f"times_{copies}"
        run.mkdir()
        repeat_blocks(source.read_bytes(), copies, run / "a.etdump")
        analyze = run_etprof("analyze", run, "--quiet")
        report = run_etprof("report", run)
        rows.append({"copies": copies, "analyze": analyze, "report": report})
        shutil.rmtree(run)
    return rows


def measure_all(run: Path, folder: Path) -> Row:
    """Measures everything on one run directory."""
    return {
        "analyze": run_etprof_quickest("analyze", run),
        "report": run_etprof_quickest("report", run),
        "all_formats": run_etprof_quickest(
            "report", run, "--format", "html,md,json,csv,perfetto,chrome", "--out", folder / "out"
        ),
        "html_bytes": (run / "report.html").stat().st_size,
        "growth": measure_growth(find_etdumps(run)[0], folder),
    }


def broken_budgets(results: Row) -> list[str]:
    """Says which budgets were not kept."""
    problems = [
        f"{name} took {results[name]['whole_s']:.2f} s"
        for name in ("analyze", "report")
        if results[name]["whole_s"] >= BUDGET_S
    ]
    problems += [
        f"{label} imported {', '.join(results[name]['heavy'])}"
        for name, label in _COMMANDS.items()
        if results[name]["heavy"]
    ]
    *_, middle, large = results["growth"]
    for name in ("analyze", "report"):
        tenfold = large[name]["cpu_s"] / middle[name]["cpu_s"]
        if tenfold > 10 * GROWTH_SLACK:
            problems.append(f"{name} took {tenfold:.1f} times as long for 10 times the events")
    return problems


def show(results: Row, inferences: int) -> None:
    """Prints the results as plain tables."""
    print(f"{'command, whole process':34}{'elapsed':>10}{'CPU':>10}{'peak':>10}")
    for name, label in _COMMANDS.items():
        row = results[name]
        print(f"{label:34}{row['whole_s']:>8.2f} s{row['cpu_s']:>8.2f} s{row['peak_mb']:>7.0f} MB")
    heavy = {module for name in _COMMANDS for module in results[name]["heavy"]}
    print(f"of torch, executorch and pandas imported: {', '.join(sorted(heavy)) or 'none'}")
    print(f"report.html: {results['html_bytes'] / 1e3:.0f} kB")
    print(f"\n{'inferences':>12}{'analyze':>12}{'peak':>10}{'report':>12}{'peak':>10}")
    for row in results["growth"]:
        analyze, report = row["analyze"], row["report"]
        print(
            f"{row['copies'] * inferences:>12,}{analyze['cpu_s']:>10.2f} s"
            f"{analyze['peak_mb']:>7.0f} MB{report['cpu_s']:>10.2f} s{report['peak_mb']:>7.0f} MB"
        )


def main() -> int:
    """Measures and prints; returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, metavar="RUN_DIR", help="measure on this run")
    parser.add_argument("--inferences", type=int, default=1000, help="how many to record")
    parser.add_argument("--json", action="store_true", help="print the raw results instead")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        try:
            run = arguments.run or record(folder, arguments.inferences)
        except EtprofError as error:
            sys.exit(str(error))
        results = measure_all(run, folder)
    if arguments.json:
        print(json.dumps(results, indent=2))
    else:
        show(results, arguments.inferences)
    problems = broken_budgets(results)
    print("\n".join(problems) or "all budgets kept", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
