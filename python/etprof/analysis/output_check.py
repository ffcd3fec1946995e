"""Compares what two experiments computed: a faster wrong answer is no speed-up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from etprof.analysis.parity import Parity, compare, mode_tolerance_db, read_tensor
from etprof.runner_result import read_result

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.analysis.comparability import Side
    from etprof.runner_result import RunnerResult


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
    results = _result(baseline), _result(candidate)
    if _program(baseline) != _program(candidate) or results[0] is None or results[1] is None:
        return ()
    types = {t for row in candidate.experiment.split.rows for t in row.data_types}
    _, tolerance = mode_tolerance_db(types)
    checks = []
    for before, after in zip(results[0].outputs, results[1].outputs, strict=False):
        files = [_output_file(side, before.index) for side in (baseline, candidate)]
        if before.dtype == after.dtype and all(file.is_file() for file in files):
            reference, value = (read_tensor(file, before.dtype) for file in files)
            columns = after.shape[-1] if after.shape else 1
            checks.append(OutputCheck(compare(before.index, value, reference, columns), tolerance))
    return tuple(checks)


def _program(side: Side) -> str | None:
    model = side.provenance.model if side.provenance else None
    return model.sha256 if model else None


def _result(side: Side) -> RunnerResult | None:
    """The result of the pass that kept the outputs, beside its ETDump."""
    etdump = side.experiment.etdump
    path = etdump.with_name(f"{etdump.stem}_result.json")
    return read_result(path) if path.is_file() else None


def _output_file(side: Side, index: int) -> Path:
    etdump = side.experiment.etdump
    return etdump.with_name(f"{etdump.stem}_outputs") / f"output_{index}.bin"
