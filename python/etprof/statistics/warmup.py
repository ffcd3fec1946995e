"""Finds where a series of latencies settles, and says when it never does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from etprof.statistics.summary import noise_of_series

_WINDOW: Final = 5
_TOLERANCE: Final = 0.02
_SIGMAS: Final = 3.0
LEAST_SAMPLES: Final = 4 * _WINDOW


def is_settled(latency_ns: Sequence[int]) -> bool | None:
    """Whether a block was steady from its first quarter on; None when too few samples tell."""
    if len(latency_ns) < LEAST_SAMPLES:
        return None
    after = settled_after(latency_ns)
    return after is not None and after <= len(latency_ns) // 4


def settled_after(latency_ns: Sequence[int]) -> int | None:
    """Returns how many samples come before the steady state; None when it is never reached.

    Steady is the first window of five whose median lies within three standard deviations of the
    noise, or 2 % if that is more, of the second half's median. The series never settles when the
    halves of its second half themselves differ by more than that. The noise is taken from
    differences of neighbours, which a drift does not inflate. Raises ValueError for fewer than
    `LEAST_SAMPLES`, of which nothing can be said.
    """
    values = np.asarray(latency_ns, dtype=np.float64)
    if values.size < LEAST_SAMPLES:
        msg = f"{values.size} samples do not tell where they settle; it needs {LEAST_SAMPLES}"
        raise ValueError(msg)
    tail = values[values.size // 2 :]
    centre = float(np.median(tail))
    band = max(_SIGMAS * noise_of_series(tail), _TOLERANCE * centre)
    middle = tail.size // 2
    if abs(float(np.median(tail[:middle])) - float(np.median(tail[middle:]))) > band:
        return None
    windows = np.lib.stride_tricks.sliding_window_view(values, _WINDOW)
    inside = np.abs(np.median(windows, axis=1) - centre) <= band
    return int(np.argmax(inside)) if inside.any() else None
