"""One program that was tried: what it was made with, what its export says, whether it is better.

The figures of an export rank coverage of SME2 and what is left outside the delegate; none of them
is a time. What a target proved stands beside them: counted kernels, or a gain in time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from etprof.base.records import Count, Name, Record
from etprof.run.program import AppliedRewrite
from etprof.statistics.effect import Verdict
from etprof.statistics.order_statistics import CONFIDENCE, Interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.run.delegation import DelegationReport, MethodReport, MethodSummary
    from etprof.run.program import ExportManifest

_SAME_SHARE: Final = 0.001
"""Of the model's multiply-accumulates: a tenth of a point is no reason for a rewrite."""
_SMALL_SHARE: Final = 0.01
"""Of the same: a point is no reason to leave operators outside the delegate."""
_SAME_SIZE: Final = 0.01
"""Of the program's bytes."""
FLOAT_LAYERS: Final = "float_layers"
"""The change of precision, by the name that it has among rewrites."""


class KernelCounts(Record):
    """What one target counted of a program, and what came out in each of its SME modes."""

    sme2_calls: Count
    """Of microkernels that compute, in one inference of each method."""
    macs_on_sme2: Count
    """Multiply-accumulates of the operators whose SME2 microkernels were counted."""
    worst_mode: Name | None = None
    """The SME mode whose outputs are farthest from eager float32."""
    snr_db: float | None = None
    """There; None without any error."""
    problem: Name | None = None
    """Which mode's outputs are wrong, and how; None where all hold."""


class Gain(Record):
    """A program's speedup over another, from interleaved launches of both."""

    method: Name
    sme: Name
    pairs: Count
    """Blocks of launches."""
    speed_up: float
    """Latency of the other ÷ its own."""
    low: float | None = None
    """Ends of the 95 % interval; None below six blocks."""
    high: float | None = None
    verdict: Verdict
    run: Name
    """The run's folder, beside the file."""
    problem: Name | None = None
    """That its outputs are wrong there, while the other's hold."""

    @property
    def interval(self) -> Interval | None:
        """Both ends."""
        if self.low is None or self.high is None:
            return None
        return Interval(self.low, self.high, CONFIDENCE)


class Trial(Record):
    """A program, by the rewrites that were asked for."""

    number: Count = 0
    """Its place among the trials of a search."""
    rewrites: tuple[Name, ...]
    float_layers: tuple[Name, ...] = ()
    """Paths of modules that compute in float32, where FLOAT_LAYERS is among the rewrites."""
    exclusions: tuple[Name, ...] = ()
    """Modules that a rewrite leaves as they are, such as `spelled_norms=encoder.1`."""
    sha256: Name | None = None
    """Of the program."""
    methods: tuple[Name, ...] = ()
    applied: tuple[AppliedRewrite, ...] = ()
    macs: Count = 0
    macs_without_sme2: Count | None = None
    """Predicted; None where a delegate's node has no prediction."""
    delegate_calls: Count = 0
    outside: Count = 0
    """Calls of portable kernels."""
    transposes: Count | None = None
    """Inside delegates; None in records of searches before they were counted."""
    size_bytes: Count = 0
    planned_bytes: Count | None = None
    """Of tensors outside delegates, in all arenas of all methods."""
    snr_db: float | None = None
    """The least of all outputs against eager float32; None where they are equal, or nothing ran."""
    spare_db: float | None = None
    """How far the outputs are above what the precision is held to, the nearest of them; None where
    they are equal, nothing ran, or an earlier etprof did not say."""
    losses_db: tuple[float, ...] | None = None
    """By how much it is further from eager than the plain program, input by input; empty where the
    example's inputs alone say it, None where nobody asked."""
    passed: bool = False
    problem: Name | None = None
    """Why there is no such program."""
    counted: KernelCounts | None = None
    """On a target that counts; None where nothing did."""

    @property
    def choice(self) -> tuple[str, ...]:
        """What it was made with, apart from its layers in float32: rewrites, and what they leave."""
        return (*self.rewrites, *self.exclusions)

    def is_as_predicted(self) -> bool:
        """Whether its share on SME2 was counted as predicted, and every SME mode is right."""
        if self.counted is None or self.counted.problem or self.macs_without_sme2 is None:
            return False
        counted_without_sme2 = self.macs - self.counted.macs_on_sme2
        return abs(counted_without_sme2 - self.macs_without_sme2) <= _SAME_SHARE * self.macs

    def sme2_share(self, macs: int) -> float | None:
        """Returns the share of the original model's `macs` that are on SME2: counted, or predicted.

        What a rewrite adds cannot raise it: work without SME2 counts against the original's.
        """
        without = self.macs_without_sme2
        if self.counted is not None:
            without = max(0, self.macs - self.counted.macs_on_sme2)
        return max(0.0, 1 - without / macs) if without is not None and macs else None

    def without_idle(self) -> Trial:
        """Returns the same program by those rewrites alone that found something to change."""
        applied = {rewrite.name for rewrite in self.applied}
        names = tuple(name for name in self.rewrites if name in applied)
        exclusions = exclusions_of(names, self.exclusions)
        return self.model_copy(update={"rewrites": names, "exclusions": exclusions})


