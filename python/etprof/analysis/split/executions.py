"""Splits the time of each execution in an ETDump: operators, overheads, nothing twice.

Only the innermost events of an execution are operators; what a container has beyond its contents
is overhead. A split is of whole executions that can be so and are near the median: one wrong time
stamp, or one interruption of milliseconds, would otherwise be most of a mean of microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from etprof.backends.registry import OPAQUE, assign_backends, event_label
from etprof.base.errors import InputFileError
from etprof.base.units import count_of
from etprof.etdump.plausibility import (
    Clocks,
    ClockSigns,
    Damage,
    Events,
    Role,
    examine_events,
)
from etprof.etdump.reader import ETDump, LongETDump, changed_while_read

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    from etprof.backends.backend import Backend

    Columns: TypeAlias = tuple[NDArray[np.integer[Any]], ...]

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
_NEAR_RANGES: Final = 6.0
"""An execution is near the median within half of it, or within six times the distance from the
median to the lower quartile, where that is more: Tukey's far-out values (three interquartile ranges)
of a symmetric distribution. The upper quartile is not asked: other work makes executions slower,
and where it disturbs more than a quarter of them that quartile is one of the disturbed."""


class ImplausibleETDumpError(InputFileError):
    """An ETDump whose time stamps contradict each other too often, or in its sums."""


@dataclass(frozen=True)
class ExcludedExecutions:
    """Steady executions that are not in the split, and why."""

    recorded: int
    """All steady executions of all launches."""
    impossible: int
    """Of these, executions with time stamps that cannot be so."""
    disturbed: int
    """Of these, possible executions far from the median."""
    disturbed_launches: tuple[int, ...] = ()

    @property
    def has_enough_for_band(self) -> bool:
        """Whether there were executions enough to tell a disturbed one from the others."""
        return self.recorded - self.impossible >= LEAST_FOR_BAND


class Piece(NamedTuple):
    """A part of a launch's ETDump, of whole executions."""

    dump: ETDump
    events: Events
    number: NDArray[np.int64]
    """Which of the executions that are split an event is in, shape (events,); -1 for none."""
    usable: NDArray[np.bool_]
    """Events that may be shown: possible, in ns, and of an execution that can be so."""


class ForeignEvents(NamedTuple):
    """What is inside delegates that nothing is known of."""

    events: int = 0
    ticks: int = 0
    """Of a unit that is not known."""


@dataclass(frozen=True, eq=False)
class Executions:
    """Steady executions of one operator launch, chosen to be split."""

    dump: ETDump | LongETDump
    launch: int
    delegates: Delegates
    clocks: Clocks
    names: Sequence[str]
    """All of the file's, in the order of their numbers."""
    duration: NDArray[np.int64] | None
    """Of each execution of the file, in ns; None where nothing is timed."""
    steady: NDArray[np.bool_]
    possible: NDArray[np.bool_]
    selected: NDArray[np.bool_]
    """Of each execution, whether it is split; `steady`: neither first inference nor warm-up."""
    first: int | None
    """The first inference, when the file keeps it apart or it was taken off the front."""
    load_ns: Mapping[int, float]
    """Load-time events by the number of their name, where all of a name can be so."""
    foreign: ForeignEvents
    events: Events | None
    """Every event, those left out included, of a file that is in memory whole."""

    @property
    def is_timed(self) -> bool:
        """Whether its times are performance."""
        return self.duration is not None

    @property
    def count(self) -> int:
        """How many are split."""
        return int(np.count_nonzero(self.selected))

    def pieces(self) -> Iterator[Piece]:
        """Yields the events of the file, a part at a time.

        Raises InputFileError for a file that is not the one that was examined any more.
        """
        numbers = np.where(self.selected, np.cumsum(self.selected) - 1, -1)
        done = 0
        for dump in self.dump.pieces():
            events = self.events or self._examine(dump)
            span = slice(done, done := done + events.execution_possible.size)
            if done > numbers.size:
                break
            inside = np.append(numbers[span], -1)[events.execution]
            yield Piece(dump, events, inside, events.usable(self.possible[span]))
        if done != numbers.size:
            name = self.dump.name if isinstance(self.dump, LongETDump) else "the ETDump"
            raise InputFileError(changed_while_read(name))

    def _examine(self, dump: ETDump) -> Events:
        return examine_events(
            dump, self.delegates.units, is_timed=self.is_timed, clocks=self.clocks
        )


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
        calls = (call for call, backend in self.backends.items() if backend.starts_are_synthetic)
        return () if self.are_on_clock else tuple(calls)

    def backend(self, instruction: int) -> Backend:
        """Returns the backend of a call; opaque when nothing is known."""
        return self.backends.get(instruction, OPAQUE)

    @property
    def units(self) -> dict[int, float | None]:
        """The ns per tick of calls that do not report in ns; None for those that are one whole."""
        ticks = {i: backend.ns_per_tick for i, backend in self.backends.items()}
        return {i: unit for i, unit in ticks.items() if unit != 1.0}

    @property
    def opaque(self) -> tuple[int, ...]:
        """Instructions of the calls that are one whole."""
        return tuple(call for call, unit in self.units.items() if unit is None)

    def label(self, instruction: int, name: str | None, number: int) -> str:
        """Names an operator of a delegate, or the whole call of an opaque one."""
        if self.backend(instruction).ns_per_tick is None:
            return self.named.get(instruction, "call of an unknown delegate")
        names, label_id = ((name,), 0) if name is not None else ((), -1)
        return event_label(names, label_id, label_id, number)[0]


