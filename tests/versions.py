"""What works with which ExecuTorch: `nox -s versions`; writes the table of docs/installing.md.

Each version is installed beside etprof into an environment of its own that shares all other
packages with this one, PyTorch among them. There etprof reads a run, exports and measures. A
program, an ETRecord and an ETDump that ExecuTorch's own interface of that version wrote are then
used with the version that etprof is built for. What is not supported must be refused by name.
Exit code 1 when anything else happens.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tempfile
import time
import venv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from docs.written_part import replace_part

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "installing.md"
VERSIONS: Final = ("1.4.1", "1.5.0", "1.5.1")
"""All of the last two minor releases that the PyTorch of etprof's requirements is for."""
YES: Final = "yes"
WRITES_NO_ETDUMP: Final = ("1.4.1",)
"""Their wheels record no events."""
REFUSAL: Final = re.compile(r"needs ExecuTorch ([\d.]+), and [\d.]+ is installed")
_OWN: Final = ("executorch", "etprof", "_etprof", "_editable", "__editable__", "__pycache__")
"""Begins what an environment does not share."""


@dataclass(frozen=True)
class Question:
    """What is tried, by a command of etprof."""

    title: str
    words: tuple[str, ...]
    needs_pin: bool = False
    """Whether another minor release is refused."""
    shows: str = ""
    """What the command prints when it does what is asked."""


_OWN_PROGRAM: Final = ("profile", "{own}/own.pte", "--inputs", "{own}/in.npy", "--blocks", "2")
_ETDUMPS: Final = Question(
    "its ETDumps are read",
    (
        "analyze",
        "{own}/own.etdump",
        "--etrecord",
        "{own}/own.etrecord",
        "--program",
        "{own}/own.pte",
        "--full",
    ),
    shows="stem",
)
WITH_IT: Final = (
    Question("etprof reads runs", ("analyze", "{base}/run")),
    Question(
        "etprof exports",
        ("export", "toy_cnn", "--dtype", "fp32", "--out", "exported.pte"),
        needs_pin=True,
    ),
    Question(
        "etprof measures on this machine",
        ("profile", "{base}/base.pte", "--blocks", "2"),
        needs_pin=True,
    ),
)
ITS_FILES: Final = (
    Question("its programs are measured", _OWN_PROGRAM),
    Question(
        "its ETRecords name modules",
        (*_OWN_PROGRAM, "--etrecord", "{own}/own.etrecord", "--full"),
        shows="stem",
    ),
    _ETDUMPS,
)
_WRITE_FILES: Final = """
import sys
from pathlib import Path

import numpy, torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from executorch.extension.pybindings.portable_lib import _load_for_executorch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 16, 3), nn.Linear(576, 10)
    def forward(self, x):
        return self.head(self.stem(x).relu().flatten(1)).softmax(-1)

folder = Path(sys.argv[1])
inputs = (torch.rand(1, 3, 8, 8),)
numpy.save(folder / "in.npy", inputs[0].numpy())
edge = to_edge_transform_and_lower(
    torch.export.export(Net().eval(), inputs),
    partitioner=[XnnpackPartitioner()], generate_etrecord=True,
)
program = edge.to_executorch()
program.get_etrecord().save(str(folder / "own.etrecord"))
program.save(str(folder / "own.pte"))
loaded = _load_for_executorch(str(folder / "own.pte"), enable_etdump=True)
for _ in range(3):
    loaded.forward(inputs)
loaded.write_etdump_result_to_file(str(folder / "own.etdump"))
"""
"""By interfaces that all of the versions have."""


@dataclass(frozen=True)
class Answer:
    """What one thing came to with one version."""

    question: Question
    version: str
    text: str
    is_right: bool = True


def has_minor_of(version: str, other: str) -> bool:
    """Whether both are patches of one minor release."""
    return version.split(".")[:2] == other.split(".")[:2]


def judge(
    question: Question, version: str, pinned: str, done: subprocess.CompletedProcess[str]
) -> Answer:
    """Returns what a command came to; right is success, or a refusal where one is due."""
    is_due = question.needs_pin and not has_minor_of(version, pinned)
    refusal = REFUSAL.search(done.stderr)
    if done.returncode == 3 and refusal:
        return Answer(question, version, f"refused: needs {refusal[1]}", is_right=is_due)
    if done.returncode == 0 and question.shows in done.stdout:
        return Answer(question, version, YES, is_right=not is_due)
    last = (done.stderr.strip().splitlines() or ["said nothing"])[-1]
    return Answer(question, version, f"exit code {done.returncode}: {last}", is_right=False)


