"""Writes ETDumps for tests, sound ones and, with a few bytes patched, ones that lie.

A document is made of tables (`etdump`, `event_block`, `profile_event`, ...); `write_etdump` lays it
out and remembers where everything is, so that a test can damage exactly one thing.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Scalar:
    format: str
    value: float


@dataclass(eq=False)
class Numbers:
    """A vector of scalars."""

    format: str
    values: Sequence[int]


@dataclass(eq=False)
class Table:
    """A table: fields by id, laid out in the dict's order. None stands for a field not written."""

    fields: dict[int, Scalar | Node | None]


Node = bytes | Numbers | Table | list[Table]


@dataclass
class Written:
    """An ETDump's bytes, and where its parts are. Patch `data` to make it lie."""

    data: bytearray = field(default_factory=bytearray)
    node_at: dict[int, int] = field(default_factory=dict)
    vtable_at: dict[int, int] = field(default_factory=dict)
    field_at: dict[tuple[int, int], int] = field(default_factory=dict)

    def node(self, node: Node) -> int:
        return self.node_at[id(node)]

    def vtable(self, table: Table) -> int:
        return self.vtable_at[id(table)]

    def field(self, table: Table, field_id: int) -> int:
        return self.field_at[id(table), field_id]

    def patch(self, at: int, form: str, value: int) -> bytes:
        """Returns the bytes with one number replaced."""
        data = bytearray(self.data)
        struct.pack_into("<" + form, data, at, value)
        return bytes(data)


def write_etdump(
    root: Table,
    *,
    size_prefix: bool = True,
    aligned: bool = True,
    share_strings: bool = False,
    reverse_fields: bool = False,
) -> Written:
    """Lays a document out. Tables and lists that occur twice in it are written once, and shared."""
    layout = _Layout(aligned=aligned, reverse_fields=reverse_fields)
    written = layout.written
    begin = 4 if size_prefix else 0
    written.data += bytes(begin + 4) + b"ED00"
    layout.waiting.append((begin, root))
    while layout.waiting:
        slot, node = layout.waiting.popleft()
        position = 0 if isinstance(node, bytes) and not share_strings else layout.find(node)
        if position <= slot:  # offsets lead forward only
            position = layout.place(node)
        struct.pack_into("<I", written.data, slot, position - slot)
    if size_prefix:
        struct.pack_into("<I", written.data, 0, len(written.data) - 4)
    return written


@dataclass
class _Layout:
    """A file being laid out: what is placed, and which offsets wait for their node."""

    aligned: bool
    reverse_fields: bool
    written: Written = field(default_factory=Written)
    waiting: deque[tuple[int, Node]] = field(default_factory=deque)
    string_at: dict[bytes, int] = field(default_factory=dict)

    def find(self, node: Node) -> int:
        """Returns where the node was placed last; 0 if it was not."""
        if isinstance(node, bytes):
            return self.string_at.get(node, 0)
        return self.written.node_at.get(id(node), 0)

    def place(self, node: Node) -> int:
        data = self.written.data
        self._pad(data)
        if isinstance(node, Table):
            return self._place_table(node)
        position = len(data)
        self.written.node_at[id(node)] = position
        if isinstance(node, bytes):
            self.string_at[node] = position
            data += struct.pack("<I", len(node)) + node + b"\0"
        elif isinstance(node, Numbers):
            count = len(node.values)
            data += struct.pack(f"<I{count}{node.format}", count, *node.values)
        else:
            data += struct.pack("<I", len(node)) + bytes(4 * len(node))
            self.waiting.extend((position + 4 + 4 * i, item) for i, item in enumerate(node))
        return position

    def _place_table(self, table: Table) -> int:
        present = [(key, value) for key, value in table.fields.items() if value is not None]
        inline, places = self._lay_out(present[::-1] if self.reverse_fields else present)
        data = self.written.data
        vtable_at = len(data)
        data += _vtable(len(inline), places)
        self._pad(data)
        position = len(data)
        struct.pack_into("<i", inline, 0, position - vtable_at)
        data += inline
        self.written.node_at[id(table)] = position
        self.written.vtable_at[id(table)] = vtable_at
        for key, value in present:
            self.written.field_at[id(table), key] = position + places[key]
            if not isinstance(value, Scalar):
                self.waiting.append((position + places[key], value))
        return position

    def _lay_out(
        self, fields: Sequence[tuple[int, Scalar | Node]]
    ) -> tuple[bytearray, dict[int, int]]:
        """Returns a table's own bytes, and the place of each field in them."""
        inline = bytearray(4)
        places: dict[int, int] = {}
        for key, value in fields:
            content = _inline(value)
            if self.aligned:
                inline += bytes(-len(inline) % len(content))
            places[key] = len(inline)
            inline += content
        return inline, places

    def _pad(self, data: bytearray) -> None:
        if self.aligned:
            data += bytes(-len(data) % 8)


