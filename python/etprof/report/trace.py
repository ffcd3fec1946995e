"""What a trace shows, whatever its format: one process per experiment, slices and counters.

Slices are on a clock that starts at zero with the first steady execution of the operator split.
Counters come from the timing launches, which are others: their clock is the sum of the latencies
timed so far, and the machine's state stands at the start and end of each launch.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from etprof.analysis.launch_state import fastest_core_khz, hottest_sensor_c, load_average
from etprof.report.slices import Slice, experiment_slices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from etprof.analysis.assessment import Assessment
    from etprof.analysis.run_analysis import ExperimentAnalysis, RunAnalysis
    from etprof.run.directory import BlockMetrics
    from etprof.run.manifest import LaunchRecord

    Reading = Callable[[Mapping[str, object]], float | None]

_STATES: Final[tuple[tuple[str, str, Reading], ...]] = (
    ("fastest core", "kHz", fastest_core_khz),
    ("hottest sensor", "°C", hottest_sensor_c),
    ("load average", "processes", load_average),
)
TRACK: Final = "steady executions"


@dataclass(frozen=True)
class Counter:
    """A quantity over time."""

    name: str
    unit: str
    points: tuple[tuple[int, float], ...]
    """Time in ns on the clock of timed latencies, and value."""


@dataclass(frozen=True)
class Process:
    """One experiment as a trace shows it."""

    number: int
    """Counts from 1."""
    name: str
    slices: tuple[Slice, ...]
    counters: tuple[Counter, ...]


def trace_processes(assessment: Assessment) -> tuple[Process, ...]:
    """Returns all experiments, aligned at zero; emulated ones say that lengths mean nothing."""
    run = assessment.run
    suffix = "" if run.times_are_meaningful else " (emulated: lengths mean nothing)"
    return tuple(
        Process(
            number,
            f"{experiment.name}{suffix}",
            tuple(experiment_slices(experiment)),
            _counters(run, experiment) if run.times_are_meaningful else (),
        )
        for number, experiment in enumerate(run.experiments, start=1)
    )


def _counters(run: RunAnalysis, experiment: ExperimentAnalysis) -> tuple[Counter, ...]:
    """Raw latencies, then what was recorded of the machine around each timing launch."""
    if experiment.metrics is None or not experiment.metrics.blocks:
        return ()
    blocks = experiment.metrics.blocks
    launches = run.manifest.launches if run.manifest else ()
    timed = {
        launch.block: launch
        for launch in launches
        if (launch.experiment, launch.purpose, launch.error) == (experiment.name, "timing", None)
    }
    spans = _spans(blocks)
    states = [
        Counter(name, unit, points)
        for name, unit, reading in _STATES
        if (points := tuple(_state_points(blocks, spans, timed, reading)))
    ]
    return (Counter("latency without tracer", "ns", _latency_points(blocks)), *states)


def _spans(blocks: Sequence[BlockMetrics]) -> list[tuple[int, int]]:
    """Begin and end of each block, in ns, when their latencies are laid end to end."""
    ends = list(itertools.accumulate(sum(block.latency_ns) for block in blocks))
    return list(zip([0, *ends], ends, strict=False))


def _latency_points(blocks: Sequence[BlockMetrics]) -> tuple[tuple[int, float], ...]:
    samples = [latency for block in blocks for latency in block.latency_ns]
    starts = itertools.accumulate(samples[:-1], initial=0)
    return tuple((start, float(sample)) for start, sample in zip(starts, samples, strict=True))


def _state_points(
    blocks: Sequence[BlockMetrics],
    spans: Sequence[tuple[int, int]],
    launches: Mapping[int | None, LaunchRecord],
    reading: Reading,
) -> Iterator[tuple[int, float]]:
    """Yields one quantity of the machine's state before and after each block, where known."""
    for block, span in zip(blocks, spans, strict=True):
        launch = launches.get(block.block)
        if launch is None:
            continue
        for time_ns, state in zip(span, (launch.state_before, launch.state_after), strict=True):
            value = reading(state) if state else None
            if value is not None:
                yield time_ns, float(value)
