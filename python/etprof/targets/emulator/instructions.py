"""Counts the instructions of a delegate's operators: qemu logs each one that it runs.

With one instruction a block, and addresses that are the same in every launch, the log of XNNPACK's
library alone is all that runs in it, in order. XNNPACK reads its clock before the first operator of
a call and after each, so the calls of `clock_gettime` cut the log at the borders of operators.
"""

from __future__ import annotations

import fcntl
import os
import re
import select
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from etprof.backends.registry import BACKENDS
from etprof.base.atomic import scratch_folder
from etprof.base.errors import BuildError, TargetError
from etprof.base.files import hash_file
from etprof.run.kernel_trace import InstructionCounts, OperatorInstructions

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

    from etprof.run.kernel_trace import KernelTrace

COUNTED: Final = next(backend for backend in BACKENDS if backend.library)
"""The delegate whose instructions are counted."""
LIBRARY: Final = COUNTED.library or ""
SAME_ADDRESSES: Final = ("-R", "0x1000000000")
"""qemu's own addresses are drawn at random, and the guest's with them, unless some are reserved."""
_STUBS: Final = "stubs of other libraries' functions"
_WORD: Final = 4
"""Bytes of an AArch64 instruction."""
_PLT_HEAD, _PLT_ENTRY = 32, 16
"""Bytes, as linkers for AArch64 write them (ELF for the Arm 64-bit Architecture, appendix)."""
_PIPE: Final = 2**20
_BLOCK: Final = 2**16
"""Bytes that are read at once; of larger pieces the arrays leave the cache."""
_POLL_S: Final = 0.2
_F_SETPIPE_SZ: Final = 1031
_DIGITS: Final = 16
_LOW_DIGITS: Final = 6
"""Of an address in the log; those that are read, since all are of one library."""
_LOW: Final = 16**_LOW_DIGITS
_VALUES: Final = np.zeros(256, np.int32)
_VALUES[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
Counts = NDArray[np.int64]
Addresses = NDArray[np.int32]


@dataclass(frozen=True)
class Functions:
    """The functions of a library, by the place of each instruction."""

    begin: int
    """Where code begins, in bytes from where the library is loaded."""
    names: tuple[str, ...]
    numbers: NDArray[np.int32]
    """Of each instruction after `begin`, the number of its function among the names."""
    execute: int
    """Place of the first instruction of a delegate call, in bytes."""
    clock: int
    """Place of the stub through which the clock is read."""

    @property
    def size(self) -> int:
        """Bytes of code."""
        return len(self.numbers) * _WORD

    def name(self, counts: Counts) -> dict[str, int]:
        """Returns counts by the functions' names, the largest first.

        Args:
            counts: Instructions of each function, shape (functions,).
        """
        return {self.names[i]: int(counts[i]) for i in np.argsort(-counts) if counts[i]}


def read_functions(library: Path) -> Functions:
    """Reads unwind tables, which know each function's end, and names; raises BuildError."""
    from elftools.common.exceptions import ELFError
    from elftools.elf.elffile import ELFFile

    try:
        with library.open("rb") as stream:
            return _read_functions(ELFFile(stream))
    except (ELFError, OSError, ValueError, KeyError, AttributeError, StopIteration) as error:
        msg = (
            f"{library} does not say where its functions are ({error}); run `etprof emulator setup`"
        )
        raise BuildError(msg) from error


def _read_functions(elf: ELFFile) -> Functions:
    from elftools.dwarf.callframe import FDE

    code = next(s for s in elf.iter_segments("PT_LOAD") if s["p_flags"] & 1)
    begin, size = code["p_vaddr"], code["p_filesz"]
    symbols = [
        symbol
        for symbol in elf.get_section_by_name(".dynsym").iter_symbols()
        if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_value"]
    ]
    named = {symbol["st_value"]: symbol.name for symbol in symbols}
    numbers = np.full(size // _WORD, -1, np.int32)
    names: list[str] = []

    def add(start: int, end: int, name: str) -> None:
        span = numbers[(start - begin) // _WORD : (end - begin) // _WORD]
        span[span < 0] = len(names)
        names.append(name)

    plt = elf.get_section_by_name(".plt")
    add(plt["sh_addr"], plt["sh_addr"] + plt["sh_size"], _STUBS)
    for frame_entry in elf.get_dwarf_info().EH_CFI_entries():
        if isinstance(frame_entry, FDE):
            start = frame_entry["initial_location"]
            name = named.get(start, f"function at {start:#x}")
            add(start, start + frame_entry["address_range"], name)
    # Assembly has no unwind tables, but may have a symbol.
    for symbol in symbols:
        add(symbol["st_value"], symbol["st_value"] + symbol["st_size"], symbol.name)
    free = np.flatnonzero(np.diff(numbers < 0, prepend=False, append=False))
    for start, end in free.reshape(-1, 2).tolist():
        add(begin + start * _WORD, begin + end * _WORD, f"code at {begin + start * _WORD:#x}")
    execute = next(address for address, name in named.items() if COUNTED.entry_symbol in name)
    return Functions(
        begin, tuple(names), numbers, execute, _find_stub(elf, plt["sh_addr"], COUNTED.border)
    )


def _find_stub(elf: ELFFile, plt: int, name: str) -> int:
    """Stubs stand in the order of their relocations."""
    relocations = elf.get_section_by_name(".rela.plt")
    symbols = elf.get_section(relocations["sh_link"])
    for index, relocation in enumerate(relocations.iter_relocations()):
        if symbols.get_symbol(relocation["r_info_sym"]).name == name:
            return int(plt) + _PLT_HEAD + _PLT_ENTRY * index
    raise KeyError(name)


def find_base(strace: str) -> int:
    """Returns where the library is loaded, from qemu's log of system calls; raises TargetError."""
    opened = re.search(rf'openat\([^"]*"[^"]*/{re.escape(LIBRARY)}"[^)]*\) = (\d+)', strace)
    if opened is not None:
        mapped = re.compile(rf"mmap\(0x[0-9a-f]+,.*,{opened[1]},0\) = (0x[0-9a-f]+)")
        if mapping := mapped.search(strace, opened.end()):
            return int(mapping[1], 16)
    raise TargetError(
        f"qemu does not say where {LIBRARY} is loaded; instructions are counted with the runner of "
        "`etprof emulator setup`, which loads it, so leave out --runner and --trace-runner"
    )


@dataclass
class Log:
    """What was read of qemu's log so far: pieces between borders, for each delegate call."""

    functions: Functions
    base: int
    calls: list[list[Counts]] = field(default_factory=list)
    """Of each delegate call: before its first operator, each operator, and what follows."""
    _rest: bytes = b""

    @property
    def flags(self) -> tuple[str, ...]:
        """Qemu's flags that log the instructions of the library's code alone."""
        begin = self.base + self.functions.begin
        address_range = f"{begin:#x}+{self.functions.size:#x}"
        return ("-one-insn-per-tb", "-d", "exec,nochain", "-dfilter", address_range)

    def feed(self, data: bytes) -> None:
        """Takes the next bytes; raises TargetError for what is no log of instructions."""
        lines, newline, self._rest = (self._rest + data).rpartition(b"\n")
        if newline:
            self._count(self._read_addresses(lines + newline))

    def _read_addresses(self, lines: bytes) -> Addresses:
        """Reads the address of each line: the second of four numbers with slashes between them.

        Returns:
            The address in the library, in bytes from its begin, int32, shape (lines,).
        """
        letters = np.frombuffer(lines, np.uint8)
        slashes = np.flatnonzero(letters == ord("/"))
        count = lines.count(b"\n")
        if lines.count(b"Trace ") != count or slashes.size != 3 * count:
            first_line = lines[:80].decode("ascii", "replace")
            raise TargetError(
                f"qemu's log of instructions has lines of another kind: {first_line!r}"
            )
        ends, addresses = slashes[::3] + _DIGITS, np.zeros(count, np.int32)
        for digit in range(_LOW_DIGITS):
            addresses |= _VALUES[letters[ends - digit]] << (4 * digit)
        addresses -= self.base % _LOW
        # The library is smaller than what the digits tell apart.
        addresses %= _LOW
        begin = self.functions.begin
        if count and (addresses.min() < begin or addresses.max() >= begin + self.functions.size):
            raise TargetError(f"qemu's log has instructions outside of {LIBRARY}")
        return addresses

    def _count(self, addresses: Addresses) -> None:
        """Adds up instructions by function, for each operator of each execution.

        Args:
            addresses: Addresses in the library, in the order of running, shape (lines,).
        """
        functions = self.functions
        numbers = functions.numbers[(addresses - functions.begin) // _WORD]
        is_border = (addresses == functions.execute) | (addresses == functions.clock)
        borders = np.flatnonzero(is_border).tolist()
        # The first part belongs to what was begun before; it is empty where a border comes first.
        for start, end in pairwise(sorted({0, *borders, len(addresses)})):
            if is_border[start]:
                if addresses[start] == functions.execute:
                    self.calls.append([])
                if self.calls:
                    self.calls[-1].append(np.zeros(len(functions.names), np.int64))
            if self.calls:
                function_numbers = numbers[start:end]
                self.calls[-1][-1] += np.bincount(function_numbers, minlength=len(functions.names))


def name_operators(log: Log, trace: KernelTrace, library: Path) -> InstructionCounts:
    """Gives the pieces of the log the names of the kernel trace; raises TargetError.

    Where XNNPACK makes several operators of one, as for concatenations, a delegate call is one row.
    """
    by_call: dict[int, list[tuple[int, str]]] = {}
    for position, operator in enumerate(trace.operators, start=1):
        if operator.delegate is not None:
            by_call.setdefault(operator.delegate, []).append((position, operator.name))
    executions = len(trace.executions)
    if not by_call or len(log.calls) != executions * len(by_call):
        raise TargetError(
            f"{len(log.calls)} delegate calls were logged, and {executions * len(by_call)} were "
            f"traced; instructions are counted of programs that have {COUNTED.title}'s delegate, as "
            "it came with `etprof emulator setup`"
        )
    inferences = [
        log.calls[start : start + len(by_call)] for start in range(0, len(log.calls), len(by_call))
    ]
    # What the first does once is no work of an inference.
    named = [list(_name(log.functions, calls, by_call)) for calls in inferences[1:] or inferences]
    setup = Counter[str]()
    for call in (inferences[1:] or inferences)[0]:
        setup.update(log.functions.name(call[0]))
    return InstructionCounts(
        sme=trace.sme,
        library=library.name,
        library_sha256=hash_file(library),
        executions=len(named),
        is_steady=all(operators == named[0] for operators in named),
        operators=tuple(named[-1]),
        setup=dict(setup),
    )


def _name(
    functions: Functions,
    calls: Sequence[Sequence[Counts]],
    by_call: Mapping[int, Sequence[tuple[int, str]]],
) -> Iterator[OperatorInstructions]:
    """Names each operator of one execution after another.

    Args:
        functions: The library's functions.
        calls: Of each execution its operators' instructions by function, each shape (functions,).
        by_call: Instruction and name of each operator, by delegate call.
    """
    for (delegate, operators), (_, *pieces) in zip(by_call.items(), calls, strict=True):
        # After the last border, the profiler reports.
        operator_counts, rows = pieces[:-1], operators
        if operator_counts and len(operator_counts) != len(rows):
            rows = [(operators[0][0], f"delegate call {delegate}, whole")]
            operator_counts = [np.sum(operator_counts, axis=0)]
        for (position, name), counts in zip(rows, operator_counts, strict=True):
            yield OperatorInstructions(name=name, place=position, functions=functions.name(counts))


@contextmanager
def log_pipe(consume: Callable[[bytes], None]) -> Iterator[Path]:
    """Yields a pipe whose bytes a thread hands to `consume`; raises at the end what that raised.

    A log of a large program has more bytes than a disk should hold.
    """
    with scratch_folder("log") as folder:
        pipe, ended, problems = Path(folder, "log"), threading.Event(), list[Exception]()
        os.mkfifo(pipe)
        # Open for both, so that it is no end while nobody writes yet.
        descriptor = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
        try:
            with suppress(OSError):  # fewer waits, where the system lets a pipe grow
                fcntl.fcntl(descriptor, _F_SETPIPE_SZ, _PIPE)
            arguments = (descriptor, consume, ended, problems)
            thread = threading.Thread(target=_drain, args=arguments, daemon=True)
            thread.start()
            try:
                yield pipe
            finally:
                ended.set()
                thread.join()
        finally:
            os.close(descriptor)
        if problems:
            raise problems[0]


def _drain(
    descriptor: int,
    take: Callable[[bytes], None],
    ended: threading.Event,
    problems: list[Exception],
) -> None:
    """Reads until the writer has ended and nothing is left; what fails lets the writer go on."""
    while True:
        is_last = ended.is_set()
        if not select.select([descriptor], [], [], 0 if is_last else _POLL_S)[0]:
            if is_last:
                return
            continue
        data = os.read(descriptor, _BLOCK)
        if not problems:
            try:
                take(data)
            except Exception as error:  # noqa: BLE001 - raised by `log_pipe`, in the caller's thread
                problems.append(error)
