"""What the newest ExecuTorch that the index offers would break: `nox -s next`.

Where it is the pinned one, that is said in a line, and the checks run on it. Otherwise etprof is
copied, its pin moved, and the copy built and tested in an environment of its own. What stands in
the newest library for Arm is compared with etprof's tables whatever this machine is: labels of
XNNPACK's operators, names of kernels outside delegates, and microkernels. Exit code 1 when
anything breaks.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from etprof.backends.kernel_names import PREFIX
from etprof.backends.library import KINDS, Kind, examine_name, names_of_library, unknown_names
from etprof.base.errors import InputFileError

ROOT: Final = Path(__file__).resolve().parents[1]
PIN: Final = re.compile(r'"executorch==([0-9.]+)"')
TORCH: Final = re.compile(r'"torch(>=[0-9.]+),<[0-9.]+"')
KNOWN: Final = ROOT / "python/etprof/backends/xnnpack/kernels.json"
ARM: Final = ("--only-binary=:all:", "--platform", "manylinux_2_28_aarch64")
TESTS: Final = {
    "events": (
        "tests/integration/test_etdump_schema.py",
        "tests/integration/test_etdump_inspector.py",
        "tests/integration/test_import_inspector.py",
    ),
    "export": ("tests/integration/test_export.py", "tests/integration/test_export_etrecord.py"),
    "runner": ("tests/integration/test_runner.py", "tests/integration/test_profile.py"),
}
"""Tests that look at what ExecuTorch writes and takes, by what they are about."""
MOST_SHOWN: Final = 20


@dataclass(frozen=True)
class Check:
    """What was looked at, and what in it etprof does not know or cannot do."""

    name: str
    looked_at: str
    breaks: tuple[str, ...] = ()
    news: tuple[str, ...] = ()
    """What is new or gone, and breaks nothing."""

    def lines(self) -> Iterator[str]:
        """Yields the check for people."""
        verdict = f"BREAKS in {len(self.breaks)}" if self.breaks else "ok"
        yield f"{self.name}: {verdict} ({self.looked_at})"
        for text in (*self.breaks, *(f"only told: {each}" for each in self.news))[:MOST_SHOWN]:
            yield f"    {text}"
        if (more := len(self.breaks) + len(self.news) - MOST_SHOWN) > 0:
            yield f"    and {more} more, in --json"


def newest_version(answer: str) -> str:
    """Reads the version from what `pip index versions executorch` answers."""
    found = re.search(r"^executorch \((\d[0-9.]*)\)", answer, re.MULTILINE)
    if found is None:
        sys.exit("the index names no version of executorch; pip answered:\n" + answer[-2000:])
    return found[1]


def moved_pin(text: str, version: str) -> str:
    """Returns pyproject.toml with the pin on `version`, and PyTorch without its upper bound."""
    return TORCH.sub(r'"torch\1"', PIN.sub(f'"executorch=={version}"', text))


def check_names(kind: Kind, names: Collection[str]) -> Check:
    """Everything that stands in the library can be read."""
    unknown = unknown_names(examine_name(kind, name) for name in sorted(names))
    breaks = [f"{name.name}: {name.problem}" for name in unknown]
    return Check(f"{kind}s", f"{len(names)} {kind}s", _or_none(names, breaks))


def check_microkernels(names: Collection[str], known: Collection[str]) -> Check:
    """The same of microkernels, and what is new or gone since the table was made."""
    kleidiai = {name for name in names if name.startswith(PREFIX)}
    news = (
        *(f"new microkernel: {name}" for name in sorted(kleidiai - {*known})),
        *(f"gone microkernel: {name}" for name in sorted({*known} - kleidiai)),
    )
    check = check_names("microkernel", names)
    looked_at = f"{check.looked_at}, {len(kleidiai)} of KleidiAI, {len(known)} in etprof's table"
    return replace(check, looked_at=looked_at, news=news)


def _or_none(found: Collection[str], breaks: Sequence[str]) -> tuple[str, ...]:
    """What breaks; that nothing was found in the library breaks as well."""
    return tuple(breaks) if found else ("none was found in the library: has its form changed?",)


def check_library(wheel: Path) -> list[Check]:
    """Holds the shared libraries of a wheel against etprof's tables."""
    known = json.loads(KNOWN.read_text("utf-8"))["kernels"]
    try:
        names = names_of_library(wheel)
    except InputFileError:
        names = ()
    by_kind = {kind: {name.name for name in names if name.kind == kind} for kind in KINDS}
    return [
        check_names("label", by_kind["label"]),
        check_names("kernel", by_kind["kernel"]),
        check_microkernels(by_kind["microkernel"], known),
    ]


