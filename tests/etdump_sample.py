"""An ETDump that has every kind of table, vector and string, laid out to be damaged."""

from __future__ import annotations

import struct
from typing import Any, cast

from tests import etdump_writer as writer


class Sample:
    """The file, and where its offsets, counts and vtables are."""

    def __init__(self, *, size_prefix: bool = True) -> None:
        self.tensor = writer.tensor_entry(6, [2, 3], [3, 1], 64)
        self.listed_tensor = writer.tensor_entry(4, [1], [1], 0)
        self.value = writer.value_entry(
            5,
            tensor=self.tensor,
            tensors=[self.listed_tensor],
            int_value=1,
            float_value=2.0,
            double_value=3.0,
            bool_value=True,
            output=True,
        )
        ids = {"chain_index": 0, "instruction_id": 1, "delegate_debug_id_int": 2}
        self.debug = writer.debug_event(self.value, name=b"add", delegate_debug_id_str=b"x", **ids)
        self.profile = writer.profile_event(
            b"DELEGATE_CALL",
            delegate_debug_id_str=b"GEMM #1",
            metadata=b"meta",
            start_time=5,
            end_time=7,
            **ids,
        )
        self.allocation = writer.allocation_event(1, 4096)
        self.events = [
            writer.event(profile=self.profile),
            writer.event(allocation=self.allocation),
            writer.event(debug=self.debug),
        ]
        self.allocator = writer.allocator(b"planned")
        self.block = writer.event_block(
            b"Execute", self.events, allocators=[self.allocator], bundled_input_index=0
        )
        self.root = writer.etdump([self.block], version=0)
        self.written = writer.write_etdump(self.root, size_prefix=size_prefix)
        self.size = len(self.written.data)
        self.begin = 4 if size_prefix else 0

    def tables(self) -> dict[str, writer.Table]:
        boxed = {
            name: self._child(self.value, key)
            for key, name in enumerate(["TensorList", "Int", "Float", "Double", "Bool"], start=2)
        }
        return boxed | {
            "ETDump": self.root,
            "RunData": self.block,
            "Allocator": self.allocator,
            "Event": self.events[0],
            "ProfileEvent": self.profile,
            "AllocationEvent": self.allocation,
            "DebugEvent": self.debug,
            "Value": self.value,
            "Tensor": self.tensor,
        }

    def offsets(self) -> dict[str, int]:
        """Position of an offset of every kind, by what it leads to."""
        field = self.written.field
        first_of: dict[str, Any] = {
            "RunData": self._child(self.root, 1),
            "Allocator": self._child(self.block, 2),
            "Event": self.events,
        }
        vectors = {name: self.written.node(node) + 4 for name, node in first_of.items()}
        return vectors | {
            "ETDump": self.begin,
            "ETDump.run_data": field(self.root, 1),
            "RunData.name": field(self.block, 0),
            "RunData.allocators": field(self.block, 2),
            "RunData.events": field(self.block, 3),
            "Allocator.name": field(self.allocator, 0),
            "ProfileEvent": field(self.events[0], 0),
            "AllocationEvent": field(self.events[1], 1),
            "DebugEvent": field(self.events[2], 2),
            "ProfileEvent.name": field(self.profile, 0),
            "ProfileEvent.delegate_debug_id_str": field(self.profile, 4),
            "ProfileEvent.delegate_debug_metadata": field(self.profile, 5),
            "Value": field(self.debug, 2),
            "DebugEvent.delegate_debug_id_str": field(self.debug, 4),
            "DebugEvent.name": field(self.debug, 5),
            "Tensor": field(self.value, 1),
            "TensorList": field(self.value, 2),
            "Int": field(self.value, 3),
            "Float": field(self.value, 4),
            "Double": field(self.value, 5),
            "Bool": field(self.value, 7),
            "TensorList.tensors": field(self._child(self.value, 2), 0),
            "Tensor.sizes": field(self.tensor, 1),
            "Tensor.strides": field(self.tensor, 2),
        }

    def counts(self) -> dict[str, tuple[int, int]]:
        """Position of every kind of element count, and the width of the elements."""
        node = self.written.node
        lists: dict[str, Any] = {
            "ETDump.run_data": self._child(self.root, 1),
            "RunData.allocators": self._child(self.block, 2),
            "RunData.events": self.events,
            "TensorList.tensors": self._child(self._child(self.value, 2), 0),
        }
        numbers = {
            "Tensor.sizes": (node(self._child(self.tensor, 1)), 8),
            "Tensor.strides": (node(self._child(self.tensor, 2)), 8),
            "ProfileEvent.delegate_debug_metadata": (node(self._child(self.profile, 5)), 1),
        }
        return {name: (node(items), 4) for name, items in lists.items()} | numbers

    def string_lengths(self) -> dict[str, int]:
        offsets = {
            name: at
            for name, at in self.offsets().items()
            if name.endswith((".name", ".delegate_debug_id_str"))
        }
        return {name: at + self._number(at) for name, at in offsets.items()}

    def _number(self, at: int) -> int:
        return int(struct.unpack_from("<I", self.written.data, at)[0])

    def _child(self, table: object, key: int) -> writer.Table:
        """Any node, called a table because only its identity matters."""
        return cast("writer.Table", cast("writer.Table", table).fields[key])
