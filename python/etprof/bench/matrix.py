"""The matrix: which models, precisions, backends, devices, SME modes and threads to measure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Final, TypeVar, get_args

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from etprof.backends.registry import BY_NAME, DEFAULT
from etprof.base.errors import UsageError
from etprof.base.limits import (
    MOST_ENTRIES,
    MOST_LAUNCHES,
    REPETITIONS,
    USUAL_INFERENCES,
    USUAL_WARMUP,
    WARMUP_REPETITIONS,
)
from etprof.base.records import SmeMode
from etprof.base.text import suggest
from etprof.config import (
    EditorSchema,
    GenerationConfig,
    MeasurementConfig,
    PresetName,
    StrictModel,
    TargetConfig,
    Threads,
    WholeModel,
    list_missing,
    names_a_source,
    parse_strictly,
    read_config_text,
)
from etprof.export.request import parse_precision
from etprof.model_registry.registry import find_model
from etprof.run.directory import safe_name
from etprof.run.manifest import Cpus, Inferences, Warmup
from etprof.targets.registry import kind_of


def _accepted_by(check: Callable[[str], object]) -> AfterValidator:
    """Makes a validator of a function that raises UsageError for what it does not know."""

    def validate(name: str, info: ValidationInfo) -> str:
        # The context is the folder that paths are relative to; no other name is a path.
        if info.context is not None and (names_a_source(name) or is_program(name)):
            name = str(info.context / name)
        try:
            check(name)
        except UsageError as error:
            raise ValueError(str(error)) from error
        return name

    return AfterValidator(validate)


def is_program(model: str) -> bool:
    """Whether a model is named by its exported program."""
    return model.endswith(".pte")


def _check_model(name: str) -> None:
    if not is_program(name):
        find_model(name)
    elif not Path(name).is_file():
        raise UsageError(f"program {name} does not exist; `etprof export MODEL` makes one")


def _check_backend(name: str) -> None:
    if name not in BY_NAME:
        raise UsageError(f"no such backend{suggest(name, BY_NAME)}; known: {', '.join(BY_NAME)}")


def _wrap(value: object) -> object:
    """Makes a list of a single value."""
    return value if isinstance(value, list | tuple) else [value]


Item = TypeVar("Item")
Several = Annotated[
    tuple[Item, ...], BeforeValidator(_wrap), Field(min_length=1, max_length=MOST_ENTRIES)
]
Name = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]*$")]
ModelName = Annotated[str, Field(min_length=1), _accepted_by(_check_model)]
PrecisionName = Annotated[str, _accepted_by(parse_precision)]
BackendName = Annotated[str, _accepted_by(_check_backend)]


MOST_RUNS: Final = 10_000
HOST: Final = "host"
"""Name of the device when a matrix has none: the machine it is run on."""


class ModelEntry(StrictModel):
    """A model to export and measure, or a program to measure as it is."""

    model: ModelName = Field(
        description="a name of `etprof models`, file.py:Class, or an exported program.pte"
    )
    method: str | None = Field(None, description="method to measure; default: the program's own")
    weights: Path | None = Field(None, description="a checkpoint of the model")
    generation: GenerationConfig | None = Field(
        None, description="tokens to generate: then each inference is a generation"
    )

    @model_validator(mode="after")
    def _check_generation(self) -> ModelEntry:
        if self.generation is not None and self.method is not None:
            raise ValueError("generation names its own methods, so leave out method")
        if self.weights is not None and self.program is not None:
            raise ValueError("a program has its weights already, so leave out weights")
        return self

    @property
    def program(self) -> Path | None:
        """The program, where that is given; None for a model to export."""
        return Path(self.model) if is_program(self.model) else None

    @property
    def name(self) -> str:
        """Name in files and tables: the registered one, the class's, or the program's."""
        if self.program is not None:
            return self.program.stem
        if self.model.endswith(".pt2"):
            return Path(self.model).stem
        return self.model.rpartition(":")[2] if ":" in self.model else self.model

    @property
    def prompt_length(self) -> int | None:
        """Tokens of the prompt that it reads, where the matrix says; of text and files it does not."""
        if self.generation is None:
            return None
        ids = self.generation.prompt_tokens
        return len(ids) if isinstance(ids, tuple) else self.generation.prompt_length

    @property
    def label(self) -> str:
        """Tells methods of one model apart, and generations by how much they generate."""
        if self.generation is not None:
            length = self.generation.prompt_length
            prompt = "" if length is None else f"_prompt{length}"
            return f"{self.name}{prompt}_generate{self.generation.new_tokens}"
        return self.name if self.method is None else f"{self.name}_{self.method}"


class DeviceEntry(TargetConfig):
    """A device and the runner it gets."""

    name: Name = Field(description="unique; on a cluster, the worker's resource")
    runner: Path | None = Field(
        None,
        validation_alias=AliasChoices("runner_path", "runner"),
        description="runner binary; default: the target's own",
    )
    preset: PresetName | None = Field(None, description="CMake preset whose runner is used")
    cpus: Cpus = Field(
        (),
        validation_alias=AliasChoices("cpu_affinity", "cpus"),
        description='CPUs, as "0-3,6" or a list',
    )

    @property
    def history_name(self) -> str | None:
        """Name in the history; None for an unnamed host, which is called by its CPU."""
        return None if self.name == HOST else self.name

    @property
    def is_on_host(self) -> bool:
        """Whether it computes on the CPU of the host that serves it."""
        return kind_of(self.kind).is_this_host


class Exclusion(StrictModel):
    """Combinations to leave out: those that agree in everything that is given."""

    model: str | None = None
    precision: str | None = None
    backend: str | None = None
    device: str | None = None


class MatrixMeasurement(MeasurementConfig):
    """How to measure; the same everywhere."""

    iterations: Inferences = Field(
        USUAL_INFERENCES,
        validation_alias=AliasChoices("runs", "iterations"),
        description="timed inferences in each launch, or more; by default 3 generations",
    )
    warmup: Warmup = Field(
        USUAL_WARMUP, description="inferences before those; by default 1 generation"
    )

    def repetitions(self, model: ModelEntry, *, is_timed: bool) -> dict[str, int]:
        """Returns iterations and warm-up of a model: where they are not given, by what it does.

        A device that proves no times gets what is given, and says that it has no effect.
        """
        few = {"iterations": REPETITIONS, "warmup": WARMUP_REPETITIONS}
        return {
            name: few[name]
            if model.generation is not None and name not in self.model_fields_set
            else getattr(self, name)
            for name in few
            if is_timed or name in self.model_fields_set
        }


class Matrix(WholeModel):
    """Every combination is measured: one run directory per model, precision, backend, device."""

    editor_schema: EditorSchema = None
    name: Name = "bench"
    output_root: Path | None = Field(None, description="default: out_bench/<name>")
    models: Several[ModelEntry]
    precisions: Several[PrecisionName] = ("fp32",)
    backends: Several[BackendName] = (DEFAULT,)
    devices: Several[DeviceEntry] = (DeviceEntry(name=HOST),)
    sme: tuple[SmeMode, ...] = Field(
        (), max_length=MOST_ENTRIES, description='SME modes; empty or "all": the device\'s own'
    )
    threads: Several[Threads] = (1,)
    exclude: Annotated[tuple[Exclusion, ...], Field(max_length=MOST_ENTRIES)] = ()
    measurement: MatrixMeasurement = MatrixMeasurement()

    @field_validator("models", mode="before")
    @classmethod
    def _accept_names(cls, value: object) -> object:
        wrapped = _wrap(value)
        assert isinstance(wrapped, list | tuple)  # noqa: S101 - narrows the type
        return [{"model": model} if isinstance(model, str) else model for model in wrapped]

    @field_validator("sme", mode="before")
    @classmethod
    def _accept_all_and_switches(cls, value: object) -> object:
        wrapped = [] if value == "all" else _wrap(value)
        assert isinstance(wrapped, list | tuple)  # noqa: S101 - narrows the type
        modes = {"on": "sme2", "True": "sme2", "False": "off"}
        return [modes.get(str(mode), mode) for mode in wrapped]

    def misfits(self) -> list[str]:
        """Says which names are there twice or fit nothing, and what would never end."""
        return [
            *_repeated("models", [safe_name(model.label) for model in self.models]),
            *_clashing_models(self.models),
            *_repeated("precisions", self.precisions),
            *_repeated("backends", self.backends),
            *_repeated("devices", [device.name for device in self.devices]),
            *_repeated("threads", self.threads),
            *_repeated("sme", self.sme),
            *_ambiguous_devices(self.devices),
            *_unknown_exclusions(self),
            *_endless(self),
        ]

    @property
    def folder(self) -> Path:
        """Where everything goes, unless the command line says otherwise."""
        return self.output_root or Path("out_bench", self.name)


def load_matrix(path: Path) -> Matrix:
    """Reads and checks a matrix; raises UsageError that lists every problem with its field."""
    return parse_matrix(read_config_text(path, "etprof bench --init"), str(path), path.parent)


def parse_matrix(text: str, name: str, folder: Path | None = None) -> Matrix:
    """Checks a matrix's text; `name` stands in the messages, paths are relative to `folder`."""
    return parse_strictly(text, name, Matrix, _missing_files, folder)


