"""Fixtures of the tests that need real programs: each export is made once for the same sources.

Once for all processes and sessions: whoever asks first exports, the others wait and share the files.
They lie under `build/test-exports`, in a folder named by a hash of all that an export is made of.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import time
from dataclasses import replace
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import etprof
from etprof.export.exporter import export_model

if TYPE_CHECKING:
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


ROOT = Path(__file__).parents[2]
SHARED = ROOT / "build" / "test-exports"
LONGEST_SESSION_S = 24 * 3600
"""Exports of earlier sources are kept so long: another session may still read them."""


def hash_sources() -> str:
    """A hash of what an export depends on: the package, the models, and what is installed."""
    folders = (Path(etprof.__file__).parent, ROOT / "models", Path(__file__).parent)
    digest = hashlib.sha256()
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        digest.update(path.read_bytes())
    for installed in sorted(f"{d.name} {d.version}" for d in distributions()):
        digest.update(installed.encode())
    return digest.hexdigest()[:16]


@pytest.fixture(scope="session")
def exports() -> Exports:
    folder = SHARED / hash_sources()
    SHARED.mkdir(parents=True, exist_ok=True)
    with (SHARED / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            for earlier in SHARED.glob("*/"):
                if time.time() - earlier.stat().st_mtime > LONGEST_SESSION_S:
                    shutil.rmtree(earlier)
            folder.mkdir()
    return Exports(folder)
