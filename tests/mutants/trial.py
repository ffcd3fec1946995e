"""Tries changes in processes that are forked, so that the large libraries are imported once.

A child imports etprof, of a copy with one change in it, and runs tests until one fails.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final, Literal

from tests.mutants.copies import PACKAGE, changed_file, copy_tree, environment_of, import_from
from tests.mutants.operators import Change
from tests.mutants.selection import TimedTest, together_s

_LIBRARIES: Final = (
    "alembic", "hypothesis", "jinja2", "numpy", "pandas", "pydantic", "pytest", "rich.console",
    "scipy.optimize", "scipy.special", "scipy.stats", "sqlalchemy.orm", "torch",
)  # fmt: skip
_OPTIONS: Final = (
    "-q", "-x", "--tb=no", "--no-header", "-p", "no:cacheprovider",
    "-p", "_hypothesis_pytestplugin", "--hypothesis-profile=mutants",
    # To explain how two long pages differ takes more time than the tests have.
    "--assert=plain",
    # Hypothesis was imported before the fork.
    "-W", "ignore::pytest.PytestAssertRewriteWarning",
)  # fmt: skip
_SLOWER: Final = 4.0
"""By how many times the tests' own time a change may slow them down."""
_START_S: Final = 20.0
"""Of processor time, to import etprof and to collect the tests: several times what it takes."""
UNBOUNDED_S: Final = 300.0
"""For tests as they are, whose time nobody knows."""
_WAITS: Final = 10.0
"""By how many times the clock may run longer than the processor, on a machine with other work."""
_MOST_BYTES: Final = 12 << 30
"""Of addresses: a change that asks for more fails instead of taking the machine's memory."""
_OUTPUT: Final = "output.txt"

Outcome = Literal["passed", "failed", "timed out", "not run"]


@dataclass(frozen=True)
class Run:
    """How a run of tests ended."""

    outcome: Outcome
    """`not run`: pytest knows no such tests, or cannot even start."""
    failed: str = ""
    """The test that failed, or the file that could not be imported."""
    seconds: float = 0.0
    """Of processor time, in the process that ran the tests."""


class Bench:
    """A copy of the tree, in which one change at a time is tried."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._changes = 0
        copy_tree(folder)
        for name in _LIBRARIES:
            importlib.import_module(name)

    def check(self, test: TimedTest) -> None:
        """Ends the process unless the test passes, and fails where the package is of no use.

        Else every change would live: a copy that lacks a file, or that is not what is imported.
        """
        fatal = Change("fatal", 0, 0, "raise SystemError\n", (1, 1), (1, 1), ())
        before, after = self.run([test]).outcome, self.run([test], ("__init__.py", fatal)).outcome
        if before != "passed" or after in {"passed", "timed out"}:
            output = (self._folder / _OUTPUT).read_text(errors="replace")[-2000:]
            sys.exit(f"{test.name}: {before} as it is, {after} without the package\n{output}")

    def run(
        self,
        tests: Sequence[TimedTest],
        change: tuple[str, Change] | None = None,
        *,
        take_s: float | None = None,
    ) -> Run:
        """Runs the tests until one fails, with the change of a file, or without any.

        `take_s` is the processor time that they take without; by default what their map says.
        """
        names = [test.name for test in tests]
        seconds = together_s(tests) if take_s is None else take_s
        if change is None:
            return self._fork(names, seconds)
        file = self._folder / PACKAGE / change[0]
        self._changes += 1
        with changed_file(file, change[1].apply(file.read_text()), self._changes):
            return self._fork(names, seconds)

    def _fork(self, names: Sequence[str], seconds: float) -> Run:
        answer = self._folder / "answer.json"
        answer.unlink(missing_ok=True)
        most = round(_START_S + _SLOWER * seconds)
        child = get_context("fork").Process(
            target=_run_pytest, args=(self._folder, names, answer, most)
        )
        child.start()
        child.join(_WAITS * most)
        ended = child.exitcode
        _end(child)
        if ended is None or ended == -signal.SIGXCPU:
            return Run("timed out")
        if not answer.exists():
            # It ended itself, or was ended by a signal: no sound one does.
            return Run("failed", f"the process ended with {ended}")
        return Run(**json.loads(answer.read_text()))


def _end(child: BaseProcess) -> None:
    """Ends the child and what it started."""
    if child.pid is not None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    child.join()


class _Recorder:
    """A pytest plugin that remembers what failed first."""

    def __init__(self) -> None:
        self.failed = ""
        self.ran = 0

    def pytest_runtest_logreport(self, report: object) -> None:
        """A failing set-up counts, and so does a test that is skipped now."""
        self.ran += 1
        if getattr(report, "failed", False) and not self.failed:
            self.failed = str(getattr(report, "nodeid", ""))

    def pytest_collectreport(self, report: object) -> None:
        """A file that cannot be imported."""
        if getattr(report, "failed", False) and not self.failed:
            self.failed = str(getattr(report, "nodeid", ""))


def _run_pytest(folder: Path, names: Sequence[str], answer: Path, most_s: int) -> None:
    """Is the child: runs the tests in its own session, and writes how they ended."""
    import pytest
    from hypothesis import Phase, settings

    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (most_s, most_s + 5))
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_BYTES, _MOST_BYTES))
    os.environ.update(environment_of(folder), PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    os.chdir(folder)
    import_from(folder)
    log = os.open(_OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(log, stream)
    # To find the smallest example takes minutes; that there is one is enough.
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("mutants", deadline=None, database=None, phases=phases)
    recorder = _Recorder()
    words = [*_OPTIONS, f"--basetemp={folder / 'temporary'}", *names]
    code = int(pytest.main(words, plugins=[recorder]))
    outcome: Outcome = "failed" if recorder.failed else "passed" if code == 0 else "not run"
    taken = {"outcome": outcome, "failed": recorder.failed, "seconds": time.process_time()}
    answer.write_text(json.dumps(taken))
    sys.stdout.flush()
    os._exit(0)
