"""An illegal instruction is told by the code that has it, not as a damaged program."""

from __future__ import annotations

import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from etprof.base.errors import TargetError
from etprof.base.process import Completed
from etprof.targets.runner import check_completed, find_function, name_refused_code

LINE = "etprof-runner: the CPU refuses an instruction of "
SOURCE = """
int first(int a) { return a * 7 + 1; }
int second(int a) { return a * 9 - 4; }
int main(void) { return first(second(1)); }
"""


@pytest.fixture(
    scope="module", params=[(), ("-s",), ("-no-pie",)], ids=["plain", "stripped", "fixed"]
)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc here")
    folder = tmp_path_factory.mktemp("program")
    (folder / "main.c").write_text(SOURCE)
    program = folder / ("stripped" if "-s" in request.param else "runner")
    words = [compiler, "-O0", *request.param, "-o", program, folder / "main.c"]
    subprocess.run(words, check=True)
    return program


def addresses(program: Path) -> dict[str, tuple[int, int]]:
    """Where functions begin and how long they are, as binutils sees it."""
    done = subprocess.run(["nm", "-S", program], check=True, capture_output=True, text=True)
    rows = [line.split() for line in done.stdout.splitlines()]
    return {row[3]: (int(row[0], 16), int(row[1], 16)) for row in rows if len(row) == 4}


def base(program: Path) -> int:
    """The address of the first segment, as binutils sees it."""
    done = subprocess.run(["readelf", "-lW", program], check=True, capture_output=True, text=True)
    loads = [line.split() for line in done.stdout.splitlines() if line.split()[:1] == ["LOAD"]]
    return min(int(row[2], 16) for row in loads)


def test_a_function_is_found_from_its_first_to_its_last_byte(program: Path) -> None:
    if program.name == "stripped":
        assert find_function(program, 0x1130) is None
        return
    for name in ("first", "second"):
        start, size = addresses(program)[name]
        offset = start - base(program)
        assert find_function(program, offset) == name
        assert find_function(program, offset + size - 1) == name
        assert find_function(program, offset - 1) != name
        assert find_function(program, offset + size) != name
    assert find_function(program, 2**40) is None


@pytest.mark.parametrize("content", [b"", b"no ELF file", b"\x7fELF" + b"\xff" * 200])
def test_what_is_no_elf_file_names_nothing(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "runner").write_bytes(content)
    assert find_function(tmp_path / "runner", 16) is None
    assert find_function(tmp_path / "missing", 16) is None


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("kai_run_a (libxnn.so+0x1f)", "kai_run_a (libxnn.so+0x1f)"),
        ("unnamed code (runner+0x10)", "unnamed code (runner+0x10)"),
        ("kai_run_a (etprof-runner(2)+0x10)", "kai_run_a (etprof-runner(2)+0x10)"),
        (f"{'a' * 3000} (libxnn.so+0x1f)", None),
        ("kai\x1b[31m (a+0x1)", r"kai\x1b[31m (a+0x1)"),
    ],
)  # fmt: skip
def test_the_runner_s_last_words_are_read(said: str, code: str | None) -> None:
    stderr = f"I 00:00 loading\n{LINE}{said}\nqemu: uncaught signal 4\n"
    name = name_refused_code(stderr)
    if code is None:
        # A long name is cut, and the place stays.
        assert name is not None
        assert len(name) < 1500
        assert name.endswith(" (libxnn.so+0x1f)")
        return
    assert name == code


@pytest.mark.parametrize("said", ["", "etprof-runner: ExecuTorch crashed", f"note: {LINE}code"])
def test_other_words_name_nothing(said: str) -> None:
    assert name_refused_code(said) is None


def test_symbols_of_the_runner_name_what_it_does_not_export(program: Path) -> None:
    if program.name == "stripped":
        said = f"{LINE}unnamed code (stripped+0x1130)"
        assert name_refused_code(said, program) == "unnamed code (stripped+0x1130)"
        return
    start, _ = addresses(program)["second"]
    offset = f"{start - base(program):x}"
    said = f"{LINE}unnamed code (runner+0x{offset})"
    assert name_refused_code(said, program) == f"second (runner+0x{offset})"
    # Not of another file, nor in place of a name that was exported.
    assert (
        name_refused_code(said, program.with_name("main.c")) == f"unnamed code (runner+0x{offset})"
    )
    named = f"{LINE}kai_run_a (runner+0x{offset})"
    assert name_refused_code(named, program) == f"kai_run_a (runner+0x{offset})"


@pytest.mark.parametrize(
    ("code", "has_other_modes"),
    [
        ("kai_run_a_sme2_mopa (libxnn.so+0x1f)", True),
        ("xnn_f32_gemm_ukernel_4x8__avx512f (runner+0x1f)", False),
    ],
)
def test_an_illegal_instruction_is_not_told_as_a_damaged_program(
    code: str, *, has_other_modes: bool
) -> None:
    """An SME2 kernel where a virtual machine has no SME2: "export it again" led nowhere."""
    words, said = ("etprof-runner", "--model", "m"), f"{LINE}{code}"
    with pytest.raises(TargetError, match="killed by SIGILL") as caught:
        check_completed(Completed(words, -signal.SIGILL, "", said))
    message = str(caught.value)
    assert f"an instruction of {code}, which the CPU" in message
    assert ("Other SME modes may not need it" in message) == has_other_modes
    assert "damaged" not in message
    assert message.endswith(". Repeat with: etprof-runner --model m")
    assert ".." not in message


def test_a_signal_that_was_only_sent_blames_no_cpu() -> None:
    said = "etprof-runner: ExecuTorch crashed: the program may be damaged; export it again"
    with pytest.raises(TargetError, match="killed by SIGILL") as caught:
        check_completed(Completed(("etprof-runner",), -signal.SIGILL, "", said))
    assert "CPU" not in str(caught.value)
    assert "the program may be damaged or need more memory" in str(caught.value)


def test_a_damaged_table_of_symbols_names_nothing(program: Path, tmp_path: Path) -> None:
    """The kernel starts such a program: it reads no table of sections."""
    content = bytearray(program.read_bytes())
    table, size, count = (int.from_bytes(content[at : at + width], "little")
                          for at, width in ((40, 8), (58, 2), (60, 2)))  # fmt: skip
    for number in range(count):
        # sh_entsize, the last field of a section.
        content[table + (number + 1) * size - 8 : table + (number + 1) * size] = bytes(8)
    (tmp_path / "runner").write_bytes(content)
    assert find_function(tmp_path / "runner", 0x1130) is None
