"""Splits the time of each execution in an ETDump: operators, overheads, nothing twice.

Only the innermost events of an execution are operators; what a container has beyond its contents
is overhead. A split is of whole executions that can be so and are near the median: one wrong time
stamp, or one interruption of milliseconds, would otherwise be most of a mean of microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from etprof.backends.registry import OPAQUE, assign_backends, event_label
from etprof.base.errors import InputFileError
from etprof.base.units import count_of
from etprof.etdump.plausibility import Events, Role, describe_position, examine_events

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from etprof.backends.backend import Backend
    from etprof.etdump.reader import ETDump

SUPPORTED_VERSION: Final = 0
"""ExecuTorch has written no other; the numbers of another could mean something else."""
STEADY_BLOCK: Final = "Execute"
FIRST_BLOCK: Final = "First"
WARMUP_BLOCK: Final = "Warmup"
PREFILL_BLOCK: Final = "Prefill"
"""A language model reads its prompt, often with another method: no inference of the others' kind."""
_FIRST, _WARMUP, _STEADY, _PREFILL = range(4)

MOST_IMPOSSIBLE: Final = 0.1
"""Share of executions with impossible events from which a file is refused.

Recordings of sound runners have none. A flipped bit spoils at most two neighbours, so a file of 20
outlives one; a file with more was damaged throughout, and nothing says that the rest is sound.
"""
LEAST_FOR_BAND: Final = 5
"""Executions without which nobody can say which one is unlike the others."""
_NEAR_SHARE: Final = 0.5
_NEAR_RANGES: Final = 3.0
"""An execution is near the median within half of it, or within three interquartile ranges, where
that is more: Tukey's far-out values, on a machine that never repeats itself to the nanosecond."""


class ImplausibleETDumpError(InputFileError):
    """An ETDump whose time stamps contradict each other too often, or in its sums."""


@dataclass(frozen=True)
class LeftOut:
    """Steady executions that are not in the split, and why."""

    recorded: int
    """All steady executions of all launches."""
    impossible: int
    """Of these, executions with time stamps that cannot be so."""
    disturbed: int
    """Of these, possible executions far from the median."""
    disturbed_launches: tuple[int, ...] = ()

    @property
    def band_was_known(self) -> bool:
        """Whether there were executions enough to tell a disturbed one from the others."""
        return self.recorded - self.impossible >= LEAST_FOR_BAND


@dataclass(frozen=True, eq=False)
class Executions:
    """Steady executions of one operator launch, chosen to be split."""

    dump: ETDump
    launch: int
    events: Events
    """Every event of the file, those left out included."""
    delegates: Delegates
    steady: NDArray[np.bool_]
    chosen: NDArray[np.bool_]
    """Of each execution, whether it is split; `steady`: neither first inference nor warm-up."""
    first: int | None
    """The first inference's `Method::execute`, when the file keeps it apart or it was taken off
    the front."""

    @property
    def count(self) -> int:
        """How many are split."""
        return int(np.count_nonzero(self.chosen))

    @cached_property
    def number(self) -> NDArray[np.int64]:
        """Which of them an event is in, shape (events,); -1 for events of none."""
        numbers = np.where(self.chosen, np.cumsum(self.chosen) - 1, -1)
        return np.append(numbers, -1)[self.events.execution]

    @property
    def duration(self) -> NDArray[np.int64] | None:
        """Of each execution of the file, in ns; None where nothing is timed."""
        times = self.events.times
        return times.duration[self.events.roles == Role.EXECUTE] if times else None


@dataclass(frozen=True)
class Delegates:
    """Whose the delegate calls of an ETDump are, by instruction."""

    named: Mapping[int, str]
    """As the export's report calls them."""
    backends: Mapping[int, Backend]
    are_on_clock: bool = False
    """Whether their operators have the times of the operator clock."""

    def step_ns(self, instruction: int) -> float:
        """Returns what a call's operators are rounded down to; 0 where they are not."""
        return 0.0 if self.are_on_clock else self.backend(instruction).clock_step_ns

    @property
    def synthetic(self) -> tuple[int, ...]:
        """Instructions of the calls whose operators have no starts of their own."""
        found = (call for call, each in self.backends.items() if each.starts_are_synthetic)
        return () if self.are_on_clock else tuple(found)

    def backend(self, instruction: int) -> Backend:
        """Returns the backend of a call; opaque when nothing is known."""
        return self.backends.get(instruction, OPAQUE)

    @property
    def units(self) -> dict[int, float | None]:
        """The ns per tick of calls that do not report in ns; None for those that are one whole."""
        ticks = {i: each.ns_per_tick for i, each in self.backends.items()}
        return {i: unit for i, unit in ticks.items() if unit != 1.0}

    @property
    def opaque(self) -> tuple[int, ...]:
        """Instructions of the calls that are one whole."""
        return tuple(call for call, unit in self.units.items() if unit is None)

    def label(self, names: Sequence[str], instruction: int, label_id: int, number: int) -> str:
        """Names an operator of a delegate, or the whole call of an opaque one."""
        if self.backend(instruction).ns_per_tick is None:
            return self.named.get(instruction, "call of an unknown delegate")
        return event_label(names, label_id, label_id, number)[0]


_LABELS_AT_ONCE: Final = 100_000
"""Labels repeat in every execution, so the first so many events hold all of most files."""


