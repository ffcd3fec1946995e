"""Keeps what a device can do at most, and finds it for a run of the same device."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from etprof.base.atomic import write_json
from etprof.base.errors import OutputError
from etprof.base.records import read_record
from etprof.run.peaks import Peaks
from etprof.targets.emulator.cache import cache_root
from etprof.targets.registry import identify_device

if TYPE_CHECKING:
    from etprof.run.load import Run
    from etprof.run.manifest import Manifest

WAY_OUT = "`etprof calibrate --peaks` measures them again"


def keep_peaks(peaks: Peaks) -> Path:
    """Replaces what was kept of the device; returns the file."""
    path = _peaks_path(peaks.device)
    write_json(path, peaks.model_dump(mode="json"))
    return path


def with_peaks(run: Run, path: Path | None = None) -> Run:
    """Adds what the run's device can do at most, where that was measured, or what `path` says.

    A target that proves no times gets none. Raises InputFileError for a damaged file.
    """
    if not run.is_timed or (path is None and run.manifest is None):
        return run
    if path is None and run.manifest is not None:
        try:
            path = _peaks_path(device_of(run.manifest))
        except OutputError:
            # No place to keep any: not to know them is no reason to show nothing of the run.
            return run
        if not path.is_file():
            return run
    return replace(run, peaks=read_record(Peaks, Path(path or ""), way_out=WAY_OUT))


def device_of(manifest: Manifest) -> str:
    """Names the device of a run as the history does."""
    return identify_device(manifest.platform, manifest.target, manifest.cpu)[1]


def _peaks_path(device: str) -> Path:
    """A file for each name, whatever letters it has."""
    return cache_root() / "peaks" / f"{hashlib.sha256(device.encode()).hexdigest()[:16]}.json"
