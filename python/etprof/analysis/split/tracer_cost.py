"""What instruments cost: recording events, having the tracer compiled in, the operator clock.

Timing launches record no events, the per-operator breakdown does. A runner that is built without the event
tracer (`*-bare`) is timed only; beside a traced build of the same mode and threads it shows what is
left when nothing is recorded.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from etprof.analysis.split.cold_start import pair_blocks
from etprof.statistics.effect import Effect, estimate_effect

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from etprof.analysis.run_analysis import ExperimentAnalysis, RunAnalysis
    from etprof.run.directory import BlockMetrics, ExperimentMetrics

Kind = Literal["recording events", "tracer compiled in", "operator clock"]


@dataclass(frozen=True)
class TracerCost:
    """One cost of an instrument; medians of an inference in ns."""

    experiment: str
    kind: Kind
    without_ns: float
    with_ns: float
    effect: Effect | None
    """Traced build over bare build, pair by pair of blocks; the split is one launch: None."""

    @property
    def ratio(self) -> float:
        """How many times as long an inference takes with it."""
        return self.with_ns / self.without_ns


def find_tracer_costs(run: RunAnalysis) -> tuple[TracerCost, ...]:
    """Returns what the run shows of the tracer's cost; nothing where nothing is timed."""
    recording = [cost for experiment in run.experiments if (cost := _recording_cost(experiment))]
    clock = [cost for experiment in run.experiments if (cost := _clock_cost(experiment))]
    return (*recording, *clock, *_compiled_costs(run))


def _recording_cost(experiment: ExperimentAnalysis) -> TracerCost | None:
    """ETDump pass against timing launches; a generation is no single execution."""
    metrics, latency, split = experiment.metrics, experiment.latency, experiment.split.times
    if latency is None or split is None or metrics is None or metrics.generated is not None:
        return None
    if latency.is_traced:  # both sides have it
        return None
    without, recorded = latency.steady.median, split.execute_median_ns
    if without <= 0 or recorded <= 0:
        return None
    return TracerCost(experiment.name, "recording events", without, recorded, None)


def _clock_cost(experiment: ExperimentAnalysis) -> TracerCost | None:
    """Launches with counters and clock against timing launches."""
    trace = experiment.loaded.kernels if experiment.split.times else None
    if trace is None or experiment.latency is None:
        return None
    traced_ns = [
        execution.duration_ns for execution in trace.executions if execution.phase == "Execute"
    ]
    without_ns = experiment.latency.steady.median
    if without_ns <= 0 or not any(traced_ns):
        return None
    with_ns = statistics.median(traced_ns)
    return TracerCost(experiment.name, "operator clock", without_ns, with_ns, None)


def _compiled_costs(run: RunAnalysis) -> Iterator[TracerCost]:
    """Pairs each bare experiment with the traced one of equal mode and threads."""
    for name, bare in _bare_experiments(run).items():
        for traced in run.experiments:
            metrics = traced.metrics
            if metrics is None or (metrics.sme, metrics.threads) != (bare.sme, bare.threads):
                continue
            pairs = [
                (_median(traced_block), _median(bare_block))
                for traced_block, bare_block in pair_blocks(metrics, bare)
                if _median(traced_block) > 0 and _median(bare_block) > 0
            ]
            if pairs:
                with_ns, without_ns = zip(*pairs, strict=True)
                yield TracerCost(
                    f"{traced.name} beside {name}",
                    "tracer compiled in",
                    statistics.median(without_ns),
                    statistics.median(with_ns),
                    estimate_effect(with_ns, without_ns),
                )


def _median(block: BlockMetrics) -> float:
    return statistics.median(block.latency_ns)


def _bare_experiments(run: RunAnalysis) -> Mapping[str, ExperimentMetrics]:
    """Experiments that were timed and not split because their runner has no event tracer."""
    return {
        experiment.name: experiment.metrics
        for experiment in run.loaded.others
        if experiment.metrics
        and experiment.metrics.blocks
        and experiment.result
        and experiment.result.runner.build.get("event_tracer") is False
    }
