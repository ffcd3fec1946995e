"""manifest.json: who measured what, where and with what, how each launch went, which files it left.

One model writes and reads it. Its last member is the SHA-256 of every byte before that member, so
that no change to it goes unseen; the hashes of all other measured files stand in `files`.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AliasChoices,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from etprof.base.atomic import json_bytes, write_bytes
from etprof.base.cpu_list import parse_cpus
from etprof.base.errors import InputFileError
from etprof.base.files import hash_file, read_input
from etprof.base.json_input import MOST_JSON_BYTES, decode_json
from etprof.base.limits import (
    LARGEST_SEED,
    MOST_CPU,
    MOST_ENTRIES,
    MOST_INFERENCES,
    MOST_LAUNCHES,
    MOST_SECONDS,
    MOST_THREADS,
    USUAL_BLOCKS,
    USUAL_OPERATOR_LAUNCHES,
    USUAL_SECONDS,
    USUAL_TIMEOUT_S,
    VectorBits,
)
from etprof.base.records import CleanData, Count, Name, Named, Record, check_record
from etprof.base.text import command_line
from etprof.run.generation import Generation
from etprof.run.runner_result import Cpu, RunnerBuild

MANIFEST: Final = "manifest.json"
_SCHEMA_VERSION: Final = 2
TIMED: Final = "times_are_meaningful"
WAY_OUT: Final = "bring it back from a copy of the run, or measure again"
_OLD_PURPOSES: Final = {
    "etdump": "operators",
    "kernel_trace": "kernels",
    "xnntrace": "kernels",
    "trace": "kernels",
}
"""Words of earlier manifests and configs."""
_SEAL: Final = re.compile(rb',\n  "checksum": "([0-9a-f]{64})"\n}\n\Z')


class FileIdentity(Record):
    """A file by its content."""

    path: str | None = None
    sha256: Name | None = None
    size_bytes: Count | None = None


def identify(path: Path, name: str | None = None) -> FileIdentity:
    """Says which file `path` is, which may be called `name` later; raises OSError if unreadable."""
    name = str(path) if name is None else name
    return FileIdentity(path=name, sha256=hash_file(path), size_bytes=path.stat().st_size)


class MeasuredModel(FileIdentity):
    """The program that was measured."""

    name: Name
    label: Name | None = None
    method: Name | None = None
    precision: Name | None = None
    backend: Name | None = None
    data: FileIdentity | None = None
    """The weights in a file of their own, where the program has them so."""

    @property
    def content(self) -> str | None:
        """The program by its content, weights included; None where it is not known."""
        if self.sha256 is None or self.data is None:
            return self.sha256
        return f"{self.sha256} {self.data.sha256}"


class MeasuredProgram(Record):
    """A program with what it was given."""

    model: MeasuredModel
    inputs: tuple[FileIdentity, ...] | None = None
    """None where not recorded."""


class MeasuredFile(Record):
    """A file of the run as it was when it had been measured."""

    kind: Name | None = None
    """etdump, result, kernels ...; None in manifests of the first schema."""
    sha256: Name
    size_bytes: Count | None = None


class GitState(Record):
    """The commit and state of a working tree."""

    commit: Name
    branch: Name | None = None
    """None on a detached HEAD whose branch is unknown."""
    dirty: bool | None = None
    """Whether tracked files differ from the commit."""


_TODAYS = BeforeValidator(
    lambda purpose: _OLD_PURPOSES.get(purpose, purpose) if isinstance(purpose, str) else purpose
)
Mode = Annotated[Literal["timing", "operators", "kernels", "outputs"], _TODAYS]
"""What an experiment is for."""
Purpose = Annotated[
    Literal["timing", "operators", "kernels", "prefill", "instructions", "outputs"], _TODAYS
]
"""What a launch is for; all but timing have one instrument, or write what was computed. `prefill`
counts microkernels as `kernels` does, of a language model that reads its prompt."""
Warmup = Annotated[int, Field(ge=0, le=MOST_INFERENCES)]
Inferences = Annotated[int, Field(gt=0, le=MOST_INFERENCES)]
Seconds = Annotated[float, Field(gt=0, le=MOST_SECONDS)]
Cpus = Annotated[
    tuple[Annotated[int, Field(ge=0, le=MOST_CPU)], ...],
    BeforeValidator(lambda value: parse_cpus(value) if isinstance(value, str) else value),
    Field(max_length=MOST_CPU + 1),
]


class Setup(Record):
    """How an experiment's processes are launched, at any number of threads."""

    name: Name
    """Unique in its run."""
    program: Name = Field("", description="one of `programs`; default: `model`")
    """Empty: the run's model."""
    sme: Name = Field("auto", validation_alias=AliasChoices("sme", "sme2"))
    mode: Mode = Field(
        "timing", description="timing and what comes with it, or one other purpose alone"
    )
    iterations: Inferences = Field(
        10,
        validation_alias=AliasChoices("runs", "num_runs", "iterations"),
        description="timed inferences in each launch, or more",
    )
    warmup: Warmup = Field(10, description="inferences before those, in the same process")
    warmup_seconds: Seconds | None = Field(None, description="time of the warm-up, or more")
    warmup_steady: bool = Field(
        False, description="warm up until the latencies settle, for at most 10 s more"
    )
    cold_inputs: bool = Field(
        False, description="take the inputs out of the caches before each inference"
    )
    sme_vector_bits: VectorBits | None = Field(
        None, description="emulator: streaming vector length; default: 512, as phones and Macs have"
    )
    cpus: Cpus = Field(
        (),
        validation_alias=AliasChoices("cpu_affinity", "cpus"),
        description='CPUs, as "0-3,6", a hexadecimal mask "0xf0", or a list',
    )
    runner: Path | None = Field(
        None,
        validation_alias=AliasChoices("runner_path", "runner"),
        description="runner binary; default: the target's own",
    )
    launcher: tuple[str, ...] = Field((), description="words before the runner")
    extra_arguments: tuple[str, ...] = Field(
        (),
        validation_alias=AliasChoices("extra_args", "extra_arguments"),
        description="further flags for the runner",
    )


