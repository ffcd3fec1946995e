"""`etprof doctor --library`: every name in a library is read, or named as one that is not."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING

import pytest
from docs import kernel_matrix

from etprof.backends.library import examine_name, find_names, find_products
from etprof.cli import main

if TYPE_CHECKING:
    from pathlib import Path

KERNEL = "kai_run_matmul_clamp_f32_f32_f32p2vlx1b_1x16vl_sme2_mla"
UKERNEL = "xnn_f32_gemm_minmax_ukernel_6x8__aarch64_neonfma_lane_ld128"
NAMES = ("Convolution (NHWC, F32)", "native_call_add.out", KERNEL, UKERNEL)


def library(*names: str) -> bytes:
    return b"\0".join((b"\x7fELF", *(name.encode() for name in names), b""))


def test_names_are_found_by_kind() -> None:
    assert find_names(library(*NAMES)) == {
        "label": {"Convolution (NHWC, F32)"},
        "kernel": {"native_call_add.out"},
        "microkernel": {KERNEL, UKERNEL},
    }
    assert not any(find_names(b"").values())


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("kai_run_warp_f32_f32_sme2", "its sizes have no place in the table"),
        ("kai_run_matmul_clamp_sme2_mla", "its data types cannot be read"),
        ("xnn_copy_ukernel__scalar_memcpy", "its data types cannot be read"),
        # Any data, which XNNPACK calls xx.
        ("xnn_xx_copy_ukernel__scalar_memcpy", None),
        ("xnn_xx_transposev_ukernel__1x1_scalar_memcpy", None),
        (KERNEL.replace("sme2", "sme7"), "no known instruction set"),
        (KERNEL.replace("_1x16vl", ""), "its tile cannot be read"),
        ("xnn_warp_ukernel_6x8__neon", "its data types cannot be read"),
        # Of KleidiAI 1.30, which ExecuTorch 1.5.1 does not have: SVE, and strides of any order.
        ("kai_run_rhs_pack_nxk_qai4c32p_qau4c32s0s1_f32_f32_f32_neon", None),
        ("kai_run_matmul_clamp_f32_f32_f32p4vlx1b_6x4vl_sve_mla", "no known instruction set"),
        ("kai_run_dwconv_clamp_f32_f32_f32p1vlx1b_3x3_s1_4xc_sme2_mla", None),
        ("kai_run_matmul_clamp_f32_bf16p2vlx2_bf16p2vlx2_2vlx2vl_sme2_mopa", None),
        (
            "kai_run_matmul_clamp_f32_qsi8d32p4x8_qsi4c32p8x8_16x8_sve_i8mm",
            "no known instruction set",
        ),
        # Its scales are a block's, not a row's or a column's: what it reads depends on k.
        (
            "kai_run_matmul_clamp_f32_qsi8d32p1vlx4_qsi4c32p4vlx4_1vlx4vl_sme2_mopa",
            "its tile cannot be read",
        ),
        (KERNEL, None),
    ],
)
def test_a_microkernel_that_cannot_be_read_says_why(name: str, problem: str | None) -> None:
    assert examine_name("microkernel", name).problem == problem


def test_a_known_library_and_one_with_a_planted_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(library(*NAMES))
    assert main(["doctor", "--library", str(path)]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert text.startswith("etprof knows 4 names lib.so: 1 label, 1 kernel, 2 microkernels")
    assert "microkernels by instruction set: sme2 1, neon 1" in text
    planted = KERNEL.replace("sme2", "sme7")
    path.write_bytes(library(*NAMES, planted, "Warp (NC, F32)"))
    assert main(["doctor", "--library", str(path), "--json"]) == 1
    rows = json.loads(capsys.readouterr().out)["names"]
    assert {row["name"]: row["problem"] for row in rows if row["problem"]} == {
        "Warp (NC, F32)": "no known operator of XNNPACK",
        planted: "no known instruction set",
    }


def test_a_wheel_is_read_library_by_library(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wheel = tmp_path / "executorch.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("executorch/lib/libone.so", library(*NAMES[:2]))
        archive.writestr("executorch/lib/libtwo.so.1", library(KERNEL))
        archive.writestr("executorch/notes.txt", library(UKERNEL))
    assert main(["doctor", "--library", str(wheel)]) == 0
    assert capsys.readouterr().out.startswith("etprof knows 3 names")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"stripped of all", "no operator and no microkernel is named in it"),
        (b"PK\3\4 and nothing more", "is a damaged zip file"),
        (None, "cannot read"),
    ],
)
def test_what_proves_nothing_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None, problem: str
) -> None:
    path = tmp_path / "lib.so"
    if content is not None:
        path.write_bytes(content)
    assert main(["doctor", "--library", str(path)]) == 4
    assert problem in " ".join(capsys.readouterr().err.split())


def test_a_member_before_the_beginning_of_the_file_is_damage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Found by damaging packages at random: Python's reader seeks to a negative place."""
    wheel = tmp_path / "executorch.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("libone.so", library(*NAMES))
    content = bytearray(wheel.read_bytes())
    # In the last record, 16 bytes on: where the directory begins.
    place = slice(len(content) - 6, len(content) - 2)
    begin = int.from_bytes(content[place], "little")
    content[place] = (begin + 4096).to_bytes(4, "little")
    wheel.write_bytes(content)
    assert main(["doctor", "--library", str(wheel)]) == 4
    assert "is a damaged zip file" in " ".join(capsys.readouterr().err.split())