def _vtable(table_size: int, places: dict[int, int]) -> bytes:
    count = max(places, default=-1) + 1
    entries = (places.get(key, 0) for key in range(count))
    return struct.pack(f"<HH{count}H", 4 + 2 * count, table_size, *entries)


def _inline(value: Scalar | Node) -> bytes:
    """Returns the bytes in the table itself: a scalar, or room for an offset."""
    return struct.pack("<" + value.format, value.value) if isinstance(value, Scalar) else bytes(4)


def _scalar(form: str, value: float | None) -> Scalar | None:
    return None if value is None else Scalar(form, value)


def etdump(blocks: list[Table] | None = None, *, version: int | None = None) -> Table:
    return Table({0: _scalar("I", version), 1: blocks})


def event_block(
    name: bytes | None = None,
    events: list[Table] | None = None,
    *,
    allocators: list[Table] | None = None,
    bundled_input_index: int | None = None,
) -> Table:
    return Table({0: name, 1: _scalar("i", bundled_input_index), 2: allocators, 3: events})


def allocator(name: bytes | None = None) -> Table:
    return Table({0: name})


def event(
    *, profile: Table | None = None, allocation: Table | None = None, debug: Table | None = None
) -> Table:
    return Table({0: profile, 1: allocation, 2: debug})


def profile_event(
    name: bytes | None = None,
    *,
    chain_index: int | None = None,
    instruction_id: int | None = None,
    delegate_debug_id_int: int | None = None,
    delegate_debug_id_str: bytes | None = None,
    metadata: bytes | None = None,
    start_time: int | None = None,
    end_time: int | None = None,
) -> Table:
    return Table(
        {
            0: name,
            1: _scalar("i", chain_index),
            2: _scalar("i", instruction_id),
            3: _scalar("i", delegate_debug_id_int),
            4: delegate_debug_id_str,
            5: None if metadata is None else Numbers("B", metadata),
            6: _scalar("Q", start_time),
            7: _scalar("Q", end_time),
        }
    )


def allocation_event(allocator_id: int | None = None, size_bytes: int | None = None) -> Table:
    return Table({0: _scalar("i", allocator_id), 1: _scalar("Q", size_bytes)})


def debug_event(
    value: Table | None = None,
    *,
    name: bytes | None = None,
    chain_index: int | None = None,
    instruction_id: int | None = None,
    delegate_debug_id_int: int | None = None,
    delegate_debug_id_str: bytes | None = None,
) -> Table:
    return Table(
        {
            0: _scalar("Q", chain_index),
            1: _scalar("i", instruction_id),
            2: value,
            3: _scalar("i", delegate_debug_id_int),
            4: delegate_debug_id_str,
            5: name,
        }
    )


def value_entry(
    value_type: int | None = None,
    *,
    tensor: Table | None = None,
    tensors: list[Table] | None = None,
    int_value: int | None = None,
    float_value: float | None = None,
    double_value: float | None = None,
    bool_value: bool | None = None,
    output: bool | None = None,
) -> Table:
    return Table(
        {
            0: _scalar("b", value_type),
            1: tensor,
            2: None if tensors is None else Table({0: tensors}),
            3: _boxed("q", int_value),
            4: _boxed("f", float_value),
            5: _boxed("d", double_value),
            6: _boxed("?", bool_value),
            7: _boxed("?", output),
        }
    )


def _boxed(form: str, value: float | None) -> Table | None:
    return None if value is None else Table({0: Scalar(form, value)})


def tensor_entry(
    scalar_type: int | None = None,
    sizes: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    offset: int | None = None,
) -> Table:
    return Table(
        {
            0: _scalar("b", scalar_type),
            1: None if sizes is None else Numbers("q", sizes),
            2: None if strides is None else Numbers("q", strides),
            3: _scalar("q", offset),
        }
    )
