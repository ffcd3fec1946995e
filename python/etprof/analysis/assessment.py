"""Everything that reports say of one run, brought together once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from etprof.analysis.compare.pairs import compare_within, has_declared_pairs
from etprof.analysis.findings.rules import ExperimentFindings, evaluate_run
from etprof.analysis.insight import ExperimentInsight, RunInsight, describe_run
from etprof.analysis.output_check import OutputCheck, check_unsplit, describe_mismatches
from etprof.analysis.run_analysis import RunAnalysis, analyze_run
from etprof.analysis.split.tracer_cost import TracerCost, find_tracer_costs
from etprof.base.errors import UsageError
from etprof.base.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.analysis.compare.comparison import Comparison
    from etprof.analysis.findings.finding import Thresholds
    from etprof.run.load import Run


@dataclass(frozen=True)
class Assessment:
    """A run with its details, comparisons and findings."""

    run: RunAnalysis
    insight: RunInsight
    comparisons: tuple[Comparison, ...]
    findings: tuple[ExperimentFindings, ...]
    reference: RunAnalysis | None = None
    """The reference model's run that this one was set beside."""

    @property
    def primary_comparison(self) -> Comparison | None:
        """The comparison that the headline is about, at fewest threads.

        Of two programs where there are, else SME off against SME2; in SME2 where that was measured.
        """
        programs = [c for c in self.comparisons if c.is_of_two_programs]
        by_mode = [c for c in self.comparisons if c.baseline.experiment.sme == "off"]
        of_interest = programs or by_mode
        with_sme2 = [c for c in of_interest if c.candidate.experiment.sme == "sme2"]
        right = [c for c in with_sme2 if not c.wrong and c.outputs_agree]
        # A vector length at which the outputs are wrong is set aside; of the others devices have the longest.
        longest = max((_vector_bits(c) for c in right), default=0)
        with_sme2 = [c for c in right if _vector_bits(c) == longest] or with_sme2
        return next(iter(with_sme2 or of_interest or list(self.comparisons)), None)

    @property
    def are_pairs_declared(self) -> bool:
        """Whether the run's config names the pairs that are compared."""
        return has_declared_pairs(self.run)

    @property
    def primary(self) -> ExperimentInsight:
        """The experiment that the headline is about."""
        comparison = self.primary_comparison
        if comparison is not None:
            return self.insight.of(comparison.candidate.experiment.name)
        if not self.is_split:
            msg = f"{self.run.source} holds no per-operator breakdown: no ETDump was recorded"
            raise UsageError(msg)
        return self.insight.experiments[0]

    @property
    def is_split(self) -> bool:
        """Whether any experiment has a per-operator breakdown; kernels and outputs may be there alone."""
        return bool(self.insight.experiments)

    @property
    def primary_findings(self) -> ExperimentFindings:
        """What the rules say of the experiment that the headline is about; without one, nothing."""
        if not self.is_split:
            return ExperimentFindings(self.run.name, (), (), (), ())
        return self.findings_of(self.primary.experiment.name)

    @cached_property
    def outputs(self) -> tuple[OutputCheck, ...]:
        """Every output that was compared: between experiments, then with the eager model's."""
        between = [check for comparison in self.comparisons for check in comparison.outputs]
        eager = [check for checks in self.run.eager_checks.values() for check in checks]
        return (*between, *check_unsplit(self.run.loaded), *eager)

    @cached_property
    def wrong_outputs(self) -> tuple[str, ...]:
        """What is wrong with the outputs, in words: beside eager's, and between modes of a program.

        Empty where the measurement was told to go on all the same: then every page has a banner.
        """
        manifest = self.run.manifest
        if manifest is not None and manifest.settings.allow_inaccurate:
            return ()
        of_modes = [c.outputs for c in self.comparisons if not c.is_of_two_programs]
        between = [check for checks in of_modes for check in checks]
        differing = describe_mismatches((*between, *check_unsplit(self.run.loaded)))
        return (*(verdict.text for verdict in self.run.wrong), *differing)

    def findings_of(self, name: str) -> ExperimentFindings:
        """Returns what the rules say of one experiment."""
        return next(findings for findings in self.findings if findings.experiment == name)

    @cached_property
    def tracer_costs(self) -> tuple[TracerCost, ...]:
        """What the event tracer itself costs."""
        return find_tracer_costs(self.run)

    @property
    def notes(self) -> tuple[str, ...]:
        """What is missing in this run, and what that costs."""
        return (*self.run.notes, *self.insight.notes)


