"""What an export is asked for, by its exact limits and names, and the sizes that kernels' names say."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from etprof.backends.kernel_names import (
    is_product,
    packed_bytes,
    packed_depth,
    parse_kernel_name,
    size_arguments,
    tile_of,
)
from etprof.backends.xnnpack.labels import canonical_kind, name_node, parse_label
from etprof.base.errors import UsageError
from etprof.base.process import Completed
from etprof.export.changes import exclusions, scopes
from etprof.export.request import (
    ExportedFiles,
    ExportOptions,
    ExportRequest,
    identify_source,
    parse_precision,
    split_precision,
)
from etprof.export_llm import exporting, schema

# ---- the sizes of KleidiAI's microkernels


RUN = "kai_run_matmul_clamp_"


@pytest.mark.parametrize(
    ("name", "rows", "columns", "panel", "packs_left"),
    [
        # A vector of 512 bits has 16 accumulators of 32 bits.
        ("f32_f32p2vlx1_f32p2vlx1biasf32_sme2_mopa", 32, 32, 32, True),
        ("f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa", 32, 32, 32, True),
        ("qai8_qai8p2vlx4_qsi8cxpsb2vlx4_2vlx2vl_sme2_mopa", 32, 32, 32, True),
        ("f32_qai8dxp1vlx8_qsi4cxp4vlx8_1vlx4vl_sme2_mopa", 16, 64, 64, True),
        ("f32_qai8dxp1x4_qsi8cxp4vlx4_1x4vl_sme2_dot", 1, 64, 64, True),
        # One row takes up to four groups of columns in turn, whatever the panel.
        ("f32_f32_f32p16vlx1b_1x16vl_sme2_mla", 1, 64, 256, False),
        ("f16_f16_f16p8vlx1b_1x8vl_sme2_dot", 1, 32, 128, False),
    ],
)
def test_a_tile_is_as_large_as_the_vector(
    name: str, rows: int, columns: int, panel: int, packs_left: bool
) -> None:
    tile = tile_of(RUN + name, 512)
    assert tile is not None
    assert (tile.rows, tile.columns, tile.panel, tile.packs_left) == (
        rows, columns, panel, packs_left,
    )  # fmt: skip
    # Twice the vector makes what scales twice as large; without a length nobody knows.
    wide = tile_of(RUN + name, 1024)
    assert wide is not None
    assert (wide.rows, wide.columns) == (rows * (2 if rows > 1 else 1), 2 * columns)
    assert tile_of(RUN + name, None) is None


@pytest.mark.parametrize(
    ("name", "step", "depth", "beside"),
    [
        ("f32_f32p2vlx1_f32p2vlx1biasf32_sme2_mopa", 1, 1, (32, 4, 4)),
        ("f16_f16p2vlx2_f16p2vlx2_2vlx2vl_sme2_mopa", 2, 2, (16, 2, 2)),
        ("qai8_qai8p2vlx4_qsi8cxpsb2vlx4_2vlx2vl_sme2_mopa", 4, 4, (8, 8, 1)),
        ("f32_qai8dxp1vlx8_qsi4cxp4vlx8_1vlx4vl_sme2_mopa", 4, 32, (4, 12, 4)),
        ("f32_qai8dxp1vlx8_qsi8cxp4vlx8_1vlx4vl_sme2_mopa", 4, 32, (8, 12, 4)),
    ],
)
def test_a_step_sums_what_fits_into_an_accumulator(
    name: str, step: int, depth: int, beside: tuple[int, int, int]
) -> None:
    """Beside a column: a bias, and of integers their sum and scale."""
    tile = tile_of(RUN + name, 512)
    assert tile is not None
    assert (tile.step, tile.depth) == (step, depth)
    assert (tile.right_bits, tile.column_bytes, tile.output_bytes) == beside


@pytest.mark.parametrize(
    "name",
    [
        "kai_run_matmul_clamp_f32_f32_f32p8x1biasf32_6x8x4_neon_mla",
        "kai_run_matmul_clamp_f32_qai8dxp4x8_qsi8cxp4x8_16x4_neon_i8mm",
        "kai_run_lhs_pack_f32p2vlx1_f32_sme",
        "kai_run_dwconv_clamp_f32_f32_f32p1vlx1b_3x3_s1_4xc_sme2_mla",
        "xnn_f32_gemm_minmax_ukernel_6x8__aarch64_neonfma_lane_ld128",
    ],
)
def test_what_is_no_sme_product_has_no_tile(name: str) -> None:
    assert tile_of(name, 512) is None


@pytest.mark.parametrize(
    ("name", "sizes", "count"),
    [
        # 33 rows make two panels of 32, each row 10 floats.
        ("kai_run_lhs_pack_f32p2vlx1_f32_sme", (33, 10, 32), 64 * 40),
        ("kai_run_lhs_pack_f32p2vlx1_f32_sme", (32, 10, 32), 32 * 40),
        # Halves stand in pairs: a k of 3 takes 4.
        ("kai_run_lhs_pack_x16p2vlx2_x16_sme", (5, 3, 32), 32 * 8),
        ("kai_run_lhs_pack_bf16p2vlx2_f32_sme", (5, 3, 32), 32 * 8),
        ("kai_run_rhs_pack_kxn_bf16p2vlx2b_f32_x32_sme", (1, 40, 3), 64 * (4 * 2 + 4)),
        # NEON's take four of them: a k of 6 takes 8.
        ("kai_run_lhs_pack_bf16p8x4_f16_neon", (5, 6, 8), 8 * 8 * 2),
        # Two groups of 40 columns; each column has its bias.
        ("kai_run_rhs_pack_kxn_f32p2vlx1biasf32_f32_f32_sme", (2, 40, 10), 128 * (40 + 4)),
        # The name says no panel, the sizes do; scale and zero point take 8 bytes a row.
        ("kai_run_lhs_quant_pack_qai8dxp_f32", (5, 33, 4), 8 * (64 + 8)),
        ("kai_run_rhs_imatmul_pack_kxn_x32p2vlx1b_x32_x32_sme", (40, 9, 3), 64 * (27 * 4 + 4)),
        (f"{RUN}f32_f32p2vlx1_f32p2vlx1biasf32_sme2_mopa", (33, 40, 10), None),
        ("kai_run_lhs_quant_pack_qai8dxp_f32", (5, 33), None),
    ],
)
def test_packed_bytes_are_of_whole_panels(
    name: str, sizes: tuple[int, ...], count: int | None
) -> None:
    assert packed_bytes(name, sizes, 512) == count


def test_every_chunk_is_rounded_up() -> None:
    chunks = "kai_run_lhs_imatmul_pack_x8p2vlx4_x8p_sme"
    assert packed_depth(chunks, (7, 9, 5)) == 9 * 8
    assert packed_depth(chunks, (7, 9, 8)) == 9 * 8
    assert packed_depth("kai_run_lhs_pack_f32p2vlx1_f32_sme", (33, 10, 32)) == 10


@pytest.mark.parametrize(
    ("name", "sizes", "multiplies"),
    [
        (f"{RUN}f32_f32p2vlx1_f32p2vlx1b_2vlx2vl_sme2_mopa", "m n k", True),
        ("kai_run_imatmul_clamp_f32_f32p2vlx1_f32p2vlx1b_2vlx2vl_sme2_mopa",
         "m n k_chunk_count k_chunk_length", True),
        ("kai_run_lhs_imatmul_pack_x8p2vlx4_x8p_sme", "m k_chunk_count k_chunk_length", False),
        ("kai_run_rhs_pack_nxk_x16p2vlx2b_x16_x16_sme", "groups n k", False),
        ("kai_run_dwconv_clamp_f32_f32_f32p1vlx1b_3x3_s1_4xc_sme2_mla", "", False),
        ("xnn_f32_gemm_minmax_ukernel_6x8__neon", "m n k_bytes", False),
        ("xnn_f32_igemm_minmax_ukernel_6x8__neon", "m n k_bytes pointer_bytes", False),
    ],
)  # fmt: skip
def test_the_sizes_of_a_call_have_names(name: str, sizes: str, multiplies: bool) -> None:
    assert " ".join(size_arguments(name)) == sizes
    assert is_product(name) is multiplies


@pytest.mark.parametrize(
    ("name", "operation", "written", "read", "level"),
    [
        ("xnn_f32_gemm_minmax_ukernel_6x8__aarch64_neonfma_lane_ld128",
         "gemm_minmax", "f32", ("f32",), "neon"),
        ("xnn_qd8_f32_qc8w_igemm_minmax_ukernel_4x8c4__neondot",
         "igemm_minmax", "f32", ("qd8", "qc8w"), "dotprod"),
        ("xnn_qs8_qc8w_gemm_minmax_fp32_ukernel_4x16c8__neoni8mm",
         "gemm_minmax_fp32", "qs8", ("qs8", "qc8w"), "i8mm"),
        ("xnn_f16_to_f32_vcvt_ukernel__neonfp16_u16", "vcvt", "f32", ("f16",), "neon"),
        ("xnn_pf32_gemm_minmax_ukernel_32x32__neonsme2", "gemm_minmax", "pf32", ("pf32",), None),
        ("xnn_f32_vadd_ukernel__scalar_u8", "vadd", "f32", ("f32",), None),
    ],
)  # fmt: skip
def test_the_fields_of_xnnpacks_names_are_read(
    name: str, operation: str, written: str, read: tuple[str, ...], level: str | None
) -> None:
    kernel = parse_kernel_name(name)
    assert (kernel.operation, kernel.destination, kernel.inputs) == (operation, written, read)
    assert kernel.level == level


# ---- XNNPACK's labels


@pytest.mark.parametrize(
    ("label", "base", "types", "microkernel", "finer"),
    [
        ("Convolution (NHWC, F32) IGEMM #2", "Convolution", ("F32",), "IGEMM", "convolution"),
        ("Convolution (NHWC, F32) GEMM", "Convolution", ("F32",), "GEMM", "pointwise"),
        ("Convolution (NHWC, QS8, QC8W) DWConv #10", "Convolution", ("QS8", "QC8W"), "DWConv",
         "depthwise"),
        ("Fully Connected (NC, QP8, F32, QC4W) GEMM", "Fully Connected", ("QP8", "F32", "QC4W"),
         "GEMM", "linear"),
        ("Transpose (ND, X32) #1", "Transpose", ("X32",), None, "layout"),
        ("Softmax (NC)", "Softmax", (), None, "softmax"),
        ("Softmax NC, F32", "Softmax NC, F32", (), None, "unknown"),
    ],
)  # fmt: skip
def test_a_label_is_taken_apart(
    label: str, base: str, types: tuple[str, ...], microkernel: str | None, finer: str
) -> None:
    name = parse_label(label)
    assert (name.base, name.data_types, name.microkernel_type) == (base, types, microkernel)
    assert name.operator_class.finer == finer


@pytest.mark.parametrize(
    ("node", "ran"),
    [
        ("MaxPooling2d", "Max Pooling"), ("StaticTranspose", "Transpose"),
        ("FullyConnected", "Convolution"), ("Concatenate3", "Copy"), ("StaticReshape", "Copy"),
        ("GlobalAvgPooling2d", "Mean"), ("PReLU", "LeakyReLU"), ("Divide", "Div"), ("Sin", "Sine"),
    ],
)  # fmt: skip
def test_nodes_and_what_ran_are_of_one_kind(node: str, ran: str) -> None:
    assert canonical_kind(node) == canonical_kind(ran)


def test_a_node_that_is_no_product_is_known_by_its_kind() -> None:
    assert name_node("StaticTranspose").operator_class.finer == "layout"
    assert name_node("StaticTranspose").data_types == ()
    assert not name_node("ScaledDotProductAttention").is_known


# ---- precisions, parts and exclusions


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("8da4w_b32", None), ("8da4w_b96", None), ("8da4w_b99968", None),
        ("8da4w_b48", "multiples of 32"), ("8da4w_b31", "multiples of 32"),
        ("8da4w_b0", "unknown"), ("8da4w_b032", "unknown"), ("8da4w_b100000", "unknown"),
    ],
)  # fmt: skip
def test_blocks_are_whole_multiples_of_32(name: str, problem: str | None) -> None:
    if problem is not None:
        with pytest.raises(UsageError, match=problem):
            parse_precision(name)
        return
    scheme = parse_precision(name).quantization
    assert scheme is not None
    assert scheme.block_size == int(name.removeprefix("8da4w_b"))
    assert (scheme.method, scheme.weight_bits, scheme.activation_bits) == ("torchao", 4, 8)
    assert (scheme.activations, scheme.rewrites) == ("dynamic", ())


PRECISION_FACTS = {
    "fp32": ("float32", None), "fp16": ("float16", None), "bf16": ("bfloat16", None),
    "int8": ("float32", ("pt2e", 8, "per_channel", "static")),
    "int8_per_tensor": ("float32", ("pt2e", 8, "per_tensor", "static")),
    "int8_dynamic": ("float32", ("pt2e", 8, "per_channel", "dynamic")),
    "8da4w": ("float32", ("torchao", 4, "per_channel", "dynamic")),
    "8da4w_channel": ("float32", ("torchao", 4, "per_channel", "dynamic")),
}  # fmt: skip


@pytest.mark.parametrize("name", PRECISION_FACTS)
def test_a_precision_is_what_its_name_says(name: str) -> None:
    precision = parse_precision(name)
    scheme = precision.quantization
    facts = scheme and (
        scheme.method, scheme.weight_bits, scheme.weight_granularity, scheme.activations,
    )  # fmt: skip
    assert (precision.float_dtype, facts) == PRECISION_FACTS[name]
    assert scheme is None or (scheme.block_size, scheme.activation_bits) == (None, 8)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("toy", ("toy", None)), ("toy:int8", ("toy", "int8")), ("a.py:Net", ("a.py:Net", None)),
        ("a.py:Net:fp32", ("a.py:Net", "fp32")), (":fp32", (":fp32", None)),
        ("a:fp32.pte", ("a:fp32.pte", None)), ("timm:vit:8da4w_b64", ("timm:vit", "8da4w_b64")),
    ],
)  # fmt: skip
def test_a_precision_stands_after_the_last_colon(name: str, parts: tuple[str, str | None]) -> None:
    assert split_precision(name) == parts


PATTERN = "e" * 195


@pytest.mark.parametrize("letters", [200, 201])
def test_a_part_has_at_most_200_letters(letters: int) -> None:
    """Both flags take modules, and refuse what nobody writes."""
    texts = (f"{PATTERN[: letters - 5]}=fp32", f"r={'m' * (letters - 2)}")
    if letters == 200:
        assert str(scopes.parse_scopes(texts[:1])[0]) == texts[0]
        assert str(exclusions.parse_exclusions(texts[1:])[0]) == texts[1]
        return
    with pytest.raises(UsageError, match=r"^--scope 'e{195}.*in at most 200 characters$"):
        scopes.parse_scopes([f"e{texts[0]}"])
    with pytest.raises(UsageError, match=r"^--rewrite-except 'r=m{198}':.*most 200 characters$"):
        exclusions.parse_exclusions(texts[1:])


def test_a_thousand_parts_are_taken_and_one_more_is_not() -> None:
    assert len(scopes.parse_scopes(["a=fp32"] * 1000)) == 1000
    assert len(exclusions.parse_exclusions(["r=a"] * 1000)) == 1000
    with pytest.raises(UsageError, match="1001 are given; at most 1000 are taken"):
        scopes.parse_scopes(["a=fp32"] * 1001)
    with pytest.raises(UsageError, match="1001 are given; at most 1000 are taken"):
        exclusions.parse_exclusions(["r=a"] * 1001)


@pytest.mark.parametrize("text", ["r", "r=", "=a", " = a", "r= "])
def test_an_exclusion_names_a_rewrite_and_modules(text: str) -> None:
    with pytest.raises(UsageError, match="write REWRITE=MODULE"):
        exclusions.parse_exclusions([text])


def test_a_rewrite_spares_the_modules_of_its_own_exclusions() -> None:
    rules = exclusions.parse_exclusions(["r = a.*", "s=b"])
    assert [(rule.rewrite, rule.pattern) for rule in rules] == [("r", "a.*"), ("s", "b")]
    spared = [
        (rewrite, path)
        for rewrite in ("r", "s")
        for path in ("a", "a.c", "a.c.d", "b", "b.c", "c.b")
        if exclusions.is_excluded(rules, rewrite, path)
    ]
    assert spared == [("r", "a.c"), ("r", "a.c.d"), ("s", "b"), ("s", "b.c")]


def test_a_glob_without_modules_is_answered_with_three_of_them() -> None:
    paths = ("", "first", "second", "third", "fourth")
    with pytest.raises(UsageError, match=r"^--x 'zz\*': .* but first, second, third, …$"):
        scopes.check_module("--x 'zz*'", "zz*", paths)
    scopes.check_module("--x '*'", "*", paths)


@pytest.mark.parametrize(
    ("precision", "scope", "problem"),
    [
        ("fp16", "a=fp32", None),
        ("fp16", "a=bf16", None),
        ("int8", "a=fp32", None),
        ("int8", "a=int8_dynamic", None),
        ("int8", "type:add=fp32", None),
        ("8da4w", "a=8da4w_b32", None),
        ("int8", "a=fp16", "choose from fp32, int8, int8_per_tensor, int8_dynamic$"),
        ("int8", "a=8da4w", "choose from fp32, int8, int8_per_tensor, int8_dynamic$"),
        ("8da4w", "a=8da4w_channel", "choose from fp32, 8da4w$"),
        ("fp16", "a=int8", "an export in fp16 has no integers"),
        ("fp16", "type:add=fp32", "types of operators are for quantised exports; fp16 is cast"),
    ],
)
def test_precisions_mix_with_their_own_kind_and_fp32(
    precision: str, scope: str, problem: str | None
) -> None:
    request = ExportRequest("toy_cnn", precision, options=ExportOptions(scopes=(scope,)))
    if problem is None:
        assert "_mixed-" in request.files().pte.name
    else:
        with pytest.raises(UsageError, match=problem):
            request.files()


# ---- names of files


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (ExportOptions(), ""),
        (ExportOptions(rewrites=("all",)), "_rewritten"),
        (ExportOptions(rewrites=("plain_views",)), "_plain_views"),
        # The first letters of the SHA-256 of "a,b", of "a,a=x", and of "a=fp32".
        (ExportOptions(rewrites=("b", "a")), "_rewritten-1eb7c54d"),
        (ExportOptions(rewrites=("a",), rewrite_exclusions=("a=x",)), "_rewritten-b0112c40"),
        (ExportOptions(scopes=("a=fp32",)), "_mixed-17fcce6a"),
    ],
)
def test_programs_with_other_rewrites_have_other_names(options: ExportOptions, kind: str) -> None:
    name = ExportRequest("toy_cnn", "fp16", options=options).files().pte.name
    assert name == f"toy_cnn_xnnpack_fp16{kind}.pte"


def test_the_order_of_rewrites_names_no_other_program() -> None:
    def name(*rewrites: str, spared: tuple[str, ...] = ()) -> str:
        options = ExportOptions(rewrites=rewrites, rewrite_exclusions=spared)
        return ExportRequest("toy_cnn", options=options).files().pte.name

    assert name("a", "b") == name("b", "a") != name("a", "c")
    assert name("a", spared=("a=x", "a=y")) == name("a", spared=("a=y", "a=x"))
    assert name("a", spared=("a=x",)) != name("a")


def test_a_program_has_eleven_companions(tmp_path: Path) -> None:
    files = ExportedFiles(tmp_path / "net_x.pte")
    assert [path.name.removeprefix("net_x") for path in files.every()] == [
        ".pte", ".ptd", ".bpte", ".pte.etrecord", ".pte.json", ".pte.delegation.json",
        ".pte.graph.txt", ".pte.stages.trace.json", ".pte.stages.html", ".pte.memory.trace.json",
        ".pte.log", ".pte.data",
    ]  # fmt: skip
    assert {path.parent for path in files.every()} == {tmp_path}
    (tmp_path / "net_x.pte.json").touch()
    assert files.written() == [files.manifest]


def test_a_source_is_known_by_the_whole_path_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert identify_source("timm:vit") == "timm:vit"
    assert identify_source("a/net.pt2") == f"{tmp_path}/a/net.pt2:net"
    assert identify_source("a/net.py:Net") == f"{tmp_path}/a/net.py:Net"
    assert identify_source("net.py") == f"{tmp_path}/net.py:net"


def test_files_go_to_the_folder_that_is_asked_for() -> None:
    paths = [
        ExportRequest("toy_cnn", "fp32", "portable", outdir=Path("x")).files().pte,
        ExportRequest("toy_cnn", "fp32", out=Path("y/z.pte")).files().pte,
    ]
    assert paths == [Path("x/toy_cnn_portable_fp32.pte"), Path("y/z.pte")]


def test_thresholds_of_the_command_line_replace_the_usual() -> None:
    usual = ExportRequest("m", "fp16").floors().model_dump()
    name = next(key for key, value in usual.items() if isinstance(value, float))
    moved = ExportRequest("m", "fp16", minimums={name: 12.5}).floors().model_dump()
    assert moved == {**usual, name: 12.5}


def test_a_manifest_has_lists_and_no_checkpoint() -> None:
    document = ExportOptions(weights=Path("w.pth"), rewrites=("a", "b"), scopes=()).document()
    assert (document["weights"], document["rewrites"], document["scopes"]) == (None, ["a", "b"], [])
    assert (document["memory_planning"], document["embeddings"]) == ("greedy", None)
    flags = {name for name, value in document.items() if value is True}
    assert flags == set()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (ExportOptions(embeddings="int2_b32"), None),
        (ExportOptions(embeddings="int3"), "--embeddings 'int3' is unknown"),
        (ExportOptions(bundle=True), None),
        (ExportOptions(channels_last=True), None),
        (ExportOptions(operators=("linear",)), "need backend xnnpack, not portable"),
        (ExportOptions(config_precisions=("fp32",)), "need backend xnnpack, not portable"),
        (ExportOptions(rewrites=("all",), rewrite_exclusions=("a=x",)), None),
        (ExportOptions(rewrites=("b",), rewrite_exclusions=("a=x",)), "does not ask for a;"),
    ],
)
def test_options_without_sense_are_refused(options: ExportOptions, problem: str | None) -> None:
    if problem is None or "not portable" in problem:
        options.check("xnnpack")
    if problem is None:
        options.check("portable")
        return
    with pytest.raises(UsageError, match=problem):
        options.check("portable")


# ---- language models


def llm_plan(folder: Path) -> Any:  # noqa: ANN401 - as much of a plan as is read
    return SimpleNamespace(
        request=SimpleNamespace(config="c.yaml"),
        files=ExportedFiles(folder / "m.pte"),
    )


@pytest.mark.parametrize(
    ("code", "log", "stderr", "text"),
    [
        (1, "start\nValueError: bad value\nbye\n", "",
         "failed with exit code 1: ValueError: bad value; change the setting"),
        (1, "start\nthe end\n\n", "", "failed with exit code 1: the end; change the setting"),
        (2, "", "no shell\n", "failed with exit code 2: no shell; change"),
        (0, "", "", "ended without a program: it said nothing; change"),
        (-9, "busy\n", "", "was ended by signal 9: busy; the system may have lacked memory"),
        (-11, "busy\n", "", "was ended by signal 11: busy; change the setting"),
        (1, "builtins.ModuleNotFoundError: No module named 'x'\n", "",
         "failed with exit code 1: builtins.ModuleNotFoundError: No module named 'x'; install"),
        (1, "RuntimeError: size mismatch for w\nValueErrors are no errors\n", "",
         "size mismatch for w; base.checkpoint is of another network than base.params"),
        (1, "GLOBAL os.system was refused\nUnpicklingError: Weights only load failed. Do load\n", "",
         "Weights only load failed, for the file's pickle names os.system; base.checkpoint, or"),
    ],
)  # fmt: skip
def test_a_failed_export_is_told_by_its_last_error(
    tmp_path: Path, code: int, log: str, stderr: str, text: str
) -> None:
    file = tmp_path / "log"
    file.write_text(log)
    done = Completed((), code, "", stderr)
    message = exporting._failure(llm_plan(tmp_path), done, file)
    assert message.startswith("ExecuTorch's export of c.yaml ")
    assert text in message
    assert message.endswith(f"; all that it said is in {tmp_path}/m.pte.log")


def test_of_a_long_log_the_last_64_kib_are_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("first\n" + "x" * (2**16 - 6) + "\nlast\n")
    assert exporting._last_lines(log) == ["x" * (2**16 - 6), "last"]
    assert exporting._last_lines(tmp_path / "none") == []


def test_methods_that_compute_nothing_are_constants() -> None:
    def method(name: str, instructions: int, *values: object) -> SimpleNamespace:
        return SimpleNamespace(
            name=name, chains=[SimpleNamespace(instructions=[0] * instructions)],
            values=[SimpleNamespace(val=value) for value in values],
            outputs=[*range(len(values))],
            operators=[SimpleNamespace(name=f"llama::{name}"), SimpleNamespace(name="aten::add")],
        )  # fmt: skip

    content = SimpleNamespace(
        program=SimpleNamespace(
            execution_plan=[
                method("get_n", 0, SimpleNamespace(int_val=7)),
                method("forward", 2, SimpleNamespace(int_val=1)),
                method("eos", 0, SimpleNamespace(int_val=2), SimpleNamespace(string_val="b")),
                method("none", 0, SimpleNamespace(items=())),
            ]
        )
    )
    names, constants = exporting._split_methods(content)
    assert names == ["forward"]
    assert constants == {"get_n": 7, "eos": [2, "b"], "none": None}
    assert exporting._llama_operators(content) == [
        "llama::eos", "llama::forward", "llama::get_n", "llama::none",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-5", 1e-5), ("3", 3.0), (".5", 0.5)],
)
def test_a_number_is_read_as_it_is_meant(text: str, value: float) -> None:
    """YAML 1.1 takes 1e-5 for text."""
    node = yaml.compose(text, Loader=yaml.SafeLoader)
    assert schema._YamlReader(Path("c.yaml")).read(node, float, ("a",)) == value


@pytest.mark.parametrize("depth", [20, 21])
def test_values_are_nested_twenty_deep_at_most(depth: int) -> None:
    node = yaml.compose("1", Loader=yaml.SafeLoader)
    reader = schema._YamlReader(Path("c.yaml"))
    if depth == 20:
        assert reader.read(node, int | None, ("a",) * depth) == 1
        return
    with pytest.raises(UsageError, match=r"^c\.yaml: line 1: a\..*: is nested too deeply$"):
        reader.read(node, int, ("a",) * depth)


def test_paths_are_replaced_where_they_stand_in_lists() -> None:
    document = {"a": ["x", "y"], "b": {"c": "z", "d": []}, "e": 3}
    paths = {"a.1": Path("/y"), "b.c": Path("/z")}
    assert schema._replace_paths(document, (), paths) == {
        "a": ["x", "/y"], "b": {"c": "/z", "d": []}, "e": 3,
    }  # fmt: skip
