"""What a freshly installed etprof must do, from nothing but its wheel: `python tests/smoke.py`.

A run of a simulated machine is written and read by each reading command. With `--bare` the
environment must have neither torch nor executorch, and what needs them has to say so.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import sysconfig
import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

# The simulated machine stands beside this file; etprof itself is the installed one.
sys.path.append(str(Path(__file__).resolve().parents[1]))

from etprof.measuring.pipeline import measure
from etprof.measuring.plan import Experiment, Settings, plan
from etprof.run.program import Program
from tests.world.sim_target import SimTarget

HEAVY = ("torch", "executorch")


def write_run(folder: Path) -> Path:
    """Writes a complete run with SME2 on and off, measured on a simulated machine."""
    model = folder / "m.pte"
    model.write_bytes(b"program")
    experiments = [Experiment(name=sme, sme=sme, iterations=5, warmup=1) for sme in ("off", "sme2")]
    target = SimTarget()
    measure(
        program=Program(name="m", label="m", model=model),
        target=target,
        run=folder / "run",
        planned=plan(experiments, Settings(blocks=3, operator_launches=1), target),
        progress=lambda *_: None,
    )
    return folder / "run"


def reading_commands(run: Path, out: Path) -> list[list[str]]:
    """The command lines that only read what was measured; every one of them ends well."""
    of_store = ["--store", str(out / "history.sqlite")]
    return [
        ["--help"],
        ["--version"],
        ["validate", str(run)],
        ["analyze", str(run)],
        ["analyze", str(run), "--json"],
        ["report", str(run), "--format", "html,md,csv,perfetto", "--out", str(out / "report")],
        ["compare", str(run), str(run)],
        ["history", "add", str(run), *of_store],
        ["history", "list", *of_store],
        ["history", "show", "1", *of_store],
        ["history", "export", str(out / "history.json"), *of_store],
        ["dashboard", "--export", str(out / "site"), *of_store],
        ["config", "schema"],
        ["completion", "bash"],
    ]


def etprof(*words: str) -> tuple[int, str]:
    """Runs the installed command; returns its exit code and what it printed."""
    program = Path(sysconfig.get_path("scripts"), "etprof")
    done = subprocess.run([program, *words], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def check(*, bare: bool) -> list[str]:
    """Returns what is wrong with the installation, in words; nothing when all is well."""
    import etprof as package

    wrong = []
    if package.__version__ != version("etprof"):
        wrong.append(f"version {package.__version__} in code, {version('etprof')} in the wheel")
    with tempfile.TemporaryDirectory() as kept:
        folder = Path(kept)
        for words in reading_commands(write_run(folder), folder):
            code, told = etprof(*words)
            if code != 0:
                wrong.append(f"etprof {' '.join(words)}: exit code {code}: {told}")
        if wrong:
            return wrong  # What follows reads what the commands wrote.
        summary = json.loads((folder / "run" / "analysis_summary.json").read_text("utf-8"))
        if not summary.get("experiments"):
            wrong.append("the analysis of two experiments has none")
        code, told = etprof("doctor")
        if code != (3 if bare else 0):
            wrong.append(f"etprof doctor: exit code {code}: {told}")
        if bare:
            wrong += [f"{name} is installed" for name in HEAVY if find_spec(name) is not None]
            code, told = etprof("export", "toy_cnn", "--out", str(folder / "export.pte"))
            if code != 3 or "torch" not in told or len(told.splitlines()) != 1:
                wrong.append(f"etprof export: exit code {code}: {told}")
    return wrong


def main() -> int:
    """Checks the installation of etprof in this Python."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bare", action="store_true", help="torch and executorch must be missing")
    wrong = check(bare=parser.parse_args().bare)
    for each in wrong:
        print(each, file=sys.stderr)
    print(f"Python {sys.version.split()[0]}: {'failed' if wrong else 'passed'}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