def exclusions_of(names: Sequence[str], exclusions: Sequence[str]) -> tuple[str, ...]:
    """Returns the exclusions, such as `spelled_norms=encoder.1`, that are about one of `names`."""
    return tuple(text for text in exclusions if text.partition("=")[0] in names)


def describe_trial(
    requested: Trial, manifest: ExportManifest, report: DelegationReport, size_bytes: int
) -> Trial:
    """Returns the trial that was asked for as an export's own files tell of it."""
    summaries = [method.summary for method in report.methods.values() if method.summary is not None]
    without = [_macs_without_sme2(summary) for summary in summaries]
    checks = [method.check for method in manifest.methods.values() if method.check is not None]
    ratios = [output.snr_db for check in checks for output in check.outputs]
    spares = [
        output.snr_db - check.floors.snr_db
        for check in checks
        if check.floors is not None
        for output in check.outputs
        if output.snr_db is not None
    ]
    layers = requested.float_layers
    mixed = (AppliedRewrite(name=FLOAT_LAYERS, operators=len(layers)),) if layers else ()
    return Trial(
        number=requested.number,
        rewrites=requested.rewrites,
        float_layers=layers,
        exclusions=requested.exclusions,
        sha256=None if manifest.pte is None else manifest.pte.sha256,
        methods=tuple(manifest.methods),
        applied=(*mixed, *manifest.rewrites),
        macs=sum(summary.macs for summary in summaries),
        macs_without_sme2=None if None in without else sum(macs or 0 for macs in without),
        delegate_calls=sum(summary.delegate_calls for summary in summaries),
        outside=sum(summary.undelegated_operators for summary in summaries),
        transposes=sum(map(_count_transposes, report.methods.values())),
        size_bytes=size_bytes,
        planned_bytes=sum(
            sum(method.memory.arena_bytes) for method in report.methods.values() if method.memory
        ),
        snr_db=min((ratio for ratio in ratios if ratio is not None), default=None),
        spare_db=min(spares, default=None),
        passed=bool(checks) and all(check.passed is True for check in checks),
    )


def _count_transposes(method: MethodReport) -> int:
    nodes = (node for delegate in method.delegates for node in delegate.nodes)
    return sum(node.permutation is not None for node in nodes)


def _macs_without_sme2(summary: MethodSummary) -> int | None:
    if not summary.macs:
        return 0
    share = summary.predicted_sme2_macs_share
    return None if share is None else round(summary.macs * (1 - share))


Comparison = Literal["better", "same", "worse"]


