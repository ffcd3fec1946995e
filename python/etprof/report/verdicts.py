"""Turns effects into the sentences and badges that every report shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etprof.base.units import count_of, format_duration, format_ratio, format_share

if TYPE_CHECKING:
    from etprof.analysis.compare.comparison import Comparison
    from etprof.analysis.run_analysis import ExperimentAnalysis
    from etprof.statistics.effect import Effect, Verdict

_MODES = {"sme2": "With SME2", "sme1": "With SME (not SME2)", "off": "With SME off"}
_MEANINGS: dict[Verdict, str] = {
    "faster": ". Noise is ruled out.",
    "slower": ". Noise is ruled out.",
    "no difference": ": that is no difference.",
    "inconclusive": ", but the measurement cannot tell that from noise: measure more blocks.",
}


def describe_effect(effect: Effect) -> str:
    """Says what the latency did, always with its verdict and never as a bare ratio."""
    within = f" within {format_share(effect.margin)}" if effect.verdict == "no difference" else ""
    return f"{effect.verdict}{within}, speed-up {format_speed_up(effect)}"


def format_speed_up(effect: Effect) -> str:
    """Formats a speed-up with its interval: `1.83× (95 % interval 1.79× … 1.88×)`."""
    text = format_ratio(effect.speed_up)
    if effect.interval is None:
        return f"{text} (no interval from {effect.pairs} pairs)"
    low, high = format_ratio(effect.interval.low), format_ratio(effect.interval.high)
    return f"{text} (95 % interval {low} … {high})"


def describe_comparison(comparison: Comparison) -> str:
    """Returns the comparison's headline."""
    if not comparison.times_are_meaningful:
        return f"{comparison.name}: emulated, so only structure and kernels are compared"
    if comparison.latency is None:
        return f"{comparison.name}: not timed without tracer, so there is no verdict"
    wrong = "" if comparison.outputs_agree else "different results; "
    return f"{comparison.name}: {wrong}{describe_effect(comparison.latency)}"


def describe_plainly(comparison: Comparison) -> str:
    """Says the same to someone who has never profiled."""
    effect = comparison.latency
    before, after = comparison.baseline.experiment, comparison.candidate.experiment
    if effect is None or before.latency is None or after.latency is None:
        return ""
    now, then = (format_duration(entry.steady.median) for entry in (after.latency, before.latency))
    sentence = f"{_what_changed(before, after)} an inference takes {now} instead of {then}"
    return f"{sentence}{_MEANINGS[effect.verdict]}"


def _what_changed(before: ExperimentAnalysis, after: ExperimentAnalysis) -> str:
    """Names the one thing that differs, where it is one."""
    if before.sme != after.sme and before.threads == after.threads and after.sme in _MODES:
        return _MODES[after.sme]
    if before.sme == after.sme and before.threads != after.threads and after.threads:
        return f"With {count_of(after.threads, 'thread')}"
    return f"In {after.name}"


def badge_of(comparison: Comparison) -> str:
    """Returns one word for the badge; wrong results outrank any speed."""
    if not comparison.outputs_agree:
        return "different results"
    if not comparison.times_are_meaningful:
        return "not representative"
    return comparison.latency.verdict if comparison.latency else "not timed"
