"""The events of an ETDump: its timeline as CSV, and blocks of equal events for programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from etprof.backends.registry import event_label
from etprof.etdump.plausibility import CONTAINERS
from etprof.tables.operators import EVENTS, TIMELINE
from etprof.views.files import build_frame, csv_text, safe_cell

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from etprof.analysis.insight import OperatorDetail
    from etprof.analysis.split.executions import Delegates, Executions, Piece
    from etprof.etdump.columns import ProfileColumns
    from etprof.tables.table import Value

_ROWS_AT_ONCE: Final = 50_000
_Key = tuple[int, ...]
"""Instruction and what names an event: equal events have equal ones."""


def timeline_csv(executions: Executions) -> Iterator[str]:
    """Yields the timeline, some thousand events at a time: rows are many, columns few.

    Executions with impossible events are left out, and events in units that are not known. After
    a wrap of a 32-bit clock an end may be below its start; the duration has it undone. Where a
    delegate lays its operators end to end, their starts are marked as synthetic.
    """
    yield csv_text([column.name for column in TIMELINE.columns], [])
    names = [str(safe_cell(name)) for name in (*executions.names, "")]
    first = 0
    for piece in executions.pieces():
        blocks = [names[i] for i in piece.dump.blocks.name_id.tolist()]
        usable = np.flatnonzero(piece.usable)
        for start in range(0, usable.size, _ROWS_AT_ONCE):
            rows = usable[start : start + _ROWS_AT_ONCE]
            values = _event_columns(piece, rows, (names, blocks), executions.delegates, first)
            yield csv_text(None, zip(*values, strict=True))
        first += piece.events.execution_possible.size


def _event_columns(
    piece: Piece,
    rows: NDArray[np.intp],
    texts: tuple[Sequence[str], Sequence[str]],
    delegates: Delegates,
    first: int,
) -> Sequence[Sequence[Value]]:
    """Returns the values of some rows; `first` is the number of the piece's first execution.

    Args:
        piece: Events of an ETDump.
        rows: Which of them, shape (n,).
        texts: Names and blocks of the whole file.
        delegates: The backend of each delegate call.
        first: In the whole file.
    """
    (names, blocks), profile, times = texts, piece.dump.profile, piece.events.times
    ids = zip(*(column[rows].tolist() for column in profile.naming), strict=True)
    label_pairs = [event_label(names, *label_ids) for label_ids in ids]
    labels, flags = (
        [label for label, _ in label_pairs],
        [int(is_delegated) for _, is_delegated in label_pairs],
    )
    missing: Sequence[Value] = [None] * rows.size
    named = {call: backend.name for call, backend in delegates.backends.items()}
    calls, within = profile.instruction_id[rows], piece.events.execution[rows].tolist()
    return (
        profile.event_index[rows].tolist(),
        [blocks[i] for i in profile.block_index[rows].tolist()],
        [None if number < 0 else first + number for number in within],
        labels,
        flags,
        [
            named.get(call) if is_inside else None
            for call, is_inside in zip(calls.tolist(), flags, strict=True)
        ],
        calls.tolist(),
        times.start[rows].tolist() if times else missing,
        times.end[rows].tolist() if times else missing,
        times.duration[rows].tolist() if times else missing,
        (np.isin(calls, delegates.synthetic) & np.array(flags)).astype(int).tolist(),
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
    block: str
    """Name of its event block."""
    detail: OperatorDetail | None = None
    """The row of the operator table that is of this event; None for containers, and where two rows have its name."""

    @property
    def backend(self) -> str | None:
        """Whose delegate it is in, as programs call it; None outside, and where nobody knows."""
        return self.detail.row.backend.delegate if self.detail else None

    @property
    def operators(self) -> tuple[str, ...]:
        """The graph's operators that it computes, by the names of their nodes."""
        attribution = self.detail.attribution if self.detail else None
        return attribution.graph_operators if attribution else ()

    @property
    def debug_handles(self) -> tuple[int, ...]:
        """Of these operators, as the ETRecord has them; each once."""
        attribution = self.detail.attribution if self.detail else None
        handles = (operator.debug_handle for operator in attribution.behind) if attribution else ()
        return tuple(dict.fromkeys(handle for handle in handles if handle is not None))

    @property
    def modules(self) -> tuple[str, ...]:
        """Paths of the modules that these operators were traced in; the root's is empty."""
        attribution = self.detail.attribution if self.detail else None
        return attribution.modules if attribution else ()

    @property
    def source(self) -> str | None:
        """The model's own line, such as `model.py:24`."""
        return self.detail.source if self.detail else None

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
        """Returns one row per event: name, origin, count, percentiles and mean in ns."""
        return events_frame([self])


