"""Microkernels of static libraries, wrapped at link time: which ones, and with what arguments."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from etprof.backends.kernel_names import KernelName, parse_kernel_name
from etprof.base.process import run_command
from tests.unit.test_kernel_symbols import ROOT

TRACE = ROOT / "cpp" / "kernel_trace"
GENERATOR = TRACE / "generate_wrapped_symbols.py"
COMPILER = shutil.which("c++")
NM = shutil.which("nm")
AR = shutil.which("ar")

pytestmark = pytest.mark.skipif(
    not (COMPILER and NM and AR and sys.platform == "linux"),
    reason="needs a C++ compiler with binutils on Linux",
)

GEMM = "xnn_f32_gemm_minmax_ukernel_6x8__asm_aarch64_neonfma_cortex_a75"
SHIM = "xnn_pf32_gemm_minmax_ukernel_32x32__neonsme2"
KLEIDIAI = "kai_run_matmul_clamp_f32_f32p2vlx1_f32p2vlx1b_2vlx2vl_sme_mopa"
ARGUMENTS = ", ".join(f"long a{i}" for i in range(15)) + ", float f, double d"
VALUES = ", ".join(str(i + 1) for i in range(15)) + ", 0.5f, 0.25"
SUM = " + ".join(f"{i + 1} * a{i}" for i in range(15)) + " + f + d"

KERNELS = f"""
#include <cstdio>
extern "C" void {GEMM}({ARGUMENTS}) {{ std::printf("%.2f\\n", {SUM}); }}
extern "C" unsigned {SHIM}_get_mr() {{ return 16; }}
extern "C" void {KLEIDIAI}() {{}}
extern "C" void xnn_f32_vadd_ukernel__never_used() {{}}
"""
SHIMS = f"""
extern "C" void {KLEIDIAI}();
extern "C" void {SHIM}() {{ {KLEIDIAI}(); }}
"""
RUNTIME = f"""
#include <time.h>
extern "C" {{
void pthreadpool_parallelize_1d();
void {SHIM}();
void {GEMM}({ARGUMENTS});
unsigned {SHIM}_get_mr();
int xnn_invoke_runtime(void*) {{
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    pthreadpool_parallelize_1d();
    {SHIM}();
    // As XNNPACK does: through a table of function pointers.
    static void (*const table[])({ARGUMENTS}) = {{{GEMM}}};
    for (int i = 0; i < 3; ++i) table[0]({VALUES});
    return {SHIM}_get_mr() == 16 ? 0 : 1;
}}
}}
"""
POOL = 'extern "C" void pthreadpool_parallelize_1d() {}'
MAIN = """
#include <cstdio>
#include "kernel_trace/kernel_calls.h"
extern "C" int xnn_invoke_runtime(void*);
int main() {
    const int failed = xnn_invoke_runtime(nullptr);
    std::vector<etprof::KernelCalls> taken;
    etprof::take_kernel_calls(taken);
    for (const etprof::KernelCalls& calls : taken) {
        std::printf("%s %d", etprof::known_kernels[calls.kernel].name, (int)calls.calls);
        for (const auto size : calls.sizes) std::printf(" %d", (int)size);
        std::printf("\\n");
    }
    return failed;
}
"""


def run(*command: str | Path | None) -> str:
    done = run_command([part for part in command if part is not None])
    assert done.exit_code == 0, done.stderr
    return done.stdout


def compile_archive(folder: Path, name: str, source: str) -> Path:
    file = folder / f"{name}.cpp"
    file.write_text(source)
    run(COMPILER, "-c", "-o", folder / f"{name}.o", file)
    archive = folder / f"lib{name}.a"
    run(AR, "rc", archive, folder / f"{name}.o")
    return archive


def generate(folder: Path, archives: list[Path]) -> tuple[str, str]:
    symbols, options = folder / "wrapped_symbols.inc", folder / "wrap_options.txt"
    names: list[str | Path] = ["--nm", str(NM), "--output", symbols, "--options", options]
    names += ["--check", folder / "check.cpp", "--headers", folder / "include"]
    run(sys.executable, GENERATOR, *names, *archives)
    return symbols.read_text(), options.read_text()


@pytest.mark.slow
def test_references_between_objects_are_wrapped_and_counted(tmp_path: Path) -> None:
    # GIVEN static libraries that call microkernels as XNNPACK does
    sources = {"runtime": RUNTIME, "shims": SHIMS, "kernels": KERNELS, "pool": POOL}
    archives = [compile_archive(tmp_path, name, source) for name, source in sources.items()]
    # WHEN the stand-ins are generated and linked in
    symbols, options = generate(tmp_path, archives)
    (tmp_path / "main.cpp").write_text(MAIN)
    parts = [TRACE / name for name in ("kernel_calls.cpp", "operator_clock.cpp")]
    flags = ["-std=c++17", f"-I{ROOT / 'cpp'}", f"-I{tmp_path}", f"@{tmp_path}/wrap_options.txt"]
    flags.append("-DETPROF_WRAPPED_AT_LINK")
    stand_ins = TRACE / "stand_ins.cpp"
    program = tmp_path / "program"
    run(COMPILER, *flags, "-o", program, tmp_path / "main.cpp", stand_ins, *parts, *archives)
    shown = run(program).splitlines()
    # THEN only what another object needs is wrapped, and what only tells a size is not
    assert [line.split(", ")[1] for line in symbols.splitlines()[:3]] == [KLEIDIAI, GEMM, SHIM]
    assert symbols.splitlines()[3:] == ["ETPROF_PARALLEL(0, pthreadpool_parallelize_1d)"]
    assert options.splitlines()[3:] == [
        "-Wl,--wrap=pthreadpool_parallelize_1d",
        "-Wl,--wrap=clock_gettime",
        "-Wl,--wrap=xnn_invoke_runtime",
    ]
    # AND every call arrives with its 15 integers and 2 floating-point numbers
    total = sum((i + 1) ** 2 for i in range(15)) + 0.75
    assert shown[:3] == [f"{total:.2f}"] * 3
    # AND is counted, with the sizes that it begins with
    words = [line.split() for line in shown[3:]]
    assert [found[:2] for found in words] == [[SHIM, "1"], [KLEIDIAI, "1"], [GEMM, "3"]]
    assert words[2][2:] == ["1", "2", "3", "0"]


@pytest.mark.slow
def test_libraries_without_microkernels_are_refused(tmp_path: Path) -> None:
    archive = compile_archive(tmp_path, "pool", POOL)
    outputs: list[str | Path] = ["--output", tmp_path / "a", "--options", tmp_path / "b"]
    outputs += ["--check", tmp_path / "c"]
    done = run_command([sys.executable, GENERATOR, "--nm", str(NM), *outputs, archive])
    assert done.stderr == (
        "ExecuTorch's libraries have no microkernels to wrap; use ETPROF_KERNEL_TRACE=OFF\n"
    )


def test_names_of_xnnpack_are_read() -> None:
    assert parse_kernel_name(GEMM) == KernelName(
        name=GEMM,
        operation="gemm_minmax",
        destination="f32",
        inputs=("f32",),
        engine="neon",
        instruction="fma",
        tile=None,
    )


@pytest.mark.parametrize(
    ("name", "level", "destination", "inputs"),
    [
        # A microkernel of XNNPACK's that calls one of KleidiAI's has no level: that one has it.
        (SHIM, None, "pf32", ("pf32",)),
        ("xnn_x16_pack_lh_ukernel__igemm_neonsme2", None, "x16", ("x16",)),
        ("xnn_qp8_f32_qc4w_gemm_minmax_ukernel_8x8c16s2__neoni8mm", None, "f32", ("qp8", "qc4w")),
        ("xnn_qs8_qc8w_gemm_minmax_fp32_ukernel_4x16c8__neoni8mm", "i8mm", "qs8", ("qs8", "qc8w")),
        ("xnn_qd8_f16_qc8w_igemm_minmax_ukernel_4x16c4__neondotfp16arith", "dotprod", "f16",
         ("qd8", "qc8w")),
        ("xnn_f16_qs8_vcvt_ukernel__neonfp16arith_u32", "neon", "qs8", ("f16",)),
        ("xnn_f32_vlog_ukernel__scalar_rational_3_3_div_u1", None, "f32", ("f32",)),
    ],
)  # fmt: skip
def test_levels_and_types_of_xnnpack_names(
    name: str, level: str | None, destination: str, inputs: tuple[str, ...]
) -> None:
    parsed = parse_kernel_name(name)
    assert (parsed.level, parsed.destination, parsed.inputs) == (level, destination, inputs)
