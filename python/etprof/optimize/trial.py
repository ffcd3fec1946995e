"""One program that was tried: what it was made with, what its export says, whether it is better.

These figures rank coverage of SME2 and what is left outside the delegate; none of them is a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from etprof.base.records import Count, Name, Record
from etprof.run.program import AppliedRewrite

if TYPE_CHECKING:
    from etprof.run.delegation import DelegationReport, MethodSummary
    from etprof.run.program import ExportManifest

_SAME_SHARE: Final = 0.001
"""Of the model's multiply-accumulates: a tenth of a point is no reason for a rewrite."""
_SAME_SIZE: Final = 0.01
"""Of the program's bytes."""


class Trial(Record):
    """A program, by the rewrites that were asked for."""

    rewrites: tuple[Name, ...]
    applied: tuple[AppliedRewrite, ...] = ()
    macs: Count = 0
    macs_without_sme2: Count | None = None
    """Predicted; None where a delegate's node has no prediction."""
    delegate_calls: Count = 0
    outside: Count = 0
    """Calls of portable kernels."""
    size_bytes: Count = 0
    snr_db: float | None = None
    """The least of all outputs against eager float32; None where they are equal, or nothing ran."""
    passed: bool = False
    problem: Name | None = None
    """Why there is no such program."""

    def sme2_share(self, macs: int) -> float | None:
        """Returns the share of the original model's `macs` that are on SME2.

        What a rewrite adds cannot raise it: work without SME2 counts against the original's.
        """
        if self.macs_without_sme2 is None or not macs:
            return None
        return max(0.0, 1 - self.macs_without_sme2 / macs)


def describe_trial(
    names: tuple[str, ...], manifest: ExportManifest, report: DelegationReport, size_bytes: int
) -> Trial:
    """Returns the trial that an export's own files tell of."""
    summaries = [each.summary for each in report.methods.values() if each.summary is not None]
    without = [_macs_without_sme2(each) for each in summaries]
    checks = [each.check for each in manifest.methods.values() if each.check is not None]
    ratios = [output.snr_db for check in checks for output in check.outputs]
    return Trial(
        rewrites=names,
        applied=manifest.rewrites,
        macs=sum(each.macs for each in summaries),
        macs_without_sme2=None if None in without else sum(each or 0 for each in without),
        delegate_calls=sum(each.delegate_calls for each in summaries),
        outside=sum(each.undelegated_operators for each in summaries),
        size_bytes=size_bytes,
        snr_db=min((each for each in ratios if each is not None), default=None),
        passed=bool(checks) and all(each.passed is True for each in checks),
    )


def _macs_without_sme2(summary: MethodSummary) -> int | None:
    if not summary.macs:
        return 0
    share = summary.predicted_sme2_macs_share
    return None if share is None else round(summary.macs * (1 - share))


Comparison = Literal["better", "same", "worse"]


def compare(candidate: Trial, other: Trial, macs: int) -> Comparison:
    """Says how a program compares with another, by what matters most and then by the next.

    First the share of `macs` on SME2, then operators outside the delegate, then its calls, then
    the program's size. A share that is unknown is compared with nothing.
    """
    shares = candidate.sme2_share(macs), other.sme2_share(macs)
    if shares[0] is not None and shares[1] is not None and abs(shares[0] - shares[1]) > _SAME_SHARE:
        return "better" if shares[0] > shares[1] else "worse"
    for mine, theirs in (
        (candidate.outside, other.outside),
        (candidate.delegate_calls, other.delegate_calls),
    ):
        if mine != theirs:
            return "better" if mine < theirs else "worse"
    if abs(candidate.size_bytes - other.size_bytes) > _SAME_SIZE * other.size_bytes:
        return "better" if candidate.size_bytes < other.size_bytes else "worse"
    return "same"


class Step(Record):
    """What was decided about one rewrite, and on which evidence."""

    rewrite: Name
    kept: bool
    why: Name
    is_idle: bool = False
    """It found nothing to change."""
    operators: Count | None = None
    """That it replaced in the traced graphs."""
    without: Trial | None = None
    """The same program without it; None where that was not tried."""


class Optimization(Record):
    """The file `optimize.json`: the baseline, the result, and every step between them."""

    schema_version: Literal[1] = 1
    model: Name
    precision: Name
    backend: Name
    made_of: Name
    """Hash of the model's code, options and tools: other trials are of another program."""
    tolerance_db: float
    baseline: Trial | None = None
    best: Trial | None = None
    steps: tuple[Step, ...] = ()
    trials: tuple[Trial, ...] = ()
    is_complete: bool = False
    """Whether the budget sufficed for every step."""
    program: Name | None = None
    """The result's file beside this one; None where no rewrite helps."""
