"""Says in what two experiments differ that makes their times unlike, before they are compared."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Final

from etprof.analysis.launch_state import load_average
from etprof.base.errors import UsageError
from etprof.base.text import as_operand, clean, command_line, join_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from etprof.analysis.run_analysis import ExperimentAnalysis, RunAnalysis
    from etprof.run.directory import ExperimentMetrics
    from etprof.run.manifest import Experiment, LaunchRecord, Manifest


@dataclass(frozen=True)
class Side:
    """One side of a comparison."""

    run: RunAnalysis
    experiment: ExperimentAnalysis
    provenance: Manifest | None
    repeats: tuple[Side, ...] = ()
    """Further runs of the same thing."""

    @property
    def planned(self) -> Experiment | None:
        """What was asked of the experiment; None where no manifest says so."""
        experiments = self.provenance.experiments if self.provenance else ()
        return next((plan for plan in experiments if plan.name == self.experiment.name), None)

    @property
    def runs(self) -> tuple[Side, ...]:
        """The side in each of its runs."""
        return (self, *self.repeats)

    @property
    def timed(self) -> list[ExperimentMetrics]:
        """What each of its runs measured without tracer."""
        return [m for side in self.runs if (m := side.experiment.metrics) is not None and m.blocks]

    @property
    def moments(self) -> list[str]:
        """When each of its runs began, as ISO 8601; empty where that is not known."""
        return [(side.provenance and side.provenance.created_at) or "" for side in self.runs]

    @property
    def label(self) -> str:
        """How people call it: run directory and experiment."""
        return f"{clean(str(self.run.source))}:{self.experiment.name}"


@dataclass(frozen=True)
class SettingDifference:
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
    return (
        " ".join(str(digest)[:12] for digest in inputs) or f"seed {side.provenance.settings.seed}"
    )


def _device(side: Side) -> str | None:
    provenance = side.provenance
    if provenance is None or provenance.cpu is None:
        return None
    cpu = provenance.cpu
    name = provenance.target.get("model") or provenance.target.get("serial") or ""
    facts = [provenance.platform, str(name), cpu.model_name, cpu.architecture]
    return ", ".join(fact for fact in facts if fact)


def _profile(side: Side) -> str | None:
    """The power and display settings in force; only Android has profiles of them."""
    if side.provenance is None:
        return None
    if "profile" not in side.provenance.target:
        return "none"
    return str(side.provenance.target["profile"] or "none")


def _cores(side: Side) -> str | None:
    """The cores that the experiment was bound to."""
    planned = side.planned
    return None if planned is None else ",".join(map(str, planned.cpus)) or "any"


def _warmup(side: Side) -> str | None:
    """What a launch does before it is timed."""
    planned = side.planned
    if planned is None:
        return None
    steps = [f"{planned.warmup} inferences"]
    if planned.warmup_seconds is not None:
        steps.append(f"{planned.warmup_seconds:g} s")
    return join_names([*steps, *(["until steady"] if planned.warmup_steady else [])])


def _iterations(side: Side) -> str | None:
    planned = side.planned
    return None if planned is None else f"{planned.iterations}"


def _minimum_time(side: Side) -> str | None:
    return f"{side.provenance.settings.min_seconds:g} s" if side.provenance else None


def _blocks(side: Side) -> str | None:
    return f"{side.provenance.settings.blocks}" if side.provenance else None


def _launches(side: Side) -> list[LaunchRecord]:
    launches = side.provenance.launches if side.provenance else ()
    name = side.experiment.name
    return [
        launch for launch in launches if launch.experiment == name and launch.purpose == "timing"
    ]


def _load(side: Side) -> str | None:
    """Whether more wanted to run than the machine has cores, in half of the launches or more."""
    cores = side.provenance.cpu.logical_cores if side.provenance and side.provenance.cpu else None
    averages = [load_average(launch.state_before or {}) for launch in _launches(side)]
    recorded = [load for load in averages if load is not None]
    if not recorded or not cores:
        return None
    return "more than its cores" if median(recorded) > _OVERLOADED * cores else "free cores"


def _governor(side: Side) -> str | None:
    """What chose the cores' frequencies."""
    governors = {str(launch.state_before["governor"]) for launch in _launches(side)
             if launch.state_before and launch.state_before.get("governor")}  # fmt: skip
    return join_names(sorted(governors)) or None


def _runner(side: Side) -> str | None:
    """Whether times mean anything, and how the runner was built; SME switches may differ."""
    if side.provenance is None or side.provenance.runner is None:
        return None
    build = side.provenance.runner.build
    fields = ("build_type", "provider", "executorch_version", "sanitizers", "trace")
    return ", ".join(f"{name}={build.get(name)}" for name in fields if build.get(name))


