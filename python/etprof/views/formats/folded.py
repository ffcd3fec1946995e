"""Folded stacks, `module;module;operator TIME` in ns, as flamegraph.pl and speedscope read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etprof.run.directory import safe_name
from etprof.views.formats import Format

if TYPE_CHECKING:
    from collections.abc import Iterator

    from etprof.analysis.assessment import Assessment
    from etprof.analysis.insight import ExperimentInsight


def folded_stacks(assessment: Assessment) -> dict[str, str]:
    """Returns a file per timed experiment, whose lines add up to the split but for rounding."""
    return {
        f"report_stacks_{safe_name(insight.experiment.name)}.folded": "".join(_lines(insight))
        for insight in assessment.insight.experiments
        if insight.experiment.split.times is not None
    }


def _lines(insight: ExperimentInsight) -> Iterator[str]:
    for detail in insight.details:
        modules = next(iter(detail.attribution.modules if detail.attribution else ()), "")
        if detail.row.times is not None:
            yield _line(
                [*filter(None, modules.split(".")), detail.row.label], detail.row.times.mean_ns
            )
    for overhead in insight.experiment.split.overheads:
        yield _line([overhead.label], overhead.times.mean_ns)


def _line(frames: list[str], mean_ns: float) -> str:
    """A semicolon parts frames, and a line is one stack."""
    return f"{';'.join(' '.join(f.replace(';', ',').split()) for f in frames)} {round(mean_ns)}\n"


FORMAT = Format(of_run=folded_stacks)
