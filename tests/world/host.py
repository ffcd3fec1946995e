"""Commands in this process, on a host that is simulated."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import etprof.measuring.configured_run
import etprof.targets.local
from etprof.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pytest


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it printed."""

    exit_code: int
    stdout: str
    stderr: str


@dataclass
class CommandLine:
    """Runs etprof's commands in this process: a process is not the point of most tests."""

    patch: pytest.MonkeyPatch
    capture: pytest.CaptureFixture[str]
    folder: Path | None = None
    """Where the commands run."""

    def __call__(self, *words: object) -> Done:
        here = os.getcwd()  # noqa: PTH109
        if self.folder is not None:
            os.chdir(self.folder)
        self.capture.readouterr()
        try:
            exit_code = main([str(word) for word in words])
        finally:
            os.chdir(here)
        said = self.capture.readouterr()
        return Done(exit_code, said.out, said.err)

    def simulate_host(self, target: Callable[[], object]) -> None:
        """Lets `target` stand in for this machine."""
        for module in (etprof.measuring.configured_run, etprof.targets.local):
            self.patch.setattr(module, "LocalTarget", target)
