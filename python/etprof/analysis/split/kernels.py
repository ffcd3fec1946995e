"""What a program ran and computed in each SME mode: the evidence and the outputs side by side."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from etprof.analysis.output_check import (
    OutputCheck,
    Parity,
    compare,
    mode_tolerance_db,
)
from etprof.analysis.split.evidence import AlignedOperator, align_modes, count_reasons
from etprof.run.program import find_minimum_snr_db, load_export_manifest
from etprof.run.tensors import load_tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from etprof.analysis.split.evidence import ModeEvidence, OperatorEvidence
    from etprof.run.program import Program
    from etprof.run.runner_result import RunnerResult, Tensor
    from etprof.run.tensors import StoredTensor


@dataclass(frozen=True)
class KernelEvidence:
    """What every SME mode ran and computed."""

    modes: Mapping[str, ModeEvidence]
    operators: tuple[AlignedOperator, ...]
    parities: tuple[OutputCheck, ...]
    arithmetic: str
    """fp32, fp16 or int8: decides the tolerances."""


def gather_evidence(
    evidence: Mapping[str, ModeEvidence], results: Mapping[str, RunnerResult], program: Program
) -> KernelEvidence:
    """Aligns the operators of all modes and compares their outputs.

    Outputs are read from the files that the results name. Raises InputFileError when one is
    missing or has another size than its counterpart.
    """
    types = {
        name
        for mode in evidence.values()
        for operator in mode.operators
        for name in operator.backend.plain_types(operator.parts.data_types)
    }
    arithmetic, minimum_snr_db = mode_tolerance_db(types)
    parities = [
        OutputCheck(mode, "off", parity, minimum_snr_db)
        for mode in results
        if mode != "off" and "off" in results
        for parity in _compare_results(results[mode], results["off"])
    ]
    parities += [
        OutputCheck(mode, "eager", parity, find_minimum_snr_db(arithmetic) or 0)
        for mode, result in results.items()
        for parity in _compare_eager(result, program)
    ]
    return KernelEvidence(evidence, align_modes(evidence), tuple(parities), arithmetic)


def _compare_results(result: RunnerResult, reference: RunnerResult) -> list[Parity]:
    """Compares all tensor outputs of two runs of one program."""
    return [
        compare(
            value.index,
            (found := _stored(value)).values(),
            _stored(expected).values(),
            found.columns,
        )
        for value, expected in zip(result.outputs, reference.outputs, strict=True)
        if value.path is not None and expected.path is not None and value.dtype != "none"
    ]


def _compare_eager(result: RunnerResult, program: Program) -> list[Parity]:
    """Compares with the eager model's outputs, where the export wrote them for these inputs."""
    manifest = load_export_manifest(program.model) if program.references else None
    if manifest is None:
        return []
    folder = program.model.parent
    return [
        compare(
            value.index,
            (found := _stored(value)).values(),
            load_tensor(folder / expected.path, expected.dtype, expected.shape).values(),
            found.columns,
        )
        for value, expected in zip(
            result.outputs, manifest.methods[program.method].references, strict=True
        )
        if value.path is not None and expected.path is not None
    ]


def _stored(tensor: Tensor) -> StoredTensor:
    return load_tensor(tensor.path or "", tensor.dtype, tensor.shape)


def evidence_document(evidence: KernelEvidence) -> dict[str, object]:
    """Returns everything as plain JSON."""
    return {
        "schema_version": 1,
        "arithmetic": evidence.arithmetic,
        "modes": {mode: _mode_document(found) for mode, found in evidence.modes.items()},
        "operators": [
            {mode: _operator_document(found) for mode, found in row.by_mode.items()}
            for row in evidence.operators
        ],
        "parity": [{**asdict(found), "is_within": found.is_within} for found in evidence.parities],
    }


def _mode_document(mode: ModeEvidence) -> dict[str, object]:
    return {
        "in_force": mode.mode_in_force,
        "kernel_calls_per_inference": dict(mode.kernel_calls),
        "kernel_calls_at_load": dict(mode.load_calls),
        "steady": mode.steady,
        "without_sme2": [
            {**asdict(reason), "operators": [operator.name for operator in operators]}
            for reason, operators in count_reasons(mode)
        ],
    }


def _operator_document(operator: OperatorEvidence | None) -> dict[str, object] | None:
    if operator is None:
        return None
    return {
        "name": operator.name,
        "category": operator.parts.operator_class.category,
        "level": operator.level,
        "grade": operator.grade,
        "kernels": [asdict(kernel) for kernel in operator.kernels],
    }
