"""The check after the link: has the runner the microkernels that its preset promises?"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from etprof.base.process import Completed, run_command

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "cmake" / "checks" / "symbols.cmake"
CMAKE, COMPILER, NM = (shutil.which(name) for name in ("cmake", "cc", "nm"))

pytestmark = pytest.mark.skipif(
    not (CMAKE and COMPILER and NM), reason="needs cmake and a C compiler with binutils"
)

NEON = ("xnn_f32_gemm_minmax_ukernel_6x8__neonfma", "kai_run_lhs_quant_pack_qai8dxp_f32")
SME1 = (
    "kai_run_lhs_pack_f32p2vlx1_f32_sme",
    "kai_run_matmul_clamp_f32_f32p2vlx1_f32p2vlx1b_2vlx2vl_sme_mopa",
    "xnn_pf32_gemm_minmax_ukernel_32x32__neonsme",
)
SME2 = (
    "kai_run_matmul_clamp_f32_f32_f32p2vlx1b_1x16vl_sme2_mla",
    "xnn_pf32_gemm_minmax_ukernel_32x32__neonsme2",
)


def link(folder: Path, *names: str) -> Path:
    source = folder / "program.c"
    lines = [f"void {name}(void) {{}}" for name in names] + ["int main(void) { return 0; }"]
    source.write_text("\n".join(lines))
    done = run_command([str(COMPILER), "-o", folder / "program", source])
    assert done.exit_code == 0, done.stderr
    return folder / "program"


def check(binary: Path, sme: str, *definitions: str) -> Completed:
    given = [f"-DNM={NM}", f"-DBINARY={binary}", f"-DSME={sme}", *definitions]
    return run_command([str(CMAKE), *given, "-P", SCRIPT])


def said(done: Completed) -> str:
    return " ".join(done.stderr.split())


@pytest.mark.slow
def test_a_runner_with_sme_is_counted_and_hashed(tmp_path: Path) -> None:
    library = tmp_path / "libXNNPACK.a"
    library.write_bytes(b"archive")
    output = tmp_path / "check.cpp"
    binary = link(tmp_path, *NEON, *SME1, *SME2)
    done = check(binary, "ON", f"-DOUTPUT={output}", f"-DLIBRARIES={library}|{binary}")
    assert (done.exit_code, done.stderr) == (0, "")
    text = output.read_text()
    assert 'json.field("sme2_microkernels", 2);' in text
    assert 'json.field("sme_microkernels", 3);' in text
    digest = hashlib.sha256(b"archive").hexdigest()
    assert f'json.field("libXNNPACK.a", "{digest}");' in text


@pytest.mark.slow
@pytest.mark.parametrize(("names", "counts"), [(NEON, (0, 0)), (SME1, (0, 3)), (SME2, (2, 0))])
def test_an_sme2_runner_without_all_sme_is_refused(
    tmp_path: Path, names: tuple[str, ...], counts: tuple[int, int]
) -> None:
    binary = link(tmp_path, *names)
    done = check(binary, "ON")
    assert done.exit_code == 1
    assert (
        f"{binary} has {counts[0]} SME2 and {counts[1]} SME microkernels, so it is no sme2 build: "
        "look for XNNPACK_ENABLE_ARM_SME2 and EXECUTORCH_XNNPACK_ENABLE_KLEIDI in CMakeCache.txt."
    ) in said(done)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SME1, *SME2, "kai_get_lhs_packed_size_lhs_pack_f32p2vlx1_sme"])
def test_an_off_runner_with_any_sme_is_refused(tmp_path: Path, name: str) -> None:
    binary = link(tmp_path, *NEON, name)
    done = check(binary, "OFF")
    assert done.exit_code == 1
    assert (
        f"{binary} has code for SME such as {name}, so it is no sme2-off build: delete the build "
        "folder and build again." in said(done)
    )


def test_an_off_runner_without_sme_passes(tmp_path: Path) -> None:
    # The stand-ins of a trace build are no microkernels.
    stand_in = "__wrap_kai_run_lhs_pack_f32p2vlx1_f32_sme"
    binary = link(tmp_path, *NEON, stand_in, "shown_sme_features")
    assert check(binary, "OFF").exit_code == 0


def test_what_is_no_program_is_named(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    done = check(tmp_path / "text", "ON")
    assert done.exit_code == 1
    assert f"{NM} cannot read {tmp_path / 'text'}" in said(done)
