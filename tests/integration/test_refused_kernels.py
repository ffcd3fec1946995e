"""A CPU that reports SME2 and does not execute it: the kernel is named, the other modes measured."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from etprof.base.errors import EtprofError
from etprof.export.request import ExportRequest
from etprof.measuring.pipeline import measure
from etprof.measuring.plan import Experiment, Settings, plan
from etprof.run.program import describe_program
from etprof.targets.emulator import instructions
from etprof.targets.emulator.installation import locate
from etprof.targets.emulator.target import EmulatorTarget

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.conftest import Exports

try:
    locate()
except EtprofError as error:
    pytestmark = pytest.mark.skip(reason=str(error))

REFUSED = bytes(4)
"""`udf #0`, which Arm's manual leaves undefined for good."""
START_STREAMING = (0xD503477F).to_bytes(4, "little")
"""`smstart`, the first instruction of SME that a kernel executes."""


def refuse_kernels(library: Path) -> None:
    """Has the first instruction of every exported SME2 kernel refused."""
    from elftools.elf.elffile import ELFFile

    with library.open("rb") as stream:
        elf = ELFFile(stream)
        code = elf.get_section_by_name(".text")
        shift = code["sh_offset"] - code["sh_addr"]
        symbols = elf.get_section_by_name(".dynsym").iter_symbols()
        starts = [symbol["st_value"] + shift for symbol in symbols
                  if symbol.name.startswith("kai_run_") and "sme2" in symbol.name]  # fmt: skip
    assert starts
    content = bytearray(library.read_bytes())
    for start in starts:
        content[start : start + len(REFUSED)] = REFUSED
    library.write_bytes(content)


def refuse_streaming(library: Path) -> None:
    """Has the switch to streaming mode refused, as a system does that does not keep its state."""
    content = library.read_bytes()
    assert START_STREAMING in content
    library.write_bytes(content.replace(START_STREAMING, REFUSED))


def measure_with(
    change: Callable[[Path], None], exports: Exports, folder: Path
) -> tuple[set[str], list[str]]:
    """Returns the modes that brought results, and what is said of the others."""
    emulator = locate()
    sdk = folder / "sdk"
    shutil.copytree(emulator.sdk / "lib", sdk / "lib")
    change(sdk / "lib" / instructions.LIBRARY)
    target = EmulatorTarget()
    target.emulator = replace(emulator, sdk=sdk)
    files = exports.get(ExportRequest("toy_cnn", "fp16"))
    measured = measure(
        program=describe_program(files.pte),
        target=target,
        run=folder / "run",
        planned=plan(
            [Experiment(name=mode, sme=mode, warmup=0) for mode in ("off", "sme1", "sme2")],
            Settings(blocks=0, operator_iterations=1, kernels=False),
            target,
        ),
        progress=lambda *_: None,
    )
    return {name for name, _, _ in measured.results}, measured.errors


def test_a_kernel_that_the_cpu_refuses_is_named(exports: Exports, tmp_path: Path) -> None:
    measured, errors = measure_with(refuse_kernels, exports, tmp_path)
    assert measured == {"off", "sme1"}
    assert errors
    for error in errors:
        assert error.startswith("sme2, ")
        assert "killed by SIGILL at an instruction of kai_run_" in error
        assert f"({instructions.LIBRARY}+0x" in error
        assert "sme2" in error.partition("instruction of ")[2].split(" ", 1)[0]


def test_a_system_without_streaming_mode_leaves_the_plain_kernels(
    exports: Exports, tmp_path: Path
) -> None:
    measured, errors = measure_with(refuse_streaming, exports, tmp_path)
    assert measured == {"off"}
    assert {error.partition(",")[0] for error in errors} == {"sme1", "sme2"}
    for error in errors:
        assert re.search(r"killed by SIGILL at an instruction of kai_(run|kernel)_\w+_sme", error)
