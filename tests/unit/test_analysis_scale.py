"""Analysing costs time in proportion to the events, and imports neither torch nor pandas."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from etprof.base.process import run_command
from tests.known_runs import OFF_OPS, Experiment, Op, Run, on_off_run, write_run

OPS = [
    op
    for i in range(10)
    for op in (replace(each, instruction=each.instruction + 3 * i) for each in OFF_OPS)
]


def analyse(folder: Path, executions: int) -> float:
    """Seconds that splitting, describing and judging one run take."""
    from etprof.analysis.assessment import assess_run
    from etprof.analysis.run_analysis import analyze_run
    from etprof.run.load import Run as LoadedRun

    run = write_run(folder, Run([Experiment("e", OPS, executions=executions)]))
    start = time.process_time()
    assess_run(analyze_run(LoadedRun.load(run)))
    return time.process_time() - start


@pytest.mark.slow
def test_time_grows_linearly_with_executions(tmp_path: Path) -> None:
    analyse(tmp_path / "warm", 10)
    few, many = (min(analyse(tmp_path / f"{n}_{i}", n) for i in range(2)) for n in (30, 300))
    assert many < 10 * few * 1.5


@pytest.mark.slow
def test_analyze_and_report_import_neither_torch_nor_pandas(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", on_off_run())
    code = (
        "import sys\nfrom etprof.cli import main\n"
        f"main(['analyze', {str(run)!r}, '--quiet'])\nmain(['report', {str(run)!r}])\n"
        f"main(['compare', {f'{run}:android_off'!r}, {f'{run}:android_sme2'!r}])\n"
        "print(sorted({'torch', 'executorch', 'pandas', 'pyarrow', 'scipy'} & set(sys.modules)),"
        " file=sys.stderr)"
    )
    completed = run_command([sys.executable, "-c", code])
    assert completed.stderr.strip() == "[]"


@pytest.mark.slow
def test_many_operators_are_no_trouble(tmp_path: Path) -> None:
    # GIVEN a program of 3000 operators with the same name, the worst case for alignment
    ops = [Op(f"Fully Connected (NC, F32) GEMM #{i}", 5) for i in range(3000)]
    experiments = [Experiment(name, ops, sme=name, executions=2) for name in ("off", "sme2")]
    from etprof.analysis.assessment import assess_run
    from etprof.analysis.run_analysis import analyze_run
    from etprof.run.load import Run as LoadedRun
    from etprof.views.formats.html import render_html

    run = write_run(tmp_path / "r", Run(experiments))
    start = time.process_time()
    render_html([assess_run(analyze_run(LoadedRun.load(run)))])
    assert time.process_time() - start < 20
