"""Issue 14, item 2: what one program does on parts of different vector length, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import etprof as package
from etprof.analysis.split.evidence import KernelUse, ModeEvidence, describe_operator
from etprof.analysis.split.tiles import TileUse, tile_share, tile_uses
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
    return ModeEvidence("sme2", described, {}, {}, steady=True, svl_bits=svl_bits)


def uses_of(**modes: ModeEvidence) -> list[TileUse]:
    return list(tile_uses(modes))


def test_tiles_that_stand_out_of_the_output_are_computed_for_nothing() -> None:
    # GIVEN 40 rows of 48 columns: at 512 bits in tiles of 32 x 32, two rows of two of them
    (use,) = uses_of(sme2=counted(512, {MOPA: {(32, 48, 8): 1, (8, 48, 8): 1}}))
    assert use.tile == (32, 32)
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
    found = run.table("tile_use")
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
    assert done.stdout.count("Tiles of matrix products") == 1
    # AND where there is one length, the table is for pages
    with simulated_host(lambda **_: SimTarget(spec)):
        done = etprof(tmp_path, "profile", "m.pte", "--out", "one", "--target", "emulator",
                      "--full")  # fmt: skip
    assert "Tiles of matrix products" not in done.stdout
    assert "Tiles of matrix products" in (tmp_path / "one" / "report.html").read_text()