def examine_executions(
    dump: ETDump | LongETDump,
    named: Mapping[int, str] | None = None,
    *,
    launch: int = 0,
    is_timed: bool = True,
    is_on_clock: bool = False,
) -> Executions:
    """Chooses the steady executions of `dump` that can be so.

    Delegate calls are as `named` by instruction, else known by their labels. Files of etprof-runner
    keep first and warm-up executions in event blocks of their own. In files of other runners the
    first of several executions is taken as the first inference. Raises InputFileError when there is
    no execution, or for an unknown schema version, and ImplausibleETDumpError when more than
    `MOST_IMPOSSIBLE` of the executions cannot be so.
    """
    survey = _survey(dump, named or {}, is_timed=is_timed, is_on_clock=is_on_clock)
    phases, possible = survey.phases(), survey.damage.possible
    steady = phases == _STEADY
    if not steady.any():
        msg = (
            "the ETDump has no steady Method::execute event, so there is no inference to analyse; "
            "run the model with --etdump and at least one iteration, on a runner built with the "
            "event tracer"
        )
        raise InputFileError(msg)
    _refuse_damaged(survey, possible, steady)
    first = np.flatnonzero((phases == _FIRST) & possible)
    return Executions(
        dump=dump,
        launch=launch,
        delegates=survey.delegates,
        clocks=survey.clocks,
        names=survey.names,
        duration=np.concatenate(survey.durations) if is_timed else None,
        steady=steady,
        possible=possible,
        selected=steady & possible,
        first=int(first[0]) if first.size else None,
        load_ns={i: ns for i, ns in survey.load_ns.items() if i not in survey.damage.loads},
        foreign=survey.foreign,
        events=survey.events[0] if isinstance(dump, ETDump) else None,
    )


def _survey(
    dump: ETDump | LongETDump, named: Mapping[int, str], *, is_timed: bool, is_on_clock: bool
) -> _Survey:
    """Goes through a file; once more where its end tells what its start did not.

    That is whose the delegate calls are, and which clocks there are.
    """
    first = next(dump.pieces())
    labels, clocks = _find_labels(_label_columns(first), first.names), Clocks()
    while True:
        delegates = Delegates(named, assign_backends(labels, named), is_on_clock)
        survey = _Survey(delegates, clocks, is_timed=is_timed)
        for piece in dump.pieces():
            survey.add(piece)
        labels = survey.labels
        survey.delegates = replace(delegates, backends=assign_backends(labels, named))
        if (survey.delegates.units, survey.signs.clocks) == (delegates.units, clocks):
            return survey
        clocks = survey.signs.clocks


