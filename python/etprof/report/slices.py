"""The events of steady executions as nested slices on one clock that starts at zero."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from etprof.analysis.split.executions import STEADY_BLOCK
from etprof.backends.registry import PORTABLE, delegate_label
from etprof.etdump.plausibility import CONTAINERS, KERNEL_PREFIX, LOAD_EVENTS, ticks_from

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.analysis.run_analysis import ExperimentAnalysis
    from etprof.backends.backend import Backend

_EXECUTE = CONTAINERS[0]
_SHOWN_EXECUTIONS = 20
"""More executions make a larger file and show nothing new."""


@dataclass(frozen=True)
class Slice:
    """One event; nested by its times in those that enclose it."""

    name: str
    category: str | None
    """None for containers."""
    start_ns: int
    end_ns: int
    is_synthetic: bool
    """Whether the start was laid end to end instead of measured."""


@dataclass(frozen=True)
class _Event:
    name: str
    backend: Backend
    start_ns: int
    duration_ns: int


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


def _executions(experiment: ExperimentAnalysis) -> list[list[_Event]]:
    """Groups the usable events of steady executions, ended by their `Method::execute`."""
    dump, checked = experiment.dump, experiment.events
    profile, names = dump.profile, (*dump.names, "")
    steady = [name_id >= 0 and names[name_id] == STEADY_BLOCK for name_id in dump.blocks.name_id]
    found: list[list[_Event]] = []
    events: list[_Event] = []
    for row in np.flatnonzero(checked.usable).tolist():
        if not steady[profile.block_index[row]]:
            continue
        events.append(_event(experiment, row, names))
        if events[-1].name == _EXECUTE:
            found.append(events)
            events = []
            if len(found) == _SHOWN_EXECUTIONS:
                break
    return found


def _event(experiment: ExperimentAnalysis, row: int, names: Sequence[str]) -> _Event:
    profile = experiment.dump.profile
    label, number = (
        int(profile.delegate_debug_id_str_id[row]),
        int(profile.delegate_debug_id_int[row]),
    )
    is_delegated = label >= 0 or number >= 0
    return _Event(
        delegate_label(names, label, number) if is_delegated else names[profile.name_id[row]],
        experiment.delegates.backend(int(profile.instruction_id[row]))
        if is_delegated
        else PORTABLE,
        int(profile.start_time[row]),
        int(experiment.events.duration[row]),
    )


def _nest(events: Sequence[_Event], now: int) -> list[Slice]:
    """Places one execution at `now`: containers where measured, delegated operators end to end."""
    whole = events[-1]
    slices = [Slice(_EXECUTE, None, now, now + whole.duration_ns, is_synthetic=False)]
    waiting: list[_Event] = []
    for event in events[:-1]:
        if event.name in LOAD_EVENTS:
            continue
        if event.name not in CONTAINERS:
            waiting.append(event)
            continue
        start = now + ticks_from(whole.start_ns, event.start_ns)
        slices.append(Slice(event.name, None, start, start + event.duration_ns, is_synthetic=False))
        slices += _children(waiting, slices[-1], whole, now)
        waiting = []
    slices += _children(waiting, slices[0], whole, now)
    return slices


def _children(events: Sequence[_Event], parent: Slice, whole: _Event, now: int) -> list[Slice]:
    """Places operators inside the call that holds them, in an execution that starts `now`."""
    children, cursor = [], parent.start_ns
    for event in events:
        is_synthetic = event.backend.starts_are_synthetic
        start = cursor if is_synthetic else now + ticks_from(whole.start_ns, event.start_ns)
        end = min(start + event.duration_ns, parent.end_ns)
        cursor = end
        children.append(Slice(event.name, _category(event), start, end, is_synthetic=is_synthetic))
    return children


def _category(event: _Event) -> str | None:
    if event.backend is PORTABLE and not event.name.startswith(KERNEL_PREFIX):
        return None
    return event.backend.read_label(event.name).operator_class.category
