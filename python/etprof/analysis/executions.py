"""Splits the time of each execution in an ETDump: operators, overheads, nothing twice.

An execution is one `Method::execute`. Its direct contents are `DELEGATE_CALL` and
`OPERATOR_CALL`; inside those stand the delegate's operators and the `native_call_*` kernels. Only
the innermost events are operators; what a container has beyond its contents is overhead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from etprof.analysis.categories import is_kernel_name
from etprof.analysis.vocabulary import CONTAINERS, LOAD_EVENTS
from etprof.errors import InputFileError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from etprof.etdump import ETDump

SUPPORTED_VERSION: Final = 0
"""ExecuTorch has written no other; the numbers of another could mean something else."""
STEADY_BLOCK: Final = "Execute"
FIRST_BLOCK: Final = "First"
WARMUP_BLOCK: Final = "Warmup"
PREFILL_BLOCK: Final = "Prefill"
"""A language model reads its prompt, often with another method: no inference of the others' kind."""
_ROLE_OTHER, _ROLE_EXECUTE, _ROLE_DELEGATE_CALL, _ROLE_OPERATOR_CALL = range(4)
_ROLE_DELEGATED, _ROLE_KERNEL = 4, 5
_FIRST, _WARMUP, _STEADY, _PREFILL = range(4)
_CONTAINER_ROLES: Final = dict(
    zip(CONTAINERS, (_ROLE_EXECUTE, _ROLE_DELEGATE_CALL, _ROLE_OPERATOR_CALL), strict=True)
)


@dataclass(frozen=True)
class Executions:
    """The steady executions of one ETDump; all times in ticks of the file, ns for ExecuTorch."""

    execute_ns: NDArray[np.float64]
    """Duration of each `Method::execute`, shape (executions,)."""
    delegate_call_ns: NDArray[np.float64]
    """Sum of the `DELEGATE_CALL`s of each execution, shape (executions,)."""
    operator_call_ns: NDArray[np.float64]
    """Sum of the `OPERATOR_CALL`s of each execution, shape (executions,)."""
    execution_index: NDArray[np.int64]
    """Execution of each operator event, shape (operator events,)."""
    duration_ns: NDArray[np.float64]
    """Duration of each operator event, shape (operator events,)."""
    name_id: NDArray[np.int32]
    """Index into the ETDump's names: the delegate's label or the kernel's name."""
    delegate_int_id: NDArray[np.int32]
    """The delegate's integer id, for delegates that give no label; else -1."""
    instruction_id: NDArray[np.int32]
    """Instruction of the program that the event belongs to; -1 when not given."""
    is_delegated: NDArray[np.bool_]
    """Whether the event is inside a delegate."""
    unknown_name_ids: tuple[int, ...]
    """Names of events that are neither container nor operator; their time is overhead."""
    first_execute_ns: float | None
    """The first execution, when the file keeps it apart or it was taken off the front."""
    warmup_execute_ns: tuple[float, ...]
    """Warm-up executions, when the file keeps them apart."""
    load_ns: dict[str, float]
    """Load-time events by name; no part of any execution."""

    @property
    def count(self) -> int:
        """Number of steady executions."""
        return self.execute_ns.size


@dataclass(frozen=True)
class _Classified:
    """Every profile event of a file with its part in it."""

    duration_ns: NDArray[np.float64]
    roles: NDArray[np.int8]
    execution: NDArray[np.int64]
    """Number of the execution over the whole file; -1 for events of none."""


def split_executions(dump: ETDump) -> Executions:
    """Takes the steady executions of `dump` apart.

    Files of etprof-runner keep first and warm-up executions in event blocks of their own. In
    files of other runners the first of several executions is taken as the first inference.
    Raises InputFileError when there is no execution, or for an unknown schema version.
    """
    if dump.version != SUPPORTED_VERSION:
        msg = (
            f"the ETDump has schema version {dump.version}, and only {SUPPORTED_VERSION} is known; "
            "use the etprof that belongs to the runner's ExecuTorch"
        )
        raise InputFileError(msg)
    profile = dump.profile
    roles = _roles(dump)
    events = _Classified(
        duration_ns=_durations(profile.start_time, profile.end_time),
        roles=roles,
        execution=_number_executions(roles, profile.block_index),
    )
    phases = _phases(dump, roles)
    if not (phases == _STEADY).any():
        msg = (
            "the ETDump has no steady Method::execute event, so there is no inference to analyse; "
            "run the model with --etdump and at least one iteration, on a runner built with the "
            "event tracer"
        )
        raise InputFileError(msg)
    return _collect(dump, events, phases)


