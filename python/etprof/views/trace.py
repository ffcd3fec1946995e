"""What a trace shows, whatever its format: one process per experiment, slices and counters.

Slices are on a clock that starts at zero with the first steady execution of the per-operator breakdown.
Counters come from the timing launches, which are others: their clock is the sum of the latencies
timed so far, and the machine's state stands at the start and end of each launch.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from etprof.analysis.launch_state import fastest_core_khz, hottest_sensor_c, load_average
from etprof.analysis.split.executions import STEADY_BLOCK
from etprof.backends.registry import PORTABLE, event_label
from etprof.etdump.plausibility import CONTAINERS, KERNEL_PREFIX, LOAD_EVENTS, ticks_from

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from etprof.analysis.assessment import Assessment
    from etprof.analysis.run_analysis import ExperimentAnalysis, RunAnalysis
    from etprof.analysis.split.executions import Delegates, Piece
    from etprof.backends.backend import Backend
    from etprof.run.directory import BlockMetrics
    from etprof.run.manifest import LaunchRecord

    Reading = Callable[[Mapping[str, object]], float | None]

_WAITED: Final = "waited before the launch"
_STATES: Final[tuple[tuple[str, str, Reading], ...]] = (
    ("fastest core", "kHz", fastest_core_khz),
    ("hottest sensor", "°C", hottest_sensor_c),
    ("load average", "processes", load_average),
)
TRACK: Final = "steady executions"
_WITHOUT_TIMES: Final = " (emulated: in order, without times)"
_STEP_NS: Final = 1000
"""Between two events of a trace without times; viewers cannot do without lengths."""
_EXECUTE = CONTAINERS[0]
_SHOWN_EXECUTIONS = 20
"""More executions make a larger file and show nothing new."""


@dataclass(frozen=True)
class Slice:
    """One event; nested by its times in those that enclose it."""

    name: str
    """What people look for: the layer of an operator, else its label."""
    label: str
    """Its name in the ETDump."""
    category: str | None
    """None for containers."""
    start_ns: int
    end_ns: int
    is_synthetic: bool
    """Whether the start was laid end to end instead of measured."""


@dataclass(frozen=True)
class _TraceEvent:
    label: str
    name: str
    """The layer, else the label."""
    backend: Backend
    start_ns: int
    duration_ns: int
    is_synthetic: bool
    """Whether only its duration was measured."""


@dataclass(frozen=True)
class Counter:
    """A quantity over time."""

    name: str
    unit: str
    points: tuple[tuple[int, float], ...]
    """Time in ns on the clock of timed latencies, and value."""


@dataclass(frozen=True)
class TraceProcess:
    """One experiment as a trace shows it."""

    number: int
    """Counts from 1."""
    name: str
    slices: tuple[Slice, ...]
    counters: tuple[Counter, ...]


def trace_processes(assessment: Assessment) -> tuple[TraceProcess, ...]:
    """Returns all experiments, aligned at zero; untimed ones show the order of events alone."""
    run = assessment.run
    return tuple(
        TraceProcess(
            number,
            experiment.name
            if experiment.executions.is_timed
            else f"{experiment.name}{_WITHOUT_TIMES}",
            tuple(experiment_slices(experiment)),
            _counters(run, experiment),
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
    waited = tuple(
        (start, timed[block.block].waited_s)
        for block, (start, _) in zip(blocks, spans, strict=True)
        if block.block in timed
    )
    if any(seconds for _, seconds in waited):
        states.append(Counter(_WAITED, "s", waited))
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


def experiment_slices(experiment: ExperimentAnalysis) -> list[Slice]:
    """Returns the first steady executions that can be so, each parent before its children.

    Executions follow each other without gaps, so that experiments of different speed start
    together and can be compared by eye.
    """
    slices: list[Slice] = []
    now = 0
    for events in _executions(experiment):
        slices += _nest(events, now)
        now = slices[-len(events)].end_ns
    return slices


def _executions(experiment: ExperimentAnalysis) -> list[list[_TraceEvent]]:
    """Groups the usable events of steady executions, ended by their `Method::execute`."""
    executions = experiment.executions
    names = (*executions.names, "")
    layers = {(row.label, row.instruction_id): row.name for row in experiment.split.rows}
    steady_executions: list[list[_TraceEvent]] = []
    events: list[_TraceEvent] = []
    for piece in executions.pieces():
        block_names = [names[name_id] for name_id in piece.dump.blocks.name_id.tolist()]
        for row in np.flatnonzero(piece.usable).tolist():
            if block_names[piece.dump.profile.block_index[row]] != STEADY_BLOCK:
                continue
            events.append(_event(piece, row, executions.delegates, names, layers))
            if events[-1].label == _EXECUTE:
                steady_executions.append(events if executions.is_timed else _in_order(events))
                events = []
                if len(steady_executions) == _SHOWN_EXECUTIONS:
                    return steady_executions
    return steady_executions


def _event(
    piece: Piece,
    row: int,
    delegates: Delegates,
    names: Sequence[str],
    layers: Mapping[tuple[str, int | None], str],
) -> _TraceEvent:
    profile, times = piece.dump.profile, piece.events.times
    label, is_delegated = event_label(names, *(int(column[row]) for column in profile.naming))
    instruction = int(profile.instruction_id[row])
    return _TraceEvent(
        label,
        layers.get((label, instruction), label),
        delegates.backend(instruction) if is_delegated else PORTABLE,
        int(times.start[row]) if times else 0,
        int(times.duration[row]) if times else 0,
        is_delegated and instruction in delegates.synthetic,
    )


def _in_order(events: Sequence[_TraceEvent]) -> list[_TraceEvent]:
    """Begins and ends without times, one step apart; what a call holds stands before it."""
    placed: list[_TraceEvent] = []
    now = called = 0
    for event in events:
        start = {_EXECUTE: 0}.get(event.label, called if event.label in CONTAINERS else now)
        now += _STEP_NS
        placed.append(replace(event, start_ns=start, duration_ns=now - start))
        called = now if event.label in CONTAINERS else called
    return placed


def _nest(events: Sequence[_TraceEvent], now: int) -> list[Slice]:
    """Places one execution at `now`: containers where measured, delegated operators end to end."""
    execution = events[-1]
    end = now + execution.duration_ns
    slices = [Slice(_EXECUTE, _EXECUTE, None, now, end, is_synthetic=False)]
    waiting: list[_TraceEvent] = []
    for event in events[:-1]:
        if event.label in LOAD_EVENTS:
            continue
        if event.label not in CONTAINERS:
            waiting.append(event)
            continue
        start = now + ticks_from(execution.start_ns, event.start_ns)
        end = start + event.duration_ns
        slices.append(Slice(event.label, event.label, None, start, end, is_synthetic=False))
        slices += _children(waiting, slices[-1], execution, now)
        waiting = []
    slices += _children(waiting, slices[0], execution, now)
    return slices


def _children(
    events: Sequence[_TraceEvent], parent: Slice, execution: _TraceEvent, now: int
) -> list[Slice]:
    """Places operators inside the call that holds them, in an execution that starts `now`."""
    children, cursor = [], parent.start_ns
    for event in events:
        is_synthetic = event.is_synthetic
        start = cursor if is_synthetic else now + ticks_from(execution.start_ns, event.start_ns)
        end = min(start + event.duration_ns, parent.end_ns)
        cursor = end
        category = _category(event)
        children.append(
            Slice(event.name, event.label, category, start, end, is_synthetic=is_synthetic)
        )
    return children


def _category(event: _TraceEvent) -> str | None:
    if event.backend is PORTABLE and not event.label.startswith(KERNEL_PREFIX):
        return None
    return event.backend.read_label(event.label).operator_class.category