class Experiment(Setup):
    """One way of running the model, at one thread count."""

    threads: Count = 1
    group: Name = ""
    """Name without thread count: the folder. Empty: the name itself."""

    @property
    def folder(self) -> str:
        """Name of the folder that holds the experiment's files."""
        return self.group or self.name


class Measurement(Record):
    """How to measure; the same for all experiments, or they could not be compared."""

    blocks: Annotated[int, Field(ge=0, le=MOST_LAUNCHES)] = Field(
        USUAL_BLOCKS, description="process launches of each experiment"
    )
    min_seconds: Seconds = Field(
        USUAL_SECONDS, description="time of the timed inferences in each launch, or more"
    )
    operator_iterations: Inferences = Field(
        100,
        validation_alias=AliasChoices("etdump_runs", "operator_iterations", "etdump_iterations"),
        description="inferences of the per-operator breakdown, in all its launches together",
    )
    operator_launches: Annotated[int, Field(gt=0, le=MOST_LAUNCHES)] = Field(
        USUAL_OPERATOR_LAUNCHES,
        description="process launches of the per-operator breakdown of each experiment; one where the "
        "target proves no times",
    )
    kernels: bool | None = Field(
        None,
        validation_alias=AliasChoices("kernels", "kernel_trace"),
        description="count microkernels, in a launch of its own; default: where SME is measured "
        "and a runner that counts is there",
    )
    instructions: bool = Field(
        False,
        description="count the instructions of each operator, in a launch of its own with one "
        "thread; emulator only",
    )
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] = 0
    timeout_s: Seconds = float(USUAL_TIMEOUT_S)
    cool_down_s: Annotated[float, Field(ge=0, le=MOST_SECONDS)] = Field(
        0.0, description="pause after each launch"
    )
    max_start_temperature_c: Annotated[float, Field(gt=0)] | None = Field(
        None, description="wait before each launch until the hottest sensor is below"
    )
    max_wait_s: Seconds = Field(300.0, description="longest such wait")
    target_half_width: Annotated[float, Field(gt=0)] | None = Field(
        None, description="stop early when every interval is within ± this fraction"
    )
    budget_s: Seconds | None = Field(None, description="start no timing launch after this time")
    allow_inaccurate: bool = Field(
        False, description="measure a program whose outputs are wrong; every report says so"
    )