def make_environment(folder: Path, packages: Sequence[str]) -> Path:
    """Makes an environment with `packages`, and all else of this one; returns its Python."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(_OWN) and entry.suffix != ".pth":
            (site / entry.name).symlink_to(entry)
    pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--upgrade", "--target")
    subprocess.run([*pip, str(site), *packages], check=True, stdout=sys.stderr)
    return folder / "bin" / "python"


def run_etprof(
    python: Path, words: Sequence[str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Runs a command of etprof in a folder of its own."""
    folder.mkdir(exist_ok=True)
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"}
    }
    command = [str(python), "-m", "etprof", *words]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def try_versions(folder: Path, pinned: str) -> Iterator[Answer]:
    """Yields each answer as soon as it is known."""
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(folder), str(ROOT)]
    subprocess.run(pip, check=True, stdout=sys.stderr)
    (wheel,) = folder.glob("etprof-*.whl")
    pythons = {
        version: make_environment(folder / version, [str(wheel), f"executorch=={version}"])
        for version in VERSIONS
    }
    base = folder / "base"
    program = ("export", "toy_cnn", "--dtype", "fp32", "--out", "base.pte")
    for words in (program, ("profile", "base.pte", "--blocks", "2", "--out", "run")):
        done = run_etprof(pythons[pinned], words, base)
        if done.returncode:
            sys.exit(f"etprof {' '.join(words)}, with ExecuTorch {pinned}: {done.stderr}")
    for version, python in pythons.items():
        own = folder / f"files-{version}"
        own.mkdir()
        writing = [str(python), "-c", _WRITE_FILES, str(own)]
        written = subprocess.run(writing, capture_output=True, text=True, check=False)
        if written.returncode:
            sys.exit(f"ExecuTorch {version} writes no files: {written.stderr}")
        for questions, user in ((WITH_IT, python), (ITS_FILES, pythons[pinned])):
            for question in questions:
                command = [word.format(base=base, own=own) for word in question.words]
                if question is _ETDUMPS and not (own / "own.etdump").exists():
                    yield Answer(
                        question,
                        version,
                        "its wheel writes none",
                        is_right=version in WRITES_NO_ETDUMP,
                    )
                    continue
                work = Path(tempfile.mkdtemp(dir=folder))
                yield judge(question, version, pinned, run_etprof(user, command, work))


def table(answers: Sequence[Answer]) -> str:
    """Returns the answers as Markdown, a row a question."""
    texts = {(answer.question.title, answer.version): answer.text for answer in answers}
    lines = [f"| with ExecuTorch | {' | '.join(VERSIONS)} |", f"|---{'|---' * len(VERSIONS)}|"]
    for question in (*WITH_IT, *ITS_FILES):
        cells = " | ".join(texts[question.title, version] for version in VERSIONS)
        lines.append(f"| {question.title} | {cells} |")
    return "\n".join(["", *lines, "", ""])


def updated(page: str, answers: Sequence[Answer]) -> str:
    """Returns the page with the table of these answers."""
    return replace_part(page, "tests.versions", table(answers))


def pinned_by(project: str) -> str:
    """Reads the pin from the text of pyproject.toml."""
    (version,) = re.findall(r'"executorch==([0-9.]+)"', project)
    return str(version)


def main() -> int:
    """Prints a line an answer and writes the table; 1 when an answer is not right."""
    pinned = pinned_by((ROOT / "pyproject.toml").read_text("utf-8"))
    answers = []
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="etprof-versions-") as name:
        for answer in try_versions(Path(name), pinned):
            answers.append(answer)
            verdict = "ok  " if answer.is_right else "FAIL"
            facts = f"{verdict}  {answer.version}  {answer.question.title}: {answer.text}"
            print(f"{time.monotonic() - begun:6.0f} s  {facts}", flush=True)
    if not all(answer.is_right for answer in answers):
        return 1
    PAGE.write_text(updated(PAGE.read_text("utf-8"), answers), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
