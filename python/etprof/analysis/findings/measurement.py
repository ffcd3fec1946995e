"""F13 to F17: what stands against the measurement itself, and whether the outputs are right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.analysis.findings.finding import (
    EvidenceRow,
    Finding,
    Subject,
    known,
    rule,
)
from etprof.backends.registry import BACKENDS
from etprof.base.records import SME_ON
from etprof.base.units import count_of, format_duration, format_ratio, format_share
from etprof.statistics.noise import launch_noise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.analysis.compare.comparison import Comparison
    from etprof.analysis.output_check import OutputCheck
    from etprof.run.runner_result import RunnerBuild, Tensor
    from etprof.statistics.noise import Noise

_RELEASE_TYPES: Final = frozenset({"Release", "RelWithDebInfo", "MinSizeRel"})


@rule("F4", "FP16 faster than INT8", lambda s: s.precision_rivals)
def find_precision_win(_: Subject, rivals: tuple[Comparison, ...]) -> Finding | None:
    """FP16 is faster than INT8 on the same model and device."""
    won = [entry for entry in rivals if _fp16_beats_int8(entry)]
    if not won:
        return None
    comparison = won[0]
    effect = comparison.latency
    times = known(comparison.times)
    shares = {name: change.baseline_share for name, change in times.categories.items()}
    return Finding(
        title="FP16 is faster than INT8",
        severity="medium",
        summary=(
            f"FP16 runs {format_ratio(effect.speed_up if effect else None)} as fast as INT8: "
            "quantisation speeds up what is no longer the bottleneck."
        ),
        evidence=tuple(
            EvidenceRow(f"{name} in INT8", format_share(share)) for name, share in shares.items()
        ),
        gain_ns=times.saved_ns,
        action="ship FP16 and skip quantisation, after comparing accuracy and memory",
        ruled_out=("noise: the interval of the speed-up is above 1",),
    )


def _fp16_beats_int8(comparison: Comparison) -> bool:
    sides = (comparison.baseline, comparison.candidate)
    names = [side.experiment.program.precision or "" for side in sides]
    faster = comparison.latency is not None and comparison.latency.verdict == "faster"
    return faster and names[0].startswith("int8") and names[1] == "fp16"


def _noise(subject: Subject) -> Noise | None:
    metrics = subject.insight.experiment.metrics
    return launch_noise([block.latency_ns for block in metrics.blocks]) if metrics else None


@rule("F13", "a noisy measurement", _noise)
def find_noise(subject: Subject, noise: Noise) -> Finding | None:
    """Process launches differ, or the latency drifts while measuring."""
    limits = subject.thresholds
    if noise.is_steady(limits.variation, limits.drift):
        return None
    return Finding(
        title="The measurement is noisy",
        severity="medium",
        summary=(
            f"Launches vary by {format_share(noise.between)} (standard deviation ÷ mean), "
            f"inferences inside a launch by {format_share(noise.within)}, and the second half of "
            f"the launches is {noise.trend}."
        ),
        evidence=(
            EvidenceRow("fastest launch", format_duration(noise.fastest)),
            EvidenceRow("slowest launch", format_duration(noise.slowest)),
        ),
        action=(
            "close other programs, let the device cool, fix its power profile, and measure again "
            "with more blocks; the interval already allows for this noise"
        ),
    )


@rule("F14", "more threads are slower", lambda s: s.thread_comparisons)
def find_thread_slowdown(subject: Subject, comparisons: tuple[Comparison, ...]) -> Finding | None:
    """More threads are slower."""
    slower = [
        entry
        for entry in comparisons
        if entry.latency is not None and entry.latency.verdict == "slower"
    ]
    if not slower:
        return None
    rows = [
        EvidenceRow(
            f"{entry.baseline.experiment.threads} → {entry.candidate.experiment.threads} threads",
            f"speed-up {format_ratio(entry.latency.speed_up)}" if entry.latency else "",
        )
        for entry in slower
    ]
    threads = slower[0].candidate.experiment.threads
    return Finding(
        title="More threads are slower",
        severity="high",
        summary=f"From {threads} threads on, the model runs slower than with fewer.",
        evidence=tuple(rows),
        action=f"use fewer than {threads} threads"
        + ("; cores may share one SME2 unit" if subject.insight.experiment.sme in SME_ON else ""),
        ruled_out=("noise: the whole interval is below 1",),
    )


@rule(
    "F15",
    "no release build",
    lambda s: s.provenance.runner if s.provenance else None,
    is_timed=False,
)
def find_debug_build(subject: Subject, runner: RunnerBuild) -> Finding | None:
    """The runner was not built for speed."""
    build, build_type = runner.build, subject.provenance and subject.provenance.build_type
    sanitizers = str(build.get("sanitizers") or "")
    logs = any(build.get(f"{backend.name}_log") is True for backend in BACKENDS)
    if (build_type is None or build_type in _RELEASE_TYPES) and not sanitizers and not logs:
        return None
    beside = f" with sanitizers {sanitizers}" if sanitizers else ""
    beside += " with the delegate's log" if logs else ""
    return Finding(
        title="The runner is not built for timing",
        severity="high",
        summary=f"Build type {build_type}{beside}.",
        evidence=(EvidenceRow("flags", str(build.get("flags") or "not known")),),
        action="build the runner with CMAKE_BUILD_TYPE=Release, without logs, and measure again",
    )


def _outputs(subject: Subject) -> Sequence[Tensor] | None:
    """What was kept; a damaged result does not forbid to read the times."""
    result = subject.insight.experiment.loaded.result
    return result.outputs if result else None


@rule("F17", "wrong outputs", _outputs, is_timed=False)
def find_wrong_outputs(subject: Subject, outputs: Sequence[Tensor]) -> Finding | None:
    """An output differs from the eager model's, or without one to compare is not finite."""
    checks = subject.run.run.eager_checks[subject.name]
    wrong = [check for check in checks if not check.is_within]
    if wrong:
        return _wrong(wrong)
    compared = {check.parity.index for check in checks}
    odd = [each for each in outputs if each.nonfinite_count and each.index not in compared]
    return _not_finite(odd) if odd else None


def _wrong(wrong: Sequence[OutputCheck]) -> Finding:
    return Finding(
        title="The outputs are wrong",
        severity="high",
        summary=(
            f"{count_of(len(wrong), 'output')} further from the eager model's than this precision "
            "explains, for the same inputs: no time of a wrong answer counts."
        ),
        evidence=tuple(
            EvidenceRow(f"output {check.parity.index}", _describe(check)) for check in wrong
        ),
        action=(
            "export again, with the numeric check on; if that passes, compare SME modes "
            "(`etprof profile MODEL --target emulator`) to find the kernel"
        ),
        ruled_out=("other inputs: the program got those of its export",),
    )


def _describe(check: OutputCheck) -> str:
    odd = check.parity.nonfinite_differences
    beside = f"; {count_of(odd, 'value')} not finite on one side only" if odd else ""
    return str(check).partition(": ")[2] + beside


def _not_finite(odd: Sequence[Tensor]) -> Finding:
    return Finding(
        title="Outputs are not finite",
        severity="high",
        summary=(
            f"{count_of(len(odd), 'output')} with infinities or no numbers; there is no reference "
            "to say whether the model means it."
        ),
        evidence=tuple(
            EvidenceRow(f"output {output.index}", count_of(output.nonfinite_count, "value"))
            for output in odd
        ),
        action=(
            "give representative inputs (--inputs), or export at a wider precision: float16 ends "
            "at 65504; times of such values may differ from those of real ones"
        ),
    )
