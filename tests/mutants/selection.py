"""Which tests run which lines: the map that `tests.mutants.tracing` wrote, and what it chooses."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.mutants.copies import PACKAGE
from tests.mutants.tracing import COVERAGE, FIXTURE

if TYPE_CHECKING:
    from tests.mutants.operators import Change

_RUN_APART: Final = {
    "base/guard.py": ("tests/unit/test_process.py", "tests/unit/test_leftovers.py")
}
"""Files of which each process of their own runs the lines, where nothing is traced, and their tests."""
_WHOLE: Final = ("tests/unit/test_golden.py", "tests/integration/test_export_golden.py")
"""Their tests hold whole outputs, so that one of them notices more than a dozen others do."""
_OF_NUMBERS: Final = "tests/unit/test_golden.py::test_thresholds_and_defaults"
"""Beginning of the test that reads numbers in the source, whose lines run at import if at all."""
_OF_DECLARATIONS: Final = (
    "tests/unit/test_golden.py::test_commands_have_the_words",
    "tests/unit/test_golden.py::test_files_have_the_fields",
    "tests/unit/test_golden.py::test_tables_have_the_columns",
    "tests/unit/test_printed_facts.py::test_the_page_of_json_lists",
)
"""Beginnings of the tests that read what modules declare at import: flags, fields, columns, units.

They run none of those lines, and hold every one of them.
"""
FIRST: Final = 12
"""Tests of the first run: most changes are noticed by one of them, and few are quickly collected."""
_WORD: Final = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class TimedTest:
    """A test that passed when the map was made."""

    name: str
    """As pytest has it: `tests/unit/test_x.py::test_y[z]`."""
    seconds: float
    """Without the fixtures that it shares with others."""
    fixtures: Mapping[str, float]
    """What it needs, and how long that takes once for all tests; 0 where it is made for each."""

    @property
    def alone_s(self) -> float:
        """What it takes where nothing is there yet."""
        return self.seconds + sum(self.fixtures.values())

    @property
    def is_whole(self) -> bool:
        """Whether it holds whole outputs; each of its parameters is another one."""
        return self.name.startswith(_WHOLE)

    @property
    def function(self) -> str:
        """Without its parameters."""
        return self.name if self.is_whole else self.name.partition("[")[0]


class Selection:
    """The tests that run a line, the fastest of each function first."""

    def __init__(self, folder: Path, package: Path) -> None:
        self._package = package
        self.tests: dict[str, TimedTest] = {}
        self._contexts: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._of_fixture: dict[str, set[str]] = defaultdict(set)
        self._words: dict[str, set[tuple[str, int]]] = defaultdict(set)
        # A later tracing of a test file takes the place of an earlier one.
        for part in sorted(folder.iterdir(), key=lambda path: int(path.name)):
            self._read(part)
        for test in self.tests.values():
            for name in test.fixtures:
                self._of_fixture[name].add(test.name)
        self._read_words()

    def _read(self, part: Path) -> None:
        traced: dict[str, dict[str, Any]] = {}
        for file in part.glob("tests.*.json"):
            traced.update(json.loads(file.read_text()))
        files = {name.partition("::")[0] for name in traced}
        for name in [name for name in self.tests if name.partition("::")[0] in files]:
            del self.tests[name]
        for name, row in traced.items():
            if row["passed"]:
                seconds, fixtures = float(str(row["seconds"])), row["fixtures"]
                costs = fixtures if isinstance(fixtures, dict) else dict.fromkeys(fixtures, 0.0)
                self.tests[name] = TimedTest(name, seconds, costs)
        for file in part.glob("lines.*"):
            data = COVERAGE.CoverageData(str(file))
            data.read()
            for measured in data.measured_files():
                lines = self._contexts[measured.rpartition(f"/{PACKAGE}/")[2]]
                for number, contexts in data.contexts_by_lineno(measured).items():
                    lines[number].update(filter(None, contexts))

    def _read_words(self) -> None:
        for path in self._package.rglob("*.py"):
            file = str(path.relative_to(self._package))
            for number, line in enumerate(path.read_text().splitlines(), start=1):
                for word in _WORD.findall(line):
                    self._words[word].add((file, number))

    def _of_lines(self, file: str, numbers: Iterable[int]) -> set[str]:
        lines = self._contexts.get(file, {})
        names: set[str] = set()
        for context in {c for number in numbers for c in lines.get(number, ())}:
            if context.startswith(FIXTURE):
                names |= self._of_fixture[context.removeprefix(FIXTURE)]
            else:
                names.add(context)
        return names & self.tests.keys()

    def tests_of(self, file: str, change: Change) -> list[TimedTest]:
        """Returns the tests that run what is changed, the most different ones first.

        What runs at import belongs to the tests that run a line with its name. Where no test is
        known to run it, those of any line of its file are asked, or of files that import the module.
        """
        names = self._of_lines(file, range(change.lines[0], change.lines[1] + 1))
        apart = _RUN_APART.get(file, ())
        names |= {name for name in self.tests if name.partition("::")[0] in apart}
        numbers = {name for name in self.tests if name.startswith(_OF_NUMBERS)}
        if not names and not change.names:
            first, last = change.statement
            names = self._of_lines(file, range(first, last + 1))
        if change.names:
            names |= {name for name in self.tests if name.startswith(_OF_DECLARATIONS)}
            for word in change.names:
                for other, number in self._words[word]:
                    names |= self._of_lines(other, [number])
        # Processes that tests start run lines too, and are not traced.
        names = names or self._of_lines(file, self._contexts.get(file, {}))
        return self._in_order((names or self._of_imports(file)) | numbers)

    def _of_imports(self, file: str) -> set[str]:
        """The tests of files that import a module, be it of tables alone, which no line names."""
        stem = Path(file).stem
        module = re.compile(rf"\b{stem} import|import {stem}\b")
        files = {name.partition("::")[0] for name in self.tests}
        importing = {
            test_file
            for test_file in files
            if (path := self._package.parents[1] / test_file).is_file()
            and module.search(path.read_text())
        }
        return {name for name in self.tests if name.partition("::")[0] in importing}

    def _in_order(self, names: Collection[str]) -> list[TimedTest]:
        """One of each function first, then the second of each: their parameters are much alike."""
        by_function: dict[str, list[TimedTest]] = defaultdict(list)
        for test in sorted((self.tests[name] for name in names), key=lambda test: test.alone_s):
            by_function[test.function].append(test)
        ranked = [(i, t.alone_s, t) for tests in by_function.values() for i, t in enumerate(tests)]
        return [test for _, _, test in sorted(ranked, key=lambda row: row[:2])]


def together_s(tests: Sequence[TimedTest]) -> float:
    """Returns how long tests take one after the other, what they share once."""
    shared = {name: cost for test in tests for name, cost in test.fixtures.items()}
    return sum(test.seconds for test in tests) + sum(shared.values())


def within(tests: Iterable[TimedTest], seconds: float) -> list[TimedTest]:
    """Returns the first tests that take so long together, one at least, and all whole outputs.

    The latter follow the first dozen, however long they take.
    """
    chosen: list[TimedTest] = []
    whole: list[TimedTest] = []
    total, made = 0.0, set[str]()
    for test in tests:
        if test.is_whole:
            whole.append(test)
            continue
        further_s = sum(cost for name, cost in test.fixtures.items() if name not in made)
        if not chosen or total + test.seconds + further_s <= seconds:
            total += test.seconds + further_s
            made |= test.fixtures.keys()
            chosen.append(test)
    return [*chosen[:FIRST], *whole, *chosen[FIRST:]]