def find_delegates(dump: ETDump, named: Mapping[int, str] | None = None) -> Delegates:
    """Returns whose the delegate calls are: as `named` by instruction, else by their labels."""
    profile = dump.profile
    rows = np.flatnonzero(
        (profile.delegate_debug_id_str_id >= 0) | (profile.delegate_debug_id_int >= 0)
    )
    instructions, labels = profile.instruction_id[rows], profile.delegate_debug_id_str_id[rows]
    found: dict[int, set[str]] = {}
    while instructions.size:
        head = slice(_LABELS_AT_ONCE)
        for instruction, label in set(
            zip(instructions[head].tolist(), labels[head].tolist(), strict=True)
        ):
            known = found.setdefault(instruction, set())
            known |= {dump.names[label]} if label >= 0 else set()
        more = ~np.isin(instructions[_LABELS_AT_ONCE:], list(found))
        instructions = instructions[_LABELS_AT_ONCE:][more]
        labels = labels[_LABELS_AT_ONCE:][more]
    return Delegates(named or {}, assign_backends(found, named or {}))


def examine_executions(
    dump: ETDump, delegates: Delegates | None = None, *, launch: int = 0, is_timed: bool = True
) -> Executions:
    """Chooses the steady executions of `dump` that can be so.

    Files of etprof-runner keep first and warm-up executions in event blocks of their own. In
    files of other runners the first of several executions is taken as the first inference.
    Raises InputFileError when there is no execution, or for an unknown schema version, and
    ImplausibleETDumpError when more than `MOST_IMPOSSIBLE` of the executions cannot be so.
    """
    if dump.version != SUPPORTED_VERSION:
        msg = (
            f"the ETDump has schema version {dump.version}, and only {SUPPORTED_VERSION} is known; "
            "use the etprof that belongs to the runner's ExecuTorch"
        )
        raise InputFileError(msg)
    delegates = delegates or find_delegates(dump)
    events = examine_events(dump, delegates.units, is_timed=is_timed)
    phases = _phases(dump, events.roles)
    steady = phases == _STEADY
    if not steady.any():
        msg = (
            "the ETDump has no steady Method::execute event, so there is no inference to analyse; "
            "run the model with --etdump and at least one iteration, on a runner built with the "
            "event tracer"
        )
        raise InputFileError(msg)
    _refuse_damaged(dump, events, steady)
    executes = np.flatnonzero(events.roles == Role.EXECUTE)
    first = executes[(phases == _FIRST) & events.execution_possible]
    return Executions(
        dump=dump,
        launch=launch,
        events=events,
        delegates=delegates,
        steady=steady,
        chosen=steady & events.execution_possible,
        first=int(first[0]) if first.size else None,
    )


def keep_near_median(launches: Sequence[Executions]) -> tuple[Executions, ...]:
    """Leaves out executions far from the median of all launches; none where nothing is timed."""
    durations = [each.duration for each in launches]
    pooled = [
        duration[each.chosen]
        for each, duration in zip(launches, durations, strict=True)
        if duration is not None
    ]
    known = np.concatenate([*pooled, np.empty(0, np.int64)])
    if known.size < LEAST_FOR_BAND:
        return tuple(launches)
    low, middle, high = np.percentile(known, [25, 50, 75])
    reach = max(_NEAR_SHARE * middle, _NEAR_RANGES * (high - low))
    return tuple(
        replace(each, chosen=each.chosen & (np.abs(duration - middle) <= reach))
        if duration is not None
        else each
        for each, duration in zip(launches, durations, strict=True)
    )


def count_left_out(launches: Sequence[Executions]) -> LeftOut:
    """Says how many executions are not split, and why."""
    possible = [each.steady & each.events.execution_possible for each in launches]
    disturbed = {
        each.launch: int(np.count_nonzero(can_be & ~each.chosen))
        for each, can_be in zip(launches, possible, strict=True)
    }
    recorded = sum(int(each.steady.sum()) for each in launches)
    return LeftOut(
        recorded=recorded,
        impossible=recorded - sum(int(each.sum()) for each in possible),
        disturbed=sum(disturbed.values()),
        disturbed_launches=tuple(launch for launch, count in disturbed.items() if count),
    )


def _refuse_damaged(dump: ETDump, events: Events, steady: NDArray[np.bool_]) -> None:
    """Raises for a file of which too much is impossible to believe the rest."""
    bad, count = ~events.execution_possible, events.execution_possible.size
    wrong = int(np.count_nonzero(bad))
    if wrong <= MOST_IMPOSSIBLE * count and not bad[steady].all():
        return
    rows = np.flatnonzero(events.impossible & (events.execution >= 0))
    msg = (
        f"{wrong} of {count_of(count, 'execution')} hold time stamps that cannot be so: "
        f"{rows.size} of {count_of(events.roles.size, 'event')} end before they start, reach out "
        f"of what holds them, or overlap; the first is {describe_position(dump, int(rows[0]))}; "
        "pull the file again, or run the model again"
    )
    raise ImplausibleETDumpError(msg)


def _phases(dump: ETDump, roles: NDArray[np.int8]) -> NDArray[np.int8]:
    """Says of each `Method::execute` whether it is first inference, warm-up or steady."""
    by_block = np.array([_phase(dump, int(i)) for i in dump.blocks.name_id], dtype=np.int8)
    phases: NDArray[np.int8] = by_block[dump.profile.block_index[roles == Role.EXECUTE]]
    if not (phases == _FIRST).any() and phases.size > 1:
        phases[0] = _FIRST
    return phases


def _phase(dump: ETDump, name_id: int) -> int:
    """Reads the phase from an event block's name."""
    name = dump.names[name_id] if name_id >= 0 else ""
    known = {FIRST_BLOCK: _FIRST, WARMUP_BLOCK: _WARMUP, PREFILL_BLOCK: _PREFILL}
    return known.get(name, _STEADY)
