"""What a matrix means: the programs to export, and the runs to measure with them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ValidationError

from etprof.base.errors import UsageError
from etprof.bench.matrix import is_program
from etprof.config import Config, MeasurementConfig, TargetConfig
from etprof.export.request import ExportOptions, ExportRequest
from etprof.run.directory import safe_name
from etprof.run.program import find_decode_method, load_export_manifest
from etprof.targets.registry import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from etprof.bench.matrix import DeviceEntry, Matrix, MatrixMeasurement, ModelEntry

_UNTOLD: Final = "unknown"
"""Backend and precision of a program without an export manifest."""


@dataclass(frozen=True)
class ProgramKey:
    """A program, exported once however many devices and methods run it; or there already."""

    model: str
    weights: Path | None
    precision: str
    backend: str

    @property
    def given(self) -> Path | None:
        """The program itself, where nothing is to be exported."""
        return Path(self.model) if is_program(self.model) else None

    def request(self, folder: Path | None = None) -> ExportRequest:
        """Returns what to ask the exporter for."""
        return ExportRequest(
            model=self.model,
            precision=self.precision,
            backend=self.backend,
            outdir=folder,
            options=ExportOptions(weights=self.weights),
        )

    @property
    def label(self) -> str:
        """Name in messages and in file names."""
        if self.given is not None:
            return safe_name(self.given.stem)
        return safe_name(f"{self.request().model_name()}_{self.backend}_{self.precision}")


@dataclass(frozen=True)
class Unit:
    """One run: a program on a device, in all SME modes and thread counts."""

    model: ModelEntry
    precision: str
    backend: str
    device: DeviceEntry
    sme: tuple[str, ...]
    """Empty: what the device can give."""
    threads: tuple[int, ...]
    measurement: MatrixMeasurement

    @property
    def program(self) -> ProgramKey:
        """The program it needs."""
        return ProgramKey(self.model.model, self.model.weights, self.precision, self.backend)

    @property
    def label(self) -> str:
        """Name of its run directory."""
        variant = "pte" if self.program.given else f"{self.backend}_{self.precision}"
        return safe_name(f"{self.model.label}_{variant}")

    @property
    def text(self) -> str:
        """The unit for people."""
        return f"{self.model.label} {self.backend} {self.precision} on {self.device.name}"

    def method(self, program: Path) -> str | None:
        """Returns the method to measure; of a generation, the one that adds a token."""
        generation = self.model.generation
        if generation is None:
            return self.model.method
        return find_decode_method(program, generation.decode_method)

    def run_directory(self, folder: Path) -> Path:
        """Returns where its run is kept in the matrix's folder."""
        return folder / "runs" / self.device.name / self.label

    def identity(self) -> dict[str, object]:
        """Everything that decides what is measured, as JSON; the same run has the same."""
        return {
            "model": self.model.model_dump(mode="json"),
            "precision": self.precision,
            "backend": self.backend,
            "device": self.device.model_dump(mode="json"),
            "sme": list(self.sme),
            "threads": list(self.threads),
            "measurement": self.measurement.model_dump(mode="json"),
        }

    def find_differences(self, before: object) -> list[str]:
        """Names the parts in which another identity, be it an earlier edition's, is not this."""
        identity = before if isinstance(before, dict) else {}
        return [
            name
            for name, now in self.identity().items()
            if _normalised(self, name, identity) != now
        ]

    def without_runners(self) -> Unit:
        """The same on the target's own runners, for a plan that starts none."""
        fields = ("runner", "preset", "trace_runner", "trace_preset", "debugger")
        return replace(self, device=self.device.model_copy(update=dict.fromkeys(fields)))

    def config(self, program: Path, run: Path, modes: Sequence[str]) -> Config:
        """Returns the config that `etprof run` would need for the same run."""
        kind, settings = kind_of(self.device.kind), self.measurement.model_dump(exclude_unset=True)
        shared: dict[str, object] = {"runner": self.device.runner, "preset": self.device.preset}
        shared |= {"cpus": self.device.cpus, "threads": self.threads}
        shared |= self.measurement.repetitions(self.model, is_timed=kind.policy.proves_times)
        names = {*MeasurementConfig.model_fields}
        return Config.model_validate(
            {
                "model": program,
                "output_root": run,
                "method": self.model.method,
                "generation": self.model.generation,
                "target": self.device.model_dump(include={*TargetConfig.model_fields}),
                "experiments": [
                    {"name": f"{kind.name}_{mode}", "sme": mode, **shared} for mode in modes
                ],
                "measurement": {name: settings[name] for name in names & settings.keys()},
            }
        )


def _normalised(unit: Unit, name: str, identity: Mapping[str, object]) -> object:
    """Returns a part of another identity in today's words; None for one that has none."""
    model, was = getattr(unit, name), identity.get(name)
    if not isinstance(model, BaseModel):
        return was
    try:
        return type(model).model_validate(was).model_dump(mode="json")
    except ValidationError:
        return None


@dataclass(frozen=True)
class SkippedCombination:
    """A combination that is not measured, and why."""

    text: str
    reason: str


def expand(matrix: Matrix) -> tuple[list[Unit], list[SkippedCombination]]:
    """Returns every run of the matrix, and what is left out because it cannot be or is excluded."""
    units: list[Unit] = []
    left_out: list[SkippedCombination] = []
    for unit in _all_units(matrix):
        reason = _exclusion_reason(unit, matrix)
        if reason is None:
            units.append(unit)
        else:
            left_out.append(SkippedCombination(unit.text, reason))
    return units, left_out


def _all_units(matrix: Matrix) -> Iterator[Unit]:
    for device in matrix.devices:
        for model in matrix.models:
            for backend, precision in _ways(matrix, model):
                yield Unit(
                    model=model,
                    precision=precision,
                    backend=backend,
                    device=device,
                    sme=matrix.sme,
                    threads=matrix.threads,
                    measurement=matrix.measurement,
                )


def _ways(matrix: Matrix, model: ModelEntry) -> Iterable[tuple[str, str]]:
    """Returns backends with precisions: all of the matrix, or what a given program was made in."""
    if model.program is None:
        return product(matrix.backends, matrix.precisions)
    exported = load_export_manifest(model.program)
    backend, precision = (exported.backend, exported.precision) if exported else (None, None)
    return [(backend or _UNTOLD, precision or _UNTOLD)]


def _exclusion_reason(unit: Unit, matrix: Matrix) -> str | None:
    values = {
        "model": unit.model.name,
        "precision": unit.precision,
        "backend": unit.backend,
        "device": unit.device.name,
    }
    for exclusion in matrix.exclude:
        excluded = exclusion.model_dump(exclude_none=True)
        if excluded and all(values[axis] == value for axis, value in excluded.items()):
            return "excluded"
    if unit.program.given is not None:
        return None
    try:
        unit.program.request().files()
    except UsageError as error:
        return str(error)
    return None