def failed_tests(printed: str) -> tuple[str, ...]:
    """Reads the failed tests, with what they say, from what pytest prints at its end."""
    return tuple(re.findall(r"^(?:FAILED|ERROR) (.*)$", printed, re.MULTILINE))


def run_tests(python: Path | str, tree: Path, subjects: Sequence[str]) -> Iterator[Check]:
    """Runs the tests of each subject by the environment's Python; yields its check at once."""
    for subject in subjects:
        words = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *TESTS[subject]]
        # A path of the caller's would lead to another etprof than the copy's.
        others = {} if tree == ROOT else {"PYTHONPATH": ""}
        done = subprocess.run(
            words, cwd=tree, env=os.environ | others, capture_output=True, text=True, check=False
        )
        last = (done.stdout.strip().splitlines() or [done.stderr.strip()[-500:]])[-1]
        breaks = failed_tests(done.stdout) or ((last,) if done.returncode else ())
        yield Check(subject, last.strip("= "), breaks)


def build_copy(version: str, folder: Path) -> tuple[Path, Check]:
    """Copies the repository, moves its pin, and installs it; returns its Python and the check."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in filter(None, listed.stdout.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    project = folder / "pyproject.toml"
    project.write_text(moved_pin(project.read_text("utf-8"), version), "utf-8")
    environment = folder / ".venv"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "-q"]
    for step in (["-U", "pip"], ["."], ["--group", "test"]):
        done = subprocess.run(
            [*pip, *step], cwd=folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            told = re.findall(r"(?im)^.*\berror\b.*$", done.stderr)
            return python, Check("build", f"executorch {version}", tuple(told or ["pip failed"]))
    return python, Check("build", f"etprof built and installed with executorch {version}")


def examine(version: str, *, is_built_anew: bool, subjects: Sequence[str]) -> Iterator[Check]:
    """Yields each check of a version as it is done."""
    pip = [sys.executable, "-m", "pip"]
    with tempfile.TemporaryDirectory(prefix="etprof-next-") as place:
        words = ["download", "-q", "--no-deps", *ARM, "-d", place, f"executorch=={version}"]
        done = subprocess.run([*pip, *words], capture_output=True, text=True, check=False)
        wheels = [*Path(place).glob("executorch-*.whl")]
        if wheels:
            yield from check_library(wheels[0])
        else:
            yield Check("library", "the wheel for Arm", (done.stderr.strip()[-500:] or "none",))
        python, tree = Path(sys.executable), ROOT
        if is_built_anew:
            tree = Path(place) / "tree"
            tree.mkdir()
            python, built = build_copy(version, tree)
            yield built
            if built.breaks:
                return
        yield from run_tests(python, tree, subjects)


def main(words: Sequence[str] | None = None) -> int:
    """Says what breaks; 1 when anything does."""
    parser = argparse.ArgumentParser(prog="nox -s next --", description=__doc__)
    parser.add_argument(
        "--rebuild", action="store_true", help="build a copy although the newest is the pinned one"
    )
    parser.add_argument(
        "--only", choices=TESTS, action="append", help="run the tests of this subject alone"
    )
    parser.add_argument("--no-tests", action="store_true", help="hold the library alone")
    parser.add_argument("--json", action="store_true", help="print one object")
    asked = parser.parse_args(words)
    (pinned,) = PIN.findall((ROOT / "pyproject.toml").read_text("utf-8"))
    answer = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", "executorch"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    newest = newest_version(answer.stdout or answer.stderr)
    is_pinned = newest == pinned
    told = f"The newest executorch of the index is {newest}, " + (
        "which is the pinned one: these are its checks."
        if is_pinned
        else f"not the pinned {pinned}."
    )
    if not asked.json:
        print(told, flush=True)
    checks = []
    subjects = [] if asked.no_tests else asked.only or [*TESTS]
    for check in examine(newest, is_built_anew=asked.rebuild or not is_pinned, subjects=subjects):
        checks.append(check)
        if not asked.json:
            print("\n".join(check.lines()), flush=True)
    if asked.json:
        document: dict[str, Any] = {
            "schema_version": 1, "newest": newest, "pinned": pinned,
            "checks": [asdict(check) for check in checks],
        }  # fmt: skip
        print(json.dumps(document, indent=2))
    return int(any(check.breaks for check in checks))


if __name__ == "__main__":
    sys.exit(main())