class Settings(Measurement):
    """The same, with what each iteration is."""

    generation: Generation | None = None
    """Tokens to generate; None: an iteration is one execution of the method."""


class _ConfigSection(Record):
    """Part of a config that people write: a field that nobody knows is an error."""

    model_config = ConfigDict(extra="forbid")


class ComparedSide(_ConfigSection):
    """One side of a comparison; a bare name stands for it."""

    experiment: Name
    threads: Annotated[int, Field(gt=0, le=MOST_THREADS)] | None = None

    @model_validator(mode="before")
    @classmethod
    def _accept_a_name(cls, value: object) -> object:
        return {"experiment": value} if isinstance(value, str) else value


class ComparedPair(_ConfigSection):
    """A comparison: baseline against candidate."""

    baseline: ComparedSide
    candidate: ComparedSide
    label: str | None = None


class ComparisonSettings(_ConfigSection):
    """What to compare, and how small a difference does not matter: the config's `analysis`."""

    compare_pairs: Annotated[tuple[ComparedPair, ...], Field(max_length=MOST_ENTRIES)] = ()
    margin: Annotated[float, Field(gt=0, lt=1)] = 0.02


class LaunchRecord(Record):
    """One process launch as it went."""

    experiment: Name
    purpose: Purpose
    block: Count | None = None
    """Its number among the timing or the operator launches; others are one."""
    started_at: Name | None = None
    duration_s: float | None = None
    """None, as the start, of launches of another program that does not say."""
    error: Name | None = None
    asked: tuple[str, ...] = ()
    """The flags that the runner was given."""
    runner_sha256: Name | None = None
    """Which of the manifest's `runners` ran."""
    state_before: CleanData | None = None
    state_after: CleanData | None = None
    waited_s: float = 0.0
    layout_shift_bytes: tuple[Count, Count] | None = None
    """By how many bytes heap and stack were moved, drawn at random; None where nothing is timed."""

    @model_validator(mode="before")
    @classmethod
    def _number_the_only_split(cls, value: object) -> object:
        """Runs up to etprof 0.2.0 have one operator launch, without a number."""
        if not isinstance(value, dict) or value.get("block") is not None:
            return value
        purpose = value.get("purpose")
        is_split = isinstance(purpose, str) and _OLD_PURPOSES.get(purpose, purpose) == "operators"
        return {**value, "block": 0} if is_split else value


class MeasuringSession(Record):
    """A process of etprof that measured."""

    created_at: Name | None = None
    etprof_version: Name | None = None
    command: tuple[str, ...] = ()
    git: GitState | None = None
    """The working tree that was measured in."""
    pins: Named[Name | None] = Field(default_factory=dict)
    """Versions of what programs are made with."""


class ImportedFile(FileIdentity):
    """A file that another program left, and what it was taken for."""

    kind: Name


class ImportSource(Record):
    """Where an imported run came from."""

    sources: tuple[ImportedFile, ...]
    ns_per_tick: Annotated[float, Field(gt=0, le=1e12)] | None = None
    """Of the clock that the ETDumps' stamps are of; None without an ETDump."""
    clock: Name | None = None
    """That clock in words, and how it is known; None without an ETDump."""


