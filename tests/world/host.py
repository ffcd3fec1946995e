"""etprof's commands in this process: a process of their own is not the point of most tests."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from etprof.cli import main
from etprof.targets import local
from etprof.targets.android import target as phone
from etprof.targets.emulator import target as emulated

WIDTH = 200
"""Columns of the terminal, where a test does not choose."""


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it printed."""

    exit_code: int
    stdout: str
    stderr: str


def etprof(folder: Path, *words: object, columns: int = WIDTH) -> Done:
    """Runs one command line of etprof in `folder`."""
    with tempfile.TemporaryDirectory() as kept, pytest.MonkeyPatch.context() as patch:
        # Real files: etprof asks its streams for their descriptors, and may redirect those.
        out, error = Path(kept, "out"), Path(kept, "error")
        patch.chdir(folder)
        patch.setenv("COLUMNS", str(columns))
        with (
            out.open("w", encoding="utf-8") as out_stream,
            error.open("w", encoding="utf-8") as error_stream,
            redirect_stdout(out_stream),
            redirect_stderr(error_stream),
        ):
            try:
                exit_code = main([str(word) for word in words])
            except SystemExit as ended:  # argparse, after --help
                exit_code = int(ended.code or 0)
        return Done(exit_code, out.read_text("utf-8"), error.read_text("utf-8"))


@contextmanager
def simulated_host(make: Callable[..., Any]) -> Iterator[None]:
    """Lets the targets that `make` makes stand in for this machine, and for the emulator."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (local, emulated, phone):
            for name in ("LocalTarget", "EmulatorTarget", "AndroidTarget"):
                if hasattr(module, name):
                    patch.setattr(module, name, make)
        yield
