"""F13 to F17: what stands against the measurement itself, and whether the outputs are right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from etprof.analysis.findings.finding import (
    EvidenceRow,
    Finding,
    Subject,
    describe_interval,
    required,
    rule,
)
from etprof.analysis.split.thread_map import build_thread_map
from etprof.analysis.validity import SETTLED_SHARE, STEADY_FLAG, count_settled
from etprof.backends.registry import BACKENDS
from etprof.base.records import SME_ON
from etprof.base.text import command_line, without_flags
from etprof.base.units import count_of, format_duration, format_ratio, format_share
from etprof.statistics.effect import estimate_effect
from etprof.statistics.noise import launch_noise
from etprof.statistics.summary import LEAST_FOR_STATES, LEAST_TO_TELL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.analysis.compare.comparison import Comparison
    from etprof.analysis.output_check import OutputCheck
    from etprof.analysis.split.thread_map import ThreadCell, ThreadMap
    from etprof.run.runner_result import RunnerBuild, Tensor
    from etprof.statistics.effect import Effect
    from etprof.statistics.noise import Noise

NOISE: Final = "F13"
_RELEASE_TYPES: Final = frozenset({"Release", "RelWithDebInfo", "MinSizeRel"})


@rule("F4", "FP16 faster than INT8", lambda s: s.precision_rivals)
def find_precision_win(_: Subject, rivals: tuple[Comparison, ...]) -> Finding | None:
    """FP16 is faster than INT8 on the same model and device."""
    won = [rival for rival in rivals if _fp16_beats_int8(rival)]
    if not won:
        return None
    comparison = won[0]
    effect, times = required(comparison.latency), required(comparison.times)
    shares = {name: change.baseline_share for name, change in times.categories.items()}
    return Finding(
        title="FP16 is faster than INT8",
        severity="medium",
        summary=(
            f"FP16 runs {format_ratio(effect.speed_up, effect.half_width)} as fast as INT8 on "
            "this device, with the same inputs and threads."
        ),
        evidence=tuple(
            EvidenceRow(f"{name} in INT8", format_share(share)) for name, share in shares.items()
        ),
        action="ship FP16 and skip quantisation, after comparing accuracy and memory",
        ruled_out=(f"noise: {describe_interval(effect)}",),
    )


def _fp16_beats_int8(comparison: Comparison) -> bool:
    sides = (comparison.baseline, comparison.candidate)
    names = [side.experiment.program.precision or "" for side in sides]
    faster = comparison.latency is not None and comparison.latency.verdict == "faster"
    return (
        faster and not comparison.differences and names[0].startswith("int8") and names[1] == "fp16"
    )


def _noise(subject: Subject) -> Noise | None:
    metrics = subject.insight.experiment.metrics
    return launch_noise([block.latency_ns for block in metrics.blocks]) if metrics else None


@rule(NOISE, "a noisy measurement", _noise)
def find_noise(subject: Subject, noise: Noise) -> Finding | None:
    """Process launches differ, or the latency drifts while measuring."""
    limits = subject.thresholds
    if noise.is_steady(limits.variation, limits.drift):
        return None
    figures = sorted(
        (
            (noise.between / limits.variation, _spread_text("launches", noise.between)),
            (noise.within / limits.variation, _spread_text("inferences inside a launch", noise.within)),
            (abs(noise.drift) / limits.drift, f"the second half of the launches is {noise.trend}"),
        ),
        reverse=True,
    )  # fmt: skip
    # The worst beside its limit leads; what is within its limit is evidence.
    bad = [text for excess, text in figures if excess > 1]
    summary = "; ".join(bad)
    return Finding(
        title="The measurement is noisy",
        severity="medium",
        summary=f"{summary[0].upper()}{summary[1:]}. Intervals and verdicts allow for it.",
        evidence=(
            EvidenceRow(
                "spread of launches (standard deviation ÷ mean)", format_share(noise.between)
            ),
            EvidenceRow("spread inside a launch", format_share(noise.within)),
            EvidenceRow("second half of the launches", noise.trend),
            EvidenceRow("fastest launch", format_duration(noise.fastest)),
            EvidenceRow("slowest launch", format_duration(noise.slowest)),
        ),
        action=f"close other programs{_rest(subject)}, and measure again{_longer(subject)}",
    )


def _rest(subject: Subject) -> str:
    manifest = subject.run.run.manifest
    return ", let the device cool" if manifest and manifest.platform == "android" else ""


def _longer(subject: Subject) -> str:
    """Returns the command of the run with more launches, or what to change of its config."""
    blocks = str(_more_blocks(subject))
    manifest = subject.run.run.manifest
    command = manifest.command if manifest else ()
    is_slow_to_settle = _is_slow_to_settle(subject)
    if command[1:2] == ("run",):
        settling = " and warmup_steady in its experiments" if is_slow_to_settle else ""
        return f" with {blocks} in the config's measurement.blocks{settling}"
    steady = (STEADY_FLAG,) if is_slow_to_settle else ()
    # A run directory may be a stranger's, and a runner names what the command would start.
    if command[1:2] != ("profile",) or any("runner" in argument for argument in command):
        return f" with {' '.join(('--blocks', blocks, *steady))}"
    arguments = without_flags(command[1:], {"--blocks": 1, STEADY_FLAG: 0})
    return f": `{command_line(*arguments, '--blocks', blocks, *steady)}`"


def _is_slow_to_settle(subject: Subject) -> bool:
    """Whether a warm-up until latencies settle would have helped, or was asked for already."""
    experiment, manifest = subject.insight.experiment, subject.run.run.manifest
    planned = manifest.experiments if manifest else ()
    if any(plan.name == experiment.name and plan.warmup_steady for plan in planned):
        return True
    settled, judged = count_settled(experiment.metrics.blocks) if experiment.metrics else (0, 0)
    return settled < SETTLED_SHARE * judged


def _more_blocks(subject: Subject) -> int:
    """Twice as many as were measured, and enough for what fewer launches had to take for granted.

    First whether they depend on each other, then whether they are all of one state.
    """
    metrics = subject.insight.experiment.metrics
    measured = len(metrics.blocks) if metrics else 0
    needed = LEAST_FOR_STATES if measured >= LEAST_TO_TELL else LEAST_TO_TELL
    return max(needed, 2 * measured)


def _spread_text(names: str, spread: float) -> str:
    return f"{names} vary by {format_share(spread)}"


def _thread_map(subject: Subject) -> ThreadMap | None:
    """Every mode and thread count of this very program, where several were timed."""
    program = subject.insight.experiment.program
    thread_map = build_thread_map([e for e in subject.run.run.experiments if e.program is program])
    return thread_map if thread_map and _own_cell(subject, thread_map) else None


def _own_cell(subject: Subject, cells: ThreadMap) -> ThreadCell | None:
    experiment = subject.insight.experiment
    mode_and_threads = (experiment.sme, experiment.threads)
    return next(
        (cell for cell in cells.cells if (cell.sme, cell.threads) == mode_and_threads), None
    )


@rule("F14", "more threads are slower", _thread_map)
def find_thread_slowdown(subject: Subject, cells: ThreadMap) -> Finding | None:
    """In this mode fewer threads are faster: the best count, not only the fewest, is asked."""
    current = required(_own_cell(subject, cells))
    same = [cell for cell in cells.cells if cell.sme == current.sme]
    best = min(same, key=lambda cell: cell.median_ns)
    effect = _speed_up(current, best)
    if best.threads >= current.threads or effect is None or effect.verdict != "faster":
        return None
    shared = "; cores may share one SME2 unit" if current.sme in SME_ON else ""
    return Finding(
        title="More threads are slower",
        severity="high",
        summary=(
            f"{count_of(best.threads, 'thread')} {'is' if best.threads == 1 else 'are'} best: "
            f"{format_ratio(effect.speed_up, effect.half_width)} as fast as {current.threads}."
        ),
        evidence=_cell_rows(same),
        claims=subject.claim_of_latency(current.median_ns - best.median_ns),
        action=f"use {count_of(best.threads, 'thread')}{shared}",
        ruled_out=(f"noise: {describe_interval(effect)}",),
    )


@rule("F14b", "another mode and thread count is fastest", _thread_map)
def find_better_mode(subject: Subject, cells: ThreadMap) -> Finding | None:
    """The best that SME reaches is slower than the best without, perhaps with more threads."""
    current, best = required(_own_cell(subject, cells)), cells.best
    fastest = min(c.median_ns for c in cells.cells if c.sme == current.sme)
    effect = _speed_up(current, best)
    if (
        current.sme not in SME_ON
        or best.sme in SME_ON
        or current.median_ns > fastest
        or effect is None
    ):
        return None
    if best.threads == current.threads or effect.verdict != "faster":
        return None
    return Finding(
        title="SME off is faster at its own best thread count",
        severity="high",
        summary=(
            f"SME {best.sme} with {count_of(best.threads, 'thread')} is "
            f"{format_ratio(effect.speed_up, effect.half_width)} as fast as {current.sme} with {current.threads}, the best of "
            "that mode."
        ),
        evidence=_cell_rows(cells.cells),
        claims=subject.claim_of_latency(current.median_ns - best.median_ns),
        action=f"use SME {best.sme} with {count_of(best.threads, 'thread')} where so many are free",
        ruled_out=(f"noise: {describe_interval(effect)}",),
    )


def _speed_up(current: ThreadCell, best: ThreadCell) -> Effect | None:
    """Block by block, which were in turns; None where one of them lacks some."""
    if current is best or len(current.block_medians) != len(best.block_medians):
        return None
    return estimate_effect(current.block_medians, best.block_medians)


def _cell_rows(cells: Sequence[ThreadCell]) -> tuple[EvidenceRow, ...]:
    return tuple(
        EvidenceRow(f"{c.sme}, {count_of(c.threads, 'thread')}", format_duration(c.median_ns))
        for c in cells
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
    extras = f" with sanitizers {sanitizers}" if sanitizers else ""
    extras += " with the delegate's log" if logs else ""
    return Finding(
        title="The runner is not built for timing",
        severity="high",
        summary=f"Build type {build_type}{extras}.",
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
        return _wrong(wrong, _way_to_right(subject))
    compared = {check.parity.index for check in checks}
    odd = [output for output in outputs if output.nonfinite_count and output.index not in compared]
    return _not_finite(odd) if odd else None


def _way_to_right(subject: Subject) -> str:
    """Says what finds the cause: another vector length that is right, or the operator."""
    bits = subject.insight.experiment.loaded.svl_bits
    run = subject.run.run
    right = {
        each.loaded.svl_bits
        for each in run.experiments
        if each.loaded.svl_bits not in {None, bits}
        and all(check.is_within for check in run.eager_checks[each.name])
    }
    if bits and right:
        lengths = ",".join(str(number) for number in sorted(filter(None, right)))
        return (
            f"leave {bits} out of --sme-vector-bits ({lengths} is right): nothing at that length "
            "counts"
        )
    program = subject.insight.experiment.program
    if program.exported is None:
        return "export again: that checks the outputs, and exit code 6 names what is wrong"
    words = ["numerics", *program.exported.model_words]
    words += ["--dtype", program.precision] if program.precision else []
    words += [] if subject.run.run.is_timed else ["--target", "emulator"]
    return f"`{command_line(*words)}` names the operator at which values start to differ"


def _wrong(wrong: Sequence[OutputCheck], way_out: str) -> Finding:
    return Finding(
        title="The outputs are wrong",
        severity="high",
        summary=(
            f"{count_of(len(wrong), 'output')} with a larger error against the eager model than this "
            "precision explains, for the same inputs: the latency of a wrong result is meaningless."
        ),
        evidence=tuple(
            EvidenceRow(f"output {check.parity.index}", _describe(check)) for check in wrong
        ),
        action=way_out,
        ruled_out=("other inputs: the program got those of its export",),
    )


def _describe(check: OutputCheck) -> str:
    odd = check.parity.nonfinite_differences
    nonfinite = f"; {count_of(odd, 'value')} not finite on one side only" if odd else ""
    return str(check).partition(": ")[2] + nonfinite


def _not_finite(odd: Sequence[Tensor]) -> Finding:
    return Finding(
        title="Outputs are not finite",
        severity="high",
        summary=(
            f"{count_of(len(odd), 'output')} with infinities or NaNs; there is no reference to show "
            "whether the model intends this."
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
