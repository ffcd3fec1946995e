"""Instructions are counted of a library whose every byte is known, by a qemu that is a script."""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from etprof.base.errors import BuildError
from etprof.run.kernel_trace import read_instructions
from etprof.targets.emulator.installation import Emulator
from etprof.targets.emulator.instructions import COUNTED, LIBRARY, SAME_ADDRESSES, read_functions
from etprof.targets.emulator.target import EmulatorTarget
from etprof.targets.request import RunnerRequest
from tests.unit.test_instructions import trace
from tests.world.results import result_document

CODE = 0x1000
CLOCK = CODE + 32 + 16
"""The second stub, after the head of all stubs."""
ENTRY, UNNAMED, ASSEMBLY, NOWHERE, LATE, LAST, END = (
    0x1040, 0x1050, 0x1058, 0x1060, 0x106C, 0x107C, 0x108C,
)  # fmt: skip
ENTRY_NAME = f"_ZN{COUNTED.entry_symbol}Ev"
FRAMES = {ENTRY: 16, UNNAMED: 8, LATE: 8}
"""Functions with an unwind table: where they begin, and their bytes."""
FUNCTION, OBJECT = 2, 1


@dataclass(frozen=True)
class Symbol:
    """Of a library's table."""

    name: str
    kind: int
    value: int
    size: int = 0


SYMBOLS = (
    Symbol("", 0, 0),
    Symbol("memcpy", FUNCTION, 0),
    Symbol(COUNTED.border, FUNCTION, 0),
    # Shorter than its unwind table says, which is right.
    Symbol(ENTRY_NAME, FUNCTION, ENTRY, 4),
    Symbol("assembly", FUNCTION, ASSEMBLY, 8),
    Symbol("a_table", OBJECT, NOWHERE, 8),
    Symbol("late", FUNCTION, LATE, 8),
    Symbol("last", FUNCTION, LAST, 8),
)


def frames() -> bytes:
    """Unwind tables: one head, and the place and size of each function."""
    head = struct.pack("<IB", 0, 1) + b"zR\0" + bytes([1, 0x78, 30, 1, 0])
    head += bytes(-(len(head) + 4) % 8)
    table = struct.pack("<I", len(head)) + head
    for begin, size in FRAMES.items():
        row = struct.pack("<IQQB", len(table) + 4, begin, size, 0)
        row += bytes(-(len(row) + 4) % 8)
        table += struct.pack("<I", len(row)) + row
    return table + bytes(4)


def elf(symbols: tuple[Symbol, ...] = SYMBOLS) -> bytes:
    """A library for AArch64 with the sections that name code, and no code."""
    strings, table = b"\0", b""
    for symbol in symbols:
        place = len(strings) if symbol.name else 0
        strings += symbol.name.encode() + b"\0" if symbol.name else b""
        section = 1 if symbol.value else 0
        table += struct.pack(
            "<IBBHQQ", place, 16 | symbol.kind, 0, section, symbol.value, symbol.size
        )
    stubs = b"".join(struct.pack("<QQq", 0x3000 + 8 * i, (i + 1) << 32 | 1026, 0) for i in range(2))
    # Name, type, content, address, size in memory, section it refers to, bytes of an entry.
    sections = [
        (".dynsym", 11, table, 0x200, 2, 24),
        (".dynstr", 3, strings, 0x600, 0, 0),
        (".plt", 1, bytes(64), CODE, 0, 16),
        (".rela.plt", 4, stubs, 0x800, 1, 24),
        (".eh_frame", 1, frames(), 0x900, 0, 0),
    ]
    names = b"\0" + b"".join(f"{name}\0".encode() for name, *_ in sections) + b".shstrtab\0"
    sections.append((".shstrtab", 3, names, 0, 0, 0))
    loads = ((4, 0, 0xA00), (6, 0x2000, 0x80), (5, CODE, END - CODE))
    body_at = 64 + 56 * len(loads)
    body, headers = b"", bytes(64)
    for name, kind, content, address, link, entry in sections:
        body += bytes(-len(body) % 8)
        headers += struct.pack(
            "<IIQQQQIIQQ", names.index(f"{name}\0".encode()), kind, 2, address,
            body_at + len(body), len(content), link, 1, 8, entry,
        )  # fmt: skip
        body += content
    body += bytes(-len(body) % 8)
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack(
        "<HHIQQQIHHHHHH", 3, 183, 1, 0, 64, body_at + len(body), 0, 64, 56, len(loads), 64,
        len(sections) + 1, len(sections),
    )  # fmt: skip
    segments = b"".join(
        struct.pack("<IIQQQQQQ", 1, flags, 0, at, at, size, size, 0x1000)
        for flags, at, size in loads
    )
    return head + segments + body + headers


def test_every_instruction_of_a_library_belongs_to_a_function(tmp_path: Path) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(elf())
    functions = read_functions(library)
    assert (functions.begin, functions.size) == (CODE, END - CODE)
    assert (functions.execute, functions.clock) == (ENTRY, CLOCK)
    names = [functions.names[number] for number in functions.numbers]
    assert names == [
        *["stubs of other libraries' functions"] * 16,
        *[ENTRY_NAME] * 4,
        *["function at 0x1050"] * 2,
        *["assembly"] * 2,
        *["code at 0x1060"] * 3,
        *["late"] * 2,
        *["code at 0x1074"] * 2,
        *["last"] * 2,
        *["code at 0x1084"] * 2,
    ]


