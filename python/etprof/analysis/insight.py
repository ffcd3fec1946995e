"""Joins an experiment's operators with their microkernels and with what the export knows."""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING, Final

from etprof.analysis.roofline import Roofs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from etprof.analysis.roofline import RooflinePoint
    from etprof.analysis.run_analysis import ExperimentAnalysis, RunAnalysis
    from etprof.analysis.split.attribution import Attribution
    from etprof.analysis.split.evidence import KernelUse, OperatorEvidence
    from etprof.analysis.split.operators import OperatorRow
    from etprof.backends.backend import Reason
    from etprof.run.peaks import Peaks

_PARTIAL_READERS: Final = frozenset({"view", "gather and scatter"})
_COARSE_CLOCK_STEPS: Final = 10


@dataclass(frozen=True)
class OperatorDetail:
    """Everything known of one operator."""

    row: OperatorRow
    evidence: OperatorEvidence
    attribution: Attribution | None

    @property
    def why_not_sme2(self) -> Reason | None:
        """Why a convolution or matrix product ran without SME2; None when it ran with it."""
        return self.evidence.why_not_sme2

    @property
    def kernels(self) -> tuple[KernelUse, ...]:
        """KleidiAI microkernels that were called, with calls per inference."""
        return self.evidence.kernels

    @property
    def kernel_hint(self) -> str | None:
        """The microkernel, else the packed type in the name; None when neither is known."""
        computing = self.evidence.compute_kernels
        if computing:
            return ", ".join(kernel.name for kernel in computing)
        if self.evidence.route.answer == "named":
            return f"{' '.join(self.row.data_types)} {self.row.microkernel_type}"
        return None

    @property
    def rates_are_limits(self) -> bool:
        """Whether the clock's step is over a tenth of the time: rates are then at most as given."""
        times, step_ns = self.row.times, self.row.step_ns
        return times is not None and times.median_ns < _COARSE_CLOCK_STEPS * step_ns

    @property
    def gflops(self) -> float | None:
        """Achieved 10⁹ operations a second at the median; a multiply-accumulate is two."""
        macs = self.attribution.macs if self.attribution else None
        return self._per_ns(2 * macs) if macs else None

    @property
    def gigabytes_per_s(self) -> float | None:
        """Bytes of inputs, weights and outputs moved at the median time, in GB/s.

        None for views and look-ups, which need not touch all of their inputs.
        """
        if self.row.operator_class.finer in _PARTIAL_READERS:
            return None
        moved = self.attribution.moved_bytes if self.attribution else None
        return self._per_ns(moved) if moved else None

    @property
    def macs_per_byte(self) -> float | None:
        """Arithmetic intensity: multiply-accumulates for each byte moved, by the export's shapes."""
        attribution = self.attribution
        if attribution is None or not attribution.macs or not attribution.moved_bytes:
            return None
        return attribution.macs / attribution.moved_bytes

    def placed(self, roofs: Roofs | None) -> RooflinePoint | None:
        """Where it lies against the device's peaks; None where bytes, time or peaks are not known."""
        times, attribution = self.row.times, self.attribution
        if roofs is None or times is None or times.median_ns <= 0 or attribution is None:
            return None
        if self.gigabytes_per_s is None or not attribution.moved_bytes:
            return None
        precision = self.row.backend.computes_in(self.row.data_types)
        return roofs.place(
            times, self.row.step_ns, attribution.macs, attribution.moved_bytes, precision
        )

    def _per_ns(self, amount: int) -> float | None:
        times = self.row.times
        return amount / times.median_ns if times and times.median_ns > 0 else None

    @property
    def module_path(self) -> str | None:
        """Path of the module it was traced in; empty for the root."""
        origin = self.attribution.origin if self.attribution else None
        return origin.module_path if origin else None

    @property
    def name(self) -> str:
        """What people look for: the layer, else the label."""
        return self.row.name

    @property
    def source(self) -> str | None:
        """The model's line it comes from, such as `model.py:24`."""
        origin = self.attribution.origin if self.attribution else None
        return str(origin.source) if origin and origin.source else None


@dataclass(frozen=True)
class ExperimentInsight:
    """One experiment with the details of its operators."""

    experiment: ExperimentAnalysis
    details: tuple[OperatorDetail, ...]
    """In the order of the split's rows."""
    has_kernel_trace: bool
    roofs: Roofs | None = None
    """What the device can do at most in this mode at these threads; None where nobody measured."""

    @property
    def sme_unit(self) -> str:
        """What its operators ran on, if they did: SME2, or SME where no more can be said."""
        best = {d.evidence.level for d in self.details if d.evidence.route.answer == "proven"}
        return "SME2" if self.experiment.sme == "sme2" and best <= {"sme2"} else "SME"

    def share(self, details: Iterable[OperatorDetail]) -> float | None:
        """Share of these operators in `Method::execute`; None without times."""
        if self.experiment.split.times is None:
            return None
        return fsum(detail.row.times.share for detail in details if detail.row.times)


@dataclass(frozen=True)
class RunInsight:
    """All experiments of a run with their details."""

    run: RunAnalysis
    experiments: tuple[ExperimentInsight, ...]
    notes: tuple[str, ...]

    def of(self, name: str) -> ExperimentInsight:
        """Returns the experiment of this name."""
        return next(insight for insight in self.experiments if insight.experiment.name == name)


def describe_run(run: RunAnalysis) -> RunInsight:
    """Joins everything that lies beside the run's ETDumps; what is missing becomes a note."""
    experiments = tuple(
        describe_experiment(experiment, run.loaded.peaks) for experiment in run.experiments
    )
    notes = []
    for program in run.loaded.programs:
        if program.report is not None:
            continue
        of = f" of {program.name}" if program.name else ""
        notes.append(
            f"no delegation report{of} found: modules, source lines, MACs and reasons for missing "
            "delegation are not known; export with `etprof export` and keep the artifacts folder"
        )
    if not run.counted:
        notes.append(
            "no kernel trace: microkernels are read from operator names (grade B), not counted; "
            "`etprof profile MODEL --target emulator` counts them"
        )
    return RunInsight(run, experiments, tuple(notes))


def describe_experiment(
    experiment: ExperimentAnalysis, peaks: Peaks | None = None
) -> ExperimentInsight:
    """Joins one experiment's operators with what is known of each."""
    rows = experiment.split.rows
    details = map(OperatorDetail, rows, experiment.evidence, experiment.attributions)
    roofs = Roofs.of(peaks, experiment.sme, experiment.threads)
    return ExperimentInsight(experiment, tuple(details), experiment.counted is not None, roofs)