def _vector_bits(comparison: Comparison) -> int:
    """The candidate's streaming vector length; 0 where nobody says."""
    return comparison.candidate.experiment.loaded.svl_bits or 0


def assess_run(run: RunAnalysis) -> Assessment:
    """Describes, compares and judges `run`; beside MobileNet's, where that was loaded with it."""
    return _assess(describe_run(run), _describe(run.loaded.reference), (), (), None)


def assess_runs(
    sources: Sequence[Run],
    *,
    reference: Run | None = None,
    thresholds: Thresholds | None = None,
) -> tuple[Assessment, ...]:
    """Assesses several runs; those of one model at several precisions are each other's rivals.

    `reference` is another model's run; by default MobileNet's, where it was loaded with them.
    Of runs of several precisions it is set beside those that were measured as it was. Raises
    UsageError for one of another machine or precision than every run's.
    """
    unlike = {id(source): _unlike(source, reference) for source in sources}
    if reference is not None and all(unlike.values()):
        msg = (
            f"--reference {reference.source}: was not measured as {sources[0].source} was "
            f"({clean('; '.join(unlike[id(sources[0])]))}); measure the reference model on the "
            "same machine at the same precision"
        )
        raise UsageError(msg)
    runs, named = [describe_run(analyze_run(source)) for source in sources], _describe(reference)
    return tuple(
        _assess(
            insight,
            (None if unlike[id(source)] else named) or _describe(insight.run.loaded.reference),
            [rival for rival in runs if _are_rivals(insight.run, rival.run)],
            [repeat for repeat in runs if _repeat_each_other(insight.run, repeat.run)],
            thresholds,
        )
        for source, insight in zip(sources, runs, strict=True)
    )


def _unlike(mine: Run, reference: Run | None) -> list[str]:
    """How two runs were not measured alike: it would be told of the model, and is the machine's."""
    if reference is None:
        return []
    if mine.is_timed and not reference.is_timed:
        return ["a target that proves no times against one that does"]
    if reference.manifest is None or mine.manifest is None:
        return []
    kinds = zip(reference.manifest.kind, mine.manifest.kind, strict=True)
    return [f"{theirs} against {ours}" for theirs, ours in kinds if theirs != ours]


def _describe(run: Run | None) -> RunInsight | None:
    return describe_run(analyze_run(run)) if run else None


def _assess(
    insight: RunInsight,
    reference: RunInsight | None,
    rivals: Sequence[RunInsight],
    repeats: Sequence[RunInsight],
    thresholds: Thresholds | None,
) -> Assessment:
    comparisons = compare_within(insight.run)
    return Assessment(
        run=insight.run,
        insight=insight,
        comparisons=comparisons,
        findings=evaluate_run(
            insight,
            comparisons=comparisons,
            reference=reference,
            rivals=rivals,
            repeats=repeats,
            thresholds=thresholds,
        ),
        reference=reference.run if reference else None,
    )


def _repeat_each_other(first: RunAnalysis, second: RunAnalysis) -> bool:
    """Whether both measured the same program on the same platform, in runs of their own."""
    before, after = first.manifest, second.manifest
    return (
        first.source != second.source
        and before is not None
        and after is not None
        and (before.model.content, before.platform) == (after.model.content, after.platform)
    )


def _are_rivals(first: RunAnalysis, second: RunAnalysis) -> bool:
    """Whether both measured the same model on the same platform at different precision."""
    before, after = first.manifest, second.manifest
    return (
        before is not None
        and after is not None
        and (before.model.name, before.platform) == (after.model.name, after.platform)
        and before.model.precision != after.model.precision
    )
