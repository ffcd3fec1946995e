"""Reads the state of the machine that a run recorded before and after every launch."""

from __future__ import annotations

from collections.abc import Mapping


def fastest_core_khz(state: Mapping[str, object]) -> int | None:
    """Returns the highest core frequency; None when the machine showed none."""
    values = state.get("frequency_khz")
    frequencies_khz = (
        [k for k in values if isinstance(k, int)] if isinstance(values, list | tuple) else []
    )
    return max(frequencies_khz, default=None)


def hottest_sensor_c(state: Mapping[str, object]) -> float | None:
    """Returns the highest temperature; None without sensors."""
    values = state.get("temperatures_c")
    temperatures_c = values.values() if isinstance(values, dict) else ()
    return max((float(c) for c in temperatures_c if isinstance(c, int | float)), default=None)


def load_average(state: Mapping[str, object]) -> float | None:
    """Returns the load average over the last minute; None when the machine showed none."""
    values = state.get("load_average")
    first = values[0] if isinstance(values, list | tuple) and values else None
    return float(first) if isinstance(first, int | float) else None
