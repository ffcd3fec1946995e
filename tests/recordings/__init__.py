"""Real ETDumps, small, and what ExecuTorch's Inspector said of them: for hosts without its wheel.

`record.py` makes them again.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from etprof.etdump.reader import ETDump

FOLDER: Final = Path(__file__).parent
NAMES: Final = ("toy_cnn", "steps")
"""A model in the delegate, run by etprof's runner; portable kernels and all their values, by
ExecuTorch's own runtime."""

Key = tuple[str, str, int]
"""Block's name, event's name or label, instruction."""
Times = list[tuple[int, float]]
"""Start and duration of each event, in the ETDump's unit."""


def times_of_reader(dump: ETDump) -> dict[Key, Times]:
    """Start and duration of every event, by block name, event name or label, and instruction."""
    times: dict[Key, Times] = defaultdict(list)
    columns = dump.profile
    for row, block in enumerate(columns.block_index):
        label_id = columns.delegate_debug_id_str_id[row]
        name_id = columns.name_id[row] if label_id == -1 else label_id
        block_name = dump.names[dump.blocks.name_id[block]]
        start, end = int(columns.start_time[row]), int(columns.end_time[row])
        key = (block_name, dump.names[name_id], int(columns.instruction_id[row]))
        times[key].append((start, float(end - start)))
    return times
