"""Compares the outputs of two runs, or of a run and the eager model, as numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from etprof.base.errors import InputFileError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MODE_MINIMUM_SNR_DB: Final = {"fp32": 90.0, "fp16": 40.0, "int8": 25.0}
"""Least signal-to-noise ratio between two SME modes of one program: same weights, same inputs, so
only the order of sums and the rounding between kernels differ."""
EAGER_MINIMUM_SNR_DB: Final = {"fp32": 80.0, "fp16": 35.0, "int8": 8.0}
"""Least signal-to-noise ratio to the eager model: the export's own limits."""
_TOLERATED_ZERO: Final = 1e-3
"""Values below this fraction of the largest have no meaningful relative error."""


@dataclass(frozen=True)
class Parity:
    """How far one output is from another that should be the same."""

    index: int
    identical: bool
    max_abs: float
    """Largest absolute difference."""
    max_rel: float
    """Largest relative difference, over reference values of at least 0.1 % of the largest."""
    snr_db: float | None
    """10 log10 of signal power over error power; None when there is no error at all."""
    top1: float | None
    """Fraction of rows whose largest entry is at the same place; None for a single column."""
    nonfinite_differences: int
    """Places where only one of both is infinite or no number."""

    def is_within(self, minimum_snr_db: float) -> bool:
        """Whether the outputs agree as well as asked."""
        close = self.snr_db is None or self.snr_db >= minimum_snr_db
        return close and self.nonfinite_differences == 0


def mode_tolerance_db(data_types: set[str]) -> tuple[str, float]:
    """Returns the kind of arithmetic among operators' plain data types and the SNR to expect."""
    quantised = any(name.startswith("Q") for name in data_types)
    half = "F16" in data_types
    kind = "int8" if quantised else "fp16" if half else "fp32"
    return kind, _MODE_MINIMUM_SNR_DB[kind]


def compare(
    index: int, value: NDArray[np.float64], reference: NDArray[np.float64], columns: int
) -> Parity:
    """Compares two flat arrays of equal size; `columns` is the length of the last dimension.

    Raises InputFileError when the sizes differ.
    """
    if value.size != reference.size:
        msg = f"output {index} has {value.size} values, its reference {reference.size}"
        raise InputFileError(msg)
    finite = np.isfinite(value) & np.isfinite(reference)
    same_odd = (np.isnan(value) & np.isnan(reference)) | (value == reference)
    error = np.where(finite, value, 0) - np.where(finite, reference, 0)
    scale = float(np.max(np.abs(reference[finite]), initial=0.0))
    large = finite & (np.abs(reference) >= _TOLERATED_ZERO * scale) & (reference != 0)
    return Parity(
        index=index,
        identical=bool(same_odd.all()),
        max_abs=float(np.max(np.abs(error), initial=0.0)),
        max_rel=float(np.max(np.abs(error[large]) / np.abs(reference[large]), initial=0.0)),
        snr_db=_snr_db(reference[finite], error[finite]),
        top1=_top1(value, reference, columns),
        nonfinite_differences=int((~finite & ~same_odd).sum()),
    )


def _snr_db(signal: NDArray[np.float64], error: NDArray[np.float64]) -> float | None:
    noise = float(np.sum(error**2))
    if noise == 0:
        return None
    power = float(np.sum(signal**2))
    return -np.inf if power == 0 else float(10 * np.log10(power / noise))


def _top1(value: NDArray[np.float64], reference: NDArray[np.float64], columns: int) -> float | None:
    if columns < 2 or value.size == 0 or value.size % columns:
        return None
    best = value.reshape(-1, columns).argmax(axis=1)
    return float((best == reference.reshape(-1, columns).argmax(axis=1)).mean())
