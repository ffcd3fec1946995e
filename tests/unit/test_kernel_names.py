"""The grammar of microkernel names, on every microkernel of ExecuTorch 1.5.1's aarch64 SDK."""

from __future__ import annotations

from collections import Counter

import pytest

from etprof.backends.kernel_names import (
    SME_LEVELS,
    KernelName,
    is_product,
    parse_kernel_name,
    tile_of,
)
from etprof.backends.xnnpack import sme

NAMES: list[str] = sme.kernel_table()["kernels"]  # type: ignore[assignment]


def test_every_known_name_has_a_known_place() -> None:
    # GIVEN all 53 microkernels, of which five have no engine in their names
    levels = Counter(parse_kernel_name(name).level for name in NAMES)
    assert levels == {"sme": 23, "sme2": 10, "dotprod": 9, "i8mm": 3, "neon": 3, None: 5}
    assert {parse_kernel_name(n).operation for n in NAMES} == {
        "lhs_imatmul_pack",
        "lhs_pack",
        "lhs_quant_pack",
        "matmul_clamp",
        "rhs_imatmul_pack_kxn",
        "rhs_pack_kxn",
        "rhs_pack_nxk",
    }


@pytest.mark.parametrize("name", NAMES)
def test_packing_kernels_are_told_from_computing_ones(name: str) -> None:
    parsed = parse_kernel_name(name)
    assert parsed.is_packing == ("_pack_" in name)
    assert parsed.destination
    assert parsed.inputs


def test_the_parts_of_a_name_are_read() -> None:
    name = "kai_run_matmul_clamp_f32_qai8dxp1vlx4_qsi8cxp4vlx4_1vlx4vl_sme2_mopa"
    assert parse_kernel_name(name) == KernelName(
        name=name,
        operation="matmul_clamp",
        destination="f32",
        inputs=("qai8dx", "qsi8cx"),
        engine="sme2",
        instruction="mopa",
        tile="1vlx4vl",
    )


@pytest.mark.parametrize(
    ("filter_and_tile", "tile"), [("3x3_s1_4xc", "4xc"), ("5x5_s2s1_2xc", "2xc"), ("3x3_s1", None)]
)
def test_a_depthwise_kernel_has_a_level(filter_and_tile: str, tile: str | None) -> None:
    """Issue 43, item 7: the filter was taken for a tile, and the stride hid the engine."""
    name = f"kai_run_dwconv_clamp_f32_f32_f32p1vlx1b_{filter_and_tile}_sme2_mla"
    assert parse_kernel_name(name) == KernelName(
        name=name,
        operation="dwconv_clamp",
        destination="f32",
        inputs=("f32", "f32"),
        engine="sme2",
        instruction="mla",
        tile=tile,
    )
    packing = parse_kernel_name("kai_run_rhs_dwconv_pack_x32p1vlx1b_x32_x32_sme")
    assert (packing.level, packing.is_packing) == ("sme", True)
    assert not is_product(name)


@pytest.mark.parametrize(
    ("name", "at_512", "at_128"),
    [
        ("kai_run_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa", (32, 32), (8, 8)),
        # An older name without tile: packed inputs say it.
        ("kai_run_matmul_clamp_f32_f32p2vlx1_f32p2vlx1biasf32_sme2_mopa", (32, 32), (8, 8)),
        # Four groups of four vectors at most, and no more groups than there are columns for.
        ("kai_run_matmul_clamp_f16_f16_f16p2vlx2b_1x16vl_sme2_dot", (1, 64), (1, 16)),
        ("kai_run_matmul_clamp_f32_f32p2vlx1_f32p2vlx1biasf32_qmx_mopa", (32, 32), (8, 8)),
        ("kai_run_matmul_clamp_f32_f32p8vsx1_f32p8vsx1_8vsx8vs_sme1_mopa", (32, 32), (8, 8)),
        ("kai_run_matmul_clamp_f32_f32_f32p2vlx1b_1x8vl_sme_mla", (1, 32), (1, 8)),
        ("kai_run_matmul_clamp_f32_bf16p2vlx2_bf16p2vlx2_2vlx2vl_sme2_mopa", (32, 32), (8, 8)),
        ("kai_run_matmul_clamp_f32_qai8dxp4x8_qsi4cxp8x8_8x8x32_neon_i8mm", None, None),
        ("kai_run_lhs_imatmul_pack_x16p2vlx2_x16p_sme", None, None),
        ("xnn_f32_gemm_minmax_ukernel_6x8__aarch64_neonfma_lane_ld128", None, None),
    ],
)
def test_a_name_says_the_tile(
    name: str, at_512: tuple[int, int] | None, at_128: tuple[int, int] | None
) -> None:
    """Issue 14, item 2: the tile grows with the vector length where its name says so."""
    found = [tile_of(name, bits) for bits in (512, 128)]
    assert [(tile.rows, tile.columns) if tile else None for tile in found] == [at_512, at_128]


def test_every_sme_product_says_its_tile() -> None:
    products = [name for name in NAMES if is_product(name)]
    assert len(products) == 31
    known = {name for name in products if tile_of(name, 512)}
    assert known == {n for n in products if parse_kernel_name(n).level in SME_LEVELS}
    # AND it grows with the vector length, so an unknown length leaves it unknown
    assert not [name for name in products if tile_of(name, None)]


@pytest.mark.parametrize(
    ("name", "level"),
    [
        ("kai_run_matmul_clamp_f32_f32p2vlx1_f32p2vlx1biasf32_sme2_mopa", "sme2"),
        ("kai_run_matmul_clamp_f32_f32p2vlx1_f32p2vlx1b_2vlx2vl_sme_mopa", "sme"),
        ("kai_run_matmul_clamp_f32_qai8dxp4x8_qsi4cxp8x8_8x8x32_neon_i8mm", "i8mm"),
        ("kai_run_matmul_clamp_f32_qai8dxp1x4_qsi4cxp4x4_1x4_neon_dotprod", "dotprod"),
        ("kai_run_rhs_pack_nxk_qsi4cxps1s0_qsu4cxs1s0_neon", "neon"),
        ("kai_run_lhs_quant_pack_qai8dxp_f32", None),
        ("kai_run_matmul_f16_f16_f16p2vlx2b_1x16vl_sme2p1_dot", "sme2"),
        ("kai_run_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme1_mopa", "sme"),
        ("kai_run_matmul_clamp_f32_qai8dxp1x4_qsi4cxp4vlx4_1x4vl_sme1_sdot", "sme"),
        ("kai_run_imatmul_clamp_f32_f32p2vlx1_f32p2vlx1b_2vlx2vl_qmx_mopa", "sme"),
    ],
)
def test_sme2_never_counts_as_sme(name: str, level: str | None) -> None:
    assert parse_kernel_name(name).level == level


@pytest.mark.parametrize("name", ["", "kai_run_", "memcpy", "kai_run_new_thing_sme3_x"])
def test_unknown_names_are_kept_whole(name: str) -> None:
    parsed = parse_kernel_name(name)
    assert parsed.name == name
    assert parsed.level is None
