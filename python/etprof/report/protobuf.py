"""Encodes protobuf messages field by field: all that writing a Perfetto trace needs.

Wire format: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

import struct
from typing import Final

_VARINT: Final = 0
_FIXED64: Final = 1
_LENGTH: Final = 2


def varint(value: int) -> bytes:
    """Encodes an unsigned integer, or a negative one as its 64-bit complement."""
    value &= 2**64 - 1
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def integer(field: int, value: int) -> bytes:
    """Encodes a field of an integer, enum or bool type."""
    return varint(field << 3 | _VARINT) + varint(value)


def double(field: int, value: float) -> bytes:
    """Encodes a field of type double."""
    return varint(field << 3 | _FIXED64) + struct.pack("<d", value)


def message(field: int, content: bytes) -> bytes:
    """Encodes a field of a message or bytes type."""
    return varint(field << 3 | _LENGTH) + varint(len(content)) + content


def text(field: int, value: str) -> bytes:
    """Encodes a field of type string; bytes that were no UTF-8 become question marks."""
    return message(field, value.encode("utf-8", "replace"))
