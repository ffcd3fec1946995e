"""ETDumps of the simulated world, in the order in which ExecuTorch writes events: by their end."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from etprof.etdump.plausibility import CONTAINERS
from tests.etdump_writer import Table, etdump, event_block, write_etdump
from tests.known_etdumps import LOAD_US, US, load_block, span
from tests.world.spec import CALL_US

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.world.spec import Operator


def call_events(
    operators: Sequence[Operator], start: int, scale: int, overhead_us: int
) -> tuple[list[Table], int]:
    """The events of one delegate or operator call from `start`, and its end, in µs."""
    ids, now, inside = {"instruction_id": operators[0].instruction}, start, []
    for each in operators:
        label = each.label.encode()
        name, more = (None, {"delegate_debug_id_str": label}) if each.is_delegated else (label, {})
        inside.append(span(name, now * US, each.us * scale, **ids, **more))
        now += each.us * scale
    delegated = operators[0].is_delegated
    now += (overhead_us if delegated else CALL_US) * scale
    container = CONTAINERS[1 if delegated else 2].encode()
    return [*inside, span(container, start * US, now - start, **ids)], now


def execution_events(
    operators: Sequence[Operator],
    start: int,
    scale: int = 1,
    overheads_us: tuple[int, int] = (0, 0),
) -> tuple[list[Table], int]:
    """One execution from `start`, and its end, in µs; operators of an instruction share a call.

    `overheads_us` are those of the execution and of each delegate's call.
    """
    events: list[Table] = []
    now = start + overheads_us[0] * scale
    for instruction in dict.fromkeys(each.instruction for each in operators):
        inside = [each for each in operators if each.instruction == instruction]
        call, now = call_events(inside, now, scale, overheads_us[1])
        events += call
    return [*events, span(CONTAINERS[0].encode(), start * US, now - start)], now


def write_executions(
    executions: Iterable[tuple[bytes, Sequence[Operator]]], overheads_us: tuple[int, int] = (0, 0)
) -> bytes:
    """A file of executions, each with its event block's name; the first is three times slower."""
    blocks, now = [load_block()], LOAD_US
    for name, operators in executions:
        events, now = execution_events(operators, now, 3 if name == b"First" else 1, overheads_us)
        blocks.append(event_block(name, events))
    return bytes(write_etdump(etdump(blocks)).data)


@functools.cache
def runner_etdump(operators: tuple[Operator, ...], warmup: int, executions: int) -> bytes:
    """The file that a launch writes; launches of one program write the same."""
    names = (b"First", *(b"Warmup",) * warmup, *(b"Execute",) * executions)
    return write_executions((name, operators) for name in names)
