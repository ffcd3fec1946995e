"""A pytest plugin that writes which tests run which lines of the package, and how long they take.

The folder is named by an environment variable; each process of pytest-xdist writes its own files.
"""

from __future__ import annotations

import importlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

# By its name, for mypy takes benchmarks/coverage.py for it.
COVERAGE: Final = importlib.import_module("coverage")
FOLDER_VARIABLE: Final = "ETPROF_MUTANTS_MAP"
FIXTURE: Final = "fixture "
"""Starts the context of what is made once for several tests."""


class Tracer:
    """Switches coverage's context with the tests and the shared fixtures."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._context = ""
        self._tests: dict[str, dict[str, Any]] = {}
        self._shared_s: dict[str, float] = {}
        self._shared_of_test_s = 0.0
        package = Path(__file__).parents[2] / "python/etprof"
        self._coverage = COVERAGE.Coverage(
            data_file=str(folder / f"lines.{name}"),
            config_file=False,
            include=[f"{package}/*"],
            messages=False,
        )

    def start(self) -> None:
        """Starts to trace; what is imported from here on belongs to no test."""
        self._coverage.start()

    def _switch(self, context: str) -> None:
        self._context = context
        self._coverage.switch_context(context)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Iterator[None]:
        """What a test runs is its own; what is known of a whole file is written at once."""
        fixtures = getattr(item, "fixturenames", [])
        self._tests[item.nodeid] = {"seconds": 0.0, "passed": True, "fixtures": list(fixtures)}
        self._switch(item.nodeid)
        self._shared_of_test_s = 0.0
        result = yield
        self._switch("")
        row = self._tests[item.nodeid]
        row["seconds"] = max(row["seconds"] - self._shared_of_test_s, 0.0)
        if nextitem is None or nextitem.path != item.path:
            self._save()
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """What is made once belongs to every test that uses it, not to the first."""
        if fixturedef.scope == "function":
            return (yield)
        before, began_s = self._context, time.perf_counter()
        self._switch(f"{FIXTURE}{fixturedef.argname}")
        try:
            return (yield)
        finally:
            self._switch(before)
            took_s = time.perf_counter() - began_s
            self._shared_of_test_s += took_s
            self._shared_s[fixturedef.argname] = took_s

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that did not pass judges nothing."""
        row = self._tests[report.nodeid]
        row["seconds"] += report.duration
        row["passed"] = row["passed"] and report.passed

    def _save(self) -> None:
        self._coverage.save()
        for row in self._tests.values():
            # Those of which it was not known yet when the test was collected.
            row["fixtures"] = {name: self._shared_s.get(name, 0.0) for name in row["fixtures"]}
        (self._folder / f"tests.{self._name}.json").write_text(json.dumps(self._tests))


def pytest_configure(config: pytest.Config) -> None:
    """Traces in the process that runs tests: a worker, or the only one."""
    worker = getattr(config, "workerinput", {}).get("workerid")
    if worker is None and getattr(config.option, "numprocesses", None):
        return
    tracer = Tracer(Path(os.environ[FOLDER_VARIABLE]), worker or "main")
    config.pluginmanager.register(tracer)
    tracer.start()
