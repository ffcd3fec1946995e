"""`nox -s mutants`: applies each mutation to a copy, runs its tests, and says which lived.

Exit code 1 when more than a tenth lived, or when a mutation's text is no longer found.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Final, Literal

import etprof
from tests.mutants.known import MUTATIONS, Mutation

ROOT: Final = Path(__file__).parents[2]
MOST_ALIVE: Final = 0.1
FOLDERS: Final = ("python", "tests", "models", "configs", "docs", "benchmarks", "cpp", "cmake")
Fate = Literal["killed", "alive", "lost"]


def copy_tree(folder: Path) -> Path:
    """Copies the tree, with the native half of the installed package; returns its package."""
    package = folder / "python/etprof"
    skip = shutil.ignore_patterns("__pycache__", "*.so", "bin", "models", "configs")
    for name in FOLDERS:
        plain = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=skip if name == "python" else plain)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, folder)
    installed = Path(etprof.__file__).parent
    for path in (*installed.glob("*.so"), *(installed / n for n in ("bin", "models", "configs"))):
        (package / path.name).symlink_to(path.resolve())
    return package


def find(package: Path, mutation: Mutation) -> Path | None:
    """The file that has the text, once; None where it is gone or stands in several places."""
    given = package / mutation.file
    places = [given] if given.is_file() and mutation.old in given.read_text() else []
    places = places or [p for p in package.rglob("*.py") if mutation.old in p.read_text()]
    once = len(places) == 1 and places[0].read_text().count(mutation.old) == 1
    return places[0] if once else None


def run_tests(folder: Path, tests: Collection[str], *, must_pass: bool = False) -> bool:
    """Whether the tests pass on the copy; ends the process when they cannot run at all."""
    words = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    # Not the installed package: the copy.
    environment = {**os.environ, "PYTHONPATH": str(folder / "python")}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, check=False)
    if done.returncode not in {0, 1} or (must_pass and done.returncode):
        # An import that fails is no test that goes red.
        sys.exit(f"{done.stdout.decode()[-2000:]}\nnot by a mutation")
    return done.returncode == 0


def try_one(folder: Path, package: Path, mutation: Mutation) -> Fate:
    """Applies the mutation, runs its tests, and takes it back."""
    file = find(package, mutation)
    if file is None:
        return "lost"
    sound = file.read_text()
    file.write_text(sound.replace(mutation.old, mutation.new))
    try:
        return "alive" if run_tests(folder, mutation.tests) else "killed"
    finally:
        file.write_text(sound)


def main() -> int:
    """Tries all mutations, or those whose numbers are given."""
    parser = argparse.ArgumentParser(prog="nox -s mutants --", description=__doc__)
    parser.add_argument("numbers", nargs="*", type=int)
    numbers = parser.parse_args().numbers
    chosen = [each for each in MUTATIONS if not numbers or each.number in numbers]
    fates: dict[int, Fate] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        package = copy_tree(folder)
        run_tests(folder, {test for each in chosen for test in each.tests}, must_pass=True)
        for each in chosen:
            fates[each.number] = try_one(folder, package, each)
            print(f"{fates[each.number]:7} {each.number:3} {each.what} ({each.file})", flush=True)
    alive, lost = (sum(fate == word for fate in fates.values()) for word in ("alive", "lost"))
    print(f"{len(fates)} mutations: {alive} alive, {lost} lost; at most {MOST_ALIVE:.0%} may live")
    return int(lost > 0 or alive > MOST_ALIVE * len(fates))


if __name__ == "__main__":
    sys.exit(main())
