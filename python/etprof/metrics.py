"""Gathers the results of all launches into metrics.json."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etprof.run_directory import BlockMetrics, ExperimentMetrics, Metrics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from etprof.launching import Launcher
    from etprof.plan import Experiment
    from etprof.runner_result import RunnerResult


def gather_metrics(
    results: Mapping[tuple[str, str, int | None], RunnerResult],
    experiments: Sequence[Experiment],
    launcher: Launcher,
    times_are_meaningful: bool,
) -> Metrics:
    """Returns raw latencies, load times and memory of every finished timing block."""
    found: dict[str, ExperimentMetrics] = {}
    for experiment in experiments:
        own = {
            (purpose, block): result
            for (name, purpose, block), result in results.items()
            if name == experiment.name
        }
        if own:
            files = launcher.files(experiment)
            etdump = f"{files.folder.name}/{files.etdump.name}"
            found[experiment.name] = _experiment_metrics(own, etdump)
    return Metrics(times_are_meaningful=times_are_meaningful, experiments=found)


def _experiment_metrics(
    results: Mapping[tuple[str, int | None], RunnerResult], etdump: str
) -> ExperimentMetrics:
    """Timing blocks of one experiment; mode and threads are the same in all its launches."""
    first = next(iter(results.values()))
    timing = {block: result for (purpose, block), result in results.items() if purpose == "timing"}
    fields = set(BlockMetrics.model_fields)
    return ExperimentMetrics(
        sme=str((first.sme or {}).get("in_force", "off")),
        threads=first.threads.in_force,
        etdump=etdump,
        blocks=[
            BlockMetrics(block=block, **result.model_dump(include=fields))
            for block, result in sorted(timing.items(), key=lambda item: item[0] or 0)
            if block is not None
        ],
    )
