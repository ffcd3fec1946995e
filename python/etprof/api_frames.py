"""Builds the API's frames: the columns, dtypes and order that programs may rely on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from etprof.backends.registry import delegate_label
from etprof.etdump.plausibility import CONTAINERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from etprof.etdump.plausibility import Events
    from etprof.etdump.reader import ETDump
    from etprof.report.records import Table

_TEXT, _COUNT, _FLAG, _NUMBER = "string", "Int64", "boolean", "float64"
_CHANGE: Final = {
    "baseline_ns": _NUMBER,
    "candidate_ns": _NUMBER,
    "delta_ns": _NUMBER,
    "speed_up": _NUMBER,
}
_SHARES: Final = {"baseline_share": _NUMBER, "candidate_share": _NUMBER}

COLUMNS: Final[dict[str, dict[str, str]]] = {
    "operators": {
        "experiment": _TEXT, "label": _TEXT, "operator": _TEXT, "category": _TEXT, "class": _TEXT,
        "delegated": _FLAG, "instruction_id": _COUNT, "data_types": _TEXT,
        "microkernel_type": _TEXT, "executions": _COUNT, "calls": _COUNT, "mean_ns": _NUMBER,
        "median_ns": _NUMBER, "median_low_ns": _NUMBER, "median_high_ns": _NUMBER,
        "minimum_ns": _NUMBER, "maximum_ns": _NUMBER, "standard_deviation_ns": _NUMBER,
        "total_ns": _NUMBER, "share": _NUMBER, "kernel_hint": _TEXT, "kernel_grade": _TEXT,
        "kernel_level": _TEXT, "kernel_source": _TEXT, "kernel_calls": _COUNT,
        "why_not_sme2": _TEXT, "shape": _TEXT, "macs": _COUNT, "moved_bytes": _COUNT,
        "gflops": _NUMBER, "gigabytes_per_s": _NUMBER, "module_path": _TEXT, "module_type": _TEXT,
        "module_certainty": _TEXT, "modules": _TEXT,
        "source": _TEXT, "graph_operators": _TEXT, "not_delegated_because": _TEXT,
    },
    "categories": {
        "experiment": _TEXT, "category": _TEXT, "class": _TEXT, "mean_ns": _NUMBER,
        "share": _NUMBER,
    },
    **{
        name: {
            "experiment": _TEXT, name: _TEXT, "operators": _COUNT, "mean_ns": _NUMBER,
            "share": _NUMBER, "macs": _COUNT,
        }
        for name in ("module", "source", "microkernel")
    },
    "tracer_costs": {
        "experiment": _TEXT, "kind": _TEXT, "without_ns": _NUMBER, "with_ns": _NUMBER,
        "ratio": _NUMBER, "ratio_low": _NUMBER, "ratio_high": _NUMBER,
    },
    "samples": {
        "experiment": _TEXT, "block": _COUNT, "phase": _TEXT, "index": _COUNT,
        "latency_ns": _COUNT,
    },
    "findings": {
        "experiment": _TEXT, "rule": _TEXT, "severity": _TEXT, "title": _TEXT, "summary": _TEXT,
        "gain_ns": _NUMBER, "action": _TEXT, "evidence": _TEXT, "ruled_out": _TEXT,
    },
    "comparisons": {
        "comparison": _TEXT, "verdict": _TEXT, "speed_up": _NUMBER, "speed_up_low": _NUMBER,
        "speed_up_high": _NUMBER, "p_value": _NUMBER, "pairs": _COUNT,
        "accelerated_share": _NUMBER, "ceiling": _NUMBER,
    },
    "operator_changes": {
        "comparison": _TEXT, "baseline_label": _TEXT, "candidate_label": _TEXT, "match": _TEXT,
        "category": _TEXT, "class": _TEXT, **_CHANGE, "speed_up_low": _NUMBER,
        "speed_up_high": _NUMBER, **_SHARES,
    },
    "category_changes": {"category": _TEXT, **_CHANGE, **_SHARES},
    "waterfall": {"label": _TEXT, "kind": _TEXT, "baseline_ns": _NUMBER, "candidate_ns": _NUMBER,
                  "delta_ns": _NUMBER},
}  # fmt: skip
"""Columns of each frame, in order, with their pandas dtypes."""


def build_frame(name: str, table: Table) -> pd.DataFrame:
    """Makes a frame of a table's records; an empty table has all its columns too."""
    import pandas as pd  # 0.3 s, which only users of frames pay

    columns = COLUMNS[name]
    return pd.DataFrame(table, columns=list(columns)).astype(columns)


@dataclass(frozen=True, eq=False)
class Event:
    """One kind of event of an event block, with every duration that was logged."""

    name: str
    is_delegated: bool
    is_container: bool
    """Whether its time holds that of other events: never add both."""
    instruction_id: int | None
    raw_ns: NDArray[np.int64]
    """Durations in the order of the file, in ticks; ns for ExecuTorch's own clock."""

    def percentile_ns(self, percent: float) -> float:
        """Returns a percentile of the durations, such as `percentile_ns(90)`."""
        return float(np.percentile(self.raw_ns, percent))

    @property
    def mean_ns(self) -> float:
        """Mean duration."""
        return float(self.raw_ns.mean())


@dataclass(frozen=True, eq=False)
class EventBlock:
    """All event blocks of one name, such as `Execute`, their equal events merged."""

    name: str
    events: tuple[Event, ...]
    """In the order of their first occurrence."""

    def to_frame(self) -> pd.DataFrame:
        """Returns name, delegated, count, p10, p50, p90, mean, minimum and maximum in ns."""
        import pandas as pd

        return pd.DataFrame(
            [
                {
                    "name": event.name,
                    "delegated": event.is_delegated,
                    "container": event.is_container,
                    "count": event.raw_ns.size,
                    "p10_ns": event.percentile_ns(10),
                    "p50_ns": event.percentile_ns(50),
                    "p90_ns": event.percentile_ns(90),
                    "mean_ns": event.mean_ns,
                    "minimum_ns": int(event.raw_ns.min()),
                    "maximum_ns": int(event.raw_ns.max()),
                }
                for event in self.events
            ]
        )


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
    dump: ETDump, checked: Events, rows: NDArray[np.intp], names: Sequence[str]
) -> tuple[Event, ...]:
    profile = dump.profile
    keys = np.stack(
        [
            column[rows].astype(np.int64)
            for column in (
                profile.instruction_id,
                profile.name_id,
                profile.delegate_debug_id_str_id,
                profile.delegate_debug_id_int,
            )
        ],
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


def _event(dump: ETDump, checked: Events, rows: NDArray[np.intp], names: Sequence[str]) -> Event:
    profile, row = dump.profile, rows[0]
    label, number = profile.delegate_debug_id_str_id[row], profile.delegate_debug_id_int[row]
    is_delegated = bool(label >= 0 or number >= 0)
    own = names[profile.name_id[row]]
    name = delegate_label(names, int(label), int(number)) if is_delegated else own
    instruction = int(profile.instruction_id[row])
    return Event(
        name,
        is_delegated,
        name in CONTAINERS,
        instruction if instruction >= 0 else None,
        checked.duration[rows],
    )
