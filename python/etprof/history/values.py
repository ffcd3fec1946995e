"""A metric's value with its interval and block values, in memory; packing for the store."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.history.schema import Metric


@dataclass(frozen=True)
class MetricValue:
    """One metric of one run; `samples` has one value per block."""

    name: str
    unit: str
    higher_is_better: bool
    value: float
    low: float | None
    high: float | None
    samples: tuple[float, ...]
    representative: bool = True
    """False for emulated times: they are kept, but never judged."""

    @property
    def count(self) -> int:
        """Blocks."""
        return len(self.samples)


def metric_value(row: Metric, *, representative: bool = True) -> MetricValue:
    """Reads a row of the store."""
    return MetricValue(
        name=row.name,
        unit=row.unit,
        higher_is_better=row.higher_is_better,
        value=row.value,
        low=row.low,
        high=row.high,
        samples=unpack_samples(row.samples),
        representative=representative,
    )


def pack_samples(samples: Sequence[float]) -> bytes | None:
    """Compresses block values as little-endian float64; None for none."""
    return zlib.compress(np.asarray(samples, "<f8").tobytes()) if samples else None


def unpack_samples(data: bytes | None) -> tuple[float, ...]:
    """Undoes `pack_samples`."""
    if data is None:
        return ()
    return tuple(np.frombuffer(zlib.decompress(data), "<f8").tolist())
