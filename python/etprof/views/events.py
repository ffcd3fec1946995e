"""The events of an ETDump: its timeline as CSV, and blocks of equal events for programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from etprof.backends.registry import event_label
from etprof.etdump.plausibility import CONTAINERS
from etprof.tables.events import EVENTS, TIMELINE
from etprof.views.files import build_frame, csv_text, safe_cell

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from etprof.analysis.split.executions import Delegates
    from etprof.etdump.columns import ProfileColumns
    from etprof.etdump.plausibility import Events, EventTimes
    from etprof.etdump.reader import ETDump
    from etprof.tables.table import Value

_ROWS_AT_ONCE: Final = 50_000


def timeline_csv(dump: ETDump, events: Events, delegates: Delegates | None = None) -> Iterator[str]:
    """Yields the timeline, some thousand events at a time: rows are many, columns few.

    Executions with impossible events are left out, and events in units that are not known. After
    a wrap of a 32-bit clock an end may be below its start; the duration has it undone. Where a
    delegate lays its operators end to end, their starts are marked as synthetic.
    """
    synthetic = delegates.synthetic if delegates else ()
    columns = TIMELINE.columns
    yield csv_text([column.name for column in columns], [])
    names = [str(safe_cell(name)) for name in (*dump.names, "")]
    blocks = [names[i] for i in dump.blocks.name_id.tolist()]
    usable = np.flatnonzero(events.usable)
    for start in range(0, usable.size, _ROWS_AT_ONCE):
        rows = usable[start : start + _ROWS_AT_ONCE]
        values = _some_columns(dump.profile, rows, events.times, (names, blocks), synthetic)
        yield csv_text(None, zip(*values, strict=True))


def _some_columns(
    profile: ProfileColumns,
    rows: NDArray[np.intp],
    times: EventTimes | None,
    texts: tuple[Sequence[str], Sequence[str]],
    synthetic: Sequence[int],
) -> Sequence[Sequence[Value]]:
    names, blocks = texts
    ids = zip(*(column[rows].tolist() for column in profile.naming), strict=True)
    told = [event_label(names, *each) for each in ids]
    labels, flags = [label for label, _ in told], [int(is_delegated) for _, is_delegated in told]
    missing: Sequence[Value] = [None] * rows.size
    return (
        profile.event_index[rows].tolist(),
        [blocks[i] for i in profile.block_index[rows].tolist()],
        labels,
        flags,
        profile.instruction_id[rows].tolist(),
        times.start[rows].tolist() if times else missing,
        times.end[rows].tolist() if times else missing,
        times.duration[rows].tolist() if times else missing,
        (np.isin(profile.instruction_id[rows], synthetic) & np.array(flags)).astype(int).tolist(),
    )


@dataclass(frozen=True, eq=False)
class Event:
    """One kind of event of an event block, with every duration that was logged."""

    name: str
    is_delegated: bool
    is_container: bool
    """Whether its time holds that of other events: never add both."""
    instruction_id: int | None
    count: int
    """How often it was logged."""
    raw_ns: NDArray[np.int64]
    """Durations in the order of the file, in ticks; ns for ExecuTorch's own clock. Empty where
    times mean nothing."""

    def percentile_ns(self, percent: float) -> float | None:
        """Returns a percentile of the durations, such as `percentile_ns(90)`."""
        return float(np.percentile(self.raw_ns, percent)) if self.raw_ns.size else None

    @property
    def mean_ns(self) -> float | None:
        """Mean duration."""
        return float(self.raw_ns.mean()) if self.raw_ns.size else None


@dataclass(frozen=True, eq=False)
class EventBlock:
    """All event blocks of one name, such as `Execute`, their equal events merged."""

    name: str
    events: tuple[Event, ...]
    """In the order of their first occurrence."""

    def to_frame(self) -> pd.DataFrame:
        """Returns name, delegated, count, p10, p50, p90, mean, minimum and maximum in ns."""
        return build_frame(EVENTS.of(self.events))


def event_blocks(dump: ETDump, checked: Events) -> tuple[EventBlock, ...]:
    """Groups an ETDump's profile events by block name, then by instruction and name.

    Nothing is lost but executions with impossible events: a repeated event keeps all its
    durations, unlike in Inspector.
    """
    profile, names = dump.profile, (*dump.names, "")
    block_names = dump.blocks.name_id[profile.block_index]
    blocks = []
    for name_id in dict.fromkeys(dump.blocks.name_id.tolist()):
        rows = np.flatnonzero((block_names == name_id) & checked.usable)
        blocks.append(EventBlock(names[name_id], _events(dump, checked, rows, names)))
    return tuple(blocks)


def _events(
    dump: ETDump,
    checked: Events,
    rows: NDArray[np.intp],
    names: Sequence[str],
) -> tuple[Event, ...]:
    profile = dump.profile
    keys = np.stack(
        [column[rows].astype(np.int64) for column in (profile.instruction_id, *profile.naming)],
        axis=1,
    )
    if not rows.size:
        return ()
    _, first, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    members = np.split(
        rows[np.argsort(group.ravel(), kind="stable")],
        np.cumsum(np.bincount(group.ravel()))[:-1],
    )
    return tuple(_event(dump, checked, members[index], names) for index in np.argsort(first))


def _event(
    dump: ETDump,
    checked: Events,
    rows: NDArray[np.intp],
    names: Sequence[str],
) -> Event:
    profile, row = dump.profile, rows[0]
    name, is_delegated = event_label(names, *(int(column[row]) for column in profile.naming))
    instruction = int(profile.instruction_id[row])
    return Event(
        name,
        is_delegated,
        name in CONTAINERS,
        instruction if instruction >= 0 else None,
        rows.size,
        checked.times.duration[rows] if checked.times else np.empty(0, np.int64),
    )
