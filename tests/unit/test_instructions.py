"""Instructions are counted between the borders that the log has, or nothing is said."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from etprof.analysis.split.evidence import InstructionEvidence
from etprof.base.errors import TargetError, UsageError
from etprof.cli import main
from etprof.config import Config
from etprof.run.kernel_trace import Execution, KernelTrace, TracedOperator
from etprof.run.runner_result import SmeState
from etprof.tables.kernels import INSTRUCTIONS
from etprof.targets.emulator.instructions import Functions, Log, find_base, log_pipe, name_operators

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.run.kernel_trace import InstructionCounts

BASE = 0x5_5670_0000
ENTRY, CLOCK, WORK, PACK = 0x100, 0x110, 0x120, 0x130
FUNCTIONS = Functions(
    begin=0x100,
    names=("entry", "stub", "work", "kai_run_lhs_pack_x"),
    numbers=np.repeat(np.arange(4, dtype=np.int32), 4),
    execute=ENTRY,
    clock=CLOCK,
)
OPERATORS = ("Conv #1", "Add #1")
CALL = [ENTRY, WORK, CLOCK, WORK, WORK, PACK, CLOCK, WORK, CLOCK, WORK]
"""One delegate call of two operators; what follows the last border is the profiler's."""


def lines(places: list[int], *, symbol: str = "") -> bytes:
    text = "Trace 0: 0x7fa19766cf40 [80083009331/{:016x}/00000001/00000201] {}\n"
    return "".join(text.format(BASE + place, symbol) for place in places).encode()


def trace(executions: int = 3, names: tuple[str, ...] = OPERATORS) -> KernelTrace:
    operators = [
        TracedOperator(name="native_call_add.out", delegate=None, start_ns=(), duration_ns=()),
        *(TracedOperator(name=n, delegate=0, start_ns=(), duration_ns=()) for n in names),
    ]
    one = Execution(phase="Execute", start_ns=0, duration_ns=1, aligned=True)
    return KernelTrace.model_construct(
        method="forward",
        sme=SmeState(requested="sme2", in_force="sme2", svl_bits=512),
        schema_version=2,
        kernels=(),
        all_operators_named=True,
        executions=(one,) * executions,
        operators=tuple(operators),
    )


def counted(places: list[int], tmp_path: Path, **given: object) -> InstructionCounts:
    log = Log(FUNCTIONS, BASE)
    log.feed(lines(places))
    library = tmp_path / "lib.so"
    library.write_bytes(b"library")
    return name_operators(log, trace(**given), library)  # type: ignore[arg-type]


def test_borders_cut_the_log_into_operators(tmp_path: Path) -> None:
    found = counted(CALL * 3, tmp_path)
    assert [(each.name, each.place, each.total) for each in found.operators] == [
        ("Conv #1", 2, 4),
        ("Add #1", 3, 2),
    ]
    assert found.operators[0].functions == {"work": 2, "stub": 1, "kai_run_lhs_pack_x": 1}
    assert found.setup == {"entry": 1, "work": 1}
    assert (found.executions, found.is_steady, found.total) == (2, True, 8)


def test_what_is_before_the_first_call_and_in_the_first_inference_counts_nothing(
    tmp_path: Path,
) -> None:
    first = [ENTRY, *[WORK] * 9, CLOCK, *[WORK] * 9, CLOCK, CLOCK]
    loading = [WORK, CLOCK, PACK]
    assert counted(loading + first + CALL * 2, tmp_path) == counted(CALL * 3, tmp_path)


def test_one_instruction_more_in_one_inference_is_told(tmp_path: Path) -> None:
    more = [*CALL[:4], WORK, *CALL[4:]]
    found = counted(CALL + more + CALL, tmp_path)
    assert not found.is_steady


def test_pieces_without_a_name_of_their_own_are_one_row(tmp_path: Path) -> None:
    """XNNPACK makes several operators of a concatenation, and reads its clock after each."""
    found = counted(CALL * 3, tmp_path, names=("Concatenate #1",))
    assert [(each.name, each.total) for each in found.operators] == [("delegate call 0, whole", 6)]


def test_a_log_of_other_calls_than_were_traced_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match="2 delegate calls were logged, and 3 were traced"):
        counted(CALL * 2, tmp_path)


