"""Compares what an experiment computed with another, or with the export's reference outputs.

A faster wrong answer is no speed-up.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from etprof.analysis.compare.parity import (
    EAGER_MINIMUM_SNR_DB,
    Parity,
    compare,
    mode_tolerance_db,
    read_tensor,
)
from etprof.base.files import hash_file
from etprof.base.records import read_record
from etprof.run.directory import EXPORT_MANIFEST
from etprof.run.program import ExportManifest
from etprof.run.runner_result import read_result

if TYPE_CHECKING:
    from etprof.analysis.compare.comparability import Side
    from etprof.run.manifest import Manifest
    from etprof.run.program import MethodFiles
    from etprof.run.runner_result import RunnerResult

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
    results = [read_split_result(side.experiment.etdump) for side in (baseline, candidate)]
    if _program(baseline) != _program(candidate) or results[0] is None or results[1] is None:
        return ()
    types = {
        name
        for row in candidate.experiment.split.rows
        for name in row.backend.plain_types(row.data_types)
    }
    _, tolerance = mode_tolerance_db(types)
    checks = []
    for before, after in zip(results[0].outputs, results[1].outputs, strict=False):
        files = [
            _output_file(side.experiment.etdump, before.index) for side in (baseline, candidate)
        ]
        if before.dtype == after.dtype and all(file.is_file() for file in files):
            reference, value = (
                read_tensor(file, each.dtype, each.shape)
                for file, each in zip(files, (before, after), strict=True)
            )
            columns = after.shape[-1] if after.shape else 1
            checks.append(OutputCheck(compare(before.index, value, reference, columns), tolerance))
    return tuple(checks)


def check_references(etdump: Path, provenance: Manifest, run: Path) -> tuple[OutputCheck, ...]:
    """Compares an experiment's outputs with the eager model's, which the export wrote.

    Empty where they cannot be compared: other inputs than the export's, no references beside the
    program (any more), or a precision whose limits are not known.
    """
    result = read_split_result(etdump)
    exported, model = _read_export(run), provenance.model
    least_db = _eager_limit(model.precision)
    if result is None or exported is None or least_db is None:
        return ()
    method = exported.methods.get(model.method or exported.method)
    if method is None or not _has_example_inputs(provenance, method):
        return ()
    folder = Path(model.path or "").parent
    reached = {each.index: each.snr_db for each in method.check.outputs} if method.check else {}
    checks = []
    for value, expected in zip(result.outputs, method.references, strict=False):
        kept = _output_file(etdump, value.index)
        reference = folder / (expected.path or "")
        if kept.is_file() and reference.is_file() and hash_file(reference) == expected.sha256:
            wanted = read_tensor(reference, expected.dtype, expected.shape)
            found = read_tensor(kept, value.dtype, value.shape)
            columns = value.shape[-1] if value.shape else 1
            at_export = reached.get(value.index)
            limit = least_db if at_export is None else min(least_db, at_export - _MARGIN_DB)
            checks.append(OutputCheck(compare(value.index, found, wanted, columns), limit))
    return tuple(checks)


def read_split_result(etdump: Path) -> RunnerResult | None:
    """The result of the pass that kept the outputs, beside its ETDump."""
    path = etdump.with_name(f"{etdump.stem}_result.json")
    return read_result(path) if path.is_file() else None


def _read_export(run: Path) -> ExportManifest | None:
    path = run / EXPORT_MANIFEST
    if not path.is_file():
        return None
    return read_record(ExportManifest, path, way_out="delete it to do without what it says")


def _eager_limit(precision: str | None) -> float | None:
    kind = "int8" if precision and precision.startswith(("int8", "8da4w")) else precision
    return EAGER_MINIMUM_SNR_DB.get(kind or "")


def _has_example_inputs(provenance: Manifest, method: MethodFiles) -> bool:
    given = [entry.sha256 for entry in provenance.inputs or ()]
    examples = [tensor.sha256 for tensor in method.inputs if tensor.path is not None]
    return given == examples and None not in given


def _program(side: Side) -> str | None:
    model = side.provenance.model if side.provenance else None
    return model.sha256 if model else None


def _output_file(etdump: Path, index: int) -> Path:
    return etdump.with_name(f"{etdump.stem}_outputs") / f"output_{index}.bin"
