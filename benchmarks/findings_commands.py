"""Runs every `etprof export` that findings print, and says what it changes in the program.

    python benchmarks/findings_commands.py [--models LIST] [--precisions LIST] [--into FILE]

Each model of precision_zoo.py is profiled on this host with a few launches, since findings follow
from the program and not from how fast it is. Every command in a finding's advice is run as it is
printed, in the folder that it was printed for, and its program is held against the one that the
finding is about: bytes, operators outside the delegate, delegate calls, work with an SME2 kernel. The
table is Markdown, a row for each command. The exit code is 1 where a command fails or changes nothing.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import precision_zoo

from etprof.base.atomic import write_text
from etprof.base.files import hash_file
from etprof.base.text import QUOTED_COMMAND
from etprof.base.units import format_share
from etprof.export.request import ExportedFiles
from etprof.optimize.optimizing import read_trial
from etprof.run.optimization import Trial

PRECISIONS: Final = ("fp16", "int8")
COLUMNS: Final = (
    "model",
    "precision",
    "rules",
    "command",
    "outside",
    "delegate calls",
    "on SME2",
    "answer",
)
_QUICK: Final = ("--blocks", "3", "--operator-launches", "2", "--iterations", "10", "--warmup", "2")


def describe_program(program: Path) -> Trial:
    """Returns what an export wrote beside its program, as a search reads it."""
    return read_trial(Trial(rewrites=()), ExportedFiles(program))


def _figures(trial: Trial) -> tuple[str, str, str]:
    """Returns operators outside, delegate calls and work on SME2 as the table shows them."""
    share = format_share(trial.sme2_share(trial.macs))
    return str(trial.outside), str(trial.delegate_calls), share


def etprof(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Runs a command in a folder, as a user does."""
    return subprocess.run(
        [sys.executable, "-m", "etprof", *words],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip


def describe_change(old: str, new: str) -> str:
    """Returns a figure before and after, or once where it is the same."""
    return old if old == new else f"{old} → {new}"


def table_row(cells: Iterable[str]) -> str:
    """Returns a line of a table in Markdown."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def find_commands(analysis: dict[str, object]) -> dict[str, list[str]]:
    """Returns each export that an analysis prints, with the rules that print it."""
    commands: dict[str, list[str]] = {}
    experiments = analysis["findings"]
    for experiment in experiments if isinstance(experiments, list) else ():
        for finding in experiment["findings"]:
            for command in QUOTED_COMMAND.findall(finding["action"]):
                if shlex.split(command)[1] == "export":
                    commands.setdefault(command, []).append(finding["rule"])
    return commands


def _programs_in(folder: Path) -> set[Path]:
    return set(folder.glob("out_*/artifacts/*.pte"))


def try_model(model: str, precision: str, folder: Path) -> Iterator[tuple[str, ...]]:
    """Yields a row for each command that the findings of one program print."""
    name = precision_zoo.model_of(model)
    done = etprof(folder, "profile", name, "--dtype", precision, *_QUICK, "--out", "run")
    if done.returncode:
        yield model, precision, "", "", "", "", "", f"not measured: {done.stderr.splitlines()[-1]}"
        return
    (program,) = _programs_in(folder)
    content, before = hash_file(program), _figures(describe_program(program))
    analysis = json.loads(etprof(folder, "analyze", "run", "--json").stdout)
    commands = find_commands(analysis)
    if not commands:
        yield model, precision, "", "none", *before, "nothing to run"
    for command, rules in commands.items():
        known = {path: path.stat().st_mtime_ns for path in _programs_in(folder)}
        done = etprof(folder, *shlex.split(command)[1:])
        written = [p for p in _programs_in(folder) if known.get(p) != p.stat().st_mtime_ns]
        shown = command.replace(str(Path(__file__).parent), "benchmarks")
        row = model, precision, ", ".join(rules), f"`{shown}`"
        if done.returncode or len(written) != 1:
            yield *row, *before, f"failed: {(done.stderr.splitlines() or ['no program'])[-1]}"
            continue
        pairs = zip(before, _figures(describe_program(written[0])), strict=True)
        changes = itertools.starmap(describe_change, pairs)
        yield *row, *changes, "the same bytes" if hash_file(written[0]) == content else "changed"


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; returns 1 where a command fails or changes nothing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", type=lambda text: text.split(","))
    parser.add_argument("--precisions", type=lambda text: text.split(","), default=PRECISIONS)
    parser.add_argument("--into", type=Path)
    chosen = parser.parse_args(arguments)
    lines = precision_zoo.table_head(COLUMNS)
    print("\n".join(lines), flush=True)
    answers: list[str] = []
    for model in chosen.models or [*precision_zoo.find_loadable(), *precision_zoo.ARCHITECTURES]:
        for precision in chosen.precisions:
            with tempfile.TemporaryDirectory() as folder:
                for row in try_model(model, precision, Path(folder)):
                    lines.append(table_row(row))
                    print(lines[-1], flush=True)
                    answers.append(row[-1])
    changed = answers.count("changed")
    tried = [answer for answer in answers if answer != "nothing to run"]
    summary = f"{changed} of {len(tried)} commands change the program"
    print(f"\n{summary}")
    if chosen.into is not None:
        write_text(chosen.into, "\n".join([*lines, "", f"{summary}.", ""]))
    return int(changed < len(tried))


if __name__ == "__main__":
    sys.exit(main())
