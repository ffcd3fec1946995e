"""How far a program's intermediate values are from eager's, operator by operator.

An operator's own gap is between what the program computed and what eager computes from the values
that the program itself had: what it inherits from operators before it is not its fault.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

NO_LIKENESS_DB: Final = -300.0
"""Of a value that is not finite, or that is something where eager has zeros: JSON has no infinity."""
_FLOAT_FLOOR_DB: Final = 90.0
_INTEGER_FLOOR_DB: Final = 45.0
_HALF_FLOOR_DB: Final = 70.0
"""Of one sum of one product. Kernels that sum halves in halves lose 3 dB with each doubling of what
is summed: toy_cnn's and MobileNetV2's convolutions and products on x86 have 74 to 76 dB less that,
from 27 products (62 dB) to 1280 (45 dB)."""
_HALF_ROUNDING_DB: Final = 66.0
"""Of one result that is rounded to half precision, whatever it was computed in: 2^-11 of a value that
is just above a power of two, as all of RMS norms' reciprocal roots may be."""
_CHUNK: Final = 2**20
"""Elements that are compared at once, in float64."""


@dataclass(frozen=True)
class Gap:
    """The difference between two tensors that should be the same."""

    mse: float
    """Mean of the squared difference."""
    snr_db: float | None
    """10 log10 of Σ reference² ÷ Σ (value - reference)²; None when there is no difference."""
    cosine: float | None
    """Of the angle between both; None where one of them is all zeros."""
    max_abs: float
    nonfinite: int
    """Places where only one of both is infinite or no number."""

    @property
    def relative(self) -> float:
        """Root mean square of the difference ÷ that of the reference."""
        return 0.0 if self.snr_db is None else 10.0 ** (-self.snr_db / 20)

    def is_below(self, least_db: float) -> bool:
        """Whether the difference is more than that ratio allows."""
        return self.snr_db is not None and self.snr_db < least_db


def measure_gap(value: NDArray[Any], reference: NDArray[Any]) -> Gap:
    """Compares two arrays of one size, of any shape and type of real numbers.

    Sums are in float64, over pieces, so that a large tensor costs no more memory than it has.
    """
    values, references = value.reshape(-1), reference.reshape(-1)
    error_power = power = own_power = product = largest = 0.0
    odd = 0
    for start in range(0, values.size, _CHUNK):
        found = values[start : start + _CHUNK].astype(np.float64)
        expected = references[start : start + _CHUNK].astype(np.float64)
        finite = np.isfinite(found) & np.isfinite(expected)
        if not finite.all():
            same = (np.isnan(found) & np.isnan(expected)) | (found == expected)
            odd += int((~finite & ~same).sum())
            found, expected = np.where(finite, found, 0), np.where(finite, expected, 0)
        error = found - expected
        error_power += float(error @ error)
        power += float(expected @ expected)
        own_power += float(found @ found)
        product += float(found @ expected)
        largest = max(largest, float(np.max(np.abs(error), initial=0.0)))
    length = float(np.sqrt(power * own_power))
    return Gap(
        mse=error_power / max(values.size, 1),
        snr_db=NO_LIKENESS_DB if odd else _snr_db(power, error_power),
        cosine=product / length if length else None,
        max_abs=largest,
        nonfinite=odd,
    )


def _snr_db(power: float, error_power: float) -> float | None:
    if error_power == 0:
        return None
    ratio = power / error_power
    return max(10 * float(np.log10(ratio)), NO_LIKENESS_DB) if ratio > 0 else NO_LIKENESS_DB


def own_floor_db(precision: str, summed: float) -> float:
    """Returns the ratio that an operator reaches on its own, with `summed` products in each sum."""
    if precision == "fp16":
        return min(_HALF_ROUNDING_DB, _HALF_FLOOR_DB - 10 * float(np.log10(max(summed, 1.0))))
    return _FLOAT_FLOOR_DB if precision == "fp32" else _INTEGER_FLOOR_DB


@dataclass(frozen=True, kw_only=True)
class OperatorGap:
    """One operator in one SME mode."""

    order: int
    """Its place among the operators of the exported graph."""
    node: str
    """Its name there."""
    operator: str
    """ATen's name; operators that the delegate makes one of are joined."""
    module: str
    source: str | None
    """File and line of the model's own code."""
    shape: tuple[int, ...]
    dtype: str
    delegate: int | None
    """Number of the delegate call that computes it; None outside."""
    mode: str
    floor_db: float
    """Least ratio that its own gap must have."""
    own: Gap
    eager: Gap
    """From the eager model in the program's precision."""
    float32: Gap | None
    """From the eager model in float32; None where that has no such operator."""
    off: Gap | None
    """From the same operator with SME off."""

    @property
    def excess(self) -> float:
        """Its own error ÷ the largest that its precision explains."""
        return float(self.own.relative * 10 ** (self.floor_db / 20))


@dataclass(frozen=True, kw_only=True)
class NumericGaps:
    """Every operator of a program beside eager."""

    model: str
    backend: str
    precision: str
    method: str
    platform: str
    passes: int
    """Programs that the taps were spread over."""
    rows: tuple[OperatorGap, ...]
    """In the order of the graph, one a mode."""
    prevented: tuple[str, ...]
    """Operators that the delegate makes one of, and does not with taps."""
    checks: dict[str, Gap]
    """By mode: outputs of the program without taps, from those of the one with them."""

    @property
    def modes(self) -> tuple[str, ...]:
        """The SME modes that ran."""
        return tuple(self.checks)

    def ranked(self, mode: str) -> list[OperatorGap]:
        """The operators of one mode; first the one whose error is explained least."""
        found = [row for row in self.rows if row.mode == mode]
        return sorted(found, key=lambda row: -row.excess)

    def first_parted(self, mode: str) -> OperatorGap | None:
        """The first operator in the graph whose own gap is larger than its precision explains."""
        found = (row for row in self.rows if row.mode == mode)
        return next((row for row in found if row.own.is_below(row.floor_db)), None)
