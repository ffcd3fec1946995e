"""Random changes of the package: what is code, where it stands, and which tests are asked."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.mutants import sampled
from tests.mutants.copies import copy_tree, environment_of
from tests.mutants.operators import compiles, describe_change, find_changes
from tests.mutants.selection import Selection, TimedTest, together_s, within
from tests.mutants.tracing import COVERAGE
from tests.mutants.trial import Bench, Run
from tests.mutants.type_check import TypeChecker
from tests.source_checkout import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.mutants.operators import Change
    from tests.mutants.trial import Outcome

SOURCE = '''\
"""One < two."""

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING and 1:
    from x import y

__all__ = ["a"][0:9]
LIMIT: Final[int] = 3


@dataclass(frozen=True)
class Box:
    """Has 2."""

    size: float = 0.5

    def fits(self, other, *, least=0):  # ä is two bytes
        """Says whether 1 < 2."""
        log.info("size %d", 7)
        if self.size <= other.size and not (other.is_full):
            raise ValueError(1 + 2)
        note("ä", other); total = (
            self.size  # not + this one
            + other.size
        )
        assert total > 5
        total -= 1
        return f"{total + 1}" + "x" if least is not None else sorted(zip(a, b, strict=True))
'''


CONDITION = "self.size <= other.size and not (other.is_full)"


def changes_of(text: str) -> dict[str, list[str]]:
    """What every kind of change makes of the span that it replaces."""
    found: dict[str, list[str]] = {}
    for change in find_changes(text):
        told = f"{text[change.start : change.end]} → {change.new}"
        found.setdefault(change.kind, []).append(told)
    return found


def test_every_kind_of_change_is_made_where_code_is() -> None:
    assert changes_of(SOURCE) == {
        "constant": ["3 → 2", "3 → 4", "0.5 → 1.0", "0 → 1", "1 → 0", "1 → 2"],
        "boolean": [
            f"{CONDITION} → (not ({CONDITION}))",
            "and → or",
            "not →  ",
        ],
        "comparison": ["<= → <", "<= → >=", "is not → is"],
        "removed call": ['note("ä", other) → None', "sorted(zip(a, b, strict=True)) → (zip(a, b, strict=True))"],
        "swapped arguments": ['"ä", other → other, "ä"', "a, b → b, a"],
        "arithmetic": ["+ → -", "- → +"],
    }  # fmt: skip


def test_a_change_is_told_with_its_lines_joined() -> None:
    (change,) = [each for each in find_changes(SOURCE) if each.new == "-"]
    assert describe_change(SOURCE, change) == ("+ other.size", "- other.size")
    line = SOURCE[: change.start].count("\n") + 1
    assert change.lines == (line, line)
    assert change.statement == (line - 2, line + 1)
    assert change.names == ()
    by_name = {each.names for each in find_changes(SOURCE) if each.names}
    assert by_name == {("LIMIT",), ("size",), ("fits",)}


@pytest.mark.parametrize(
    "file", ["analysis/validity.py", "base/units.py", "targets/android/adb.py"]
)
def test_the_rest_of_a_file_stays_as_it_is(file: str) -> None:
    text = (ROOT / "python/etprof" / file).read_text()
    tree = ast.dump(ast.parse(text))
    changes = find_changes(text)
    assert len(changes) > 40
    for change in changes[:: len(changes) // 20]:
        changed = change.apply(text)
        assert changed[: change.start] == text[: change.start]
        assert changed.endswith(text[change.end :])
        assert compiles(changed)
        assert ast.dump(ast.parse(changed)) != tree


def test_what_is_no_python_any_more_is_not_tried() -> None:
    assert compiles("1 < 2")
    assert not compiles("1 <")
    assert not compiles("def f(x=1, y): pass")


PACKAGE = """\
LIMIT = 3


def fits(size):
    return size < LIMIT
