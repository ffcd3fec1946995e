"""The report's CSV twins: every event of the timeline, every operator's figures."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from etprof.atomic import replacing, write_text
from etprof.report.summary_json import operator_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from etprof.analysis.operators import OperatorSplit
    from etprof.etdump import ETDump

TIMELINE_COLUMNS = (
    "event", "event_block", "name", "delegated", "instruction_id", "start_ns", "end_ns",
    "duration_ns", "start_is_synthetic",
)  # fmt: skip


def write_operator_csv(path: Path, split: OperatorSplit) -> None:
    """Writes one row per operator; times in ns."""
    rows = [operator_fields(row) for row in split.rows]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=list(rows[0]) if rows else ["label"])
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, stream.getvalue())


def write_timeline_csv(path: Path, dump: ETDump) -> None:
    """Writes one row per profile event, in file order; times in ns.

    XNNPACK lays its operators end to end from whole microseconds, so their starts are marked as
    synthetic.
    """
    with replacing(path) as binary:
        stream = io.TextIOWrapper(
            binary, encoding="utf-8", errors="surrogateescape", newline="", write_through=False
        )
        writer = csv.writer(stream)
        writer.writerow(TIMELINE_COLUMNS)
        writer.writerows(_timeline_rows(dump))
        stream.flush()
        stream.detach()


def _timeline_rows(dump: ETDump) -> Iterable[Sequence[object]]:
    """Builds the timeline column by column: rows are many, columns few."""
    profile, names = dump.profile, (*dump.names, "")
    delegated = (profile.delegate_debug_id_str_id >= 0) | (profile.delegate_debug_id_int >= 0)
    labels = [names[i] for i in profile.name_id.tolist()]
    for position in delegated.nonzero()[0].tolist():
        labels[position] = names[profile.delegate_debug_id_str_id[position]]
    blocks = [names[i] for i in dump.blocks.name_id.tolist()]
    flags = delegated.astype(int).tolist()
    start, end = profile.start_time.tolist(), profile.end_time.tolist()
    return zip(
        profile.event_index.tolist(),
        [blocks[i] for i in profile.block_index.tolist()],
        labels,
        flags,
        profile.instruction_id.tolist(),
        start,
        end,
        [last - first for first, last in zip(start, end, strict=True)],
        flags,
        strict=True,
    )
