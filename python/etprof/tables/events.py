"""The profile events of an ETDump, as its timeline lists them."""

from __future__ import annotations

from typing import Final

from etprof.tables.table import Column, Table

TIMELINE: Final = Table(
    "timeline",
    (
        Column("event", "Int64", says="place in the file"),
        Column("event_block", "string", says="such as `Execute`"),
        Column(
            "execution",
            "Int64",
            says="number of the inference in the file, from 0; none at load time",
        ),
        Column("name", "string", says="of the operator or kernel"),
        Column("delegated", "boolean", says="inside a delegate"),
        Column("backend", "string", says="whose delegate it is, where that is known"),
        Column("instruction_id", "Int64", says="instruction of the program"),
        Column("start_ns", "Int64", "ns", is_timed=True, says="as in the file"),
        Column("end_ns", "Int64", "ns", is_timed=True, says="as in the file"),
        Column("duration_ns", "Int64", "ns", is_timed=True, says="wraps of the clock undone"),
        Column("start_is_synthetic", "boolean", says="laid end to end, not measured"),
    ),
    says="one row per profile event, in file order",
)
EVENTS: Final = Table(
    "events",
    (
        Column("event_block", "string", of=lambda e: e.block, says="such as `Execute`"),
        Column("name", "string", of=lambda e: e.name, says="of the operator or kernel"),
        Column("delegated", "boolean", of=lambda e: e.is_delegated, says="inside a delegate"),
        Column("container", "boolean", of=lambda e: e.is_container, says="holds others' time"),
        Column("backend", "string", of=lambda e: e.backend, says="whose delegate it is in"),
        Column("instruction_id", "Int64", of=lambda e: e.instruction_id, says="of the program"),
        Column(
            "operators",
            "string",
            of=lambda e: ", ".join(e.operators) or None,
            says="the graph's operators that it computes",
        ),
        Column(
            "debug_handles",
            "string",
            of=lambda e: ", ".join(map(str, e.debug_handles)) or None,
            says="of these operators, as the ETRecord has them",
        ),
        Column(
            "modules",
            "string",
            of=lambda e: ", ".join(filter(None, e.modules)) or None,
            says="the model's modules that they are of",
        ),
        Column("source", "string", of=lambda e: e.source, says="the model's own line, `file:line`"),
        Column("count", "Int64", "count", of=lambda e: e.count, says="how often it was logged"),
        *(
            Column(f"{name}_ns", "float64", "ns", is_timed=True, of=read, says=says)
            for name, says, read in (
                ("p10", "10th percentile", lambda e: e.percentile_ns(10)),
                ("p50", "median", lambda e: e.percentile_ns(50)),
                ("p90", "90th percentile", lambda e: e.percentile_ns(90)),
                ("mean", "mean", lambda e: e.mean_ns),
                ("minimum", "least", lambda e: e.percentile_ns(0)),
                ("maximum", "most", lambda e: e.percentile_ns(100)),
            )
        ),
    ),
    says="one row per kind of event of an event block",
)
