"""What a reader must know of the platform before believing a number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etprof.targets.registry import TARGETS, find_kind

if TYPE_CHECKING:
    from etprof.analysis.assessment import Assessment


def platform_warning(assessment: Assessment) -> str | None:
    """Returns the banner of platforms that are not representative."""
    manifest = assessment.run.manifest
    kind = find_kind(manifest.platform) if manifest else None
    if not assessment.run.times_are_meaningful and (kind is None or kind.policy.proves_times):
        kind = next(each for each in TARGETS if not each.policy.proves_times)
    return kind.warning if kind else None
