"""What manifest.json says of a run beyond what reading needs: who, what, where, with what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pydantic import Field

from etprof.base.json_input import read_json
from etprof.base.records import CleanData, Name, Named, Record, read_record
from etprof.base.text import clean_data
from etprof.run.directory import MANIFEST, ManifestExperiment
from etprof.run.runner_result import Cpu, RunnerBuild

if TYPE_CHECKING:
    from pathlib import Path

_WAY_OUT: Final = "delete it to analyse the ETDumps alone"


class FileIdentity(Record):
    """A file by its content."""

    path: str | None = None
    sha256: Name | None = None
    size_bytes: int | None = None


class MeasuredModel(FileIdentity):
    """The program that was measured."""

    name: Name
    precision: Name | None = None
    backend: Name | None = None
    method: Name | None = None


class Provenance(Record):
    """The facts of a run that comparisons and findings ask for; all may be missing."""

    created_at: Name | None = None
    etprof_version: Name | None = None
    platform: Name | None = None
    model: MeasuredModel | None = None
    inputs: tuple[FileIdentity, ...] | None = None
    pins: Named[Name | None] = Field(default_factory=dict)
    runner: RunnerBuild | None = None
    cpu: Cpu | None = None
    target: CleanData = Field(default_factory=dict)
    settings: CleanData = Field(default_factory=dict)
    experiments: tuple[ManifestExperiment, ...] = ()

    @property
    def build_type(self) -> str | None:
        """CMake's build type of the runner."""
        value = self.runner.build.get("build_type") if self.runner else None
        return str(value) if value else None


def load_provenance(source: Path) -> Provenance | None:
    """Reads the manifest of a run directory; None for anything without one."""
    path = source / MANIFEST
    if not path.is_file():
        return None
    return read_record(Provenance, path, way_out=_WAY_OUT)


def load_manifest_document(source: Path) -> dict[str, Any] | None:
    """Returns the whole manifest as JSON data to show, checked before by `load_provenance`."""
    path = source / MANIFEST
    if not path.is_file():
        return None
    document: dict[str, Any] = clean_data(read_json(path, way_out=_WAY_OUT))
    return document
