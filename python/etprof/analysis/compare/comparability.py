"""Says in what two experiments differ that makes their times unlike, before they are compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from etprof.base.errors import UsageError
from etprof.base.text import clean

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from etprof.analysis.run_analysis import ExperimentAnalysis, RunAnalysis
    from etprof.run.manifest import Manifest


@dataclass(frozen=True)
class Side:
    """One side of a comparison."""

    run: RunAnalysis
    experiment: ExperimentAnalysis
    provenance: Manifest | None

    @property
    def label(self) -> str:
        """How people call it: run directory and experiment."""
        return f"{clean(str(self.run.source))}:{self.experiment.name}"


@dataclass(frozen=True)
class Difference:
    """A setting in which the sides differ."""

    field: str
    baseline: str
    candidate: str

    def __str__(self) -> str:
        return f"{self.field} ({self.baseline} against {self.candidate})"


def _threads(side: Side) -> str | None:
    threads = side.experiment.threads
    return None if threads is None else str(threads)


def _inputs(side: Side) -> str | None:
    """The inputs' hashes, shortened; seeded inputs differ by their seed."""
    inputs = side.experiment.program.inputs
    if side.provenance is None or inputs is None:
        return None
    return " ".join(str(each)[:12] for each in inputs) or f"seed {side.provenance.settings.seed}"


def _device(side: Side) -> str | None:
    provenance = side.provenance
    if provenance is None or provenance.cpu is None:
        return None
    cpu = provenance.cpu
    name = provenance.target.get("model") or provenance.target.get("serial") or ""
    words = [provenance.platform, str(name), cpu.model_name, cpu.architecture]
    return ", ".join(word for word in words if word)


def _profile(side: Side) -> str | None:
    """The power and display settings in force; only Android has profiles of them."""
    if side.provenance is None:
        return None
    if "profile" not in side.provenance.target:
        return "none"
    return str(side.provenance.target["profile"] or "none")


def _cores(side: Side) -> str | None:
    """The cores that the experiment was bound to."""
    planned = side.provenance.experiments if side.provenance else ()
    cpus = next((entry.cpus for entry in planned if entry.name == side.experiment.name), None)
    if cpus is None:
        return None
    return ",".join(map(str, cpus)) or "any"


def _runner(side: Side) -> str | None:
    """Whether times mean anything, and how the runner was built; SME switches may differ."""
    if side.provenance is None or side.provenance.runner is None:
        return None
    build = side.provenance.runner.build
    parts = ("build_type", "provider", "executorch_version", "sanitizers", "trace")
    return ", ".join(f"{name}={build.get(name)}" for name in parts if build.get(name))


def _vector_length(side: Side) -> str | None:
    """The streaming vector length, on which the number of microkernel calls depends."""
    bits = side.experiment.loaded.svl_bits
    return None if bits is None else f"{bits} bits"


def _method(side: Side) -> str | None:
    model = side.experiment.program.model
    return model.method if model else None


FIELDS: Final[dict[str, Callable[[Side], str | None]]] = {
    "threads": _threads,
    "inputs": _inputs,
    "device": _device,
    "profile": _profile,
    "cores": _cores,
    "runner": _runner,
    "method": _method,
    "vector_length": _vector_length,
}


def find_differences(baseline: Side, candidate: Side) -> tuple[Difference, ...]:
    """Lists the settings that are known on both sides and differ."""
    found = []
    for name, read in FIELDS.items():
        before, after = read(baseline), read(candidate)
        if before is not None and after is not None and before != after:
            found.append(Difference(name, before, after))
    return tuple(found)


def run_one_program(baseline: Side, candidate: Side) -> bool:
    """Whether both sides ran the same program, as far as anybody says."""
    one, other = baseline.experiment.program, candidate.experiment.program
    if baseline.run.source == candidate.run.source and one.name == other.name:
        return True
    return (one.model and one.model.content) == (other.model and other.model.content)


def find_unknowns(baseline: Side, candidate: Side) -> tuple[str, ...]:
    """Lists the settings that one side does not tell, and has."""
    return tuple(
        name
        for name, read in FIELDS.items()
        if name != "vector_length" and None in {read(baseline), read(candidate)}
    )


def refuse_unlike(baseline: Side, candidate: Side, allowed: Collection[str]) -> None:
    """Raises UsageError that names every differing setting not in `allowed`."""
    refused = [
        entry for entry in find_differences(baseline, candidate) if entry.field not in allowed
    ]
    if refused:
        flags = " ".join(f"--allow {entry.field}" for entry in refused)
        msg = (
            f"{baseline.label} and {candidate.label} were not measured alike: they differ in "
            f"{'; '.join(map(str, refused))}; measure them alike, or compare all the same with "
            f"{flags}"
        )
        raise UsageError(msg)
