"""Finds a run of MobileNet beside a run, to set the latter beside: same place, device, precision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.base.errors import InputFileError
from etprof.run.directory import find_etdumps, load_metrics, runs_folder
from etprof.run.manifest import load_manifest

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.analysis.run_analysis import RunAnalysis
    from etprof.run.manifest import Manifest

REFERENCE_MODELS: Final = ("mobilenet_v2", "mobilenet_v3_small")
"""Models of known shape, nearly all convolution and matrix product; the first that is there counts."""


def find_reference_run(run: RunAnalysis) -> Path | None:
    """Returns the run of a reference model that was measured as `run` was; None without one.

    Runs stand in out_<model>/runs/<platform>, so it is looked for beside the run's own model.
    """
    mine = run.manifest
    if mine is None or mine.model.name in REFERENCE_MODELS or not run.times_are_meaningful:
        return None
    source = run.source.resolve()
    if source.parent.name != "runs":
        return None
    root = source.parents[2]
    places = (runs_folder(model, source.name, root=root) for model in REFERENCE_MODELS)
    return next((place for place in places if _is_like(place, mine)), None)


def _is_like(place: Path, mine: Manifest) -> bool:
    """Whether a run is there, sound, and of the same device and precision."""
    try:
        theirs, metrics = load_manifest(place), load_metrics(place)
    except InputFileError:
        # A damaged reference is none: nobody asked for it by name.
        return False
    return (
        theirs is not None
        and metrics is not None
        and metrics.times_are_meaningful
        and bool(find_etdumps(place))
        and _kind(theirs) == _kind(mine)
    )


def _kind(manifest: Manifest) -> tuple[object, ...]:
    cpu = manifest.cpu
    return (
        manifest.platform,
        cpu and (cpu.model_name, cpu.architecture),
        manifest.model.precision,
    )