def _label_columns(dump: ETDump) -> Columns:
    """Returns what says of each delegate's operator which it is: its instruction and its label."""
    profile = dump.profile
    delegated = (profile.delegate_debug_id_str_id >= 0) | (profile.delegate_debug_id_int >= 0)
    return profile.instruction_id[delegated], profile.delegate_debug_id_str_id[delegated]


def begins_alike(previous: Columns, columns: Columns) -> bool:
    """Says whether rows are the first of those that are known: most pieces repeat their neighbour."""
    return all(
        np.array_equal(earlier[: current.size], current)
        for earlier, current in zip(previous, columns, strict=True)
    )


def _find_labels(columns: Columns, names: Sequence[str]) -> dict[int, set[str]]:
    """Returns the labels of delegates' operators, by the instruction that calls the delegate."""
    instructions, labels = (column.astype(np.int64) for column in columns)
    pairs = np.sort((instructions << 32) + labels)
    labels_by_call: dict[int, set[str]] = {}
    for pair in pairs[np.append(True, pairs[1:] != pairs[:-1])[: pairs.size]].tolist():
        instruction, label = pair + 1 >> 32, (pair + 1) % 2**32 - 1
        call_labels = labels_by_call.setdefault(instruction, set())
        call_labels |= {names[label]} if label >= 0 else set()
    return labels_by_call


@dataclass(eq=False)
class _Survey:
    """What the executions of a file are, added up piece by piece."""

    delegates: Delegates
    clocks: Clocks
    is_timed: bool
    labels: dict[int, set[str]] = field(default_factory=dict)
    names: Sequence[str] = ()
    signs: ClockSigns = field(default_factory=ClockSigns)
    durations: list[NDArray[np.int64]] = field(default_factory=list)
    events: list[Events] = field(default_factory=list)
    """Of the last piece alone."""
    load_ns: dict[int, float] = field(default_factory=dict)
    foreign: ForeignEvents = field(default_factory=ForeignEvents)
    damage: Damage = field(default_factory=Damage)
    _phases: list[NDArray[np.int8]] = field(default_factory=list)
    _labelled: Columns = ()
    """Of an earlier piece, what its labels were found by."""

    def add(self, dump: ETDump) -> None:
        """Goes through the next piece."""
        if dump.version != SUPPORTED_VERSION:
            msg = (
                f"the ETDump has schema version {dump.version}, and only {SUPPORTED_VERSION} is "
                "known; use the etprof that belongs to the runner's ExecuTorch"
            )
            raise InputFileError(msg)
        events = examine_events(
            dump, self.delegates.units, clocks=self.clocks, before=self.damage.before
        )
        columns = _label_columns(dump)
        # A piece is mostly of the same inferences as the one before.
        if not (self._labelled and begins_alike(self._labelled, columns)):
            for call, labels in _find_labels(columns, dump.names).items():
                self.labels.setdefault(call, set()).update(labels)
            self._labelled = columns
        self.damage.add(dump, events)
        self._add_loads(dump, events)
        self.names, self.signs = dump.names, self.signs.plus(events.signs)
        is_execute = events.roles == Role.EXECUTE
        self._phases.append(_phases(dump, is_execute))
        if events.times and self.is_timed:
            self.durations.append(events.times.duration[is_execute])
        self.events = [events if self.is_timed else replace(events, times=None)]

    def phases(self) -> NDArray[np.int8]:
        """Of each execution, whether it is first inference, warm-up or steady.

        Returns:
            _FIRST, _WARMUP, _PREFILL or _STEADY, int8, shape (executions,).
        """
        phases: NDArray[np.int8] = np.concatenate(self._phases)
        if not (phases == _FIRST).any() and phases.size > 1:
            phases[0] = _FIRST
        return phases

    def _add_loads(self, dump: ETDump, events: Events) -> None:
        times, name_id = events.times, dump.profile.name_id
        for row in np.flatnonzero(events.roles == Role.LOAD).tolist():
            name = int(name_id[row])
            took = float(times.duration[row]) if times else 0.0
            self.load_ns[name] = self.load_ns.get(name, 0.0) + took
        foreign = events.roles == Role.FOREIGN
        if times and foreign.any():
            stamps = dump.profile.end_time[foreign], dump.profile.start_time[foreign]
            ticks = (stamps[0] - stamps[1]).astype(np.int64).sum()
            before = self.foreign
            count = int(np.count_nonzero(foreign))
            self.foreign = ForeignEvents(before.events + count, before.ticks + int(ticks))