"""


@pytest.fixture
def selection(tmp_path: Path) -> Selection:
    """Tests of which two call `fits`, one by way of a fixture, and a later map of one file."""
    package = tmp_path / "python/etprof"
    package.mkdir(parents=True)
    (package / "m.py").write_text(PACKAGE)
    rows = {
        "a.py::test_slow": (3.0, True, {}), "a.py::test_many[1]": (0.2, True, {}),
        "a.py::test_many[2]": (0.1, True, {}), "a.py::test_red": (0.1, False, {}),
        "b.py::test_old": (0.1, True, {}), "b.py::test_shared": (0.3, True, {"made": 0.5}),
    }  # fmt: skip
    for number, (names, contexts) in enumerate([
        (rows, ["a.py::test_slow", "a.py::test_many[1]", "a.py::test_many[2]", "a.py::test_red",
                "b.py::test_old"]),
        (["b.py::test_shared"], ["fixture made"]),
    ]):  # fmt: skip
        part = tmp_path / "map" / str(number)
        part.mkdir(parents=True)
        told = ("seconds", "passed", "fixtures")
        document = {name: dict(zip(told, rows[name], strict=True)) for name in names}
        (part / "tests.main.json").write_text(json.dumps(document))
        data = COVERAGE.CoverageData(str(part / "lines.main"))
        for context in contexts:
            data.set_context(context)
            # Traced in a copy, wherever it was.
            data.add_lines({"/a copy/python/etprof/m.py": [5]})
        data.write()
    return Selection(tmp_path / "map", package)


def test_the_tests_of_a_line_are_the_fastest_of_every_function_first(selection: Selection) -> None:
    (change, *_) = [each for each in find_changes(PACKAGE) if each.kind == "comparison"]
    names = [test.name for test in selection.tests_of("m.py", change)]
    assert names == [
        "a.py::test_many[2]", "b.py::test_shared", "a.py::test_slow", "a.py::test_many[1]",
    ]  # fmt: skip
    # AND what runs at import belongs to the tests of the lines that have its name.
    (constant, *_) = [each for each in find_changes(PACKAGE) if each.kind == "constant"]
    assert [test.name for test in selection.tests_of("m.py", constant)] == names
    # AND of a line that no test is known to run, those of its file; a file without any has none.
    other = find_changes("def f():\n    return 1 + x\n")[0]
    assert [test.name for test in selection.tests_of("m.py", other)] == names
    assert selection.tests_of("n.py", other) == []


def test_a_module_of_tables_alone_belongs_to_the_tests_that_import_it(
    selection: Selection, tmp_path: Path
) -> None:
    # GIVEN a module of which nothing runs but at import, and two tests, one of which reads it
    (tmp_path / "a.py").write_text("from etprof.tables import TABLE\n")
    (tmp_path / "b.py").write_text("from etprof.tables.more import ROWS\n")
    change = find_changes("TABLE = (1, 2)\n")[0]
    # THEN all tests of that file are asked
    names = {test.name.partition("::")[0] for test in selection.tests_of("tables.py", change)}
    assert names == {"a.py"}


def test_all_that_an_assignment_names_is_known() -> None:
    (change, *_) = find_changes("FIRST, LAST = 3, 0xFF\n")
    assert change.names == ("FIRST", "LAST")


def test_tests_are_asked_within_a_time_one_at_least() -> None:
    tests = [TimedTest(f"t{n}", seconds, {}) for n, seconds in enumerate([5, 1, 3])]
    assert [test.name for test in within(tests, 6)] == ["t0", "t1"]
    assert [test.name for test in within(tests, 2)] == ["t0"]
    assert within([], 2) == []


def test_what_tests_share_is_made_once() -> None:
    """Its time was in one of them, so that the others seemed to take none."""
    tests = [TimedTest(f"t{n}", 1.0, {"world": 5.0, "tmp_path": 0.0}) for n in range(4)]
    assert tests[0].alone_s == 6
    assert together_s(tests) == 9
    assert len(within(tests, 8.5)) == 3
    other = TimedTest("u", 1.0, {"device": 2.0})
    assert [test.name for test in within([tests[0], other, tests[1]], 8)] == ["t0", "t1"]


def test_whole_outputs_are_asked_after_a_dozen_whatever_they_take() -> None:
    # GIVEN fifteen quick tests, and two of whole outputs that take minutes
    quick = [TimedTest(f"t{number}", 0.1, {}) for number in range(15)]
    golden = "tests/unit/test_golden.py::test_x"
    whole = [TimedTest(f"{golden}[{name}]", 100.0, {}) for name in "ab"]
    # THEN both are asked, once a dozen has noticed nothing, and each as a function of its own
    asked = [test.name for test in within([*whole, *quick], 1.45)]
    assert asked == [
        *(f"t{number}" for number in range(12)), f"{golden}[a]", f"{golden}[b]", "t12", "t13",
    ]  # fmt: skip
    assert len({test.function for test in whole}) == 2


class Answers(Bench):
    """A bench that knows which tests notice a change, and which fail without any."""

    def __init__(self, *, noticing: set[str], broken: set[str], outcome: str = "failed") -> None:
        self.noticing, self.broken, self.outcome = noticing, broken, outcome
        self.asked: list[list[str]] = []

    def run(
        self,
        tests: Sequence[TimedTest],
        change: tuple[str, Change] | None = None,
        *,
        take_s: float | None = None,  # noqa: ARG002 - as the bench has it
    ) -> Run:
        self.asked.append([test.name for test in tests])
        failing = self.broken | (self.noticing if change else set())
        for test in tests:
            if test.name in failing:
                is_late = change is not None and self.outcome == "timed out"
                return Run("timed out") if is_late else Run("failed", test.name)
        return Run("passed")


@pytest.mark.parametrize(
    ("noticing", "broken", "fate", "by"),
    [
        ({"t3"}, set[str](), "killed", "t3"),
        ({"t14"}, set[str](), "killed", "t14"),
        (set[str](), set[str](), "alive", ""),
        # A test that is red anyway kills nothing, and is asked no more.
        (set[str](), {"t3"}, "alive", ""),
        ({"t5"}, {"t3", "t4"}, "killed", "t5"),
    ],
)
def test_only_a_test_that_passes_otherwise_kills(
    noticing: set[str], broken: set[str], fate: str, by: str
) -> None:
    tests = tuple(TimedTest(f"t{n}", 1.0, {}) for n in range(15))
    change = find_changes("1 < 2")[0]
    mutant = sampled.Mutant("m.py", change, "1 < 2", "1 <= 2", tests)
    bench, sound = Answers(noticing=noticing, broken=broken), dict[str, bool]()
    assert sampled.try_one(bench, mutant, tests, sound) == (fate, by)
    assert all(not passes for name, passes in sound.items() if name in broken)
    # AND what is known to be red is not asked again.
    sampled.try_one(bench, mutant, tests, sound)
    assert not broken & set(bench.asked[-1])


def test_a_change_that_never_ends_is_noticed_and_one_without_tests_is_not() -> None:
    change = find_changes("1 < 2")[0]
    one = (TimedTest("t", 1.0, {}),)
    bench = Answers(noticing={"t"}, broken=set(), outcome="timed out")
    mutant = sampled.Mutant("m.py", change, "1 < 2", "1 <= 2", one)
    assert sampled.try_one(bench, mutant, one, {}) == ("timed out", "")
    alone = sampled.Mutant("m.py", change, "1 < 2", "1 <= 2", ())
    assert sampled.try_one(bench, alone, (), {}) == ("alive", "no test runs it")


@pytest.mark.parametrize(
    ("noticing", "fate", "runs"), [("t1", "killed", 2), ("s0", "killed", 4), ("none", "alive", 3)]
)
def test_slow_tests_are_asked_of_what_no_quick_one_has_noticed(
    noticing: str, fate: str, runs: int
) -> None:
    quick, slow = (tuple(TimedTest(f"{kind}{n}", 1.0, {}) for n in range(14)) for kind in "ts")
    change = find_changes("1 < 2")[0]
    mutant = sampled.Mutant("m.py", change, "1 < 2", "1 <= 2", quick, slow)
    bench = Answers(noticing={noticing}, broken=set())
    assert sampled.try_in_turn(bench, mutant, {})[0] == fate
    # The first dozen, the other quick ones, the slow ones; what fails is run without the change.
    assert len(bench.asked) == runs


def test_slow_tests_are_those_of_slow_lanes_and_units_marked_slow() -> None:
    names = {path.relative_to(ROOT).as_posix() for path in sampled._slow_files()}
    assert {"tests/integration/test_optimize.py", "tests/unit/test_dashboard_export.py"} <= names
    # What runs on a target is in another process, whose lines nobody traces.
    assert not {"tests/integration/test_emulator.py", "tests/unit/test_units.py"} & names
    assert all((ROOT / name).is_file() for name in names)


class Slow(Bench):
    """A bench on which tests take `seconds`, far more than their map says."""

    def __init__(self, seconds: float, *, changed: Outcome, unchanged: Outcome = "passed") -> None:
        self.seconds, self.changed, self.unchanged = seconds, changed, unchanged

    def run(
        self,
        tests: Sequence[TimedTest],
        change: tuple[str, Change] | None = None,
        *,
        take_s: float | None = None,
    ) -> Run:
        outcome = self.unchanged if change is None else self.changed
        allowed_s = sum(test.seconds for test in tests) if take_s is None else take_s
        late = allowed_s < self.seconds
        return Run(
            "timed out" if late else outcome, "t" if outcome == "failed" else "", self.seconds
        )


@pytest.mark.parametrize(
    ("bench", "fate"),
    [
        (Slow(50, changed="passed"), "alive"),
        (Slow(50, changed="failed"), "killed"),
        (Slow(50, changed="timed out"), "timed out"),
        (Slow(5000, changed="passed"), "alive"),
    ],
)
def test_tests_that_take_longer_than_their_map_says_notice_nothing_by_that(
    bench: Slow, fate: str
) -> None:
    """A fifth of 300 changes "ran out of time", for what tests share was in the time of one."""
    change = find_changes("1 < 2")[0]
    one = (TimedTest("t", 1.0, {}), TimedTest("u", 1.0, {}))
    mutant = sampled.Mutant("m.py", change, "1 < 2", "1 <= 2", one)
    assert sampled.try_one(bench, mutant, one, {"t": True, "u": True})[0] == fate


class Strict(Bench):
    """A bench whose pytest does not start where a test is gone, or where a change breaks it."""

    def __init__(self, gone: set[str], *, with_change: Outcome, without: Outcome) -> None:
        self._gone, self._folder = gone, Path("nowhere")
        self.with_change, self.without = with_change, without

    def run(
        self,
        tests: Sequence[TimedTest],
        change: tuple[str, Change] | None = None,
        *,
        take_s: float | None = None,  # noqa: ARG002 - as the bench has it
    ) -> Run:
        if self._gone & {test.name for test in tests}:
            return Run("not run")
        return Run(self.with_change if change else self.without)


def test_tests_that_are_gone_do_not_make_a_change_live() -> None:
    change = find_changes("1 < 2")[0]
    tests = tuple(TimedTest(f"t{n}", 1.0, {}) for n in range(5))
    mutant = sampled.Mutant("m.py", change, "1 < 2", "1 <= 2", tests)
    sound = dict[str, bool]()
    bench = Strict({"t3"}, with_change="not run", without="passed")
    # The change hinders pytest itself, for example the import of what all tests share.
    assert sampled.try_one(bench, mutant, tests, sound) == (
        "killed", "pytest does not start",
    )  # fmt: skip
    assert sound == {"t0": True, "t1": True, "t2": True, "t3": False, "t4": True}


@pytest.mark.parametrize(
    ("with_change", "without", "says"),
    [
        ("passed", "passed", "t: passed as it is, passed without the package"),
        ("not run", "not run", "t: not run as it is, not run without the package"),
        ("failed", "failed", "t: failed as it is"),
    ],
)
def test_a_bench_that_notices_nothing_ends_the_run(
    tmp_path: Path, with_change: Outcome, without: Outcome, says: str
) -> None:
    bench = Strict(set(), with_change=with_change, without=without)
    bench._folder = tmp_path
    (tmp_path / "output.txt").write_text("No such file")
    with pytest.raises(SystemExit, match=f"{says}.*\n*.*No such file"):
        bench.check(TimedTest("t", 1.0, {}))
    Strict(set(), with_change="failed", without="passed").check(TimedTest("t", 1.0, {}))


def test_processes_that_tests_start_import_the_copy(tmp_path: Path) -> None:
    package = copy_tree(tmp_path / "copy")
    (package / "_version.py").write_text('__version__ = "of the copy"\n')
    words = [sys.executable, "-c", "from etprof import _version; print(_version.__version__)"]
    environment = environment_of(tmp_path / "copy")
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, check=True)
    assert done.stdout.decode() == "of the copy\n"


def test_what_mypy_refuses_needs_no_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Swapped arguments of two types were called unnoticed, and nobody could land them."""
    pytest.importorskip("mypy", reason="mypy is in the lint group")
    folder = tmp_path / "copy"
    package = folder / "python/etprof"
    package.mkdir(parents=True)
    (folder / "pyproject.toml").write_text("[tool.mypy]\nstrict = true\n")
    text = 'def f(a: int, b: str) -> str:\n    return b * a\n\n\nprint(f(1, "b"), f(2, "c"))\n'
    (package / "m.py").write_text(text)
    changes = {change.new: change for change in find_changes(text)}
    # What a build has put there is not asked.
    (package / "source").mkdir()
    (package / "source/s.py").write_text("import nowhere\n")
    types = TypeChecker(folder)
    assert types.refuses("m.py", changes['"b", 1'])
    assert not types.refuses("m.py", changes["3"])
    assert (package / "m.py").read_text() == text
    # AND a tree that it refuses as it is, or a place without mypy, judges nothing
    (package / "n.py").write_text("x: int = ''\n")
    assert not TypeChecker(folder).refuses("m.py", changes['"b", 1'])
    (package / "n.py").unlink()
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert not TypeChecker(folder).refuses("m.py", changes['"b", 1'])


def test_what_is_equivalent_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    change = find_changes("1 < 2")[0]
    monkeypatch.setattr(sampled, "EQUIVALENT", {("m.py", "1 < 2", "1 <= 2"): "it is"})
    mutant = sampled.Mutant("m.py", change, "1 < 2", "1 <= 2", ())
    bench = Answers(noticing=set(), broken=set())
    assert sampled.try_one(bench, mutant, (), {})[0] == "equivalent"
    tally = sampled.Tally(
        {
            0: ("equivalent", ""), 1: ("alive", ""), 2: ("killed", "t"), 3: ("timed out", ""),
            4: ("mistyped", "mypy"),
        }, 1.0,
    )  # fmt: skip
    assert tally.alive == [1]
    assert tally.share == pytest.approx(1 / 3)