def _missing_files(matrix: Matrix) -> list[str]:
    """Lists files that the matrix names and that are not there."""
    files = [(f"models.{i}.weights", model.weights) for i, model in enumerate(matrix.models)]
    files += [
        (f"models.{i}.generation.{name}", path)
        for i, model in enumerate(matrix.models)
        if model.generation is not None
        for name, path in model.generation.files()
    ]
    for i, device in enumerate(matrix.devices):
        files.append((f"devices.{i}.runner_path", device.runner))
        files.append((f"devices.{i}.trace_runner", device.trace_runner))
    return list_missing(files)


def _repeated(where: str, names: Sequence[object]) -> list[str]:
    return [f"{where}: {name!r} appears twice" for name in {*names} if names.count(name) > 1]


def _clashing_models(models: Sequence[ModelEntry]) -> list[str]:
    """Finds two models whose programs would get the same name."""
    sources = {(safe_name(m.name), m.model, m.weights) for m in models}
    names = [name for name, *_ in sources]
    return [
        f"models: two different models are called {name!r}; measure them in two matrices"
        for name in sorted({*names})
        if names.count(name) > 1
    ]


def _ambiguous_devices(devices: tuple[DeviceEntry, ...]) -> list[str]:
    """Devices with serials must be told apart by serial or address when there are several."""
    phones = [
        (i, device) for i, device in enumerate(devices) if "serial" in kind_of(device.kind).takes
    ]
    problems = []
    addresses = [device.serial or device.connect for _, device in phones]
    for (i, device), address in zip(phones, addresses, strict=True):
        if address is None and len(phones) > 1:
            problems.append(
                f"devices.{i}: {device.name!r} needs serial or connect: there are several"
            )
        elif address is not None and addresses.count(address) > 1:
            problems.append(f"devices.{i}: {address} appears twice; one entry per device")
    return problems


