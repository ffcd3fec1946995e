"""How much one array is like another that should be the same."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from etprof.base.errors import InputFileError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_TOLERATED_ZERO: Final = 1e-3
"""Values below this fraction of the largest have no meaningful relative error."""
_CLEAR_LEAD: Final = 3.0
"""By how many times the error that is allowed a row's largest entry leads, to be clearly that."""
_LEAST_SQUARED: Final = 1e-70
"""Below, sums of squares lose digits; above, they and their ratio may overflow. float32 is between."""
_MOST_SQUARED: Final = 1e70
_USUAL_DB: Final = 40.0
"""The error that is allowed where nobody says."""
_EQUAL_SHARES: Final = ((80.0, 0.99), (40.0, 0.95), (20.0, 0.9))
_LEAST_EQUAL_SHARE: Final = 0.8
"""Of whole numbers that must be equal where the floats that they come from have so many dB at least:
an argmax or a rounding takes the other value where an error crosses a border. The same as the rows
whose largest entry must agree (run/accuracy.py), since that is where argmax gives the same."""
NumberKind = Literal["real", "level", "label"]
_LEVEL_TYPES: Final = frozenset({"int8", "uint8", "int16", "uint16"})


def number_kind(dtype: str) -> NumberKind:
    """Says how numbers of a type are compared, such as `float32`.

    Pixels and quantised values, of 8 or 16 bits, are levels: one off is a small error. Indices, token
    ids, classes and masks are labels, which are right or wrong.
    """
    if dtype.startswith(("float", "bfloat", "complex")):
        return "real"
    return "level" if dtype in _LEVEL_TYPES else "label"


def least_equal_share(snr_db: float) -> float:
    """Returns the share of whole numbers that must be equal where floats must have `snr_db`."""
    return next((share for least, share in _EQUAL_SHARES if snr_db >= least), _LEAST_EQUAL_SHARE)


@dataclass(frozen=True)
class Parity:
    """How far one output is from another that should be the same."""

    index: int
    identical: bool
    max_abs: float
    """Largest absolute difference."""
    max_rel: float
    """Largest relative difference, over reference values of at least 0.1 % of the largest."""
    mse: float | None
    """Mean squared difference, in the output's unit squared; None where one of both is not finite, or it is too large."""
    snr_db: float | None
    """10 log10 of signal power over error power; None when there is no error at all, and of labels,
    which are equal or wrong."""
    cosine: float | None
    """Of the angle between both; None where one is zero, and of labels."""
    top1: float | None
    """Fraction of rows whose largest entry is at the same place; None for a single column. Of whole
    numbers: the fraction that is equal."""
    clear_top1: float | None
    """The same over rows whose largest entry leads by three times the error that is allowed; None
    of whole numbers."""
    nonfinite_differences: int
    """Places where only one of both is infinite or no number."""
    degenerate: str | None = None
    """Why likeness to this reference says nothing; None when it does."""
    equal_share: float | None = None
    """Fraction of whole numbers that is equal; None of floats."""

    def is_within(self, minimum_snr_db: float) -> bool:
        """Whether the outputs agree as well as asked."""
        if self.nonfinite_differences:
            return False
        if self.has_equal(least_equal_share(minimum_snr_db)):
            return True
        return self.equal_share is None if self.snr_db is None else self.snr_db >= minimum_snr_db

    def has_equal(self, least_share: float) -> bool:
        """Whether these are whole numbers of which so many are equal."""
        return self.equal_share is not None and self.equal_share >= least_share