def compare(candidate: Trial, reference: Trial, macs: int) -> Comparison:
    """Says how a program compares with another, by what matters most and then by the next.

    First more than a point of the share of `macs` on SME2, then operators outside the delegate,
    then its calls, then less of that share, then transposes inside it, then the program's size.
    What is unknown is compared with nothing.
    """
    shares = candidate.sme2_share(macs), reference.sme2_share(macs)
    size = -candidate.size_bytes, -reference.size_bytes
    for figure, reference_figure, threshold in (
        (*shares, _SMALL_SHARE),
        (-candidate.outside, -reference.outside, 0),
        (-candidate.delegate_calls, -reference.delegate_calls, 0),
        (*shares, _SAME_SHARE),
        (*_negated(candidate.transposes, reference.transposes), 0),
        (*size, _SAME_SIZE * reference.size_bytes),
    ):
        if (
            figure is not None
            and reference_figure is not None
            and abs(figure - reference_figure) > threshold
        ):
            return "better" if figure > reference_figure else "worse"
    return "same"


def _negated(count: int | None, reference_count: int | None) -> tuple[int | None, int | None]:
    """Returns them so that the smaller is more; None where one is unknown."""
    return (None, None) if count is None or reference_count is None else (-count, -reference_count)


def judge_gains(gains: Sequence[Gain]) -> Comparison:
    """Says how a program compares by its times: what is not told from noise is the same."""
    verdicts = {gain.verdict for gain in gains}
    if "slower" in verdicts or any(gain.problem for gain in gains):
        return "worse"
    return "better" if "faster" in verdicts else "same"


def smallest_gain(gains: Sequence[Gain]) -> Gain | None:
    """Returns the gain of the method that gains least; None where nothing was timed."""
    return min(gains, key=lambda gain: gain.speed_up, default=None)


def pareto_front(programs: Sequence[tuple[Trial, int]]) -> list[bool]:
    """Says of each program whether none of the others is at least as good in everything.

    Everything is the share on SME2 of the original's multiply-accumulates, which stand beside each
    program, the SNR against eager fp32, and the size. A share that is unknown counts as none.
    """
    figures = [
        (
            trial.sme2_share(macs) or 0.0,
            math.inf if trial.snr_db is None else trial.snr_db,
            -trial.size_bytes,
        )
        for trial, macs in programs
    ]
    return [
        not any(
            rival != figure and all(a >= b for a, b in zip(rival, figure, strict=True))
            for rival in figures
        )
        for figure in figures
    ]


class OptimizationStep(Record):
    """What was decided about one rewrite, and on which evidence."""

    rewrite: Name
    kept: bool
    why: Name
    is_idle: bool = False
    """It found nothing to change."""
    operators: Count | None = None
    """That it replaced in the traced graphs."""
    without: Trial | None = None
    """The same program without it; None where that was not tried."""
    gains: tuple[Gain, ...] = ()
    """Of the program over the one without it; none where it was not timed."""


class PairTiming(Record):
    """Two programs with interleaved launches, by their rewrites and what these leave as it is."""

    candidate: tuple[Name, ...]
    other: tuple[Name, ...]
    gains: tuple[Gain, ...]


@dataclass(frozen=True)
class Candidate:
    """A rewrite that a search would try."""

    rewrite: str
    operators: int | None
    """Of the traced graphs, that it would replace; None for one of the lowering."""
    changes: str


class Optimization(Record):
    """The file `optimize.json`: the baseline, the result, and every step between them."""

    schema_version: Literal[1] = 1
    model: Name
    precision: Name
    backend: Name
    made_of: Name
    """Hash of the model's code, options and tools: other trials are of another program."""
    tolerance_db: float
    baseline: Trial | None = None
    best: Trial | None = None
    gains: tuple[Gain, ...] = ()
    """Of the result over the baseline; none where they were not timed."""
    target: Name | None = None
    """Where counts and times come from; None where nothing was launched."""
    steps: tuple[OptimizationStep, ...] = ()
    trials: tuple[Trial, ...] = ()
    timings: tuple[PairTiming, ...] = ()
    float_layers: tuple[Name, ...] = ()
    """That keep the outputs right; none where they are without, or where none were looked for."""
    is_complete: bool = False
    """Whether the budget sufficed for every step."""
    program: Name | None = None
    """The result's file beside this one; None where no rewrite helps."""
    plain_program: Name | None = None
    """The baseline's."""
