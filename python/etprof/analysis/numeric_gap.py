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
_DYNAMIC_FLOOR_DB: Final = 35.0
"""Of a left side that both quantise to 8 bits while they run, each with a zero point of its own
rounding. Of normal values up to 5 σ a step is 10 σ ÷ 255; both roundings together are √(2 ÷ 12) of it."""
_HALF_FLOOR_DB: Final = 70.0
"""Of one sum of one product. Kernels that sum halves in halves lose 3 dB with each doubling of what
is summed: toy_cnn's and MobileNetV2's convolutions and products on x86 have 74 to 76 dB less that,
from 27 products (62 dB) to 1280 (45 dB)."""
_HALF_ROUNDING_DB: Final = 66.0
"""Of one result that is rounded to half precision, whatever it was computed in: 2^-11 of a value that
is just above a power of two, as all of RMS norms' reciprocal roots may be."""
_HALF_GAIN: Final = 2.0**-9
"""Off 1, of a whole result: four roundings to half precision of one factor that all of it has, such as
a batch norm's 1 ÷ √(variance + ε) times its weight."""
_DEVIATIONS: Final = 6.0
"""Of a gain that roundings make. More than a normal variable's 3 or 4, since values that come again,
as those of a flat image do, are rounded alike: each may be there four times."""
_CHUNK: Final = 2**13
"""Elements that are compared at once, in float64: so few that they stay in a core's cache, and that
BLAS starts no threads, which would spin until the next piece (a tenth of the whole command's time)."""


@dataclass(frozen=True)
class Gap:
    """The difference between two tensors that should be the same."""

    mse: float
    """Mean of the squared difference."""
    snr_db: float | None
    """10 log10 of Σ reference² ÷ Σ (value - reference)²; None when there is no difference."""
    cosine: float | None
    """Of the angle between both; None where one of them is all zeros."""
    gain: float | None
    """Σ value · reference ÷ Σ reference²: the factor of the reference that is nearest to the value, by
    least squares; None where the reference is all zeros."""
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
        actual = values[start : start + _CHUNK].astype(np.float64)
        expected = references[start : start + _CHUNK].astype(np.float64)
        finite = np.isfinite(actual) & np.isfinite(expected)
        if not finite.all():
            same = (np.isnan(actual) & np.isnan(expected)) | (actual == expected)
            odd += int((~finite & ~same).sum())
            actual, expected = np.where(finite, actual, 0), np.where(finite, expected, 0)
        error = actual - expected
        error_power += float(error @ error)
        power += float(expected @ expected)
        own_power += float(actual @ actual)
        product += float(actual @ expected)
        largest = max(largest, float(np.max(np.abs(error), initial=0.0)))
    length = float(np.sqrt(power * own_power))
    return Gap(
        mse=error_power / max(values.size, 1),
        snr_db=NO_LIKENESS_DB if odd else _snr_db(power, error_power),
        cosine=product / length if length else None,
        gain=product / power if power else None,
        max_abs=largest,
        nonfinite=odd,
    )


def _snr_db(power: float, error_power: float) -> float | None:
    if error_power == 0:
        return None
    ratio = power / error_power
    return max(10 * float(np.log10(ratio)), NO_LIKENESS_DB) if ratio > 0 else NO_LIKENESS_DB


@dataclass(frozen=True)
class PrecisionError:
    """The largest error of its own that an operator has by its precision."""

    least_db: float
    """Signal to noise."""
    most_gain: float
    """How far the gain is from 1. Never more than the whole error is by `least_db`, and that is
    no bound of its own."""

    def excess(self, gap: Gap) -> float:
        """Returns the error ÷ the largest that is explained; above 1 the operator parts."""
        noise = gap.relative * 10 ** (self.least_db / 20)
        return max(noise, abs((1.0 if gap.gain is None else gap.gain) - 1) / self.most_gain)


def explain_error(
    precision: str, summed: float, size: int, *, steps: int = 1, growth: float = 1.0
) -> PrecisionError:
    """Returns what is explained of `size` results with `summed` products in each sum.

    `steps` are the roundings that a kernel in half precision needs for one value. `growth` is the
    power of what is summed up on the way ÷ that of the result: each addition rounds the sum so far.

    Roundings are independent of each other and of mean zero (Higham and Mary, "A new approach to
    probabilistic rounding error analysis", 2019). So where each result is off by ρ of the results'
    root mean square, their gain is off by ρ ÷ √size: noise that hides 1 % of a result hides no 1 % of
    all. It matters where half precision explains more noise than that; elsewhere ρ is the bound.

    Of a few results the root mean square is uncertain itself: a single one may be off by a whole unit
    in the last place, twice what 66 dB is.
    """
    if precision != "fp16":
        least_db = _FLOAT_FLOOR_DB if precision == "fp32" else _INTEGER_FLOOR_DB
        return PrecisionError(least_db, 10 ** (-least_db / 20))
    long_sum_db = _HALF_FLOOR_DB - 10 * float(np.log10(max(summed, 1.0)))
    least_db = min(
        _HALF_ROUNDING_DB - 10 * float(np.log10(steps)),
        long_sum_db - 10 * float(np.log10(max(growth, 1.0))),
    )
    least_db -= 20 * float(np.log10(1 + max(size, 1) ** -0.5))
    noise = 10 ** (-least_db / 20)
    return PrecisionError(least_db, _HALF_GAIN + _DEVIATIONS * noise / max(size, 1) ** 0.5)


def explain_dynamic_product(size: int) -> PrecisionError:
    """Returns what is explained of `size` results of a left side that is quantised as it runs."""
    noise = 10 ** (-_DYNAMIC_FLOOR_DB / 20)
    most_gain = 10 ** (-_INTEGER_FLOOR_DB / 20) + _DEVIATIONS * noise / max(size, 1) ** 0.5
    return PrecisionError(_DYNAMIC_FLOOR_DB, most_gain)


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
    explained: PrecisionError
    """Of its own gap."""
    own_gap: Gap
    eager: Gap
    """From the eager model in the program's precision."""
    float32: Gap | None
    """From the eager model in float32; None where that has no such operator."""
    off: Gap | None
    """From the same operator with SME off."""

    @property
    def excess(self) -> float:
        """Its own error ÷ the largest that its precision explains."""
        return self.explained.excess(self.own_gap)


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
        operators = [row for row in self.rows if row.mode == mode]
        return sorted(operators, key=lambda row: -row.excess)

    def added_noise(self, mode: str) -> dict[str, float]:
        """Returns by module how much its operators add to the distance from float32.

        The distance is error power ÷ signal power, and each operator's is compared with that of the one
        before it in the graph: a guide to which layers a precision is too small for, not a proof.
        """
        noise_by_module, before = dict[str, float](), 0.0
        for row in self.rows:
            if row.mode == mode and row.float32 is not None:
                now = row.float32.relative**2
                noise_by_module[row.module] = noise_by_module.get(row.module, 0.0) + max(
                    0.0, now - before
                )
                before = now
        return noise_by_module

    def first_parted(self, mode: str) -> OperatorGap | None:
        """The first operator in the graph whose own gap is larger than its precision explains."""
        operators = (row for row in self.rows if row.mode == mode)
        return next((row for row in operators if row.excess > 1), None)