def events_frame(blocks: Sequence[EventBlock]) -> pd.DataFrame:
    """Returns the events of several blocks below each other."""
    return build_frame(EVENTS.of([event for block in blocks for event in block.events]))


def event_blocks(
    executions: Executions, details: Sequence[OperatorDetail] = ()
) -> tuple[EventBlock, ...]:
    """Groups an ETDump's profile events by block name, then by instruction and name.

    Those of an operator get what `details` know of it. Nothing is lost but executions with
    impossible events: a repeated event keeps all its durations, unlike in Inspector.
    """
    names = (*executions.names, "")
    labels = Counter((detail.row.instruction_id, detail.row.label) for detail in details)
    details_by_event = {
        (detail.row.instruction_id, detail.row.label): detail
        for detail in details
        if labels[detail.row.instruction_id, detail.row.label] == 1
    }
    durations_by_block: dict[int, dict[_Key, list[NDArray[np.int64]]]] = {}
    for piece in executions.pieces():
        profile, times = piece.dump.profile, piece.events.times
        block_names = piece.dump.blocks.name_id[profile.block_index]
        for name_id in dict.fromkeys(piece.dump.blocks.name_id.tolist()):
            block = durations_by_block.setdefault(name_id, {})
            rows = np.flatnonzero((block_names == name_id) & piece.usable)
            for key, event_rows in _group(profile, rows):
                durations = (
                    times.duration[event_rows] if times else np.empty(event_rows.size, np.int64)
                )
                block.setdefault(key, []).append(durations)
    return tuple(
        EventBlock(
            names[name_id],
            tuple(
                _event(
                    key,
                    durations_by_piece,
                    (names, names[name_id]),
                    details_by_event,
                    is_timed=executions.is_timed,
                )
                for key, durations_by_piece in block.items()
            ),
        )
        for name_id, block in durations_by_block.items()
    )


def _group(
    profile: ProfileColumns, rows: NDArray[np.intp]
) -> Iterator[tuple[_Key, NDArray[np.intp]]]:
    """Yields equal events and their rows, in the order of their first occurrence.

    Args:
        profile: Columns of a piece.
        rows: Which of its events, shape (n,).

    Yields:
        What the events share, and their rows, shape (members,).
    """
    keys = np.stack(
        [column[rows].astype(np.int64) for column in (profile.instruction_id, *profile.naming)],
        axis=1,
    )
    if not rows.size:
        return
    kinds, first, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    members = np.split(
        rows[np.argsort(group.ravel(), kind="stable")],
        np.cumsum(np.bincount(group.ravel()))[:-1],
    )
    for index in np.argsort(first):
        yield tuple(kinds[index].tolist()), members[index]


def _event(
    key: _Key,
    durations_by_piece: Sequence[NDArray[np.int64]],
    texts: tuple[Sequence[str], str],
    details_by_event: Mapping[tuple[int | None, str], OperatorDetail],
    *,
    is_timed: bool,
) -> Event:
    """Returns an event of the block that `texts` name last, with what is known of its operator.

    Args:
        key: What the events share.
        durations_by_piece: Durations in ns, of each piece an array of shape (calls,).
        texts: All names, and the block's.
        details_by_event: Operators by their call and label.
        is_timed: Whether durations may be shown.
    """
    (names, block), durations = texts, np.concatenate(durations_by_piece)
    instruction, *naming = key
    name, is_delegated = event_label(names, *naming)
    called = instruction if instruction >= 0 else None
    return Event(
        name,
        is_delegated,
        name in CONTAINERS,
        called,
        durations.size,
        durations if is_timed else np.empty(0, np.int64),
        block,
        details_by_event.get((called, name)),
    )