@pytest.mark.parametrize("size", [1, 7, 80, 4096])
def test_a_log_may_come_in_pieces_of_any_size(size: int) -> None:
    whole, parts = Log(FUNCTIONS, BASE), Log(FUNCTIONS, BASE)
    data = lines(CALL * 3, symbol="a_symbol")
    whole.feed(data)
    for start in range(0, len(data), size):
        parts.feed(data[start : start + size])
    assert [[p.tolist() for p in call] for call in parts.calls] == [
        [p.tolist() for p in call] for call in whole.calls
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"Stopped execution of TB chain before 0x1 [0000000000000000] \n",
        b"Trace 0: 0x7f [1/2/3]\n",
        b"\xff\xfe garbage / / /\n",
        lines([FUNCTIONS.begin - 4]),
        lines([FUNCTIONS.begin + FUNCTIONS.size]),
    ],
)
def test_lines_of_another_kind_are_refused(data: bytes) -> None:
    with pytest.raises(TargetError, match="qemu's log"):
        Log(FUNCTIONS, BASE).feed(data)


def test_where_the_library_is_comes_from_its_own_mapping() -> None:
    said = (
        '7 openat(AT_FDCWD,"/x/libother.so",O_RDONLY|O_CLOEXEC) = 4\n'
        "7 mmap(0x0000000111110000,24,PROT_READ,MAP_FIXED,4,0) = 0x0000000111110000\n"
        '7 openat(AT_FDCWD,"/x/libexecutorch_backend_xnnpack.so",O_RDONLY|O_CLOEXEC) = 4\n'
        "7 mmap(NULL,2498920,PROT_NONE,MAP_PRIVATE|MAP_ANONYMOUS,-1,0) = 0x00000005566ed000\n"
        "7 mmap(0x00000005566f0000,24,PROT_READ,MAP_FIXED,4,0) = 0x00000005566f0000\n"
    )
    assert find_base(said) == 0x5566F0000
    with pytest.raises(TargetError, match="leave out --runner"):
        find_base(said.replace("xnnpack", "other"))


def test_a_reader_that_fails_lets_the_writer_end_and_says_why() -> None:
    def refuse(_: bytes) -> None:
        raise TargetError("no log")

    def write(place: Path) -> None:
        with place.open("wb") as stream:
            stream.write(b"x" * 2**22)

    def read_all() -> None:
        with log_pipe(refuse) as pipe:
            writer = threading.Thread(target=write, args=(pipe,))
            writer.start()
            writer.join(30)
            assert not writer.is_alive()

    with pytest.raises(TargetError, match="no log"):
        read_all()


def test_all_that_was_written_is_read_and_nothing_is_left() -> None:
    got = bytearray()
    with log_pipe(got.extend) as pipe, pipe.open("wb") as stream:
        stream.write(b"ab" * 2**20)
    assert bytes(got) == b"ab" * 2**20
    assert not os.path.lexists(pipe)


def test_it_is_asked_of_an_emulator_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "toy_cnn", "--instructions"]) == 2
    assert "--instructions is for --target emulator; leave it out" in capsys.readouterr().err
    fields = {"model": "m.pte", "experiments": [{"name": "a"}]}
    given = {**fields, "measurement": {"instructions": True}}
    with pytest.raises((ValueError, UsageError), match=r"measurement.instructions is for emulator"):
        Config.model_validate(given)
    with pytest.raises((ValueError, UsageError), match="not of generations"):
        Config.model_validate(
            {**given, "target": "emulator", "generation": {"new_tokens": 2, "prompt_tokens": [1]}}
        )


def test_the_table_has_what_comes_before_and_tells_packing(tmp_path: Path) -> None:
    evidence = InstructionEvidence(counted(CALL * 3, tmp_path), ("stem (net.py:14)", None))
    table = INSTRUCTIONS.of_each([{"sme2": evidence}])
    rows = [(r["operator"], r["instructions"], r["packing"]) for r in table.records()]
    assert rows == [("before the first operator", 2, 0), (OPERATORS[0], 4, 1), (OPERATORS[1], 2, 0)]
    # A person looks for their own layer; what has none leads with its label.
    names = [r["name"] for r in table.records()]
    assert names == ["before the first operator", "stem (net.py:14)", OPERATORS[1]]
