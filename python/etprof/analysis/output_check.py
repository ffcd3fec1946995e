"""Compares what an experiment computed with another, or with the export's reference outputs.

A faster wrong answer is no speed-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from etprof.analysis.compare.parity import (
    EAGER_MINIMUM_SNR_DB,
    Parity,
    compare,
    mode_tolerance_db,
)

if TYPE_CHECKING:
    from etprof.analysis.compare.comparability import Side
    from etprof.run.load import LoadedExperiment, Run

_MARGIN_DB: Final = 6.0
"""A device may be this much further from the eager model than the host was that exported: twice
the error. It matters for models that amplify rounding, which stay below the usual limits."""


@dataclass(frozen=True)
class OutputCheck:
    """One output of the candidate beside the baseline's."""

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


def check_outputs(baseline: Side, candidate: Side) -> tuple[OutputCheck, ...]:
    """Compares all outputs that both sides kept; empty for other programs or missing files.

    Raises InputFileError when outputs of one program differ in size.
    """
    one, other = baseline.experiment.loaded, candidate.experiment.loaded
    if _program(baseline) != _program(candidate) or one.result is None or other.result is None:
        return ()
    types = {
        name
        for row in candidate.experiment.split.rows
        for name in row.backend.plain_types(row.data_types)
    }
    _, tolerance = mode_tolerance_db(types)
    checks = []
    for before, after in zip(one.result.outputs, other.result.outputs, strict=False):
        reference, value = one.outputs.get(before.index), other.outputs.get(after.index)
        if reference and value and before.dtype == after.dtype:
            found = compare(before.index, value.values(), reference.values(), value.columns)
            checks.append(OutputCheck(found, tolerance))
    return tuple(checks)


def check_references(run: Run, experiment: LoadedExperiment) -> tuple[OutputCheck, ...]:
    """Compares an experiment's outputs with the eager model's, which the export wrote.

    Empty where they cannot be compared: other inputs than the export's, no references beside the
    program (any more), or a precision whose limits are not known.
    """
    least_db = _eager_limit(run.manifest.model.precision) if run.manifest else None
    if experiment.result is None or least_db is None:
        return ()
    told = run.method.check.outputs if run.method and run.method.check else ()
    reached = {each.index: each.snr_db for each in told}
    checks = []
    for position, output in enumerate(experiment.result.outputs):
        reference, value = run.references.get(position), experiment.outputs.get(output.index)
        if reference and value:
            at_export = reached.get(output.index)
            limit = least_db if at_export is None else min(least_db, at_export - _MARGIN_DB)
            wanted, found = reference.values(), value.values()
            checks.append(OutputCheck(compare(output.index, found, wanted, value.columns), limit))
    return tuple(checks)


def _eager_limit(precision: str | None) -> float | None:
    kind = "int8" if precision and precision.startswith(("int8", "8da4w")) else precision
    return EAGER_MINIMUM_SNR_DB.get(kind or "")


def _program(side: Side) -> str | None:
    model = side.provenance.model if side.provenance else None
    return model.sha256 if model else None
