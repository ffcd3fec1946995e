"""Where a run's directory is now: a run directory is known by its manifest, not by its path.

Directories are measured into again, moved aside, and named in histories of other machines.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from etprof.base.files import read_bounded
from etprof.base.json_input import MOST_JSON_BYTES, parse_json
from etprof.run.directory import find_set_aside
from etprof.run.manifest import MANIFEST

if TYPE_CHECKING:
    from etprof.history.schema import Run


@dataclass(frozen=True)
class RunLocation:
    """A run's directory, or why there is none."""

    folder: Path | None
    reason: str = ""
    manifest_sha256: str | None = None
    """Of the manifest that is in the folder."""


def find_run_directory(run: Run) -> RunLocation:
    """Finds the directory that a row was read from, also where `set_aside` has renamed it."""
    if not run.run_path:
        return RunLocation(None, "the run left no run directory")
    stored = Path(run.run_path)
    for folder in (stored, *find_set_aside(stored, run.measured_at)):
        manifest = _read_manifest(folder)
        if manifest is not None and _is_of(manifest, run):
            return RunLocation(folder, manifest_sha256=hashlib.sha256(manifest).hexdigest())
    content = _read_manifest(stored)
    if content is None:
        return RunLocation(None, "its run directory is gone, or on another machine")
    if run.manifest_run_id is not None and _facts(content).get("run_id") == run.manifest_run_id:
        return RunLocation(
            None, "its run directory has changed since; `etprof history add` brings it up to date"
        )
    return RunLocation(None, "its run directory is gone; another run stands in its place")


def _is_of(content: bytes, run: Run) -> bool:
    if run.manifest_sha256 is not None:
        return hashlib.sha256(content).hexdigest() == run.manifest_sha256
    return _is_same_run(_facts(content), run)


def _read_manifest(folder: Path) -> bytes | None:
    try:
        return read_bounded(folder / MANIFEST, MOST_JSON_BYTES)
    except OSError:
        return None


def _facts(content: bytes) -> dict[str, object]:
    try:
        facts = parse_json(content)
    except ValueError:
        return {}
    return facts if isinstance(facts, dict) else {}


def _is_same_run(facts: dict[str, object], run: Run) -> bool:
    """Whether a manifest is of a row whose store did not keep its hash yet (schema 0001)."""
    model = facts.get("model")
    program = run.artefacts.get("program") or {}
    try:
        moment = datetime.fromisoformat(str(facts.get("created_at")))
    except ValueError:
        return False
    return (
        isinstance(model, dict)
        and (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) == run.measured_at
        and model.get("sha256") == program.get("sha256")
    )
