"""A pytest plugin that writes which tests run which lines of the package, and how long they take.

The folder is named by an environment variable; each process of pytest-xdist writes its own files.
"""

from __future__ import annotations

import importlib
import json
import os
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
        result = yield
        self._switch("")
        if nextitem is None or nextitem.path != item.path:
            self._save()
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """What is made once belongs to every test that uses it, not to the first."""
        before = self._context
        if fixturedef.scope != "function":
            self._switch(f"{FIXTURE}{fixturedef.argname}")
        try:
            return (yield)
        finally:
            if self._context != before:
                self._switch(before)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that did not pass judges nothing."""
        row = self._tests[report.nodeid]
        row["seconds"] += report.duration
        row["passed"] = row["passed"] and report.passed

    def _save(self) -> None:
        self._coverage.save()
        (self._folder / f"tests.{self._name}.json").write_text(json.dumps(self._tests))


def pytest_configure(config: pytest.Config) -> None:
    """Traces in the process that runs tests: a worker, or the only one."""
    worker = getattr(config, "workerinput", {}).get("workerid")
    if worker is None and getattr(config.option, "numprocesses", None):
        return
    tracer = Tracer(Path(os.environ[FOLDER_VARIABLE]), worker or "main")
    config.pluginmanager.register(tracer)
    tracer.start()