def _endless(matrix: Matrix) -> list[str]:
    """Says when a matrix is more than anyone can measure."""
    axes = (matrix.models, matrix.precisions, matrix.backends, matrix.devices)
    runs = math.prod(len(axis) for axis in axes)
    experiments = len(matrix.threads) * (len(matrix.sme) or len(get_args(SmeMode)))
    launches = matrix.measurement.blocks * experiments
    problems = []
    if runs > MOST_RUNS:
        problems.append(
            f"models: {runs} combinations of models, precisions, backends and devices; "
            f"at most {MOST_RUNS} are measured at once"
        )
    if launches > MOST_LAUNCHES:
        problems.append(
            f"measurement.blocks: {launches} launches in each run, of all SME modes and "
            f"threads; at most {MOST_LAUNCHES}"
        )
    return problems


def _unknown_exclusions(matrix: Matrix) -> list[str]:
    """Finds exclusions that name what the matrix does not have: most likely a slip."""
    axes = {
        "model": [model.name for model in matrix.models],
        "precision": list(matrix.precisions),
        "backend": list(matrix.backends),
        "device": [device.name for device in matrix.devices],
    }
    return [
        f"exclude.{i}.{axis}: {value!r} is not in the matrix{suggest(value, axes[axis])}"
        for i, exclusion in enumerate(matrix.exclude)
        for axis, value in exclusion.model_dump(exclude_none=True).items()
        if value not in axes[axis]
    ]
