"""Profiles networks with one known fault each, and holds the answer against the fault.

    python benchmarks/faulty_models.py [--nets LIST] [--outdir DIR] [--quick] [--into FILE]

The networks are those of faulty_nets.py, and of strange_nets.py, which was written without a look at
the rules. Each is exported and profiled on this host. Of the answer, measurement rules aside, the
finding that comes first has to be of one of the rules that the fault is about, and has to name the
faulty line. Where a rewrite mends it, the command has to ask for that rewrite, and is run: it has to
change the program, and what it gains (`profile OLD --against NEW`) has to be inside the interval that
was printed. Where none does, the answer has to name what is at fault. `--quick` measures too little
for gains, and leaves them out. `--outdir` keeps the runs, and a second call goes on where the first
stopped. The table is Markdown. The exit code is 1 where an answer is not as it should be.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import shlex
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import findings_commands
import gains
import precision_zoo
from faulty_nets import FAULT, FaultyNet
from quiet_command import run_quietly

from etprof.analysis.findings.commands import command_in, rewrites_in
from etprof.base.atomic import write_text
from etprof.base.files import hash_file
from etprof.base.units import format_share
from etprof.tables.findings import FindingGroup, group_findings

if TYPE_CHECKING:
    from etprof.analysis.findings.finding import Finding

MODULES: Final = ("faulty_nets", "strange_nets")
OF_MEASURING: Final = frozenset({"F10", "F11", "F13", "F15", "F16", "F18"})
"""Rules about how it was measured, or about SME2, which this host does not have."""
COLUMNS: Final = (
    "network", "first", "asks for", "outside", "delegate calls", "predicted gain", "measured gain",
    "answer",
)  # fmt: skip
RIGHT: Final = "right"
_QUICK: Final = ("--blocks", "3", "--operator-launches", "3", "--iterations", "10", "--warmup", "2")


@dataclass(frozen=True)
class FaultyFile:
    """One network in its file."""

    net: type[FaultyNet]

    @property
    def path(self) -> Path:
        """Returns the file."""
        return Path(inspect.getfile(self.net))

    @property
    def fault(self) -> str:
        """Returns the faulty line as answers name it."""
        lines, first = inspect.getsourcelines(self.net.part or self.net)
        (index,) = [i for i, line in enumerate(lines) if line.rstrip().endswith(FAULT)]
        return f"{self.path.name}:{first + index}"

    @property
    def words(self) -> tuple[str, ...]:
        """Returns the network as etprof takes it."""
        inputs = (word for text in self.net.inputs for word in ("--input", text))
        return f"{self.path}:{self.net.__name__}", *inputs, "--dtype", self.net.precision


def find_nets(names: Sequence[str] | None) -> list[FaultyFile]:
    """Returns the networks of both files, or those that are named."""
    classes = (
        value
        for module in map(importlib.import_module, MODULES)
        for value in vars(module).values()
        if inspect.isclass(value) and issubclass(value, FaultyNet) and value.__module__ == module.__name__
    )  # fmt: skip
    return [
        FaultyFile(net)
        for net in classes
        if net is not FaultyNet and (names is None or net.__name__ in names)
    ]


def text_of(finding: Finding) -> str:
    """Returns all that a finding says."""
    evidence = (f"{row.label} {row.text}" for row in finding.evidence)
    return " ".join(
        (finding.title, finding.summary, finding.action, finding.advice, *evidence,
         *(refusal.text for refusal in finding.refusals))
    )  # fmt: skip


def judge(file: FaultyFile, group: FindingGroup | None) -> Iterator[str]:
    """Yields what the finding that comes first does not say as it should."""
    if group is None:
        if file.net.causes:
            yield "no finding"
        return
    findings = (group.lead, *group.others)
    if not {finding.rule for finding in findings} & set(file.net.causes):
        yield f"{' or '.join(file.net.causes)} is not first"
    text = " ".join(map(text_of, findings))
    if file.fault not in text:
        yield f"{file.fault} is not named"
    command = command_in(group.lead.action)
    missing = set(file.net.rewrites) - set(rewrites_in(command) if command else ())
    if missing:
        yield f"no command with {', '.join(sorted(missing))}"
    if file.net.named.lower() not in text.lower():
        yield f"{file.net.named} is not named"


def _profile(program: Path, folder: Path, *words: str) -> str | None:
    """Profiles into a folder, unless that is done."""
    if (folder / "metrics.json").exists():
        return None
    return run_quietly(["profile", str(program), *words, "--out", str(folder)])


@dataclass(frozen=True)
class CommandResult:
    """What a finding's command changes."""

    outside: str
    delegate_calls: str
    predicted: str = ""
    measured: str = ""
    miss: str = ""
    """What is not as it should be; empty where all is."""


