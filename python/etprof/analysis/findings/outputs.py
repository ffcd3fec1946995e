"""F17: outputs that are no numbers, or not what the model computes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etprof.analysis.findings.finding import EvidenceRow, Finding, Subject
from etprof.analysis.output_check import check_references
from etprof.base.errors import InputFileError
from etprof.base.units import count_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.analysis.output_check import OutputCheck
    from etprof.run.runner_result import Tensor


def find_wrong_outputs(subject: Subject) -> Finding | None:
    """F17: an output differs from the eager model's, or without one to compare is not finite."""
    checks = _checks(subject)
    wrong = [check for check in checks if not check.is_within]
    if wrong:
        return _wrong(subject, wrong)
    compared = {check.parity.index for check in checks}
    result = subject.insight.experiment.loaded.result
    odd = [
        output
        for output in (result.outputs if result else ())
        if output.nonfinite_count and output.index not in compared
    ]
    return _not_finite(subject, odd) if odd else None


def _checks(subject: Subject) -> tuple[OutputCheck, ...]:
    try:
        return check_references(subject.run.run.loaded, subject.insight.experiment.loaded)
    except InputFileError:
        # Damaged, or of another shape than the examples: it cannot be compared.
        return ()


def _wrong(subject: Subject, wrong: Sequence[OutputCheck]) -> Finding:
    return Finding(
        rule="F17",
        title="The outputs are wrong",
        severity="high",
        experiment=subject.name,
        summary=(
            f"{count_of(len(wrong), 'output')} further from the eager model's than this precision "
            "explains, for the same inputs: no time of a wrong answer counts."
        ),
        evidence=tuple(
            EvidenceRow(f"output {check.parity.index}", _describe(check)) for check in wrong
        ),
        gain_ns=None,
        action=(
            "export again, with the numeric check on; if that passes, compare SME modes "
            "(`etprof profile MODEL --target emulator`) to find the kernel"
        ),
        ruled_out=("other inputs: the program got those of its export",),
    )


def _describe(check: OutputCheck) -> str:
    odd = check.parity.nonfinite_differences
    beside = f"; {count_of(odd, 'value')} not finite on one side only" if odd else ""
    return str(check).partition(": ")[2] + beside


def _not_finite(subject: Subject, odd: Sequence[Tensor]) -> Finding:
    return Finding(
        rule="F17",
        title="Outputs are not finite",
        severity="high",
        experiment=subject.name,
        summary=(
            f"{count_of(len(odd), 'output')} with infinities or no numbers; there is no reference "
            "to say whether the model means it."
        ),
        evidence=tuple(
            EvidenceRow(f"output {output.index}", count_of(output.nonfinite_count, "value"))
            for output in odd
        ),
        gain_ns=None,
        action=(
            "give representative inputs (--inputs), or export at a wider precision: float16 ends "
            "at 65504; times of such values may differ from those of real ones"
        ),
    )
