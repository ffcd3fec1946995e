"""ETDumps whose split is known: one delegate with three operators, one portable kernel."""

from __future__ import annotations

from tests.etdump_writer import Table, etdump, event, event_block, profile_event, write_etdump

US = 1000
DELEGATED_US = {b"Convolution (NHWC, F32) IGEMM #1": 60, b"Softmax (NC, F32) #1": 20}
CALL_US, KERNEL_US, OPERATOR_CALL_US, EXECUTE_US = 90, 30, 32, 125


def span(name: bytes | None, start: int, length: int, **ids: object) -> Table:
    """A profile event of `length` microseconds."""
    return event(
        profile=profile_event(name, start_time=start, end_time=start + length * US, **ids)  # type: ignore[arg-type]
    )


def execution_events(start: int = 0, *, scale: int = 1) -> list[Table]:
    """One execution, in the order in which ExecuTorch writes events: by their end."""
    delegated = [
        span(None, start, length * scale, instruction_id=0, delegate_debug_id_str=label)
        for label, length in DELEGATED_US.items()
    ]
    return [
        *delegated,
        span(b"DELEGATE_CALL", start, CALL_US * scale, instruction_id=0),
        span(b"native_call_addmm.out", start, KERNEL_US * scale, instruction_id=1),
        span(b"OPERATOR_CALL", start, OPERATOR_CALL_US * scale, instruction_id=1),
        span(b"Method::execute", start, EXECUTE_US * scale),
    ]


def load_block() -> Table:
    """Load-time events, which belong to no execution."""
    return event_block(
        b"Default", [span(b"Program::load_method", 0, 500), span(b"Method::init", 0, 400)]
    )


def runner_etdump(executions: int = 3) -> bytes:
    """As etprof-runner writes it: first inference ten times slower, warm-up twice."""
    blocks = [
        load_block(),
        event_block(b"First", execution_events(scale=10)),
        event_block(b"Warmup", execution_events(scale=2)),
        *(event_block(b"Execute", execution_events(i * 10**6)) for i in range(executions)),
    ]
    return bytes(write_etdump(etdump(blocks)).data)


def foreign_etdump(executions: int = 3) -> bytes:
    """As other runners write it: every execution in a block called Execute."""
    blocks = [
        load_block(),
        event_block(b"Execute", execution_events(scale=10)),
        *(event_block(b"Execute", execution_events()) for _ in range(executions)),
    ]
    return bytes(write_etdump(etdump(blocks)).data)
