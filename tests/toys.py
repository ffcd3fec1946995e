"""A toy of each thing that people add: the files that it takes, and what must then be there.

`python -m tests.toys check FOLDER` checks them in a process whose etprof has the toys.
`python -m tests.toys suite [NAME …]` (`nox -s toys`) runs all unit tests beside each toy.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Toy:
    """What is added: whole new files, and lines put before a line of files that are there."""

    most_files: int
    new: Mapping[str, str]
    put: Mapping[str, tuple[str, str]]
    """By file: the line before which it comes, and the lines."""


FINDING = '''

@rule("F99", "a toy", is_timed=False)
def find_toy(subject: Subject) -> Finding | None:
    """It is there."""
    return Finding("A toy", "note", "It is a toy.", "play")
'''

TOYS = {
    "column": Toy(
        1,
        {},
        {
            "tables/operators.py": (
                "    named_column(_of_row(lambda r: r.name)),",
                ('    Column("toy_length", "Int64", "count", basis="per program",\n'
                 '           visibility="data", says="its length",\n'
                "           of=_of_row(lambda r: len(r.label))),\n"),
            )
        },
    ),
    "format": Toy(
        1,
        {
            "views/formats/toy.py": '"""A toy."""\n'
            "from etprof.views.formats import Format\n"
            'FORMAT = Format(of_run=lambda run: {"report_toy.txt": run.run.source.name})\n'
        },
        {},
    ),
    "finding": Toy(
        1,
        {"analysis/findings/toy.py": '"""A toy."""\n'
            "from etprof.analysis.findings.finding import Finding, Subject, rule\n" + FINDING},
        {},
    ),
    "target": Toy(
        4,
        {
            "targets/toy.py": '"""A toy."""\n'
            "from tests.world.sim_target import SimTarget\n"
            "from tests.world.spec import Capabilities, RunSpec\n"
            "class ToyTarget(SimTarget):\n"
            "    def __init__(self):\n"
            '        super().__init__(RunSpec(capabilities=Capabilities(platform="toy")))\n'
        },
        {
            "targets/registry.py": (
                "    TargetKind(",
                ('    TargetKind(name="toy", policy=_HARDWARE, history_name="toy",\n'
                '               factory="etprof.targets.toy:ToyTarget", counting_hint="play"),\n'),
            )
        },
    ),
    "backend": Toy(
        3,
        {
            "backends/toy.py": '"""A toy."""\n'
            "from etprof.backends.backend import LINEAR, Backend, OperatorName\n"
            "class ToyBackend(Backend):\n"
            '    name = title = "toy"\n'
            '    delegate = "ToyDelegate"\n'
            "    ns_per_tick = 1.0\n"
            "    def recognises(self, labels):\n"
            '        return all(label.startswith("TOY ") for label in labels)\n'
            "    def read_label(self, label):\n"
            "        return OperatorName(label[4:], (), None, LINEAR)\n"
        },
        {
            "backends/registry.py": (
                "BACKENDS: Final[tuple[Backend, ...]] = (XnnpackBackend(), PortableBackend())",
                "from etprof.backends.toy import ToyBackend\n",
            )
        },
    ),
}  # fmt: skip
IN_THE_LINE = {
    "backends/registry.py": ("(XnnpackBackend(), ", "(XnnpackBackend(), ToyBackend(), "),
}


def add(package: Path, toy: Toy) -> int:
    """Adds the toy to a copy of the package; returns in how many files."""
    for name, content in toy.new.items():
        (package / name).write_text(content)
    for name, (line, added) in toy.put.items():
        text = (package / name).read_text()
        assert line in text, f"{name} has no line {line!r}"
        text = text.replace(line, f"{added}{line}", 1)
        if name in IN_THE_LINE:
            text = text.replace(*IN_THE_LINE[name], 1)
        (package / name).write_text(text)
    return len({*toy.new, *toy.put})


def check(folder: Path) -> None:
    """Everything that a user of the toys may expect."""
    from etprof.views.formats import format_names
    from tests.known_runs import Experiment, Op, Run, write_run
    from tests.world.host import etprof

    operators = [Op("TOY product", 60), Op("TOY sum", 20)]
    run = write_run(folder / "run", Run([Experiment("one", operators)]))
    assert "toy" in format_names()
    done = etprof(folder, "report", run, "--format", "html,md,csv,json,toy")
    assert done.exit_code == 0, done.stderr
    assert (run / "report_toy.txt").read_text() == "run"
    with (run / "report_operators.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["toy_length"] for row in rows if row["label"] == "TOY product"] == ["11"]
    assert {row["category"] for row in rows if row["label"].startswith("TOY")} == {"GEMM"}
    for name in ("report.md", "report.html", "report.json"):
        assert "toy" in (run / name).read_text(), name
    with (run / "report_findings.csv").open(newline="") as stream:
        assert "F99" in {row["rule"] for row in csv.DictReader(stream)}

    (folder / "m.pte").write_bytes(b"program")
    config = {
        "model": "m.pte", "output_root": "toys", "target": {"kind": "toy"},
        "experiments": [{"name": "one"}], "measurement": {"blocks": 2, "etdump_runs": 2},
    }  # fmt: skip
    (folder / "c.json").write_text(json.dumps(config))
    done = etprof(folder, "run", "c.json")
    assert done.exit_code == 0, done.stderr
    assert json.loads((folder / "toys/manifest.json").read_text())["platform"] == "toy"


def run_suite(names: Sequence[str], processes: int) -> int:
    """Runs the unit tests of a copy of the tree for each toy; returns how many suites were red.

    What a toy turns red is a second place that has to be changed with it.
    """
    from tests.mutants.copies import copy_tree, environment_of

    red = 0
    for name in names:
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="toys-") as folder:
            add(copy_tree(Path(folder)), TOYS[name])
            # Some tests go over the files that git tracks.
            subprocess.run(["git", "init", "-q"], cwd=folder, check=True)
            subprocess.run(["git", "add", "-A"], cwd=folder, check=True)
            environment = environment_of(Path(folder))
            # Approved texts have every column and every command: they are written anew by a command.
            subprocess.run(
                [sys.executable, "-m", "tests.golden"], cwd=folder, env=environment, check=True
            )
            argv = [
                sys.executable, "-m", "pytest", "tests/unit", "-q", "-n", str(processes),
                "-m", "not full and not slow", "-p", "no:cacheprovider", "--tb=short",
            ]  # fmt: skip
            done = subprocess.run(argv, cwd=folder, env=environment, check=False)
        red += done.returncode != 0
        state = "red" if done.returncode else "green"
        print(f"toy {name}: unit tests {state} ({time.monotonic() - started:.0f} s)", flush=True)
    return red


def main() -> int:
    """Checks the toys of this process's etprof, or runs the unit tests beside each toy."""
    parser = argparse.ArgumentParser(prog="python -m tests.toys", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check").add_argument("folder", type=Path)
    suite = commands.add_parser("suite")
    suite.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(TOYS)}; all without"
    )
    suite.add_argument("--processes", type=int, default=2, help="that run the tests")
    arguments = parser.parse_args()
    if arguments.command == "check":
        check(arguments.folder)
        return 0
    if unknown := set(arguments.names) - TOYS.keys():
        parser.error(f"no toy is called {', '.join(sorted(unknown))}")
    return int(run_suite(arguments.names or list(TOYS), arguments.processes) > 0)


if __name__ == "__main__":
    sys.exit(main())
