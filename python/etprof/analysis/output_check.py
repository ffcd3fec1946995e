"""Compares outputs as numbers: of two experiments, or of one and the eager model.

A faster wrong answer is no speed-up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from etprof.base.errors import InputFileError
from etprof.run.program import find_minimum_snr_db

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etprof.run.load import LoadedLaunches, LoadedProgram, Run
    from etprof.run.tensors import StoredTensor

_MODE_MINIMUM_SNR_DB: Final = {"fp32": 90.0, "fp16": 40.0, "int8": 25.0}
"""Least signal-to-noise ratio between two SME modes of one program: same weights, same inputs, so
only the order of sums and the rounding between kernels differ."""
_TOLERATED_ZERO: Final = 1e-3
"""Values below this fraction of the largest have no meaningful relative error."""

_MARGIN_DB: Final = 6.0
"""A device may be this much further from the eager model than the host was that exported: twice
the error. It matters for models that amplify rounding, which stay below the usual limits."""


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


def mode_tolerance_db(data_types: set[str]) -> float:
    """Returns the SNR to expect between SME modes, by the operators' plain data types."""
    quantised = any(name.startswith("Q") for name in data_types)
    half = "F16" in data_types
    return _MODE_MINIMUM_SNR_DB["int8" if quantised else "fp16" if half else "fp32"]


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


@dataclass(frozen=True)
class OutputCheck:
    """One output of an experiment beside another's, or the eager model's."""

    candidate: str
    against: str
    parity: Parity
    minimum_snr_db: float
    """Least signal-to-noise ratio between two ways to run one program at its precision."""

    @property
    def is_within(self) -> bool:
        """Whether they agree within the tolerance."""
        return self.parity.is_within(self.minimum_snr_db)

    def __str__(self) -> str:
        if self.parity.identical:
            return f"output {self.parity.index} is identical"
        snr = self.parity.snr_db
        ratio = "no finite error" if snr is None else f"{snr:.1f} dB signal to noise"
        return (
            f"output {self.parity.index}: {ratio} (at least {self.minimum_snr_db:.0f}), largest "
            f"difference {self.parity.max_abs:.3g}"
        )


def check_unsplit(run: Run) -> Iterator[OutputCheck]:
    """Compares with SME off what was computed at equal threads and is in no comparison.

    Those are experiments without an ETDump: the program's precision says how they may differ, and
    where nobody tells it, they may as the widest does.
    """
    every = (*run.experiments, *run.others)
    for off in (each for each in every if each.sme == "off"):
        name = off.program.precision or ""
        kind = next((each for each in _MODE_MINIMUM_SNR_DB if name.startswith(each)), "int8")
        alike = [each for each in every if each.program is off.program]
        for on in (each for each in alike if each.sme != "off" and each.threads == off.threads):
            if on in run.others or off in run.others:
                yield from compare_outputs(on, off, _MODE_MINIMUM_SNR_DB[kind])


def compare_outputs(
    value: LoadedLaunches, reference: LoadedLaunches, tolerance: float
) -> tuple[OutputCheck, ...]:
    """Compares all outputs that both kept whole.

    One that has another type or size on the other side is left out, as a missing one is.
    """
    return tuple(
        OutputCheck(value.name, reference.name, parity, tolerance)
        for index, found in value.outputs.items()
        if (expected := reference.outputs.get(index)) is not None
        and found.dtype == expected.dtype
        and (parity := _compare_stored(index, found, expected)) is not None
    )


def program_tolerance_db(one: LoadedProgram, other: LoadedProgram) -> float | None:
    """Returns the SNR to expect between two programs of one model on the same inputs.

    Each may be as far from the float32 model as its precision allows, and two errors that have
    nothing to do with each other add up in power. None for other models or inputs, and where a
    precision's limit is not known.
    """
    limits = [_least_db(each) for each in (one, other)]
    names = [each.model.name if each.model else None for each in (one, other)]
    if names[0] != names[1] or one.inputs is None or one.inputs != other.inputs:
        return None
    if limits[0] is None or limits[1] is None:
        return None
    return float(-10 * np.log10(10 ** (-limits[0] / 10) + 10 ** (-limits[1] / 10)))


def _least_db(program: LoadedProgram) -> float | None:
    """Least SNR against the float32 model: the export's own limit, or the precision's."""
    check = program.method.check if program.method else None
    least_db = check.minimum_snr_db if check else None
    return find_minimum_snr_db(program.precision) if least_db is None else least_db


def check_references(experiment: LoadedLaunches) -> tuple[OutputCheck, ...]:
    """Compares an experiment's outputs with its own eager model's, which the export wrote.

    Empty where they cannot be compared: other inputs than the export's, no references beside the
    program (any more), or a precision whose limits are not known.
    """
    program, least_db = experiment.program, _least_db(experiment.program)
    if least_db is None:
        return ()
    check = program.method.check if program.method else None
    reached = {each.index: each.snr_db for each in (check.outputs if check else ())}
    checks = []
    for index, found in experiment.outputs.items():
        expected, at_export = program.references.get(index), reached.get(index)
        parity = _compare_stored(index, found, expected) if expected is not None else None
        if parity is not None:
            limit = least_db if at_export is None else min(least_db, at_export - _MARGIN_DB)
            checks.append(OutputCheck(experiment.name, "eager", parity, limit))
    return tuple(checks)


def _compare_stored(index: int, value: StoredTensor, reference: StoredTensor) -> Parity | None:
    """Compares two tensors; None when one is damaged, which is told, or is of another size."""
    if value.problem is not None or reference.problem is not None:
        return None
    found, expected = value.values(), reference.values()
    return compare(index, found, expected, value.columns) if found.size == expected.size else None
