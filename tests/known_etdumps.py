"""ETDumps whose split is known: one delegate with three operators, one portable kernel."""

from __future__ import annotations

from typing import Protocol, TypeVar

from tests.etdump_writer import Table, etdump, event, event_block, profile_event, write_etdump

Times_co = TypeVar("Times_co", covariant=True)


class Timed(Protocol[Times_co]):
    """What has times where the target proves any: a row, a split, a comparison."""

    @property
    def times(self) -> Times_co | None: ...


def timed(subject: Timed[Times_co]) -> Times_co:
    """The subject's times, which are there."""
    assert subject.times is not None
    return subject.times


US = 1000
DELEGATED_US = {b"Convolution (NHWC, F32) IGEMM #1": 60, b"Softmax (NC, F32) #1": 20}
CALL_US, KERNEL_US, OPERATOR_CALL_US, EXECUTE_US, LOAD_US = 90, 30, 32, 125, 500
PERIOD = 1000 * US
"""From one execution to the next."""


def span(name: bytes | None, start: int, length: int, **ids: object) -> Table:
    """A profile event of `length` microseconds."""
    return event(
        profile=profile_event(name, start_time=start, end_time=start + length * US, **ids)  # type: ignore[arg-type]
    )


def execution_events(start: int = 0, *, scale: int = 1) -> list[Table]:
    """One execution, in the order in which ExecuTorch writes events: by their end."""
    delegated, now = [], start
    for label, length in DELEGATED_US.items():
        ids: dict[str, object] = {"instruction_id": 0, "delegate_debug_id_str": label}
        delegated.append(span(None, now, length * scale, **ids))
        now += length * scale * US
    after = start + CALL_US * scale * US
    return [
        *delegated,
        span(b"DELEGATE_CALL", start, CALL_US * scale, instruction_id=0),
        span(b"native_call_addmm.out", after + US, KERNEL_US * scale, instruction_id=1),
        span(b"OPERATOR_CALL", after, OPERATOR_CALL_US * scale, instruction_id=1),
        span(b"Method::execute", start, EXECUTE_US * scale),
    ]


def load_block(start: int = 0) -> Table:
    """Load-time events, which belong to no execution."""
    load = span(b"Program::load_method", start, LOAD_US)
    return event_block(b"Default", [span(b"Method::init", start + 50 * US, 400), load])


def runner_blocks(executions: int = 3, *, start: int = 0) -> list[Table]:
    """As etprof-runner writes them: first inference ten times slower, warm-up twice."""
    first = start + LOAD_US * US
    warmup = first + 10 * EXECUTE_US * US
    steady = warmup + 2 * EXECUTE_US * US
    return [
        load_block(start),
        event_block(b"First", execution_events(first, scale=10)),
        event_block(b"Warmup", execution_events(warmup, scale=2)),
        *(
            event_block(b"Execute", execution_events(steady + i * PERIOD))
            for i in range(executions)
        ),
    ]


def runner_etdump(executions: int = 3) -> bytes:
    """The file of `runner_blocks`."""
    return bytes(write_etdump(etdump(runner_blocks(executions))).data)


def foreign_etdump(executions: int = 3) -> bytes:
    """As other runners write it: every execution in a block called Execute."""
    blocks = [
        load_block(),
        event_block(b"Execute", execution_events(LOAD_US * US, scale=10)),
        *(event_block(b"Execute", execution_events(10**7 + i * PERIOD)) for i in range(executions)),
    ]
    return bytes(write_etdump(etdump(blocks)).data)
