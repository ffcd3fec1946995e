"""The build step that lists the microkernels of an SDK, on small libraries made here."""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from etprof.base.process import Completed, run_command

ROOT = Path(__file__).parents[2]
GENERATOR = ROOT / "cpp" / "kernel_trace" / "generate_symbols.py"
COMPILER = shutil.which("cc") or shutil.which("gcc")
READELF = shutil.which("readelf")

pytestmark = pytest.mark.skipif(
    not (COMPILER and READELF and sys.platform == "linux"), reason="needs a C compiler and readelf"
)

KERNELS = """
void kai_run_matmul_clamp_f32_f32_f32p2vlx1b_1x16vl_sme2_mla(void) {}
void kai_run_lhs_pack_f32p2vlx1_f32_sme(void) {}
"""
CALLER = """
void kai_run_matmul_clamp_f32_f32_f32p2vlx1b_1x16vl_sme2_mla(void);
void kai_run_lhs_pack_f32p2vlx1_f32_sme(void);
void pthreadpool_parallelize_1d(void);
void run(void) {
    pthreadpool_parallelize_1d();
    kai_run_matmul_clamp_f32_f32_f32p2vlx1b_1x16vl_sme2_mla();
    kai_run_lhs_pack_f32p2vlx1_f32_sme();
}
"""
POOL = """
void pthreadpool_parallelize_1d(void) {}
void pthreadpool_parallelize_2d(void) {}
"""


def make_library(folder: Path, name: str, *sources: str, flags: tuple[str, ...] = ()) -> Path:
    files = []
    for index, source in enumerate(sources):
        file = folder / f"{name}{index}.c"
        file.write_text(source)
        files.append(file)
    library = folder / f"lib{name}.so"
    done = run_command([COMPILER or "cc", "-shared", "-fPIC", *flags, "-o", library, *files])
    assert done.exit_code == 0, done.stderr
    return library


def generate(folder: Path, *libraries: Path) -> tuple[Completed, list[str]]:
    output = folder / "symbols.inc"
    words: list[str | Path] = [sys.executable, GENERATOR, "--readelf", READELF or "readelf"]
    words += ["--output", output, "--table", folder / "table.json", "--architecture", "aarch64"]
    words += ["--check", folder / "check.cpp", "--headers", f"{folder / 'include'};"]
    done = run_command([*words, *libraries])
    return done, output.read_text().splitlines() if output.exists() else []


@pytest.mark.slow
def test_kernels_and_thread_pool_functions_are_listed(tmp_path: Path) -> None:
    # GIVEN a library with two microkernels, and a pool of whose two functions one is called
    kernels = make_library(tmp_path, "kernels", KERNELS, CALLER)
    pool = make_library(tmp_path, "pool", POOL)
    done, lines = generate(tmp_path, kernels, pool)
    assert done.exit_code == 0, done.stderr
    pack, product = (
        "kai_run_lhs_pack_f32p2vlx1_f32_sme",
        "kai_run_matmul_clamp_f32_f32_f32p2vlx1b_1x16vl_sme2_mla",
    )
    assert lines == [
        f"ETPROF_KERNEL(0, {pack}, 3)",
        f"ETPROF_KERNEL(1, {product}, 3)",
        "ETPROF_PARALLEL(0, pthreadpool_parallelize_1d)",
    ]


def test_the_table_has_the_library_s_symbols_and_revision(tmp_path: Path) -> None:
    """T15: what reports know of microkernels is what the linked library has."""
    sdk = tmp_path / "executorch"
    (sdk / "lib").mkdir(parents=True)
    (sdk / "version.py").write_text("__version__ = \"9.9.9\"\ngit_version: X = 'abc123'\n")
    kernels = make_library(sdk / "lib", "kernels", KERNELS, CALLER)
    done, _ = generate(tmp_path, kernels, make_library(tmp_path, "pool", POOL))
    assert done.exit_code == 0, done.stderr
    assert json.loads((tmp_path / "table.json").read_text()) == {
        "schema_version": 1,
        "executorch": "9.9.9",
        "revision": "abc123",
        "library": "libkernels.so",
        "architecture": "aarch64",
        "kernels": sorted(re.findall(r"kai_run_\w+", KERNELS)),
    }


def test_a_kernel_that_cannot_be_interposed_fails_with_its_name(tmp_path: Path) -> None:
    # GIVEN a library whose own calls are bound when it is linked
    kernels = make_library(tmp_path, "kernels", KERNELS, CALLER, flags=("-Wl,-Bsymbolic",))
    pool = make_library(tmp_path, "pool", POOL)
    done, lines = generate(tmp_path, kernels, pool)
    assert done.exit_code == 1
    assert lines == []
    assert done.stderr.strip() == (
        "libkernels.so: kai_run_lhs_pack_f32p2vlx1_f32_sme is not called through the procedure "
        "linkage table, so its calls cannot be counted; build with ETPROF_KERNEL_TRACE=OFF, or "
        "use an SDK whose microkernels can be interposed"
    )


def test_an_sdk_without_a_thread_pool_is_refused(tmp_path: Path) -> None:
    done, _ = generate(tmp_path, make_library(tmp_path, "pool", POOL))
    assert done.exit_code == 1
    assert "no pthreadpool_parallelize_* function is called" in done.stderr


SIZES = "size_t m, size_t n, size_t k"
LOOK = "const void* a, float b, double c"


@pytest.mark.parametrize(
    ("declared", "complaint"),
    [
        (f"void {{name}}({SIZES}, {LOOK});", None),
        (f"size_t {{name}}({SIZES}, enum kind d, {', '.join(['long'] * 14)});", None),
        ("void {name}(const void* m, size_t n, size_t k);", "does not begin with the sizes"),
        ("void {name}(size_t m, size_t n);", "does not begin with the sizes"),
        (f"void {{name}}({SIZES}, {', '.join(['long'] * 20)});", "does not pass on"),
        (f"void {{name}}({SIZES}, struct three s);", "does not pass on"),
        (f"double {{name}}({SIZES});", "does not pass on"),
    ],
)
@pytest.mark.slow
def test_stand_ins_are_held_against_the_headers(
    tmp_path: Path, declared: str, complaint: str | None
) -> None:
    """C3: a function whose arguments a stand-in would lose, or count by, is told by its name."""
    kernels = make_library(tmp_path, "kernels", KERNELS, CALLER)
    product = re.findall(r"kai_run_matmul\w+", KERNELS)[0]
    (tmp_path / "include" / "test").mkdir(parents=True)
    begin = "#include <cstddef>\nusing std::size_t; enum kind {A}; struct three {long a, b, c;};\n"
    text = begin + declared.format(name=product)
    (tmp_path / "include" / "product.h").write_text(text)
    # A library's own tests and benchmarks include what is not there.
    (tmp_path / "include" / "test" / "a.h").write_text(f"#include <none.h>\n// {product}")
    done, _ = generate(tmp_path, kernels, make_library(tmp_path, "pool", POOL))
    assert done.stdout == "1 of 2 microkernels have a header here, which is checked\n"
    flags = ["-std=c++17", "-fsyntax-only", f"-I{ROOT / 'cpp'}"]
    checked = run_command(["c++", *flags, tmp_path / "check.cpp"])
    assert (checked.exit_code == 0) == (complaint is None), checked.stderr
    assert complaint is None or f"{product} " in checked.stderr
    assert complaint is None or complaint in checked.stderr