@pytest.mark.parametrize("lost", [ENTRY_NAME, COUNTED.border])
def test_a_library_without_the_borders_is_refused(tmp_path: Path, lost: str) -> None:
    library = tmp_path / "lib.so"
    library.write_bytes(
        elf(tuple(replace(s, name="x" if s.name == lost else s.name) for s in SYMBOLS))
    )
    with pytest.raises(BuildError, match="does not say where its functions are"):
        read_functions(library)


QEMU = """#!/bin/sh
here=$(dirname "$0")
printf '%s\\n' "$*" >>"$here/commands.txt"
case "$*" in *--version) answer=strace.txt ;; *) answer=executed.txt ;; esac
for word; do
    case "$word" in
        --result=*) cp "$here/result.json" "${word#*=}" ;;
        --kernel-trace=*) cp "$here/kernels.json" "${word#*=}" ;;
    esac
    [ "$before" = -D ] && cat "$here/$answer" >"$word"
    before=$word
done
"""
BASE = 0x5_5670_0000
STRACE = f"""\
7 openat(AT_FDCWD,"/sdk/lib/{LIBRARY}",O_RDONLY|O_CLOEXEC) = 4
7 mmap({BASE:#018x},24,PROT_READ,MAP_FIXED,4,0) = {BASE:#018x}
"""
INFERENCE = (ENTRY, CODE, CLOCK, UNNAMED, ASSEMBLY, UNNAMED, CLOCK, NOWHERE, CLOCK, LATE)
"""A call of the delegate, with two operators; what follows the last border is the profiler's."""


def kernel_trace() -> dict[str, Any]:
    """Of the same two inferences, as the first edition wrote it."""
    document = trace(2).model_dump(mode="json")
    for operator in document["operators"]:
        operator.update(start_ns=[0, 9], duration_ns=[1, 1])
    return {**document, "schema_version": 1}


@pytest.fixture
def target(tmp_path: Path) -> EmulatorTarget:
    """An emulator whose qemu says that two inferences ran in the library."""
    (tmp_path / "qemu").write_text(QEMU)
    (tmp_path / "qemu").chmod(0o755)
    (tmp_path / "strace.txt").write_text(STRACE)
    line = "Trace 0: 0x7fa19766cf40 [80083009331/{:016x}/00000001/00000201] \n"
    executed = [line.format(BASE + place) for place in INFERENCE * 2]
    (tmp_path / "executed.txt").write_text("".join(executed))
    (tmp_path / "kernels.json").write_text(json.dumps(kernel_trace()))
    (tmp_path / "result.json").write_text(json.dumps(result_document(1000)))
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / LIBRARY).write_bytes(elf())
    places = ("qemu", "root", "", "plain", "tracing")
    target = EmulatorTarget()
    vars(target)["emulator"] = Emulator(*(tmp_path / name for name in places))
    return target


def test_an_emulated_run_counts_the_instructions_of_each_operator(
    target: EmulatorTarget, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    request = RunnerRequest(
        model=tmp_path / "m.pte",
        result=out / "r.json",
        instruction_counts=out / "instructions.json",
        threads=4,
        sme="sme2",
    )
    result = target.run(request)
    # THEN, but for slashes that make paths equally long, the runner that traces was started twice, with one thread, at the same addresses
    text = re.sub("/{2,}", "/", (tmp_path / "commands.txt").read_text())
    text = text.replace(str(tmp_path), "FOLDER")
    text = re.sub(r"[^\s=]+/(calls|log|kernels\.json)\b", r"SCRATCH/\1", text)
    start = (
        "-cpu max,sme-default-vector-length=64 -L FOLDER/root -E LD_LIBRARY_PATH=FOLDER/lib "
        "FOLDER/tracing"
    )
    addresses = " ".join(SAME_ADDRESSES)
    filtered = f"{BASE + CODE:#x}+{END - CODE:#x}"
    flags = (
        "--model=FOLDER/m.pte --method=forward --warmup=0 --threads=1 --seed=0 --sme=sme2 "
        "--kernel-trace=SCRATCH/kernels.json --result=FOLDER/out/r.json"
    )
    exact = f"-one-insn-per-tb -d exec,nochain -dfilter {filtered} -D SCRATCH/log"
    assert text.splitlines() == [
        f"{addresses} -d strace -D SCRATCH/calls {start} --version",
        f"{addresses} {exact} {start} {flags}",
    ]
    # AND what ran between the borders has the names of the operators, its second inference
    assert result.latency_ns == [1000] * 20
    counts = read_instructions(out / "instructions.json")
    assert (counts.library, counts.executions, counts.is_steady) == (LIBRARY, 1, True)
    assert counts.setup == {ENTRY_NAME: 1, "stubs of other libraries' functions": 1}
    assert [(row.name, row.place, row.functions) for row in counts.operators] == [
        (
            "Conv #1",
            2,
            {"function at 0x1050": 2, "stubs of other libraries' functions": 1, "assembly": 1},
        ),
        ("Add #1", 3, {"stubs of other libraries' functions": 1, "code at 0x1060": 1}),
    ]
    # AND those that ran most come first
    assert next(iter(counts.operators[0].functions)) == "function at 0x1050"
    assert sorted(path.name for path in out.iterdir()) == ["instructions.json", "r.json"]


def test_without_being_asked_nothing_is_counted(target: EmulatorTarget, tmp_path: Path) -> None:
    target.run(RunnerRequest(model=Path("m.pte"), result=tmp_path / "r.json", sme_vector_bits=256))
    (command,) = (tmp_path / "commands.txt").read_text().splitlines()
    assert command.startswith("-cpu max,sme-default-vector-length=32 -L ")
    assert target.can_count()
    assert target.default_threads() == 1
    assert target.sme_modes() == ("sme2", "sme1", "off")