# float64's squares, quotients and differences may overflow: what then is infinite says so.
@np.errstate(over="ignore")
def compare(  # noqa: PLR0913 - two arrays, and what is known of them
    index: int,
    value: NDArray[np.float64],
    reference: NDArray[np.float64],
    columns: int,
    *,
    least_db: float | None = None,
    kind: NumberKind = "real",
) -> Parity:
    """Compares two flat arrays of equal size; `columns` is the length of the last dimension.

    `least_db` is the signal-to-noise ratio that is asked for. Raises InputFileError when the sizes
    differ.

    Args:
        index: The output's number, from 0.
        value: Shape (elements,).
        reference: What is right, shape (elements,).
        columns: Elements in a row, for the largest entry of each.
        least_db: In dB.
        kind: What the numbers are, as `number_kind` says.
    """
    if value.size != reference.size:
        msg = f"output {index} has {value.size} values, its reference {reference.size}"
        raise InputFileError(msg)
    finite = np.isfinite(value) & np.isfinite(reference)
    same_odd = (np.isnan(value) & np.isnan(reference)) | (value == reference)
    error = np.where(finite, value, 0) - np.where(finite, reference, 0)
    mean_square = float(np.sum(error**2)) / max(error.size, 1)
    scale = float(np.max(np.abs(reference[finite]), initial=0.0))
    large = finite & (np.abs(reference) >= _TOLERATED_ZERO * scale) & (reference != 0)
    is_real, is_label = kind == "real", kind == "label"
    equal = None if is_real else float((value == reference).mean()) if value.size else 1.0
    lead = _allowed_error(reference[finite], _USUAL_DB if least_db is None else least_db)
    lost = int((~finite & ~same_odd).sum())
    return Parity(
        index=index,
        identical=bool(same_odd.all()),
        max_abs=float(np.max(np.abs(error), initial=0.0)),
        max_rel=float(np.max(np.abs(error[large]) / np.abs(reference[large]), initial=0.0)),
        mse=None if lost or mean_square == np.inf else mean_square,
        snr_db=None if is_label else snr_db(reference[finite], error[finite]),
        cosine=None if is_label else _cosine(value[finite], reference[finite]),
        top1=_top1(value, reference, columns, -1) if is_real else equal,
        clear_top1=_top1(value, reference, columns, _CLEAR_LEAD * lead) if is_real else None,
        nonfinite_differences=lost,
        degenerate=find_degeneracy(reference) if is_real else None,
        equal_share=equal,
    )


@np.errstate(over="ignore")
def find_degeneracy(reference: NDArray[np.float64]) -> str | None:
    """Says why nothing can be compared with `reference`; None when something can.

    Args:
        reference: Shape (elements,).
    """
    if reference.size == 0:
        return "it is empty"
    odd = int((~np.isfinite(reference)).sum())
    if odd:
        return f"{odd} of its {reference.size} values are not finite"
    largest = float(np.max(np.abs(reference)))
    if 0 < largest < float(np.finfo(np.float32).tiny):
        return f"it is {largest:.1g} at most, where float32 has no precision left"
    if largest == 0 or (reference.size > 1 and np.ptp(reference) == 0):
        return f"it is {reference[0] + 0.0:g} everywhere"
    return None


def snr_db(signal: NDArray[np.float64], error: NDArray[np.float64]) -> float | None:
    """Returns 10 log10(Σ signal² / Σ error²); None without any error.

    Args:
        signal: Shape (elements,).
        error: Value minus signal, shape (elements,).

    Returns:
        In dB.
    """
    largest_error = float(np.max(np.abs(error), initial=0.0))
    largest = float(np.max(np.abs(signal), initial=0.0))
    if largest_error == 0:
        return None
    if largest == 0 or largest_error == np.inf:
        return -np.inf
    if min(largest, largest_error) > _LEAST_SQUARED and max(largest, largest_error) < _MOST_SQUARED:
        return float(10 * np.log10(float(np.sum(signal**2)) / float(np.sum(error**2))))
    # float64's squares overflow or vanish there: each is scaled by its largest.
    power, noise = np.sum((signal / largest) ** 2), np.sum((error / largest_error) ** 2)
    ratio = 20 * (math.log10(largest) - math.log10(largest_error))
    return float(10 * np.log10(power / noise)) + ratio


def _allowed_error(reference: NDArray[np.float64], least_db: float) -> float:
    """Root mean square of the error at a signal-to-noise ratio.

    Args:
        reference: Shape (elements,).
        least_db: In dB.

    Returns:
        In the reference's unit.
    """
    power = float(np.mean(reference**2)) if reference.size else 0.0
    return float(np.sqrt(power) * 10 ** (-least_db / 20))


def _cosine(value: NDArray[np.float64], reference: NDArray[np.float64]) -> float | None:
    """Cosine of the angle between two arrays of shape (elements,); None where one is zero."""
    lengths = float(np.linalg.norm(value) * np.linalg.norm(reference))
    return float(np.dot(value, reference) / lengths) if 0 < lengths < np.inf else None


def _top1(
    value: NDArray[np.float64], reference: NDArray[np.float64], columns: int, lead: float
) -> float | None:
    """Agreement over rows whose largest reference entry leads by more than `lead`.

    Args:
        value: Shape (elements,), rows one after the other.
        reference: Shape (elements,).
        columns: Elements in a row.
        lead: In the reference's unit.

    Returns:
        A share between 0 and 1; None without such rows.
    """
    if columns < 2 or value.size == 0 or value.size % columns:
        return None
    rows = reference.reshape(-1, columns)
    same = value.reshape(-1, columns).argmax(axis=1) == rows.argmax(axis=1)
    if lead >= 0:
        two = np.partition(rows, -2, axis=1)[:, -2:]
        with np.errstate(invalid="ignore"):
            same = same[two[:, 1] - two[:, 0] > lead]
    return float(same.mean()) if same.size else None
