"""What a reader must know of the platform before believing a number."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from etprof.analysis.assessment import Assessment

_WARNINGS = {
    "mac": (
        "Measured on macOS: a Mac's cores, memory and scheduling are not a phone's. Read it for the "
        "shape of the result, not for its figures. Operators outside XNNPACK may use Apple's own "
        "matrix units in every mode."
    ),
    "emulator": (
        "Measured under emulation: which microkernels ran, how often, and what they computed is "
        "exact; times mean nothing and are not shown."
    ),
}


def platform_warning(assessment: Assessment) -> str | None:
    """Returns the banner of platforms that are not representative."""
    if not assessment.run.times_are_meaningful:
        return _WARNINGS["emulator"]
    platform = assessment.run.manifest.platform if assessment.run.manifest else None
    return _WARNINGS.get(platform or "")
