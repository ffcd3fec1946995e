"""ETDumps that lie: about where things are, or, in a sound file, about what happened when."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from tests.etdump_writer import (
    Numbers,
    Table,
    allocation_event,
    allocator,
    etdump,
    event,
    event_block,
    profile_event,
    write_etdump,
)

US: Final = 1000
_EXTREMES: Final = (0, 1, 4, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFC, 0xFFFFFFFF)
_MOMENTS: Final = (
    0, 1, -1, 10**9, 3600 * 10**9, 2**31, 2**32, 2**32 - 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1,
)  # fmt: skip
NAMES: Final = (
    b"",
    b"\x1b[2J\x1b]0;own\x07",
    "a\u202egpj.exe\u2066".encode(),
    b"a\nb\rc\x00d\x85",
    b"\xff\xfe\xc3(",
    b"\xed\xa0\x80",
    b"x" * 20_000,
    b"[/]<script>alert(1)</script>[bold]|`@everyone",
    b"Method::execute",
    b"DELEGATE_CALL",
    b"OPERATOR_CALL",
    b"native_call_",
    b"Convolution (NHWC, ) IGEMM #",
    b"Convolution (NHWC, F32) IGEMM #" + b"9" * 5000,
    b"=cmd()",
    "Méthode – 💩 \ufeff".encode(),
)


@dataclass(frozen=True)
class Span:
    """A profile event before it is written."""

    name: bytes | None
    start: int
    end: int
    instruction: int | None = None
    label: bytes | None = None
    number: int | None = None

    def table(self) -> Table:
        """The event as the file has it; times outside 64 bits wrap, as they would there."""
        return event(
            profile=profile_event(
                self.name,
                start_time=self.start % 2**64,
                end_time=self.end % 2**64,
                instruction_id=self.instruction,
                delegate_debug_id_str=self.label,
                delegate_debug_id_int=self.number,
            )
        )


Blocks = list[tuple[bytes | None, list[Span]]]


def sound_blocks(executions: int = 3) -> Blocks:
    """Load, a slow first inference and equal executions of a delegate and a portable kernel."""
    blocks: Blocks = [(b"Default", [Span(b"Program::load_method", 0, 500 * US)])]
    names = [b"First", *[b"Execute"] * executions]
    return blocks + [
        (name, _execution(i * 10**6, 5 if i == 1 else 1)) for i, name in enumerate(names, start=1)
    ]


def _execution(at: int, scale: int) -> list[Span]:
    unit = US * scale
    labels = (b"Convolution (NHWC, F16) IGEMM #1", b"Softmax (NC, F16) #1", b"Copy (NC, X16) #1")
    inside = [
        Span(None, at + i * 20 * unit, at + (i + 1) * 20 * unit, 0, label)
        for i, label in enumerate(labels)
    ]
    return [
        *inside,
        Span(b"DELEGATE_CALL", at, at + 70 * unit, 0),
        Span(b"native_call_addmm.out", at + 70 * unit, at + 100 * unit, 1),
        Span(b"OPERATOR_CALL", at + 70 * unit, at + 101 * unit, 1),
        Span(b"Method::execute", at, at + 105 * unit),
    ]


def write_blocks(blocks: Blocks) -> bytes:
    """Returns the file."""
    tables = [event_block(name, [span.table() for span in spans]) for name, spans in blocks]
    return bytes(write_etdump(etdump(tables)).data)


def mutate_etdump(random: Random) -> tuple[bytes, str]:
    """Returns an ETDump that lies, and how."""
    if random.random() < _STRUCTURAL:
        data = bytearray(write_blocks(sound_blocks()))
        for _ in range(random.choice((1, 1, 2, 5))):
            at = random.randrange(0, len(data) - 8, 4)
            struct.pack_into("<I", data, at, random.choice((*_EXTREMES, len(data), len(data) - at)))
        return bytes(data), "offsets or counts"
    name = random.choice(list(_LIES))
    blocks = _LIES[name](sound_blocks(random.choice((1, 3))), random)
    return blocks if isinstance(blocks, bytes) else write_blocks(blocks), name


_STRUCTURAL: Final = 0.3


def _pick(blocks: Blocks, random: Random) -> tuple[list[Span], int]:
    """Returns a list of spans and a place in it; load-time events are rarer."""
    spans = random.choice(blocks[1:] or blocks)[1]
    return spans, random.randrange(len(spans))


def _one_moment(blocks: Blocks, random: Random) -> Blocks:
    spans, at = _pick(blocks, random)
    field = random.choice(("start", "end"))
    moment = random.choice(_MOMENTS)
    value = getattr(spans[at], field) + moment if random.random() < 0.5 else moment
    if field == "start":
        spans[at] = replace(spans[at], start=value)
    else:
        spans[at] = replace(spans[at], end=value)
    return blocks


def _backwards(blocks: Blocks, random: Random) -> Blocks:
    spans, at = _pick(blocks, random)
    spans[at] = replace(spans[at], start=spans[at].end, end=spans[at].start)
    return blocks


def _outside_parent(blocks: Blocks, random: Random) -> Blocks:
    spans, at = _pick(blocks, random)
    by = random.choice((-1, 1)) * random.choice((US, 10**6, 10**12))
    spans[at] = replace(spans[at], start=spans[at].start + by, end=spans[at].end + by)
    return blocks


def _wrapped(blocks: Blocks, random: Random) -> Blocks:
    """All clocks have 32 bits and start shortly before they wrap."""
    late = 2**32 - random.randrange(200 * US)
    width = random.choice((2**32, 2**32 * 1000))
    return [
        (name, [replace(s, start=(s.start + late) % width, end=(s.end + late) % width) for s in spans])
        for name, spans in blocks
    ]  # fmt: skip


def _all_moments(blocks: Blocks, random: Random) -> Blocks:
    return [
        (name, [replace(s, start=random.choice(_MOMENTS), end=random.choice(_MOMENTS)) for s in spans])
        for name, spans in blocks
    ]  # fmt: skip


def _no_time(blocks: Blocks, _random: Random) -> Blocks:
    return [(name, [replace(s, end=s.start) for s in spans]) for name, spans in blocks]


def _named(blocks: Blocks, random: Random) -> Blocks:
    spans, at = _pick(blocks, random)
    name = random.choice(NAMES)
    change = random.choice(({"name": name}, {"label": name}, {"name": None, "label": None}))
    every = random.random() < 0.5
    for index in range(len(spans)) if every else (at,):
        spans[index] = replace(spans[index], **change)
    return blocks


def _block_named(blocks: Blocks, random: Random) -> Blocks:
    name = random.choice((*NAMES, None, b"First", b"Warmup"))
    return [(name if random.random() < 0.5 else old, spans) for old, spans in blocks]


def _lost(blocks: Blocks, random: Random) -> Blocks:
    spans, at = _pick(blocks, random)
    del spans[at]
    return blocks


def _doubled(blocks: Blocks, random: Random) -> Blocks:
    spans, at = _pick(blocks, random)
    spans[at:at] = [spans[at]] * random.choice((1, 5, 2000))
    return blocks


def _shuffled(blocks: Blocks, random: Random) -> Blocks:
    for _, spans in blocks:
        random.shuffle(spans)
    return blocks


def _renumbered(blocks: Blocks, random: Random) -> Blocks:
    spans, at = _pick(blocks, random)
    number = random.choice((-1, -(2**31), 2**31 - 1, 7))
    change = random.choice(({"instruction": number}, {"number": number}, {"instruction": None}))
    spans[at] = replace(spans[at], **change)
    return blocks


def _blocks_lost(blocks: Blocks, random: Random) -> Blocks:
    empty: Blocks = [(b"Execute", [])]
    return random.choice((blocks[:0], blocks[:1], blocks[1:2], empty, blocks[1:] + blocks[:1]))


def _shared(_blocks: Blocks, random: Random) -> bytes:
    """A small file that describes a tree of a great many events."""
    count = random.choice((100, 300))
    spans = [Span(b"Method::execute", 0, US), *[Span(b"a", 0, 1)] * 8]
    events = [span.table() for span in spans] * (count // 4)
    return bytes(write_etdump(etdump([event_block(b"Execute", events)] * count)).data)


def _other_events(blocks: Blocks, random: Random) -> bytes:
    """Allocations and empty events among the spans, with every field at its extreme."""
    others = [
        event(),
        event(allocation=allocation_event(-1, random.choice((2**63, 2**64 - 1)))),
        event(profile=Table({0: None, 5: Numbers("B", b"meta" * 200)})),
    ]
    tables = [
        event_block(
            name, [*(s.table() for s in spans), *others], allocators=[allocator(NAMES[1])],
            bundled_input_index=-(2**31),
        )
        for name, spans in blocks
    ]  # fmt: skip
    return bytes(write_etdump(etdump(tables, version=2**32 - 1)).data)


_LIES: Final[dict[str, Callable[[Blocks, Random], Blocks | bytes]]] = {
    "one moment": _one_moment,
    "one moment again": _one_moment,
    "end before start": _backwards,
    "child outside its parent": _outside_parent,
    "32-bit clock that wraps": _wrapped,
    "every moment": _all_moments,
    "no time passes": _no_time,
    "name": _named,
    "name again": _named,
    "block's name": _block_named,
    "event lost": _lost,
    "event doubled": _doubled,
    "events shuffled": _shuffled,
    "ids": _renumbered,
    "blocks lost": _blocks_lost,
    "small file, many events": _shared,
    "other events": _other_events,
}