def keep_near_median(launches: Sequence[Executions]) -> tuple[Executions, ...]:
    """Leaves out executions far from the median of all launches; none where nothing is timed."""
    durations = [launch.duration for launch in launches]
    pooled = [
        duration[launch.selected]
        for launch, duration in zip(launches, durations, strict=True)
        if duration is not None
    ]
    selected_ns = np.concatenate([*pooled, np.empty(0, np.int64)])
    if selected_ns.size < LEAST_FOR_BAND:
        return tuple(launches)
    low, middle = np.percentile(selected_ns, [25, 50])
    reach = max(_NEAR_SHARE * middle, _NEAR_RANGES * (middle - low))
    return tuple(
        replace(launch, selected=launch.selected & (np.abs(duration - middle) <= reach))
        if duration is not None
        else launch
        for launch, duration in zip(launches, durations, strict=True)
    )


def count_excluded(launches: Sequence[Executions]) -> ExcludedExecutions:
    """Says how many executions are not split, and why."""
    possible = [launch.steady & launch.possible for launch in launches]
    disturbed = {
        launch.launch: int(np.count_nonzero(can_be & ~launch.selected))
        for launch, can_be in zip(launches, possible, strict=True)
    }
    recorded = sum(int(launch.steady.sum()) for launch in launches)
    return ExcludedExecutions(
        recorded=recorded,
        impossible=recorded - sum(int(mask.sum()) for mask in possible),
        disturbed=sum(disturbed.values()),
        disturbed_launches=tuple(launch for launch, count in disturbed.items() if count),
    )


def _refuse_damaged(
    survey: _Survey, possible: NDArray[np.bool_], steady: NDArray[np.bool_]
) -> None:
    """Raises for a file of which too much is impossible to believe the rest.

    Args:
        survey: What the pieces of the file had.
        possible: Whether all events of an execution can be so, bool, shape (executions,).
        steady: Whether an execution is neither first nor warm-up, bool, shape (executions,).

    Raises:
        ImplausibleETDumpError: more than MOST_IMPOSSIBLE of the executions cannot be so, or all steady ones.
    """
    wrong = int(np.count_nonzero(~possible))
    if wrong <= MOST_IMPOSSIBLE * possible.size and possible[steady].any():
        return
    msg = (
        f"{wrong} of {count_of(possible.size, 'execution')} hold time stamps that cannot be so: "
        f"{survey.damage.events} of {count_of(survey.signs.events, 'event')} end before they start, "
        f"reach out of what holds them, or overlap; the first is {survey.damage.first}; "
        "pull the file again, or run the model again"
    )
    raise ImplausibleETDumpError(msg)


def _phases(dump: ETDump, is_execute: NDArray[np.bool_]) -> NDArray[np.int8]:
    """Says of each `Method::execute` of a piece which block's it is.

    Args:
        dump: One piece of an ETDump.
        is_execute: Whether an event is a `Method::execute`, bool, shape (events,).

    Returns:
        The phase of each execution, int8, shape (executions,): _FIRST, _WARMUP, _PREFILL or _STEADY.
    """
    # A file has a block for each inference, and few names.
    names, which = np.unique(dump.blocks.name_id, return_inverse=True)
    by_name = np.array([_phase(dump, index) for index in names.tolist()], dtype=np.int8)
    return by_name[which[dump.profile.block_index[is_execute]]]


def _phase(dump: ETDump, name_id: int) -> int:
    """Reads the phase from an event block's name."""
    name = dump.names[name_id] if name_id >= 0 else ""
    phases = {FIRST_BLOCK: _FIRST, WARMUP_BLOCK: _WARMUP, PREFILL_BLOCK: _PREFILL}
    return phases.get(name, _STEADY)
