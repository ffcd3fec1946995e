"""The report's CSV twins: every event of the timeline, every table of the report.

Names come from files that others wrote, and spreadsheets run cells that look like formulas, so
text that starts like one gets an apostrophe before it.
"""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Final

import numpy as np

from etprof.backends.registry import delegate_label
from etprof.base.atomic import replacing, write_text
from etprof.report.records import operator_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from etprof.analysis.split.executions import Delegates
    from etprof.analysis.split.operators import OperatorSplit
    from etprof.etdump.columns import ProfileColumns
    from etprof.etdump.plausibility import Events
    from etprof.etdump.reader import ETDump
    from etprof.report.records import Table, Value

TIMELINE_COLUMNS = (
    "event", "event_block", "name", "delegated", "instruction_id", "start_ns", "end_ns",
    "duration_ns", "start_is_synthetic",
)  # fmt: skip
_ROWS_AT_ONCE: Final = 50_000
_FORMULA_STARTS: Final = ("=", "+", "-", "@")
"""Tabs and line ends, which count as well, are in no name."""


def safe_cell(value: Value) -> Value:
    """Defuses text that a spreadsheet would run as a formula; numbers stay numbers."""
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value


def format_csv(table: Table) -> str:
    """Returns one record per line; an empty table is an empty text with no columns."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=list(table[0]) if table else [])
    writer.writeheader()
    writer.writerows({name: safe_cell(value) for name, value in row.items()} for row in table)
    return stream.getvalue() if table else ""


def write_operator_csv(path: Path, split: OperatorSplit) -> None:
    """Writes one row per operator; times in ns."""
    write_text(path, format_csv([operator_fields(row) for row in split.rows]))


def write_timeline_csv(
    path: Path, dump: ETDump, events: Events, delegates: Delegates | None = None
) -> None:
    """Writes one row per profile event, in file order; times in ns.

    Executions with impossible events are left out, and events in units that are not known. After
    a wrap of a 32-bit clock an end may be below its start; the duration has it undone. Where a
    delegate lays its operators end to end, their starts are marked as synthetic.
    """
    synthetic = [
        call
        for call, each in (delegates.backends if delegates else {}).items()
        if each.starts_are_synthetic
    ]
    with replacing(path) as binary:
        stream = io.TextIOWrapper(
            binary, encoding="utf-8", errors="surrogateescape", newline="", write_through=False
        )
        writer = csv.writer(stream)
        writer.writerow(TIMELINE_COLUMNS)
        writer.writerows(_timeline_rows(dump, events, synthetic))
        stream.flush()
        stream.detach()


def _timeline_rows(
    dump: ETDump, events: Events, synthetic: Sequence[int]
) -> Iterator[Sequence[object]]:
    """Yields the timeline, some thousand events at a time: rows are many, columns few."""
    names = [str(safe_cell(name)) for name in (*dump.names, "")]
    blocks = [names[i] for i in dump.blocks.name_id.tolist()]
    usable = np.flatnonzero(events.usable)
    for start in range(0, usable.size, _ROWS_AT_ONCE):
        rows = usable[start : start + _ROWS_AT_ONCE]
        yield from _some_rows(
            dump.profile, rows, events.duration[rows].tolist(), (names, blocks), synthetic
        )


def _some_rows(
    profile: ProfileColumns,
    rows: NDArray[np.intp],
    durations: Sequence[int],
    texts: tuple[Sequence[str], Sequence[str]],
    synthetic: Sequence[int],
) -> Iterator[Sequence[object]]:
    names, blocks = texts
    label_ids = profile.delegate_debug_id_str_id[rows].tolist()
    numbers = profile.delegate_debug_id_int[rows].tolist()
    name_ids = profile.name_id[rows].tolist()
    flags = [
        int(label >= 0 or number >= 0) for label, number in zip(label_ids, numbers, strict=True)
    ]
    labels = [
        delegate_label(names, label, number) if flag else names[name]
        for flag, label, number, name in zip(flags, label_ids, numbers, name_ids, strict=True)
    ]
    return zip(
        profile.event_index[rows].tolist(),
        [blocks[i] for i in profile.block_index[rows].tolist()],
        labels,
        flags,
        profile.instruction_id[rows].tolist(),
        profile.start_time[rows].tolist(),
        profile.end_time[rows].tolist(),
        durations,
        (np.isin(profile.instruction_id[rows], synthetic) & np.array(flags)).astype(int).tolist(),
        strict=True,
    )