def test_a_library_goes_with_no_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--target android` beside it was ignored, and exit code 0 said that the phone is ready."""
    path = tmp_path / "lib.so"
    path.write_bytes(library(*NAMES))
    words = ["--target", "android", "--serial", "x"]
    assert main(["doctor", "--library", str(path), *words]) == 2
    assert "leave out --target and --serial" in capsys.readouterr().err


ROW = "kai_run_matmul_clamp_f32_qai8dxp1x4_qsi4cxp4vlx4_1x4vl_sme2_sdot"
BLOCKS = "kai_run_matmul_clamp_f32_qai8dxp4x8_qsi4c32p4x8_16x4x32_neon_i8mm"


def test_products_are_told_apart_by_types_rows_and_instruction_set() -> None:
    tiles = [KERNEL.replace("1x16vl", "2vlx2vl").replace("sme2_mla", end)
             for end in ("sme2_mopa", "sme_mopa")]  # fmt: skip
    packing = "kai_run_lhs_pack_f32p2vlx1_f32_sme"
    depthwise = "kai_run_dwconv_clamp_f32_f32_f32p1vlx1b_3x3_s1_4xc_sme2_mla"
    unknown = "kai_run_matmul_clamp_f32_f32_f32p4vlx1b_6x4vl_sve_mla"
    products = find_products(
        [ROW, BLOCKS, KERNEL, *tiles, packing, UKERNEL, KERNEL, depthwise, unknown]
    )
    assert {
        (p.left_type, p.right_type, p.output_type, p.rows): {
            level: p.count(level) for level in p.names
        }
        for p in products
    } == {
        ("f32", "f32", "f32", "any"): {"sme2": 1, "sme": 1},
        ("f32", "f32", "f32", "one"): {"sme2": 1},
        ("qai8dx", "qsi4cx", "f32", "one"): {"sme2": 1},
        ("qai8dx", "qsi4c32", "f32", "any"): {"i8mm": 1},
    }
    assert {p.operation for p in products} == {"matmul_clamp"}
    assert products[0].count("neon") is None
    assert find_products([packing, UKERNEL]) == ()


def test_the_products_of_a_library_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "lib.so"
    path.write_bytes(library(ROW, BLOCKS))
    assert main(["doctor", "--library", str(path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["products"]
    assert [(row["right"], row["sme2"], row["i8mm"]) for row in rows] == [
        ("qsi4c32", None, 1), ("qsi4cx", 1, None),
    ]  # fmt: skip


def test_the_page_has_the_products_of_the_pinned_library() -> None:
    page = kernel_matrix.PAGE.read_text("utf-8")
    assert kernel_matrix.matrix() in page
    assert kernel_matrix.updated(page) == page
    assert " | qai8dx | qsi4cx | f32 | one | 1 |" in page
