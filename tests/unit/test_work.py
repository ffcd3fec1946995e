"""Issues 14 and 20: what products ask of the machine, exact, at every vector length."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import TYPE_CHECKING

import pytest

import etprof as package
from etprof.analysis.split.evidence import KernelUse, ModeEvidence, describe_operator
from etprof.analysis.split.work import (
    ProductWork,
    TileUse,
    add_work,
    load_bytes,
    tile_share,
    tile_uses,
)
from etprof.backends.registry import BACKENDS
from tests.world.host import etprof, simulated_host
from tests.world.sim_target import SimTarget
from tests.world.spec import Capabilities, RunSpec

if TYPE_CHECKING:
    from pathlib import Path

    from etprof.backends.backend import Backend

MOPA = "kai_run_matmul_clamp_f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa"
DOT = "kai_run_matmul_clamp_f16_f16_f16p2vlx2b_1x16vl_sme2_dot"
PACK = "kai_run_lhs_imatmul_pack_x16p2vlx2_x16p_sme"
PRODUCTS = {
    "MOPA16": MOPA,
    "MOPA32": "kai_run_matmul_clamp_f32_f32p2vlx1_f32p2vlx1biasf32_sme2_mopa",
    "MOPA8": "kai_run_matmul_clamp_qai8_qai8p2vlx4_qsi8cxpsb2vlx4_2vlx2vl_sme2_mopa",
    "DOT16": DOT,
    "MLA16_SME1": "kai_run_matmul_clamp_f16_f16_f16p2vlx2b_1x8vl_sme_mla",
    "MLA32": "kai_run_matmul_clamp_f32_f32_f32p2vlx1b_1x16vl_sme2_mla",
    "DOT8": "kai_run_matmul_clamp_qai8_qai8_qsi8cxp2vlx4sb_1x16vl_sme2_dot",
    "MOPA_QD": "kai_run_matmul_clamp_f32_qai8dxp1vlx4_qsi8cxp4vlx4_1vlx4vl_sme2_mopa",
    "DOT_QD": "kai_run_matmul_clamp_f32_qai8dxp1x4_qsi8cxp4vlx4_1x4vl_sme2_dot",
    "MOPA_Q4": "kai_run_matmul_clamp_f32_qai8dxp1vlx8_qsi4cxp4vlx8_1vlx4vl_sme2_mopa",
}
PACKINGS = {
    "MOPA16": "x16p2vlx2_x16", "MOPA32": "x32p2vlx1_x32", "MOPA8": "x8p2vlx4_x8",
}  # fmt: skip
SHAPES: list[tuple[str, int, tuple[int, int, int], tuple[int, ...], tuple[int, ...], str]] = [
    # Product, vector length, (m, n, k as the call has it), (chunks, length of a chunk) of a packed
    # convolution; then multiply-accumulates, padded by tiles, padded in k, steps, bytes left,
    # right, of the output. Derivation, by the first row: its 32 x 32 outputs are one tile. 9 chunks
    # of 3 are packed as 9 of 4, so 36 of k are computed for a real 27: 32 x 32 x 27 = 27 648 and
    # 32 x 32 x 9 = 9 216, in 36 / 2 = 18 steps of two float16. 32 rows of 36 float16 are 2 304
    # bytes, 32 columns of 36 and a bias 2 368, 32 x 32 outputs 2 048. Dynamic integers: k in
    # multiples of 32, 8 bytes beside a row, 12 beside a column; int4 takes half a byte.
    ("MOPA16", 512, (32, 32, 36), (9, 3), (27648, 0, 9216, 18, 2304, 2368, 2048),
     "1 tile of 32 x 32, 27 of k in 18 steps of 2"),
    ("MOPA16", 512, (1, 1, 1), (), (1, 2046, 1, 1, 128, 192, 2),
     "1 tile of 32 x 32, 1 of k in 1 step of 2"),
    ("MOPA16", 256, (1, 1, 1), (), (1, 510, 1, 1, 64, 96, 2),
     "1 tile of 16 x 16, 1 of k in 1 step of 2"),
    ("MOPA16", 128, (1, 1, 1), (), (1, 126, 1, 1, 32, 48, 2),
     "1 tile of 8 x 8, 1 of k in 1 step of 2"),
    ("MOPA16", 512, (33, 33, 2), (), (2178, 6014, 0, 4, 256, 768, 2178),
     "2 x 2 tiles of 32 x 32, 2 of k in 1 step of 2"),
    ("MOPA16", 256, (33, 33, 2), (), (2178, 2430, 0, 9, 192, 864, 2178),
     "3 x 3 tiles of 16 x 16, 2 of k in 1 step of 2"),
    ("MOPA16", 128, (33, 33, 2), (), (2178, 1022, 0, 25, 160, 1200, 2178),
     "5 x 5 tiles of 8 x 8, 2 of k in 1 step of 2"),
    ("MOPA16", 512, (31, 32, 7), (), (6944, 256, 992, 4, 512, 576, 1984),
     "1 tile of 32 x 32, 7 of k in 4 steps of 2"),
    ("MOPA16", 128, (8, 10, 36), (9, 3), (2160, 1728, 720, 36, 576, 1184, 160),
     "1 x 2 tiles of 8 x 8, 27 of k in 18 steps of 2"),
    ("MOPA32", 512, (32, 32, 8), (), (8192, 0, 0, 8, 1024, 1152, 4096),
     "1 tile of 32 x 32, 8 of k in 8 steps of 1"),
    ("MOPA32", 512, (32, 1, 9), (), (288, 8928, 0, 9, 1152, 1280, 128),
     "1 tile of 32 x 32, 9 of k in 9 steps of 1"),
    ("MOPA32", 256, (16, 17, 27), (9, 3), (7344, 6480, 0, 54, 1728, 3584, 1088),
     "1 x 2 tiles of 16 x 16, 27 of k in 27 steps of 1"),
    ("MOPA32", 128, (7, 9, 5), (), (315, 325, 0, 10, 160, 384, 252),
     "1 x 2 tiles of 8 x 8, 5 of k in 5 steps of 1"),
    ("MOPA8", 512, (32, 32, 4), (), (4096, 0, 0, 1, 128, 384, 1024),
     "1 tile of 32 x 32, 4 of k in 1 step of 4"),
    ("MOPA8", 512, (32, 33, 36), (9, 3), (28512, 35712, 9504, 18, 1152, 2816, 1056),
     "1 x 2 tiles of 32 x 32, 27 of k in 9 steps of 4"),
    ("MOPA8", 256, (15, 16, 10), (), (2400, 192, 480, 3, 192, 320, 240),
     "1 tile of 16 x 16, 10 of k in 3 steps of 4"),
    ("MOPA8", 128, (9, 8, 5), (), (360, 448, 216, 4, 128, 256, 72),
     "2 x 1 tile of 8 x 8, 5 of k in 2 steps of 4"),
    ("DOT16", 512, (1, 10, 1280), (), (12800, 69120, 0, 640, 0, 81984, 20),
     "1 tile of 1 x 64, 1280 of k in 640 steps of 2"),
    ("DOT16", 256, (1, 10, 3), (), (30, 88, 10, 2, 0, 160, 20),
     "1 tile of 1 x 32, 3 of k in 2 steps of 2"),
    ("DOT16", 128, (1, 17, 8), (), (136, 120, 0, 8, 0, 432, 34),
     "1 x 2 tiles of 1 x 16, 8 of k in 4 steps of 2"),
    ("MLA16_SME1", 512, (1, 33, 5), (), (165, 186, 33, 6, 0, 896, 66),
     "1 x 2 tiles of 1 x 32, 5 of k in 3 steps of 2"),
    ("MLA32", 512, (1, 1000, 1280), (), (1280000, 30720, 0, 20480, 0, 5246976, 4000),
     "1 x 16 tiles of 1 x 64, 1280 of k in 1280 steps of 1"),
    ("MLA32", 256, (1, 33, 7), (), (231, 217, 0, 14, 0, 1536, 132),
     "1 x 2 tiles of 1 x 32, 7 of k in 7 steps of 1"),
    ("MLA32", 128, (1, 1, 1), (), (1, 15, 0, 1, 0, 64, 4),
     "1 tile of 1 x 16, 1 of k in 1 step of 1"),
    ("DOT8", 512, (1, 65, 9), (), (585, 756, 195, 6, 0, 1920, 65),
     "1 x 2 tiles of 1 x 64, 9 of k in 3 steps of 4"),
    ("DOT8", 128, (1, 16, 16), (), (256, 0, 0, 4, 0, 384, 16),
     "1 tile of 1 x 16, 16 of k in 4 steps of 4"),
    ("MOPA_QD", 512, (16, 64, 32), (), (32768, 0, 0, 8, 640, 2816, 4096),
     "1 tile of 16 x 64, 32 of k in 8 steps of 4"),
    ("MOPA_QD", 256, (9, 33, 33), (), (9801, 46528, 9207, 64, 1152, 9728, 1188),
     "2 x 2 tiles of 8 x 32, 33 of k in 16 steps of 4"),
    ("DOT_QD", 512, (1, 64, 100), (), (6400, 0, 1792, 32, 136, 8960, 256),
     "1 tile of 1 x 64, 100 of k in 32 steps of 4"),
    ("MOPA_Q4", 512, (17, 65, 64), (), (70720, 191424, 0, 64, 2304, 11264, 4420),
     "2 x 2 tiles of 16 x 64, 64 of k in 16 steps of 4"),
]  # fmt: skip
"""Thirty shapes, edges of tiles among them."""
Sizes = dict[tuple[int, ...], int]


def xnnpack() -> Backend:
    return next(each for each in BACKENDS if each.name == "xnnpack")


def counted(svl_bits: int, *operators: dict[str, Sizes]) -> ModeEvidence:
    """Operators that were given these sizes, each in so many calls."""
    described = tuple(
        describe_operator(
            f"Convolution (NHWC, PF16) IGEMM #{number}", xnnpack(), "sme2",
            tuple(
                KernelUse(name, "sme2", name == PACK, sum(sizes.values()), tuple(sizes.items()))
                for name, sizes in kernels.items()
            ),
        )
        for number, kernels in enumerate(operators, start=1)
    )  # fmt: skip
    return ModeEvidence("sme2", described, {}, (), steady=True, svl_bits=svl_bits)


def uses_of(**modes: ModeEvidence) -> list[TileUse]:
    return list(tile_uses(modes))


@pytest.mark.parametrize(("product", "svl_bits", "sizes", "chunks", "expected", "why"), SHAPES)
def test_work_is_what_a_hand_computes(  # noqa: PLR0917 - columns of the table
    product: str, svl_bits: int, sizes: tuple[int, int, int], chunks: tuple[int, ...],
    expected: tuple[int, ...], why: str,
) -> None:  # fmt: skip
    """Issue 20: multiply-accumulates, padding, steps and bytes of thirty shapes."""
    m, _, k = sizes
    kernels: dict[str, Sizes] = {PRODUCTS[product]: {sizes: 1}}
    if chunks:
        kernels[f"kai_run_lhs_imatmul_pack_{PACKINGS[product]}p_sme"] = {(m, *chunks): 1}
    elif product in PACKINGS:
        packing = PACKINGS[product].replace("x32", "f32")
        kernels[f"kai_run_lhs_pack_{packing}_sme"] = {(m, k, 0): 1}
    elif "Q" in product:
        rows = 1 if product == "DOT_QD" else svl_bits // 32
        kernels["kai_run_lhs_quant_pack_qai8dxp_f32"] = {(m, k, rows): 1}
    (use,) = uses_of(sme2=counted(svl_bits, kernels))
    work = use.work
    assert work == ProductWork(*expected), why
    # AND what is done is what is needed and the padding that is told
    done = use.tiles * use.tile.rows * use.tile.columns * (use.k_computed or 0)
    assert done == work.computed == work.macs + work.tile_padding + work.k_padding
    assert work.padding == pytest.approx(1 - work.macs / done)


def test_work_is_linear_in_the_batch_and_in_layers() -> None:
    """Issue 20: images, each of its own calls, and layers add up."""
    once: dict[str, Sizes] = {
        PACK: {(32, 9, 3): 2, (8, 9, 3): 1},
        MOPA: {(32, 48, 36): 2, (8, 48, 36): 1},
    }
    thrice = {name: {s: 3 * c for s, c in sizes.items()} for name, sizes in once.items()}
    one = add_work(uses_of(sme2=counted(512, once)))
    assert one is not None
    for several in (counted(512, thrice), counted(512, once, once, once)):
        assert add_work(uses_of(sme2=several)) == ProductWork(*(3 * each for each in astuple(one)))
    assert add_work([]) is None


def test_work_is_the_same_however_threads_cut_rows_and_columns() -> None:
    """Issue 20: threads cut products at the edges of tiles."""
    whole: dict[str, Sizes] = {PACK: {(96, 9, 3): 1}, MOPA: {(96, 64, 36): 1}}
    cut: dict[str, Sizes] = {PACK: {(32, 9, 3): 3}, MOPA: {(32, 32, 36): 6}}
    first, second = (add_work(uses_of(sme2=counted(512, each))) for each in (whole, cut))
    assert first == second is not None


def test_neon_products_have_their_macs_and_no_padding_that_nobody_read() -> None:
    """Issue 20: what is not known is None, never a guess."""
    neon = "kai_run_matmul_clamp_f32_qai8dxp4x8_qsi8cxp4x8_16x4_neon_i8mm"
    mode = counted(512, {neon: {(16, 8, 32): 2}})
    assert mode.operators[0].kernels[0].macs == 2 * 16 * 8 * 32
    assert uses_of(sme2=mode) == []


def test_packing_at_load_is_apart() -> None:
    """Issue 20: weights that are packed once are no work of an inference."""
    pack, right = "kai_run_rhs_imatmul_pack_kxn_x16p2vlx2b_x16_x16_sme", (33, 9, 3)
    load = KernelUse(pack, "sme", True, 2, ((right, 2),))
    mode = replace(counted(512), load=(load,))
    # Two of 33 columns, which are 64 packed ones, of 36 and a bias in float16.
    assert load_bytes(mode) == 2 * 64 * (36 + 1) * 2
    # AND where neither name nor sizes say how many columns stand together, nothing is claimed
    unknown = KernelUse(
        "kai_run_rhs_pack_nxk_qsi8cxp_qsi8cx_neon", "neon", True, 1, (((1, 8, 8), 1),)
    )
    assert load_bytes(replace(mode, load=(load, unknown))) is None
    assert load_bytes(counted(512)) == 0


def test_tiles_that_stand_out_of_the_output_are_computed_for_nothing() -> None:
    # GIVEN 40 rows of 48 columns: at 512 bits in tiles of 32 x 32, two rows of two of them
    (use,) = uses_of(sme2=counted(512, {MOPA: {(32, 48, 8): 1, (8, 48, 8): 1}}))
    assert (use.tile.rows, use.tile.columns) == (32, 32)
    assert (use.tiles, use.useful, use.computed) == (4, 40 * 48, 4 * 32 * 32)
    assert tile_share([use]) == 40 * 48 / 4096
    assert tile_share([]) is None


def test_padding_is_what_packing_adds_to_k() -> None:
    # GIVEN a 3x3 convolution of 3 channels, whose chunks of 3 become 4, and one without packing
    first, second = uses_of(
        sme2=counted(512, {PACK: {(32, 9, 3): 8}, MOPA: {(32, 32, 36): 8}}, {DOT: {(1, 10, 64): 1}})
    )
    assert (first.k, first.k_computed) == (27, 36)
    assert (second.k, second.k_computed) == (64, 64)
    # AND a product of two depths has no one depth
    (mixed,) = uses_of(sme2=counted(512, {MOPA: {(32, 32, 36): 8, (32, 32, 40): 8}}))
    assert (mixed.k, mixed.k_computed) == (None, None)


@pytest.mark.parametrize(("svl_bits", "calls"), [(512, 4), (256, 6), (128, 12)])
def test_calls_are_expected_by_the_rows_of_the_longest_tiles(svl_bits: int, calls: int) -> None:
    # GIVEN two problems of 42 rows each, as they are cut at 512 bits: 32 and 10
    longest = counted(512, {MOPA: {(32, 32, 8): 2, (10, 32, 8): 2}})
    found = uses_of(sme2_512=longest, other=counted(svl_bits, {MOPA: {(8, 32, 8): calls}}))
    assert found[1].expected_calls == calls


def test_operators_without_sizes_or_length_have_no_tiles() -> None:
    assert uses_of(sme2=counted(512, {MOPA: {}})) == []
    assert uses_of(sme2=counted(0, {MOPA: {(8, 8, 8): 1}})) == []
    assert uses_of() == []


def test_a_sweep_shows_the_lengths_side_by_side(tmp_path: Path) -> None:
    """One run of the same program at three lengths: calls, tile use, and on terminals both."""
    (tmp_path / "m.pte").write_bytes(b"program")
    spec = RunSpec(capabilities=Capabilities(platform="emulator"))
    with simulated_host(lambda **_: SimTarget(spec)):
        done = etprof(tmp_path, "profile", "m.pte", "--out", "out", "--target", "emulator",
                      "--sme-vector-bits", "128,256,512", "--full")  # fmt: skip
        assert done.exit_code == 0, done.stderr
    run = package.load_run(tmp_path / "out")
    found = run.table("work")
    rows = found[found["mode"].str.startswith("sme2") & (found["number"] == 2)]
    told = rows[["svl_bits", "tile", "calls", "expected_calls", "tile_use"]].to_numpy().tolist()
    assert told == [
        [512, "32 x 32", 7, 7, 0.5],
        [256, "16 x 16", 14, 14, 1.0],
        [128, "8 x 8", 28, 28, 1.0],
    ]
    whole = run.table("kernel_calls").set_index("mode")["tile_use"]
    assert whole["sme2 512 bits"] == 0.5
    assert whole.isna()["off"]
    assert done.stdout.count("Work of products on SME") == 1
    # AND where there is one length, the table is for pages
    with simulated_host(lambda **_: SimTarget(spec)):
        done = etprof(tmp_path, "profile", "m.pte", "--out", "one", "--target", "emulator",
                      "--full")  # fmt: skip
    assert "Work of products on SME" not in done.stdout
    assert "Work of products on SME" in (tmp_path / "one" / "report.html").read_text()
