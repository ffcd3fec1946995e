"""`nox -s mutants -- --random N`: changes drawn from all of the package, and the tests that run them.

The map from lines to tests is made once, by the same command, and kept under build/mutants; only
test files that have changed since are traced again. Slow tests have a map of their own, and are asked
with `--slow` alone, of what no quick one has noticed.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Final, Literal, get_args

from tests.mutants.copies import PACKAGE, ROOT, copy_tree, environment_of
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.operators import Change, compiles, describe_change, find_changes
from tests.mutants.selection import FIRST, Selection, TimedTest, within
from tests.mutants.tracing import FOLDER_VARIABLE
from tests.mutants.trial import UNBOUNDED_S, Bench, Run
from tests.mutants.type_check import TypeChecker

MOST_ALIVE: Final = 0.1
MAP: Final = ROOT / "build/mutants/map"
SLOW_MAP: Final = ROOT / "build/mutants/slow map"
LAST: Final = ROOT / "build/mutants/last.json"
"""Which changes of the last run are alive, for `--again`."""
_HASHES: Final = "files.json"
_INTEGRATION: Final = (
    "analyze_etrecord", "bench_command", "bfloat16", "causes", "embeddings", "export", "export_bad_input",
    "export_golden", "export_module_map", "export_options", "export_user_models", "float_steps",
    "half_constants", "half_sums", "import_inspector", "llm_operators", "numerics", "one_report",
    "optimize", "profile", "program_rewrites", "promises", "replicated_split", "rewrites", "run_config",
    "scopes", "shared_kernels", "stranger_modules", "stranger_runs", "untimed", "user_mistakes", "volumes",
)  # fmt: skip
"""Files of tests/integration that run much of the package in little time."""
_READ_SOURCES: Final = (
    "canary", "codebase", "docs", "house_debts", "model_docs", "packages", "plain_words", "presets",
    "site", "workflows",
)  # fmt: skip
"""Tests of texts, not of what the package does: a change of code that they notice is not tested."""
_SLOW_LANES: Final = ("export-tests", "optimize-tests", "measure-tests", "llm-tests")
"""Lanes of .ci/lanes.toml that run in one process what they test; others run programs on targets."""
_SECONDS: Final = 20.0
"""Of tests, for a change that no test has noticed yet."""
_SLOW_SECONDS: Final = 90.0
"""Of slow tests, for a change that no quick one has noticed."""
_QUICK: Final = "not slow and not android and not browser"
_SLOW: Final = "(slow or full) and not android and not browser and not pages"
Fate = Literal["killed", "alive", "timed out", "mistyped", "equivalent"]
FATES: Final[tuple[Fate, ...]] = get_args(Fate)
"""A change that makes a test run out of its time is noticed, and mypy refuses what is mistyped."""


@dataclass(frozen=True)
class Mutant:
    """A change of a file, and the tests that run it."""

    file: str
    change: Change
    before: str
    after: str
    tests: tuple[TimedTest, ...]
    slow_tests: tuple[TimedTest, ...] = ()
    """Those that are asked last; none where nobody asked for them."""

    @property
    def location(self) -> str:
        """Its file and line."""
        return f"{PACKAGE}/{self.file}:{self.change.lines[0]}"

    @property
    def text(self) -> str:
        """Where it is, and what it does."""
        return f"{self.location}: {self.change.kind}\n  - {self.before}\n  + {self.after}"


def draw(count: int, seed: int) -> list[tuple[str, Change, str]]:
    """Draws changes that compile from all of the package, every one with the same chance."""
    package = ROOT / PACKAGE
    texts = {str(p.relative_to(package)): p.read_text() for p in sorted(package.rglob("*.py"))}
    every = [(file, change) for file, text in texts.items() for change in find_changes(text)]
    # No secrets: the same seed is the same changes again.
    random.Random(seed).shuffle(every)  # noqa: S311
    compiling = ((f, c, texts[f]) for f, c in every if compiles(c.apply(texts[f])))
    return [row for row, _ in zip(compiling, range(count), strict=False)]


def make_map(folder: Path, files: Iterable[Path], marked: str, jobs: int) -> None:
    """Traces the test files that have changed since the last time, all where the package has.

    Args:
        folder: Of the map.
        files: Of which tests are traced.
        marked: Which of their tests, as an expression of pytest's markers.
        jobs: Processes that run them.
    """
    package = _hash(sorted((ROOT / PACKAGE).rglob("*.py")))
    tests = {str(path.relative_to(ROOT)): _hash([path]) for path in files}
    parts = sorted(folder.glob("*"), key=lambda path: int(path.name)) if folder.is_dir() else []
    traced: dict[str, str] = {}
    for part in parts:
        if not (part / _HASHES).is_file():
            shutil.rmtree(part)
            continue
        document = json.loads((part / _HASHES).read_text())
        if document["package"] == package:
            traced |= document["tests"]
        else:
            shutil.rmtree(part)
    changed = [name for name, content in tests.items() if traced.get(name) != content]
    if changed:
        part = folder / str(max((int(path.name) for path in folder.glob("*")), default=-1) + 1)
        part.mkdir(parents=True)
        whole = set[str]()
        try:
            _trace(part, changed, marked, jobs)
            whole = set(changed)
        finally:
            # Whoever ends it early goes on where it was.
            whole = whole.union(*map(_files_of, part.glob("tests.*")))
            document = {"package": package, "tests": {name: tests[name] for name in whole}}
            (part / _HASHES).write_text(json.dumps(document))


def _traced_files() -> list[Path]:
    """The test files of which all that is not marked slow may judge."""
    units = sorted((ROOT / "tests/unit").glob("test_*.py"))
    integration = ROOT / "tests/integration"
    return [
        *(path for path in units if path.stem.removeprefix("test_") not in _READ_SOURCES),
        *(integration / f"test_{name}.py" for name in _INTEGRATION),
        *sorted((integration / "history").glob("test_*.py")),
    ]


def _slow_files() -> list[Path]:
    """The test files with slow tests that run the package in their own process."""
    table = tomllib.loads((ROOT / ".ci/lanes.toml").read_text(encoding="utf-8"))["lane"]
    modules = [module for lane in _SLOW_LANES for module in table[lane]["tests"]]
    units = [path for path in _traced_files() if "mark.slow" in path.read_text(encoding="utf-8")]
    # What a lane has stands there alone.
    return list(dict.fromkeys([*(ROOT / "tests/integration" / m for m in modules), *units]))


def _files_of(traced: Path) -> set[str]:
    """The test files of which a tracing is whole."""
    return {name.partition("::")[0] for name in json.loads(traced.read_text())}


def _hash(paths: Sequence[Path]) -> str:
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in paths)).hexdigest()


def _trace(part: Path, files: Sequence[str], marked: str, jobs: int) -> None:
    """Runs the files under coverage; tests that fail are told and judge nothing."""
    print(f"tracing {len(files)} test files, which takes minutes", flush=True)
    words = [sys.executable, "-m", "pytest", "-q", "-m", marked,
             "-p", "tests.mutants.tracing", "-p", "no:cacheprovider", "--tb=line"]  # fmt: skip
    parallel = ("-n", str(jobs), "--dist", "loadfile") if jobs > 1 and len(files) > 1 else ()
    with tempfile.TemporaryDirectory(prefix="traced-") as name:
        # Of a copy, as in the trials: an installed package is not what is drawn from.
        folder = Path(name)
        copy_tree(folder)
        environment = {**environment_of(folder), FOLDER_VARIABLE: str(part)}
        done = subprocess.run([*words, *parallel, *files], cwd=folder, env=environment, check=False)
    if done.returncode not in {0, 1, 5}:
        sys.exit("the tests cannot be traced")


@dataclass
class Tally:
    """What became of the changes."""

    fates: dict[int, tuple[Fate, str]]
    seconds: float

    def count(self, fate: Fate) -> int:
        """How many ended so."""
        return sum(ended == fate for ended, _ in self.fates.values())

    @property
    def alive(self) -> list[int]:
        """The numbers of those that no test noticed."""
        return sorted(number for number, (fate, _) in self.fates.items() if fate == "alive")

    @property
    def share(self) -> float:
        """Of those that need a test and can be noticed, how many were not."""
        without_need = self.count("equivalent") + self.count("mistyped")
        return len(self.alive) / max(1, len(self.fates) - without_need)


def try_all(chosen: Mapping[int, Mutant], jobs: int, minutes: float) -> Tally:
    """Tries the changes in so many processes, until all are tried or the time is over.

    Each is tried with its first tests, and at once with the others where those noticed nothing: so
    all that is printed is final, however early a run ends.
    """
    fork, began = get_context("fork"), time.monotonic()
    ends, tasks = fork.SimpleQueue(), fork.SimpleQueue()
    fates: dict[int, tuple[Fate, str]] = {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        folders = [Path(folder) / str(job) for job in range(jobs)]
        workers = [fork.Process(target=_work, args=(chosen, p, tasks, ends)) for p in folders]
        for worker in workers:
            worker.start()
        waiting, running = deque(chosen), jobs
        for _ in workers:
            tasks.put(waiting.popleft() if waiting else None)
        while running:
            end = ends.get()
            if end is None:
                running -= 1
                continue
            number, fate, by = end
            fates[number] = fate, by
            print(f"{len(fates):4} {fate:10} {chosen[number].location} {by}", flush=True)
            if fate == "alive":
                # At once: who reads it can write its test while the others are tried.
                print(f"{chosen[number].text}\n", flush=True)
            is_over = time.monotonic() - began > 60 * minutes
            tasks.put(waiting.popleft() if waiting and not is_over else None)
        for worker in workers:
            worker.join()
    return Tally(fates, time.monotonic() - began)


def _work(
    chosen: Mapping[int, Mutant],
    folder: Path,
    tasks: SimpleQueue[int | None],
    ends: SimpleQueue[tuple[int, Fate, str] | None],
) -> None:
    """Is a worker: tries what it is given until there is no more, and says that it ended."""
    try:
        bench, sound, types = Bench(folder), dict[str, bool](), TypeChecker(folder)
        bench.check(_quickest(chosen.values()))
        while (number := tasks.get()) is not None:
            mutant = chosen[number]
            fate, by = try_in_turn(bench, mutant, sound)
            if fate == "alive" and types.refuses(mutant.file, mutant.change):
                fate, by = "mistyped", "mypy"
            ends.put((number, fate, by))
    finally:
        ends.put(None)


def _quickest(mutants: Iterable[Mutant]) -> TimedTest:
    """The test that judges the bench itself."""
    return min((test for mutant in mutants for test in mutant.tests), key=lambda t: t.seconds)


def try_in_turn(bench: Bench, mutant: Mutant, sound: dict[str, bool]) -> tuple[Fate, str]:
    """Asks the first tests, then the others, then the slow ones, until some notice."""
    fate, by = try_one(bench, mutant, mutant.tests[:FIRST], sound)
    for tests in (mutant.tests[FIRST:], mutant.slow_tests):
        if fate == "alive" and tests:
            fate, by = try_one(bench, mutant, tests, sound)
    return fate, by


def try_one(
    bench: Bench, mutant: Mutant, tests: Sequence[TimedTest], sound: dict[str, bool]
) -> tuple[Fate, str]:
    """Runs tests until one kills the change; that one has to pass without it."""
    if (mutant.file, mutant.before, mutant.after) in EQUIVALENT:
        return "equivalent", ""
    part = [test for test in tests if sound.get(test.name, True)]
    while part:
        run = bench.run(part, (mutant.file, mutant.change))
        if run.outcome == "timed out":
            run = _run_in_time(bench, part, mutant)
        if run.outcome == "passed":
            break
        # The test that failed, or all of a file that could not be imported.
        culprit = [t for t in part if run.failed in {t.name, t.name.partition("::")[0]}]
        if _pass(bench, culprit or part, sound):
            if run.outcome == "timed out":
                return "timed out", ""
            return "killed", run.failed or "pytest does not start"
        part = [test for test in part if sound.get(test.name, True)]
    return "alive", "" if mutant.tests else "no test runs it"


def _run_in_time(bench: Bench, tests: Sequence[TimedTest], mutant: Mutant) -> Run:
    """Runs tests that took longer than their map says, by the time that they take unchanged.

    What several tests share is in the time of one of them, whichever was traced first: a change
    that nothing notices looked like one that makes them run on for ever.
    """
    unchanged = bench.run(tests, take_s=UNBOUNDED_S)
    if unchanged.outcome == "timed out":
        # Tests that do not end as they are judge nothing.
        return Run("passed")
    if unchanged.outcome != "passed":
        return unchanged
    return bench.run(tests, (mutant.file, mutant.change), take_s=unchanged.seconds)


def _pass(bench: Bench, tests: Sequence[TimedTest], sound: dict[str, bool]) -> bool:
    """Whether tests pass without a change, here and now; those that do not judge nothing more."""
    unknown = [test for test in tests if test.name not in sound]
    if not unknown:
        return all(sound[test.name] for test in tests)
    run = bench.run(unknown)
    failing = [test for test in unknown if test.name == run.failed] or unknown
    if run.outcome != "passed" and len(failing) > 1:
        # One of them that does not exist any more shall not take the others with it.
        middle = len(failing) // 2
        passing = [_pass(bench, part, sound) for part in (failing[:middle], failing[middle:])]
        return all(passing)
    if run.outcome != "passed":
        sound.update((test.name, False) for test in failing)
        return False
    sound.update((test.name, True) for test in unknown)
    return True


@dataclass(frozen=True)
class Asked:
    """What a run was asked for."""

    count: int
    seed: int
    jobs: int
    minutes: float
    again: bool
    """Only what was alive in the last run of the same seed."""
    as_mapped: bool
    """By the map as it is, whatever has changed since."""
    slow: bool
    """Whether slow tests are asked too."""


def run_sample(asked: Asked) -> int:
    """Draws, tries and tells; 1 when more than a tenth is alive."""
    count, seed = asked.count, asked.seed
    if not asked.as_mapped:
        make_map(MAP, _traced_files(), _QUICK, asked.jobs)
        if asked.slow:
            make_map(SLOW_MAP, _slow_files(), _SLOW, asked.jobs)
    for folder in (MAP, *((SLOW_MAP,) if asked.slow else ())):
        if not folder.is_dir():
            sys.exit(f"there is no {folder.relative_to(ROOT)} yet; leave --as-mapped out")
    selection = Selection(MAP, ROOT / PACKAGE)
    slow_selection = Selection(SLOW_MAP, ROOT / PACKAGE) if asked.slow else None
    chosen = {}
    wanted = json.loads(LAST.read_text()).get(f"{count} {seed}") if asked.again else None
    for number, (file, change, text) in enumerate(draw(count, seed)):
        if wanted is None or number in wanted:
            tests = within(selection.tests_of(file, change), _SECONDS)
            slow = slow_selection.tests_of(file, change) if slow_selection else []
            slow_tests = within(slow, _SLOW_SECONDS)
            chosen[number] = Mutant(
                file, change, *describe_change(text, change), tuple(tests), tuple(slow_tests)
            )
    tally = try_all(chosen, asked.jobs, asked.minutes)
    LAST.write_text(json.dumps({f"{count} {seed}": tally.alive}))
    for number in tally.alive:
        print(f"\n{chosen[number].text}\n  {tally.fates[number][1]}".rstrip())
    counts = ", ".join(f"{tally.count(fate)} {fate}" for fate in FATES)
    print(
        f"\n{len(tally.fates)} of {len(chosen)} changes tried in {tally.seconds / 60:.0f} minutes, "
        f"--random {count} --seed {seed}: {counts}; {tally.share:.1%} alive, {MOST_ALIVE:.0%} may be"
    )
    return int(tally.share > MOST_ALIVE)
