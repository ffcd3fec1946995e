"""Do instructions repeat to the instruction? Each of three programs is counted ten times.

With --alike N instead, N runs of a model that did not change are added to a history, and each is
compared with those before it as a workflow would: how many are called a regression? Needs
`etprof emulator setup`. Exit code 1 where any count differed, or any run was.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

from etprof.base.units import format_count
from etprof.cli import run_command_line
from etprof.run.kernel_trace import InstructionCounts, read_instructions

MODELS = ("toy_cnn:fp16", "toy_cnn:int8", "decoder:fp16")
"""Small ones, for each instruction takes about a microsecond."""


def count(model: str, folder: Path, bits: str) -> dict[str, InstructionCounts]:
    """Counts the instructions of a model in every SME mode, by the mode."""
    words = ["profile", model, "--target", "emulator", "--instructions"]
    # What it measured stands in the run.
    with redirect_stdout(io.StringIO()):
        code = run_command_line([*words, "--sme-vector-bits", bits, "--out", str(folder), "--json"])
    if code:
        sys.exit(f"{model} was not counted: exit code {code}")
    found = [read_instructions(path) for path in sorted(folder.glob("*/*_instructions.json"))]
    return {each.sme.in_force: each for each in found}


def find_alarms(model: str, runs: int, folder: Path) -> int:
    """Returns how many of the runs of an unchanged model fail the check of exact work."""
    store, alarms = ["--store", str(folder / "history.sqlite")], 0
    for number in range(runs):
        run = folder / str(number)
        count(model, run, "512")
        with redirect_stdout(io.StringIO()):
            run_command_line(["history", "add", *store, str(run)])
            code = run_command_line(["history", "check", *store, "--exact-work"]) if number else 0
        alarms += code != 0
    return alarms


def main() -> int:
    """Prints a line for each model and mode."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(MODELS), help="default %(default)s")
    parser.add_argument("--repeat", type=int, default=10, help="times (default %(default)s)")
    parser.add_argument("--sme-vector-bits", default="512", help="default %(default)s")
    parser.add_argument("--alike", type=int, metavar="N", help="runs of the first model, checked")
    arguments = parser.parse_args()
    differing = 0
    with tempfile.TemporaryDirectory() as name:
        if arguments.alike:
            model = arguments.models.split(",")[0]
            alarms = find_alarms(model, arguments.alike, Path(name))
            print(f"{model}: {alarms} of {arguments.alike} runs called a regression")
            return int(alarms > 0)
        for model in arguments.models.split(","):
            every = [
                count(
                    model,
                    Path(name, f"{model}{number}".replace(":", "_")),
                    arguments.sme_vector_bits,
                )
                for number in range(arguments.repeat)
            ]
            for mode, first in every[0].items():
                same = sum(each[mode] == first and first.is_steady for each in every)
                differing += len(every) - same
                total = format_count(first.total)
                print(f"{model:20} {mode:5} {total:>12} {same} of {len(every)} alike", flush=True)
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
