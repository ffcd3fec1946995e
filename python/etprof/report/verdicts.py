"""Turns effects into the sentences and badges that every report shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etprof.units import format_ratio, format_share

if TYPE_CHECKING:
    from etprof.analysis.comparison import Comparison
    from etprof.analysis.effect import Effect


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


def badge_of(comparison: Comparison) -> str:
    """Returns one word for the badge; wrong results outrank any speed."""
    if not comparison.outputs_agree:
        return "different results"
    if not comparison.times_are_meaningful:
        return "not representative"
    return comparison.latency.verdict if comparison.latency else "not timed"
