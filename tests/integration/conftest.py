"""Fixtures of the tests that need real programs: each export is made once per session.

Once for all its processes, too: whoever asks first exports, the others wait and share the files.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from etprof.export.exporter import export_model

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.export.request import ExportedFiles, ExportRequest


class Exports:
    """Exports on demand and remembers; a request with its own folder is not shared."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, request: ExportRequest) -> ExportedFiles:
        """The files of `request`; tests copy what they want to change."""
        folder = self._folder / hashlib.sha256(repr(request).encode()).hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        own = replace(request, outdir=folder)
        done = folder.with_suffix(".done")
        with folder.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                export_model(own)
                done.touch()
        return own.files()


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Exports:
    base = tmp_path_factory.getbasetemp()
    # Each process of pytest-xdist has a folder of its own in the session's.
    return Exports((base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "exports")
