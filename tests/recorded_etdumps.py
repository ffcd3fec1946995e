"""ETDumps as a host writes them, with XNNPACK's whole microseconds and noise, and their damage."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from tests.etdump_writer import (
    Table,
    Written,
    etdump,
    event,
    event_block,
    profile_event,
    write_etdump,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from etprof.etdump.reader import ETDump

S: Final = 10**9
CHANGES: Final[Mapping[str, Callable[[int], int]]] = {
    "-1 ns": lambda stamp: stamp - 1,
    "+1 s": lambda stamp: stamp + S,
    "-1 s": lambda stamp: stamp - S,
    "+1 h": lambda stamp: stamp + 3600 * S,
    "+2^63": lambda stamp: stamp + 2**63,
    "+2^32": lambda stamp: stamp + 2**32,
    "mod 2^32": lambda stamp: stamp % 2**32,
    "zero": lambda _: 0,
    "all ones": lambda _: 2**64 - 1,
}
DELEGATED = ("Convolution (NHWC, F32) IGEMM #1", "Softmax (NC, F32) #1")
STEP = 1000
"""XNNPACK's operator times are whole microseconds."""


@dataclass
class Clock:
    """What a runner's clock shows; `bits` of 32 let it begin again at 0."""

    now: int
    bits: int = 64
    noise: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311 - noise

    def spend(self, nominal: int) -> int:
        """Lets about `nominal` ns pass, and returns the moment after."""
        self.now += round(nominal * self.noise.uniform(0.95, 1.05))
        return self.now

    def stamp(self, name: str | None, start: int, end: int, **ids: object) -> Table:
        """A profile event between two moments."""
        return profile_event(
            name.encode() if name else None,
            start_time=start % 2**self.bits,
            end_time=end % 2**self.bits,
            **ids,  # type: ignore[arg-type]
        )


@dataclass(frozen=True)
class Recording:
    """A file, and its profile events in file order."""

    written: Written
    events: tuple[Table, ...]

    @property
    def data(self) -> bytes:
        """The file's bytes."""
        return bytes(self.written.data)

    def with_stamp(self, row: int, column: str, value: int) -> bytes:
        """The file with one time stamp changed."""
        at = self.written.field(self.events[row], {"start_time": 6, "end_time": 7}[column])
        return self.written.patch(at, "Q", value)


def record(executions: int = 24, *, start: int = 10**14, bits: int = 64) -> Recording:
    """As etprof-runner: load, first inference, two warm-ups, `executions` of about 122 µs."""
    clock = Clock(start, bits)
    blocks = [("Default", list(_load(clock)))]
    for name in ("First", "Warmup", "Warmup", *["Execute"] * executions):
        clock.spend(5_000)
        blocks.append((name, list(_execution(clock))))
    events = tuple(table for _, inside in blocks for table in inside)
    root = etdump(
        [event_block(name.encode(), [event(profile=t) for t in inside]) for name, inside in blocks]
    )
    return Recording(write_etdump(root), events)


def _load(clock: Clock) -> Iterator[Table]:
    start = clock.now
    inner = clock.spend(2_000)
    yield clock.stamp("Method::init", inner, clock.spend(300_000))
    yield clock.stamp("Program::load_method", start, clock.spend(6_000))


def _execution(clock: Clock) -> Iterator[Table]:
    whole = clock.now
    yield from _delegate_call(clock)
    call = clock.spend(500)
    kernel = clock.spend(150)
    ids = {"instruction_id": 1}
    yield clock.stamp("native_call_addmm.out", kernel, clock.spend(30_000), **ids)
    yield clock.stamp("OPERATOR_CALL", call, clock.spend(120), **ids)
    yield clock.stamp("Method::execute", whole, clock.spend(200))


def _delegate_call(clock: Clock) -> Iterator[Table]:
    call = clock.spend(100)
    synthetic = clock.spend(1_500)
    for label, nominal in zip(DELEGATED, (65_000, 20_000), strict=True):
        before = clock.now
        took = (clock.spend(nominal) - before) // STEP * STEP
        yield clock.stamp(
            None, synthetic, synthetic + took, instruction_id=0,
            delegate_debug_id_str=label.encode(),
        )  # fmt: skip
        synthetic += took
    yield clock.stamp("DELEGATE_CALL", call, clock.spend(3_000), instruction_id=0)


def changed(dump: ETDump, row: int, column: str, change: Callable[[int], int]) -> ETDump:
    """The same file with one time stamp changed, without parsing it again."""
    stamps = getattr(dump.profile, column).copy()
    stamps[row] = change(int(stamps[row])) % 2**64
    return replace(dump, profile=replace(dump.profile, **{column: stamps}))
