"""ETDumps of the simulated world, in the order in which ExecuTorch writes events: by their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from etprof.etdump.plausibility import CONTAINERS
from tests.etdump_writer import Table, etdump, event_block, write_etdump
from tests.known_etdumps import LOAD_US, US, load_block, span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.world.spec import Operator

CALL_US = 1


def call_events(operators: Sequence[Operator], start: int, scale: int) -> tuple[list[Table], int]:
    """The events of one delegate or operator call from `start`, and its end, in µs."""
    ids, now, inside = {"instruction_id": operators[0].instruction}, start, []
    for each in operators:
        label = each.label.encode()
        name, more = (None, {"delegate_debug_id_str": label}) if each.is_delegated else (label, {})
        inside.append(span(name, now * US, each.us * scale, **ids, **more))
        now += each.us * scale
    delegated = operators[0].is_delegated
    now += 0 if delegated else CALL_US * scale
    container = CONTAINERS[1 if delegated else 2].encode()
    return [*inside, span(container, start * US, now - start, **ids)], now


def execution_events(
    operators: Sequence[Operator], start: int, scale: int = 1
) -> tuple[list[Table], int]:
    """One execution from `start`, and its end, in µs; operators of an instruction share a call."""
    events: list[Table] = []
    now = start
    for instruction in dict.fromkeys(each.instruction for each in operators):
        inside = [each for each in operators if each.instruction == instruction]
        call, now = call_events(inside, now, scale)
        events += call
    return [*events, span(CONTAINERS[0].encode(), start * US, now - start)], now


def runner_etdump(operators: Sequence[Operator], warmup: int, executions: int) -> bytes:
    """The file that a launch writes: load, first inference three times slower, warm-up, the rest."""
    first, now = execution_events(operators, LOAD_US, 3)
    blocks = [load_block(), event_block(b"First", first)]
    for name in (b"Warmup",) * warmup + (b"Execute",) * executions:
        events, now = execution_events(operators, now)
        blocks.append(event_block(name, events))
    return bytes(write_etdump(etdump(blocks)).data)