class Manifest(MeasuringSession):
    """All that manifest.json says, first of the session that began the run.

    Those of schema 1 have neither run_id nor checksum.
    """

    schema_version: Literal[1, 2] = _SCHEMA_VERSION
    run_id: Name | None = None
    """Drawn when the run began; a resumed run keeps it."""
    status: Name = "finished"
    resumptions: tuple[MeasuringSession, ...] = ()
    """The sessions that continued the run, one after the other."""
    platform: Name
    times_are_meaningful: bool | None = None
    model: MeasuredModel
    inputs: tuple[FileIdentity, ...] | None = None
    programs: Named[MeasuredProgram] = Field(default_factory=dict)
    """Further programs, measured in turns with `model`, by the name that experiments have for them."""
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
    imported: ImportSource | None = None
    """None for what etprof measured itself."""
    files: Named[MeasuredFile] = Field(default_factory=dict)
    checksum: Name | None = None
    """Of all content before it."""

    @model_validator(mode="before")
    @classmethod
    def _know_emulated_times(cls, value: object) -> object:
        return {**value, TIMED: False} if isinstance(value, dict) and is_untimed(value) else value

    @field_validator("files", mode="before")
    @classmethod
    def _take_bare_hashes(cls, value: object) -> object:
        """Manifests of the first schema have a hash alone for each file."""
        if not isinstance(value, dict):
            return value
        return {
            name: {"sha256": file} if isinstance(file, str) else file
            for name, file in value.items()
        }

    @model_validator(mode="after")
    def _check_programs(self) -> Manifest:
        for experiment in self.experiments:
            if experiment.program not in self.every_program:
                raise ValueError(
                    f"experiment {experiment.name} runs {experiment.program!r}, not in programs"
                )
        return self

    @property
    def every_program(self) -> dict[str, MeasuredProgram]:
        """All that was measured, by the experiments' names for it; `model` first, without a name."""
        return {"": MeasuredProgram(model=self.model, inputs=self.inputs), **self.programs}

    @property
    def has_lost_its_seal(self) -> bool:
        """Whether it says that it is of schema 1, and what only a later one says."""
        if self.schema_version != 1:
            return False
        later = {"run_id", "checksum", "runners", "resumptions"} & self.model_fields_set
        has_kinds = any(file.kind is not None for file in self.files.values())
        of_launches = [
            {"asked", "runner_sha256"} & launch.model_fields_set for launch in self.launches
        ]
        return bool(later) or has_kinds or any(of_launches)

    @property
    def kind(self) -> tuple[object, ...]:
        """What runs must have in common to be set beside each other: machine and precision."""
        cpu = self.cpu and (self.cpu.model_name, self.cpu.architecture)
        return self.platform, cpu, self.model.precision

    @property
    def build_type(self) -> str | None:
        """CMake's build type of the runner."""
        value = self.runner.build.get("build_type") if self.runner else None
        return str(value) if value else None


def resume_hint(manifest: Manifest, run: Path) -> str:
    """Says which command continues the run: that which has its config."""
    config = manifest.config or {}
    if "unit" in config:
        return "`etprof bench MATRIX --resume` continues it"
    if isinstance(config.get("content"), dict):
        command = command_line("run", "--from-manifest", run, "--resume")
        return f"`{command}` continues it"
    return "measure again: nobody knows its config"


def new_run_id() -> str:
    """Draws the identity of a run."""
    return secrets.token_hex(16)


def save_manifest(run: Path, manifest: Manifest) -> None:
    """Writes manifest.json with its checksum."""
    document = manifest.model_dump(mode="json", exclude={"checksum"})
    del document["schema_version"]
    write_bytes(run / MANIFEST, seal({"schema_version": _SCHEMA_VERSION, **document}))


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
    return parse_manifest(read_input(path, most_bytes=MOST_JSON_BYTES, way_out=WAY_OUT), path)


def parse_manifest(data: bytes | None, path: Path) -> Manifest | None:
    """Checks what was read from `path`, as `load_manifest` does."""
    if data is None:
        return None
    document = decode_json(data, path, way_out=WAY_OUT)
    manifest = check_record(Manifest, document, path, way_out=WAY_OUT)
    if manifest.schema_version != 1 or manifest.has_lost_its_seal:
        _check_seal(data, path)
    return manifest


def is_untimed(document: Mapping[str, object]) -> bool:
    """Whether a manifest.json or metrics.json, not checked yet, says that no time counts.

    Manifests of schema 1 may have no flag; of the targets it knew, the emulator alone proved none.
    """
    is_emulated = document.get("schema_version") == 1 and document.get("platform") == "emulator"
    return is_emulated or document.get(TIMED) is False


def _check_seal(data: bytes, path: Path) -> None:
    match = _SEAL.search(data)
    if match is None or hashlib.sha256(data[: match.start()]).hexdigest() != match[1].decode():
        msg = f"{path} is damaged: checksum: it was changed after it had been written; {WAY_OUT}"
        raise InputFileError(msg)
