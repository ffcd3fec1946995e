"""The columns of an ETDump, as cpp/etdump/reader.h declares them: what Python knows of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False, slots=True)
class BlockColumns:
    """One row per event block, in file order."""

    name_id: NDArray[np.int32]
    bundled_input_index: NDArray[np.int32]
    """-1: not given."""
    event_begin: NDArray[np.int64]
    """Position in the file's order of events, of whatever kind."""
    event_end: NDArray[np.int64]
    """Of a block that a piece cuts, where the piece ends."""


@dataclass(frozen=True, eq=False, slots=True)
class ProfileColumns:
    """One row per profile event, in file order."""

    block_index: NDArray[np.uint32]
    event_index: NDArray[np.uint64]
    """Position in the file's order of events, of whatever kind."""
    name_id: NDArray[np.int32]
    delegate_debug_id_str_id: NDArray[np.int32]
    delegate_debug_id_int: NDArray[np.int32]
    """-1: not given, as in `instruction_id`."""
    instruction_id: NDArray[np.int32]
    chain_index: NDArray[np.int32]
    start_time: NDArray[np.uint64]
    """In ticks: the file does not say whether they are time or cycles."""
    end_time: NDArray[np.uint64]
    metadata_offset: NDArray[np.uint64]
    """Position in the file; 0: no metadata, not even empty."""
    metadata_size: NDArray[np.uint32]

    @property
    def naming(self) -> tuple[NDArray[np.int32], ...]:
        """The columns that name an event: its own name, a delegate's label, a delegate's number.

        Returns:
            Indices into the file's names, and the number; -1 is none. Each int32, shape (events,).
        """
        return self.name_id, self.delegate_debug_id_str_id, self.delegate_debug_id_int


@dataclass(frozen=True, eq=False, slots=True)
class AllocationColumns:
    """One row per allocation event, in file order."""

    block_index: NDArray[np.uint32]
    event_index: NDArray[np.uint64]
    allocator_id: NDArray[np.int32]
    """As ExecuTorch gives it: 1 for the block's first allocator."""
    size_bytes: NDArray[np.uint64]


@dataclass(frozen=True, eq=False, slots=True)
class AllocatorColumns:
    """One row per allocator, in file order."""

    block_index: NDArray[np.uint32]
    name_id: NDArray[np.int32]


@dataclass(frozen=True, eq=False, slots=True)
class DebugColumns:
    """One row per debug event, in file order; `ETDump.debug_value` puts the value together."""

    block_index: NDArray[np.uint32]
    event_index: NDArray[np.uint64]
    name_id: NDArray[np.int32]
    delegate_debug_id_str_id: NDArray[np.int32]
    delegate_debug_id_int: NDArray[np.int32]
    instruction_id: NDArray[np.int32]
    chain_index: NDArray[np.uint64]
    value_type: NDArray[np.int8]
    """A ValueType; -1: the event has no value."""
    value_fields: NDArray[np.uint8]
    """Which fields the file has: bit n is field n of the schema's table Value."""
    int_value: NDArray[np.int64]
    float_value: NDArray[np.float32]
    double_value: NDArray[np.float64]
    bool_value: NDArray[np.int8]
    is_output: NDArray[np.int8]
    """1: an output of the program; -1: not given."""
    tensor_begin: NDArray[np.uint64]
    tensor_count: NDArray[np.uint32]


@dataclass(frozen=True, eq=False, slots=True)
class TensorColumns:
    """One row per tensor of a debug event; `sizes` and `strides` hold those of all, end to end."""

    scalar_type: NDArray[np.int8]
    offset: NDArray[np.int64]
    sizes_begin: NDArray[np.uint64]
    sizes_count: NDArray[np.uint32]
    strides_begin: NDArray[np.uint64]
    strides_count: NDArray[np.uint32]
    sizes: NDArray[np.int64]
    strides: NDArray[np.int64]
