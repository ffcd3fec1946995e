"""manifest.json: who measured what, where and with what, how each launch went, which files it left.

One model writes and reads it. Its last member is the SHA-256 of every byte before that member, so
that no change to it goes unseen; the hashes of all other measured files stand in `files`.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import Field, field_validator

from etprof.base.atomic import json_bytes, write_bytes
from etprof.base.errors import InputFileError
from etprof.base.files import hash_file, read_input
from etprof.base.json_input import MOST_JSON_BYTES, decode_json
from etprof.base.records import CleanData, Count, Name, Named, Record, check_record
from etprof.run.generation import Generation
from etprof.run.runner_result import Cpu, RunnerBuild

if TYPE_CHECKING:
    from collections.abc import Mapping

MANIFEST: Final = "manifest.json"
_SCHEMA_VERSION: Final = 2
_WAY_OUT: Final = "delete it to analyse the ETDumps alone"
_SEAL: Final = re.compile(rb',\n  "checksum": "([0-9a-f]{64})"\n}\n\Z')


class FileIdentity(Record):
    """A file by its content."""

    path: str | None = None
    sha256: Name | None = None
    size_bytes: Count | None = None


def identify(path: Path) -> FileIdentity:
    """Says which file `path` is; raises OSError when it cannot be read."""
    return FileIdentity(path=str(path), sha256=hash_file(path), size_bytes=path.stat().st_size)


class MeasuredModel(FileIdentity):
    """The program that was measured."""

    name: Name
    label: Name | None = None
    method: Name | None = None
    precision: Name | None = None
    backend: Name | None = None


class MeasuredFile(Record):
    """A file of the run as it was when it had been measured."""

    kind: Name | None = None
    """etdump, result, kernels ...; None in manifests of the first schema."""
    sha256: Name
    size_bytes: Count | None = None


class GitState(Record):
    """Where a working tree stands."""

    commit: Name
    branch: Name | None = None
    """None on a detached HEAD of which nobody says what it was checked out for."""
    dirty: bool | None = None
    """Whether tracked files differ from the commit."""


class Experiment(Record):
    """One way of running the model, at one thread count."""

    name: Name
    """Unique in its run."""
    sme: Name = "auto"
    threads: Count = 1
    group: Name = ""
    """Name without thread count: the folder. Empty: the name itself."""
    mode: Literal["timing", "kernel_trace"] = "timing"
    cpus: tuple[int, ...] = ()
    """Cores to be bound to; none: the system chooses."""
    runner: Path | None = None
    launcher: tuple[str, ...] = ()
    extra_arguments: tuple[str, ...] = ()
    iterations: Count = 20
    warmup: Count = 10

    @property
    def folder(self) -> str:
        """Name of the folder that holds the experiment's files."""
        return self.group or self.name


class Settings(Record):
    """How to measure; the same for every experiment of a run."""

    blocks: Count = 10
    min_seconds: float = 0.2
    etdump_iterations: Count = 100
    seed: int = 0
    timeout_s: float = 3600.0
    cool_down_s: float = 0.0
    max_start_temperature_c: float | None = None
    max_wait_s: float = 300.0
    target_half_width: float | None = None
    """Stop early once every experiment's median is known within ± this fraction."""
    budget_s: float | None = None
    """Start no timing launch after this time."""
    generation: Generation | None = None
    """What each iteration generates; None: an iteration is one execution of the method."""
    kernel_trace: bool = False
    """Add an evidence pass to every timing experiment; needs trace runners."""


class LaunchRecord(Record):
    """One process launch as it went."""

    experiment: Name
    purpose: Name
    """timing, etdump or kernel_trace."""
    block: Count | None = None
    started_at: Name
    duration_s: float
    error: Name | None = None
    asked: tuple[str, ...] = ()
    """The flags that the runner was given."""
    runner_sha256: Name | None = None
    """Which of the manifest's `runners` ran."""
    state_before: CleanData | None = None
    state_after: CleanData | None = None
    waited_s: float = 0.0


class Manifest(Record):
    """All that manifest.json says; those of schema 1 have neither run_id nor checksum."""

    schema_version: Literal[1, 2] = _SCHEMA_VERSION
    run_id: Name | None = None
    """Drawn when the run began; a resumed run keeps it."""
    status: Name = "finished"
    created_at: Name | None = None
    updated_at: Name | None = None
    etprof_version: Name | None = None
    command: tuple[str, ...] = ()
    git: GitState | None = None
    """The working tree that was measured in."""
    platform: Name
    times_are_meaningful: bool | None = None
    model: MeasuredModel
    inputs: tuple[FileIdentity, ...] | None = None
    pins: Named[Name | None] = Field(default_factory=dict)
    executorch_revision: Name | None = None
    runner: RunnerBuild | None = None
    """What the runner of the first launch says of itself."""
    runners: tuple[FileIdentity, ...] = ()
    """Every runner that was started."""
    cpu: Cpu | None = None
    target: CleanData = Field(default_factory=dict)
    config: dict[str, Any] | None = None
    settings: Settings = Settings()
    experiments: tuple[Experiment, ...] = ()
    launches: tuple[LaunchRecord, ...] = ()
    notes: tuple[Name, ...] = ()
    files: Named[MeasuredFile] = Field(default_factory=dict)
    checksum: Name | None = None
    """Of all that stands before it."""

    @field_validator("files", mode="before")
    @classmethod
    def _take_bare_hashes(cls, value: object) -> object:
        """Manifests of the first schema have a hash alone for each file."""
        if not isinstance(value, dict):
            return value
        return {
            name: {"sha256": entry} if isinstance(entry, str) else entry
            for name, entry in value.items()
        }

    @property
    def build_type(self) -> str | None:
        """CMake's build type of the runner."""
        value = self.runner.build.get("build_type") if self.runner else None
        return str(value) if value else None


def new_run_id() -> str:
    """Draws the identity of a run."""
    return secrets.token_hex(16)


def save_manifest(run: Path, manifest: Manifest) -> None:
    """Writes manifest.json with its checksum."""
    document = manifest.model_dump(mode="json", exclude={"checksum"})
    write_bytes(run / MANIFEST, seal({**document, "schema_version": _SCHEMA_VERSION}))


def seal(document: Mapping[str, object]) -> bytes:
    """Returns the text of a manifest, with its checksum as the last member."""
    body = json_bytes(document).removesuffix(b"\n}\n")
    digest = hashlib.sha256(body).hexdigest()
    return body + f',\n  "checksum": "{digest}"\n}}\n'.encode()


def load_manifest(run: Path) -> Manifest | None:
    """Reads manifest.json; None when it is not there.

    Raises InputFileError when it is damaged, be it by a bit. Manifests of the first schema have no
    checksum and are read as they are.
    """
    path = run / MANIFEST
    if not path.exists():
        return None
    data = read_input(path, most_bytes=MOST_JSON_BYTES, way_out=_WAY_OUT)
    document = decode_json(data, path, way_out=_WAY_OUT)
    manifest = check_record(Manifest, document, path, way_out=_WAY_OUT)
    if manifest.schema_version != 1:
        _check_seal(data, path)
    return manifest


def _check_seal(data: bytes, path: Path) -> None:
    found = _SEAL.search(data)
    if found is None or hashlib.sha256(data[: found.start()]).hexdigest() != found[1].decode():
        msg = f"{path} is damaged: checksum: it was changed after it had been written; {_WAY_OUT}"
        raise InputFileError(msg)