def try_command(group: FindingGroup, name: str, folder: Path, *, is_quick: bool) -> CommandResult:
    """Runs a finding's command, and measures its program beside the one before."""
    program, candidate = folder / "base.pte", folder / "candidate.pte"
    before = findings_commands.describe_program(program)
    unchanged = CommandResult(str(before.outside), str(before.delegate_calls))
    command = command_in(group.lead.action)
    words = shlex.split(command)[1:] if command else []
    if words[:1] != ["export"]:
        return unchanged
    if not candidate.exists() and (problem := run_quietly([*words, "--out", str(candidate)])):
        return replace(unchanged, miss=problem)
    after = findings_commands.describe_program(candidate)
    result = CommandResult(
        findings_commands.describe_change(str(before.outside), str(after.outside)),
        findings_commands.describe_change(str(before.delegate_calls), str(after.delegate_calls)),
    )
    if hash_file(candidate) == hash_file(program):
        return replace(result, miss="the command changes nothing")
    return result if is_quick else _measured(result, group, name, folder)


def _measured(result: CommandResult, group: FindingGroup, name: str, folder: Path) -> CommandResult:
    """Adds what the command gains, as predicted and as measured."""
    pair = folder / "pair"
    problem = _profile(folder / "base.pte", pair, "--against", str(folder / "candidate.pte"))
    if problem:
        return replace(result, miss=problem)
    gain = gains.compare(name, folder, group, pair)
    if gain is None:
        return result
    return replace(
        result,
        predicted=f"{format_share(gain.low)} to {format_share(gain.high)}",
        measured=format_share(gain.measured),
        miss="" if gain.holds else "the gain is outside its interval",
    )


def try_net(file: FaultyFile, folder: Path, *, is_quick: bool) -> tuple[str, ...]:
    """Returns the row of one network."""
    name, program = file.net.__name__, folder / "base.pte"
    folder.mkdir(parents=True, exist_ok=True)
    problem = None
    if not program.exists():
        problem = run_quietly(["export", *file.words, "--out", str(program)])
    problem = problem or _profile(program, folder / "base", *(_QUICK if is_quick else ()))
    if problem:
        return name, "", "", "", "", "", "", problem
    findings = gains.assess(folder / "base").primary_findings.findings
    groups = group_findings([f for f in findings if f.rule not in OF_MEASURING])
    misses = list(judge(file, groups[0] if groups else None))
    if not groups:
        return name, "", "", "", "", "", "", "; ".join(misses) or RIGHT
    group = groups[0]
    command = command_in(group.lead.action)
    result = try_command(group, name, folder, is_quick=is_quick)
    return (
        name,
        ", ".join(finding.rule for finding in (group.lead, *group.others)),
        ", ".join(rewrites_in(command)) if command else "",
        result.outside,
        result.delegate_calls,
        result.predicted,
        result.measured,
        "; ".join(filter(None, (*misses, result.miss))) or RIGHT,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; returns 1 where an answer is not as it should be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nets", type=lambda text: text.split(","))
    parser.add_argument("--outdir", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--into", type=Path)
    chosen = parser.parse_args(arguments)
    lines = precision_zoo.table_head(COLUMNS)
    print("\n".join(lines), flush=True)
    answers: list[str] = []
    with tempfile.TemporaryDirectory() as temporary:
        for file in find_nets(chosen.nets):
            folder = (chosen.outdir or Path(temporary)) / file.net.__name__
            row = try_net(file, folder, is_quick=chosen.quick)
            lines.append(findings_commands.table_row(row))
            print(lines[-1], flush=True)
            answers.append(row[-1])
    summary = f"{answers.count(RIGHT)} of {len(answers)} answers are right"
    print(f"\n{summary}")
    if chosen.into is not None:
        write_text(chosen.into, "\n".join([*lines, "", f"{summary}.", ""]))
    return int(answers.count(RIGHT) < len(answers))


if __name__ == "__main__":
    sys.exit(main())