def _vector_length(side: Side) -> str | None:
    """The streaming vector length, on which the number of microkernel calls depends."""
    bits = side.experiment.loaded.svl_bits
    return None if bits is None else f"{bits} bits"


def _method(side: Side) -> str | None:
    model = side.experiment.program.model
    return model.method if model else None


def _address_randomization(side: Side) -> str | None:
    """Whether the system lays processes at random addresses; only this host as a target tells."""
    state = side.provenance.target.get("address_randomization") if side.provenance else None
    return str(state) if state else None


FIELDS: Final[dict[str, Callable[[Side], str | None]]] = {
    "threads": _threads,
    "inputs": _inputs,
    "device": _device,
    "profile": _profile,
    "cores": _cores,
    "runner": _runner,
    "method": _method,
    "vector_length": _vector_length,
    "warmup": _warmup,
    "iterations": _iterations,
    "minimum_time": _minimum_time,
    "blocks": _blocks,
    "load": _load,
    "governor": _governor,
    "address_randomization": _address_randomization,
}
_OVERLOADED: Final = 1.5
"""Load average beside the number of cores: a run that follows another one stays below."""
_SAME_WITHIN_A_RUN: Final = frozenset({"load", "governor", "minimum_time", "blocks"})


def find_differences(baseline: Side, candidate: Side) -> tuple[SettingDifference, ...]:
    """Lists the settings that are known on both sides and differ."""
    differences = []
    are_given_alike = baseline.experiment.program.has_same_inputs(candidate.experiment.program)
    for name, setting_of in FIELDS.items():
        before, after = setting_of(baseline), setting_of(candidate)
        if before is None or after is None or (name == "inputs" and are_given_alike):
            continue
        if before != after:
            differences.append(SettingDifference(name, before, after))
    return tuple(differences)


def run_one_program(baseline: Side, candidate: Side) -> bool:
    """Whether both sides ran the same program, as far as anybody says."""
    old, new = baseline.experiment.program, candidate.experiment.program
    if baseline.run.source == candidate.run.source and old.name == new.name:
        return True
    return (old.model and old.model.content) == (new.model and new.model.content)


def find_unknowns(baseline: Side, candidate: Side) -> tuple[str, ...]:
    """Lists the settings that one side does not tell, and has."""
    ignored = {"vector_length", "address_randomization"}
    if baseline.run.source == candidate.run.source:
        ignored |= _SAME_WITHIN_A_RUN
    return tuple(
        name
        for name, setting_of in FIELDS.items()
        if name not in ignored and None in {setting_of(baseline), setting_of(candidate)}
    )


def _of_model(side: Side, name: str) -> str | None:
    text: str | None = getattr(side.experiment.program.model, name, None)
    return text


def names_of(baseline: Side, candidate: Side) -> tuple[str, str]:
    """Names two sides by the first thing in which they differ, experiments before all else."""
    facts: tuple[Callable[[Side], str | None], ...] = (
        lambda side: side.experiment.name,
        lambda side: _of_model(side, "name"),
        lambda side: _of_model(side, "precision"),
        lambda side: _of_model(side, "backend"),
        lambda side: clean(side.run.source.name),
        lambda side: side.label,
    )
    for fact_of in facts:
        before, after = fact_of(baseline), fact_of(candidate)
        if before and after and before != after:
            return before, after
    return baseline.experiment.name, candidate.experiment.name


def refuse_unlike(baseline: Side, candidate: Side, allowed: Collection[str]) -> None:
    """Raises UsageError that names every differing setting not in `allowed`."""
    refused = [
        difference
        for difference in find_differences(baseline, candidate)
        if difference.field not in allowed
    ]
    if refused:
        flags = " ".join(f"--allow {difference.field}" for difference in refused)
        conditions = "; ".join(map(str, refused))
        before, after = (_of_model(side, "name") for side in (baseline, candidate))
        if before and after and before != after:
            reference, subject = (
                as_operand(clean(str(side.run.source))) for side in (baseline, candidate)
            )
            command = command_line("report", subject, "--reference", reference)
            raise UsageError(
                f"{before} and {after} are different models: set one beside the other with `{command}`, or "
                f"compare them as versions of one, with {flags}; {baseline.label} and {candidate.label} differ "
                f"in {conditions}"
            )
        raise UsageError(
            f"{baseline.label} and {candidate.label} were measured under different conditions: they differ in "
            f"{conditions}; measure them under the same conditions, or compare them anyway with {flags}"
        )
