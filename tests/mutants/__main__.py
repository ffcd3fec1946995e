"""`nox -s mutants`: applies each mutation to a copy, runs its tests, and says which lived.

With `--random N` mutations are drawn instead of listed (tests/mutants/sampled.py). Exit code 1 when
more than a tenth lived, or when a listed mutation's text is no longer found.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import Literal

from tests.mutants.copies import copy_tree, environment_of
from tests.mutants.known import MUTATIONS, Mutation
from tests.mutants.sampled import MOST_ALIVE, Asked, run_sample

Fate = Literal["killed", "alive", "lost"]


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
    environment = environment_of(folder)
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


def try_known(numbers: Collection[int]) -> int:
    """Tries all that are listed, or those of these numbers; 1 when one is lost or too many live."""
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


def main() -> int:
    """Tries the listed mutations, or as many random ones as asked for."""
    parser = argparse.ArgumentParser(prog="nox -s mutants --", description=__doc__)
    parser.add_argument("numbers", nargs="*", type=int, help="of listed mutations; all without")
    parser.add_argument("--random", type=int, metavar="N", help="draw so many changes instead")
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="which ones; the clock's"
    )
    parser.add_argument("--jobs", type=int, default=2, help="processes that try them")
    parser.add_argument("--minutes", type=float, default=60.0, help="after which no more is tried")
    parser.add_argument(
        "--again", action="store_true", help="try what was alive in the last run of this seed"
    )
    parser.add_argument(
        "--as-mapped", action="store_true", help="trace no test again, whatever has changed"
    )
    parser.add_argument(
        "--slow", action="store_true", help="ask slow tests too; to trace them takes long"
    )
    words = parser.parse_args()
    if words.random is None:
        return try_known(words.numbers)
    asked = Asked(
        words.random,
        words.seed,
        words.jobs,
        words.minutes,
        words.again,
        words.as_mapped,
        words.slow,
    )
    return run_sample(asked)


if __name__ == "__main__":
    sys.exit(main())
