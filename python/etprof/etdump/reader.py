"""Reads an ETDump, ExecuTorch's event file, into NumPy columns without copying them.

    dump = load_etdump("toy_cnn.etdump")
    dump.profile.end_time - dump.profile.start_time  # ticks of every profile event
    dump.names[dump.blocks.name_id[0]]  # the first event block's name

Strings stand once each in `ETDump.names`, cleaned (`etprof.base.text`); columns that end in `_id` and hold names are positions
there, -1 for a string that the file does not have. Neither torch nor executorch is needed.
"""

from __future__ import annotations

import math
import mmap
import os
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

import numpy as np

from etprof.base.errors import BuildError, InputFileError, UsageError
from etprof.base.files import open_regular
from etprof.base.text import clean, clean_all
from etprof.etdump.columns import (
    AllocationColumns,
    AllocatorColumns,
    BlockColumns,
    DebugColumns,
    ProfileColumns,
    TensorColumns,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

    import pandas as pd
    from numpy.typing import DTypeLike, NDArray

    from etprof._etdump import EventTable

WAYS_OUT = {
    "empty": "run the model again with --etdump, on a runner built with the event tracer",
    "truncated": "pull the file again, or run the model again",
    "not_etdump": "give a run directory, or an ETDump such as `etprof-runner --etdump` writes",
    "damaged": "pull the file again, or run the model again",
}


EXECUTE: Final = "Method::execute"
"""The event that ends an execution, if it is no delegate's; the native reader cuts pieces there."""
_PIECE_EVENTS: Final = 1 << 16
"""Profile events of a piece, at least: 4 MB of columns, and as much again for each step of work."""
_KEPT_BYTES: Final = 2 << 20
"""Of the blocks that glibc's allocator keeps: longer than a column; 24 MB took 8 MB more memory."""
_SHORT_BYTES: Final = 64 * _PIECE_EVENTS
"""A file of one piece at most, which is read once."""


class ETDumpFormatError(InputFileError):
    """Bytes that cannot be read as an ETDump: why, and at which byte of the file."""

    def __init__(self, source: str, *, reason: str, offset: int, fault: str) -> None:
        super().__init__(f"{source}: {reason} (at byte {offset}); {WAYS_OUT[fault]}")
        self.reason = reason
        self.offset = offset


class ValueType(IntEnum):
    """What a debug event logged."""

    NULL = 0
    INT = 1
    BOOL = 2
    FLOAT = 3
    DOUBLE = 4
    TENSOR = 5
    TENSOR_LIST = 6
    STRING = 7


# The field of the schema's table Value that a type is logged in; it has none for strings.
_VALUE_FIELDS: dict[int, int] = {
    ValueType.TENSOR: 1,
    ValueType.TENSOR_LIST: 2,
    ValueType.INT: 3,
    ValueType.FLOAT: 4,
    ValueType.DOUBLE: 5,
    ValueType.BOOL: 6,
}

# By the number of ExecuTorch's ScalarType; those that NumPy has no dtype for are not here.
SCALAR_DTYPES: dict[int, DTypeLike] = {
    0: np.uint8,
    1: np.int8,
    2: np.int16,
    3: np.int32,
    4: np.int64,
    5: np.float16,
    6: np.float32,
    7: np.float64,
    9: np.complex64,
    10: np.complex128,
    11: np.bool_,
    12: np.int8,
    13: np.uint8,
    14: np.int32,
    22: np.uint16,
    27: np.uint16,
    28: np.uint32,
    29: np.uint64,
}


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A logged tensor: its data is in the debug buffer, a file of its own."""

    scalar_type: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    offset: int
    """In the debug buffer, in bytes; -1: the tensor has no bytes."""


DebugValue = int | float | TensorEntry | tuple[TensorEntry, ...] | None


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class ETDump:
    """Everything that an ETDump says. The columns are read-only views of one parsed table."""

    version: int
    size_bytes: int
    names: Sequence[str]
    """Fit to be shown, and no two alike; `raw_names` has the file's own bytes."""
    blocks: BlockColumns
    profile: ProfileColumns
    allocations: AllocationColumns
    allocators: AllocatorColumns
    debug: DebugColumns
    tensors: TensorColumns
    _texts: Sequence[str]
    _data: memoryview
    first_block: int = 0
    """Of the file, where this is a piece: `profile.block_index` counts from there."""
    ns_per_tick: float = 1.0
    """Of the clock that the file's stamps are of."""

    def __repr__(self) -> str:
        return (
            f"<ETDump of {self.size_bytes} bytes: {len(self.blocks.name_id)} event blocks, "
            f"{len(self.profile.name_id)} profile events, "
            f"{len(self.allocations.allocator_id)} allocation events, "
            f"{len(self.debug.name_id)} debug events>"
        )

    def pieces(self) -> Iterator[ETDump]:
        """Yields itself: as a piece it is the only one."""
        yield self

    @property
    def raw_names(self) -> tuple[bytes, ...]:
        """The names' bytes as the file has them, in the order of `names`."""
        return tuple(name.encode("utf-8", "surrogateescape") for name in self._texts)

    def profile_metadata(self, row: int) -> bytes:
        """Returns the bytes that the delegate attached to profile event `row`."""
        begin = int(self.profile.metadata_offset[row])
        return bytes(self._data[begin : begin + int(self.profile.metadata_size[row])])

    def debug_value(self, row: int) -> DebugValue:
        """Returns what debug event `row` logged; None for nothing, or for an unknown type."""
        kind = int(self.debug.value_type[row])
        if not self._holds_value(row, kind):
            return None
        if kind == ValueType.TENSOR:
            return self.debug_tensors(row)[0]
        if kind == ValueType.TENSOR_LIST:
            return self.debug_tensors(row)[self._holds_value(row, ValueType.TENSOR) :]
        if kind == ValueType.BOOL:
            return bool(self.debug.bool_value[row])
        numbers: dict[int, NDArray[Any]] = {
            ValueType.INT: self.debug.int_value,
            ValueType.FLOAT: self.debug.float_value,
            ValueType.DOUBLE: self.debug.double_value,
        }
        return cast("int | float", numbers[kind][row].item())

    def _holds_value(self, row: int, kind: int) -> bool:
        field = _VALUE_FIELDS.get(kind)
        return field is not None and bool(int(self.debug.value_fields[row]) >> field & 1)

    def debug_tensors(self, row: int) -> tuple[TensorEntry, ...]:
        """Returns the tensors of debug event `row`: the one alone, then those of its list."""
        begin = int(self.debug.tensor_begin[row])
        return tuple(
            self._tensor(begin + index) for index in range(int(self.debug.tensor_count[row]))
        )

    def _tensor(self, row: int) -> TensorEntry:
        columns = self.tensors
        sizes = int(columns.sizes_begin[row])
        strides = int(columns.strides_begin[row])
        return TensorEntry(
            scalar_type=int(columns.scalar_type[row]),
            sizes=tuple(columns.sizes[sizes : sizes + columns.sizes_count[row]].tolist()),
            strides=tuple(columns.strides[strides : strides + columns.strides_count[row]].tolist()),
            offset=int(columns.offset[row]),
        )


@dataclass(slots=True)
class _Names:
    """The names of the pieces so far: each piece brings those that none before it had."""

    texts: list[str] = field(default_factory=list)
    displayed: list[str] = field(default_factory=list)
    _taken: set[str] = field(default_factory=set)

    def add(self, texts: Sequence[str]) -> None:
        """Cleans the new names alone, unless one of them looks like another."""
        self.texts += texts
        cleaned = [clean(text) for text in texts]
        self.displayed += cleaned
        self._taken.update(cleaned)
        if len(self._taken) < len(self.displayed):
            self.displayed = list(clean_all(self.texts))
            self._taken = set(self.displayed)


@dataclass(frozen=True, eq=False, slots=True)
class LongETDump:
    """An ETDump that is too long to be in memory whole: every reading parses the file anew."""

    path: Path
    data: mmap.mmap
    state: tuple[int, int, int]
    """Of the file when it was opened: inode, bytes, time of its last change in ns."""
    ns_per_tick: float = field(default=1.0, kw_only=True)
    """As of an ETDump that is in memory whole."""

    @property
    def name(self) -> str:
        """In messages."""
        return str(self.path)

    def pieces(self) -> Iterator[ETDump]:
        """Yields the file in pieces that end with an execution, in memory for one of them.

        Numbers of names hold for all pieces; a later one may have more of them. Raises
        ETDumpFormatError at the piece that is damaged, InputFileError once the file has changed.
        """
        with _telling_faults(self.name, len(self.data)) as reader_module:
            reader = reader_module.PieceReader(self.data)
            names = _Names()
            is_last = False
            # From the first large block that is freed glibc learns to keep such blocks. Else it gives
            # those of every step back, and the kernel clears them anew: a tenth of the time.
            np.empty(_KEPT_BYTES, np.uint8)
            while not is_last:
                if _state(self.path) != self.state:
                    raise InputFileError(changed_while_read(self.name))
                table = reader.read(_PIECE_EVENTS, EXECUTE)
                is_last = reader.at_end
                names.add(table.names())
                piece = _from_table(table, self.data, names.texts, names.displayed)
                yield replace(piece, ns_per_tick=self.ns_per_tick)
                if hasattr(self.data, "madvise"):  # else read pages of the file stay in memory
                    self.data.madvise(mmap.MADV_DONTNEED)


def open_etdump(path: Path, *, ns_per_tick: float = 1.0) -> ETDump | LongETDump:
    """Reads an ETDump from a path, a long one only in part; raises as `load_etdump` does.

    Its stamps are of a clock of `ns_per_tick`; by default ns, as on every system that etprof
    measures on.
    """
    data = _map_file(path)
    if isinstance(data, bytes) or len(data) <= _SHORT_BYTES:
        return replace(_read_whole(str(path), data), ns_per_tick=ns_per_tick)
    long = LongETDump(path, data, _state(path), ns_per_tick=ns_per_tick)
    next(long.pieces())
    return long


def changed_while_read(name: str) -> str:
    """Says that readings of one file do not belong together."""
    return f"{name}: changed while it was read; let its writer end, then try again"


def _state(path: Path) -> tuple[int, int, int]:
    try:
        status = path.stat()
    except OSError as error:
        raise InputFileError(changed_while_read(str(path))) from error
    return status.st_ino, status.st_size, status.st_mtime_ns


def load_etdump(source: Path | str | bytes | BinaryIO) -> ETDump:
    """Reads an ETDump from a path (memory-mapped), from bytes, or from a file open for reading.

    Raises ETDumpFormatError, with the offset and the reason, for anything but an ETDump, and
    InputFileError for a path that cannot be read.
    """
    return _read_whole(*_open_source(source))


def _read_whole(name: str, data: bytes | mmap.mmap) -> ETDump:
    with _telling_faults(name, len(data)) as reader_module:
        table = reader_module.read_etdump(data)
    texts = table.names()
    return _from_table(table, data, texts, clean_all(texts))


def _from_table(
    table: EventTable, data: bytes | mmap.mmap, texts: Sequence[str], names: Sequence[str]
) -> ETDump:
    return ETDump(
        version=table.version,
        size_bytes=len(data),
        names=names,
        blocks=BlockColumns(**table.blocks()),
        profile=ProfileColumns(**table.profile()),
        allocations=AllocationColumns(**table.allocations()),
        allocators=AllocatorColumns(**table.allocators()),
        debug=DebugColumns(**table.debug()),
        tensors=TensorColumns(**table.tensors()),
        first_block=table.first_block,
        _texts=texts,
        _data=memoryview(data),
    )


def read_tensor(tensor: TensorEntry, debug_buffer: bytes) -> NDArray[np.generic]:
    """Returns a logged tensor's data as a read-only view of the debug buffer.

    Raises InputFileError for a tensor that does not fit the buffer or has no NumPy dtype.

    Args:
        tensor: Where the data lies in the buffer, its sizes, and its strides in elements.
        debug_buffer: The bytes that the run logged its tensors into.

    Returns:
        An array of the tensor's dtype and shape `tensor.sizes`.
    """
    if tensor.scalar_type not in SCALAR_DTYPES:
        msg = f"tensor of scalar type {tensor.scalar_type} has no NumPy dtype; read its bytes"
        raise InputFileError(msg)
    dtype = np.dtype(SCALAR_DTYPES[tensor.scalar_type])
    if math.prod(tensor.sizes) == 0:
        return np.empty(tensor.sizes, dtype)
    try:
        return np.ndarray(
            tensor.sizes,
            dtype,
            debug_buffer,
            tensor.offset,
            [stride * dtype.itemsize for stride in tensor.strides],
        )
    except (ValueError, TypeError, OverflowError) as error:
        msg = (
            f"{tensor} does not fit a debug buffer of {len(debug_buffer)} bytes; "
            "give the debug buffer of the same run"
        )
        raise InputFileError(msg) from error


def events_frame(dump: ETDump) -> pd.DataFrame:
    """Returns the profile events as a table, one row each in file order, with their strings."""
    import pandas as pd  # reading does not need it, and its import takes 0.3 s

    profile = dump.profile
    categories = pd.Index(list(dump.names), dtype=object)
    codes = np.append(np.arange(len(dump.names), dtype=np.int32), np.int32(-1))

    def texts(name_id: NDArray[np.int32]) -> pd.Categorical[Any]:
        """Makes texts of indices into the file's names, shape (rows,); -1 is none."""
        return pd.Categorical.from_codes(codes[name_id], categories=categories)

    return pd.DataFrame(
        {
            "block_index": profile.block_index,
            "block": texts(dump.blocks.name_id[profile.block_index]),
            "event_index": profile.event_index,
            "name": texts(profile.name_id),
            "delegate_debug_id_str": texts(profile.delegate_debug_id_str_id),
            "delegate_debug_id_int": profile.delegate_debug_id_int,
            "instruction_id": profile.instruction_id,
            "chain_index": profile.chain_index,
            "start_time": profile.start_time,
            "end_time": profile.end_time,
        }
    )


@contextmanager
def _telling_faults(name: str, size: int) -> Iterator[ModuleType]:
    """Gives the native reader; what it refuses is told as one of ours."""
    reader = import_native()
    try:
        yield reader
    except reader.FormatError as error:
        reason, offset, fault = error.args
        raise ETDumpFormatError(name, reason=reason, offset=offset, fault=fault) from None
    except MemoryError:
        msg = f"{name}: {size} bytes need more memory than there is; record fewer iterations"
        raise InputFileError(msg) from None


def import_native() -> ModuleType:
    """Returns the native reader; raises BuildError, with the way out, where it cannot be loaded."""
    try:
        from etprof import _etdump  # a failure is told only to those who need it
    except ImportError as error:
        msg = (
            f"the ETDump reader, etprof._etdump, cannot be imported ({error}); "
            "build it with `pip install .` in etprof's source folder"
        )
        raise BuildError(msg) from error
    return _etdump


def _open_source(source: Path | str | bytes | BinaryIO) -> tuple[str, bytes | mmap.mmap]:
    """Returns what to call `source` in messages, and its bytes."""
    if isinstance(source, Path | str):
        return str(source), _map_file(Path(source))
    if isinstance(source, bytes):
        return "ETDump in memory", source
    name = getattr(source, "name", "ETDump in memory")
    try:
        data = source.read()
    except ValueError as error:  # closed, open for writing, or text that cannot be decoded
        msg = f"{name}: is not open for reading bytes; open it with mode 'rb'"
        raise UsageError(msg) from error
    if not isinstance(data, bytes):
        msg = f"{name}: open as text; open it with mode 'rb'"
        raise UsageError(msg)
    return str(name), data


def _map_file(path: Path) -> bytes | mmap.mmap:
    try:
        if path.is_dir():
            msg = f"{path}: is a directory; give the ETDump inside it"
            raise InputFileError(msg)
        with open_regular(path) as file:
            if os.fstat(file.fileno()).st_size == 0:  # which mmap refuses
                return b""
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror}); check the path and its permissions"
        raise InputFileError(msg) from error
    except ValueError as error:  # a path with a NUL, or a file emptied since stat
        msg = f"{path!s}: cannot be read ({error}); check the path"
        raise InputFileError(msg) from error
