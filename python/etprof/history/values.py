"""A metric's value with its interval and block values, in memory; packing for the store."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from etprof.base.limits import MOST_LAUNCHES
from etprof.history.connection import DamagedValueError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.history.schema import Metric


_MOST_SAMPLES: Final = 10 * MOST_LAUNCHES
"""Of a metric: one per block; an import may come from an etprof that allows more."""


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
    content = decompress(data, _MOST_SAMPLES * 8)
    if len(content) % 8:
        msg = f"samples of {len(content)} bytes are no whole numbers"
        raise DamagedValueError(msg)
    samples = np.frombuffer(content, "<f8")
    if not np.isfinite(samples).all():
        msg = "a sample is no finite number"
        raise DamagedValueError(msg)
    return tuple(samples.tolist())


def decompress(data: bytes, most_bytes: int) -> bytes:
    """Undoes `zlib.compress`; raises DamagedValueError for what is longer or was not made so."""
    reader = zlib.decompressobj()
    try:
        content = reader.decompress(data, most_bytes + 1)
    except zlib.error as error:
        msg = f"compressed samples cannot be read: {error}"
        raise DamagedValueError(msg) from None
    if len(content) > most_bytes or not reader.eof:
        msg = f"compressed samples are cut off, or longer than {most_bytes} bytes"
        raise DamagedValueError(msg)
    return content