def _phases(dump: ETDump, roles: NDArray[np.int8]) -> NDArray[np.int8]:
    """Says of each `Method::execute` whether it is first inference, warm-up or steady."""
    by_block = np.array([_phase(dump, int(i)) for i in dump.blocks.name_id], dtype=np.int8)
    phases: NDArray[np.int8] = by_block[dump.profile.block_index[roles == _ROLE_EXECUTE]]
    if not (phases == _FIRST).any() and phases.size > 1:
        phases[0] = _FIRST
    return phases


def _phase(dump: ETDump, name_id: int) -> int:
    """Reads the phase from an event block's name."""
    name = dump.names[name_id] if name_id >= 0 else ""
    known = {FIRST_BLOCK: _FIRST, WARMUP_BLOCK: _WARMUP, PREFILL_BLOCK: _PREFILL}
    return known.get(name, _STEADY)


def _collect(dump: ETDump, events: _Classified, phases: NDArray[np.int8]) -> Executions:
    """Keeps the events of steady executions and renumbers those from 0."""
    profile, roles, duration = dump.profile, events.roles, events.duration_ns
    steady = phases == _STEADY
    number = np.append(np.where(steady, np.cumsum(steady) - 1, -1), -1)[events.execution]
    inside = number >= 0
    operator = inside & ((roles == _ROLE_DELEGATED) | (roles == _ROLE_KERNEL))
    unknown = profile.name_id[inside & (roles == _ROLE_OTHER)]
    delegated = roles == _ROLE_DELEGATED
    label = np.where(delegated, profile.delegate_debug_id_str_id, profile.name_id)
    execute_ns = duration[roles == _ROLE_EXECUTE]

    def total(role: int) -> NDArray[np.float64]:
        chosen = inside & (roles == role)
        sums = np.bincount(number[chosen], duration[chosen], minlength=int(steady.sum()))
        return sums.astype(np.float64)

    first = execute_ns[phases == _FIRST]
    return Executions(
        execute_ns=execute_ns[steady],
        delegate_call_ns=total(_ROLE_DELEGATE_CALL),
        operator_call_ns=total(_ROLE_OPERATOR_CALL),
        execution_index=number[operator],
        duration_ns=duration[operator],
        name_id=label[operator],
        delegate_int_id=profile.delegate_debug_id_int[operator],
        instruction_id=profile.instruction_id[operator],
        is_delegated=delegated[operator],
        unknown_name_ids=tuple(int(i) for i in np.unique(unknown)),
        first_execute_ns=float(first[0]) if first.size else None,
        warmup_execute_ns=tuple(execute_ns[phases == _WARMUP].tolist()),
        load_ns=_load_times(dump, duration),
    )


def _durations(start: NDArray[np.uint64], end: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Durations in ticks; a 32-bit timer that wrapped once is put right (end < start < 2**32)."""
    wrapped = (end < start) & (start < 2**32)
    difference = end.astype(np.int64) - start.astype(np.int64)
    ticks: NDArray[np.float64] = difference.astype(np.float64)
    ticks[wrapped] += 2**32
    return ticks


def _roles(dump: ETDump) -> NDArray[np.int8]:
    """Says of each event whether it is a container, a delegate's operator or a kernel."""
    by_name = np.full(len(dump.names) + 1, _ROLE_OTHER, dtype=np.int8)
    for index, name in enumerate(dump.names):
        if is_kernel_name(name):
            by_name[index] = _ROLE_KERNEL
        else:
            by_name[index] = _CONTAINER_ROLES.get(name, _ROLE_OTHER)
    profile = dump.profile
    delegated = (profile.delegate_debug_id_str_id >= 0) | (profile.delegate_debug_id_int >= 0)
    return np.where(delegated, np.int8(_ROLE_DELEGATED), by_name[profile.name_id])


def _number_executions(
    roles: NDArray[np.int8], block_index: NDArray[np.uint32]
) -> NDArray[np.int64]:
    """Gives each event the number of its execution, -1 for events of none.

    Events stand in the file in order of their end, so those of an execution precede its
    `Method::execute` in the same event block.
    """
    is_execute = roles == _ROLE_EXECUTE
    number = np.cumsum(is_execute) - is_execute
    execute_block = np.append(block_index[is_execute].astype(np.int64), -1)
    belongs = execute_block[np.minimum(number, execute_block.size - 1)] == block_index
    return np.where(belongs, number, -1).astype(np.int64)


def _load_times(dump: ETDump, duration: NDArray[np.float64]) -> dict[str, float]:
    """Sums the load-time events by name."""
    name_id = dump.profile.name_id
    found = {name: dump.names.index(name) for name in LOAD_EVENTS if name in dump.names}
    return {name: float(duration[name_id == i].sum()) for name, i in found.items()}
