"""Takes microkernel names of KleidiAI and XNNPACK apart.

KleidiAI's grammar: docs/microkernel_names.md of ARM-software/kleidiai, plus the older names that it
lists as exceptions (no engine, `biasf32`, three-part tiles). XNNPACK's: doc/microkernel-naming.md
of google/XNNPACK. This module imports nothing of ours, because the native build uses it too, to
describe the microkernels it counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple

PREFIX: Final = "kai_run_"
LEVELS: Final = ("sme2", "sme", "i8mm", "dotprod", "neon")
"""One word each for how fast a path it is, the fastest first."""
SME_LEVELS: Final = frozenset(LEVELS[:2])
XNNPACK_PREFIX: Final = "xnn_"
_ENGINES: Final = ("neon", "sve", "sve2", "sve2p1", "sme", "sme1", "qmx", "sme2", "sme2p1")
_LEVEL_OF_ENGINE: Final = {"sme1": "sme", "qmx": "sme", "sme2p1": "sme2"}
"""Newer spellings: KleidiAI writes `sme1` where it has a kernel for SME2 too, and `qmx` where it is
tuned for Qualcomm's cores, whose unit has SME and not SME2 (github.com/qualcomm/kleidiai)."""
_SIZE = r"(?:\d+(?:vl|vs)?|mr|nr)"
_TILE: Final = re.compile(rf"{_SIZE}x{_SIZE}(?:x\d+)?|\d+xc")
_FILTER: Final = re.compile(r"\d+x\d+|(?:s\d+)+")
"""Filter and stride, as `3x3_s1`, which stand before the tile of a depthwise convolution."""
_TILE_SIDE: Final = re.compile(r"(?P<count>\d+)(?P<unit>vl|vs)?")
_SIDES: Final = 2
_ACCUMULATOR_BITS: Final = 32
_UNIT_BITS: Final = {"vl": _ACCUMULATOR_BITS, "vs": 128}
"""Of the vector, for each row or column: `vl` counts accumulators, `vs` the architecture's vscale."""
_WIDTHS: Final = {"1x16vl": "1x4vl", "1x8vl": "1x2vl"}
"""Products of one row take up to four groups of columns in turn, and no more groups than there are:
`Width 1` to `Width 4` of kai/ukernels/matmul/matmul_clamp_*/*_1x16vl_*_asm.S and *_1x8vl_*_asm.S."""
_PANEL: Final = re.compile(r"p(?:sb)?(?P<count>\d+)(?P<unit>vl|vs)x\d+")
"""Rows of the left side or columns of the right one that stand together in a packed buffer."""
_PANEL_DEPTH: Final = re.compile(r"p(?:sb)?\d+(?:vl|vs)?x(\d+)")
"""Elements of k that stand together in such a buffer: it is padded to a multiple of them."""
_BUFFER: Final = re.compile(
    r"(?P<type>(?:q[as]?[isu]{0,2}|[fixsu]|bf)\d+(?:cx|dx|c32|d32)?)"
    r"(?P<packing>p.*|s\d+s\d+|k\d+.*)?"
)
# `xx` is data of any type: what copies, fills, pads and transposes elements of a size in bytes.
_XNNPACK_TYPE: Final = re.compile(r"(?:b?f|[sux]|p[a-z]*|q[a-z]*)\d+w?|xx")
# Data that KleidiAI has packed, or packs: these only call a microkernel of KleidiAI's.
_XNNPACK_CALLS_KLEIDIAI: Final = re.compile(r"xnn_(?:p\w*?\d|qp8_|x\d+_pack_lh_).*")
# What a microkernel's first arguments are, where they are sizes; by pattern, the first that fits.
_SIZES: Final = (
    (r"kai_run_\w*dwconv\w*", ()),
    (r"kai_run_lhs_imatmul_pack_\w+", ("m", "k_chunk_count", "k_chunk_length")),
    (r"kai_run_rhs_imatmul_pack_\w+", ("n", "k_chunk_count", "k_chunk_length")),
    (r"kai_run_imatmul_\w+", ("m", "n", "k_chunk_count", "k_chunk_length")),
    (r"kai_run_matmul_\w+", ("m", "n", "k")),
    (r"kai_run_lhs_\w*pack_\w+", ("m", "k", "mr")),
    (r"kai_run_rhs_\w*pack_\w+", ("groups", "n", "k")),
    (r"xnn_\w+_gemm_\w*ukernel_\w+", ("m", "n", "k_bytes")),
    (r"xnn_\w+_igemm_\w*ukernel_\w+", ("m", "n", "k_bytes", "pointer_bytes")),
)
_XNNPACK_FEATURES: Final = {"dot": "dotprod", "i8mm": "i8mm", "fp16arith": "fp16", "fma": "fma"}


@dataclass(frozen=True, kw_only=True)
class KernelName:
    """A microkernel's name and what its parts say; None where the name does not say it."""

    name: str
    operation: str
    """Such as `matmul_clamp`, `lhs_pack` or `rhs_imatmul_pack_kxn`."""
    destination: str | None
    """Data type of what it writes, without its packing, such as `f32`."""
    inputs: tuple[str, ...]
    """Data types of what it reads, left before right."""
    engine: str | None
    """Instruction set: `neon`, `sve…`, `sme`, `sme1`, `qmx`, `sme2…`."""
    instruction: str | None
    """The feature that sets it apart, such as `mopa`, `dot`, `dotprod` or `i8mm`."""
    tile: str | None
    """Rows and columns that a product computes at once, such as `2vlx2vl` or `8x4`; a depthwise
    convolution's, such as `4xc`, is rows of any number of channels."""

    @property
    def level(self) -> str | None:
        """One of `LEVELS`, or another engine; None where the name says none."""
        if self.engine == "neon" and self.instruction in {"dotprod", "i8mm"}:
            return self.instruction
        return _LEVEL_OF_ENGINE.get(self.engine or "", self.engine)

    @property
    def is_packing(self) -> bool:
        """Whether it rearranges data for another microkernel instead of computing a result."""
        return any(field.startswith("pack") for field in self.operation.split("_"))


def parse_kernel_name(name: str) -> KernelName:
    """Reads a symbol such as `kai_run_lhs_pack_f32p2vlx1_f32_sme`; never fails."""
    if name.startswith(XNNPACK_PREFIX):
        return _parse_xnnpack_name(name)
    fields = name.removeprefix(PREFIX).split("_")
    first_buffer = _count_while(fields, lambda field: _BUFFER.fullmatch(field) is None)
    operation, after_operation = fields[:first_buffer], fields[first_buffer:]
    buffer_count = _count_while(after_operation, lambda field: _BUFFER.fullmatch(field) is not None)
    types = [_data_type(field) for field in after_operation[:buffer_count]]
    tail = after_operation[buffer_count:]
    tile = _tile(after_operation[1:buffer_count])
    if "dwconv" in operation:
        tail = tail[_count_while(tail, lambda field: _FILTER.fullmatch(field) is not None) :]
    if tail and _TILE.fullmatch(tail[0]):
        tile = "x".join(tail.pop(0).split("x")[:2])
    engine = tail.pop(0) if tail and tail[0] in _ENGINES else None
    return KernelName(
        name=name,
        operation="_".join(operation),
        destination=types[0] if types else None,
        inputs=tuple(types[1:]),
        engine=engine,
        instruction="_".join(tail) or None,
        tile=tile,
    )


def is_packing_function(name: str) -> bool:
    """Whether a function of KleidiAI rearranges data: a microkernel of packing, or its inner part."""
    return re.match(r"kai_(?:run|kernel)_(?:lhs|rhs)_", name) is not None


def size_arguments(name: str) -> tuple[str, ...]:
    """Names the sizes with which a microkernel's arguments begin; none where it has none."""
    return next((names for pattern, names in _SIZES if re.fullmatch(pattern, name)), ())


def is_product(name: str) -> bool:
    """Whether the product of its sizes is the number of multiply-adds of a call."""
    return size_arguments(name) in {("m", "n", "k"), ("m", "n", "k_chunk_count", "k_chunk_length")}


class _PackedFormat(NamedTuple):
    """How KleidiAI packs both sides of a product, by the type of the left one."""

    bits: int
    """Of an element as it is multiplied."""
    row_bytes: int
    """Beside the elements of a row of the left side: its scale and zero point."""
    column_bytes: int
    """Beside the elements of a column of the right side: bias, and for integers sum and scale."""
    depth: int
    """k is packed and computed in multiples of it."""


# kai_get_lhs_packed_size_… and kai_get_rhs_packed_stride_… of kai/ukernels/matmul/pack.
_FORMATS: Final = {
    "f32": _PackedFormat(32, 0, 4, 1),
    "f16": _PackedFormat(16, 0, 2, 2),
    "bf16": _PackedFormat(16, 0, 4, 2),
    "qai8": _PackedFormat(8, 0, 8, 4),
    "qai8dx": _PackedFormat(8, 8, 12, 32),
}
_FORMAT_OF_PACKING: Final = {"x32": "f32", "x16": "f16", "x8": "qai8", "qsi8cx": "qai8"}
_OUTPUT_BYTES: Final = {"f32": 4, "f16": 2, "qai8": 1}


@dataclass(frozen=True)
class ProductTile:
    """What an SME product computes at once, and what it reads for that; sizes in elements."""

    rows: int
    columns: int
    step: int
    """Products that a step sums into each element: as many as a 32-bit accumulator has inputs."""
    depth: int
    """k is computed in multiples of it."""
    packs_left: bool
    """Whether it reads a packed left side."""
    panel: int
    """Columns that stand together in the packed right side."""
    right_bits: int
    """Of an element there."""
    column_bytes: int
    """Beside the elements of a column there."""
    output_bytes: int
    """Of an element of the output."""


def tile_of(name: str, svl_bits: int | None) -> ProductTile | None:
    """Returns what an SME product computes at once; None for others, and for unknown lengths.

    `vl` counts 32-bit accumulators: kai_get_m_step_… and kai_get_n_step_… of KleidiAI's SME
    microkernels (kai/ukernels/matmul/matmul_clamp_*). They compute every element of a tile and of
    the packed depth, wanted or not: their outer and dot products are under no narrower predicate.
    """
    parsed = parse_kernel_name(name)
    written = (parsed.tile if is_product(name) and parsed.level in SME_LEVELS else None) or ""
    sides = [_TILE_SIDE.fullmatch(side) for side in _WIDTHS.get(written, written).split("x")]
    extents = [_extent(side, svl_bits) for side in sides if side]
    form, panels = _FORMATS.get(next(iter(parsed.inputs), "")), list(_PANEL.finditer(name))
    output_bytes = _OUTPUT_BYTES.get(parsed.destination or "")
    if len(extents) != _SIDES or not all(extents) or not (form and panels and output_bytes):
        return None
    right_bits = 4 if parsed.inputs[-1].startswith("qsi4") else form.bits
    return ProductTile(
        rows=extents[0], columns=extents[1], step=_ACCUMULATOR_BITS // form.bits, depth=form.depth,
        packs_left=extents[0] > 1 or bool(form.row_bytes), panel=_extent(panels[-1], svl_bits), right_bits=right_bits, column_bytes=form.column_bytes,
        output_bytes=output_bytes,
    )  # fmt: skip


def packed_bytes(name: str, sizes: tuple[int, ...], svl_bits: int | None) -> int | None:
    """Returns what a packing microkernel writes when it is given `sizes`, padding included.

    None for others, and where neither name nor sizes say how many rows or columns stand together.
    """
    parsed = parse_kernel_name(name)
    of = dict(zip(size_arguments(name), sizes, strict=False))
    kind = parsed.destination or ""
    form = _FORMATS.get(_FORMAT_OF_PACKING.get(kind, kind)) if parsed.is_packing and of else None
    panels = list(_PANEL.finditer(name))
    panel = _extent(panels[-1], svl_bits) if panels else of.get("mr", 0)
    if form is None or not panel:
        return None
    is_left = "m" in of
    count = round_up(of["m"] if is_left else of["n"], panel) * of.get("groups", 1)
    extra_bytes = form.row_bytes if is_left else form.column_bytes
    return count * (packed_depth(name, sizes) * form.bits // 8 + extra_bytes)


def _extent(match: re.Match[str], svl_bits: int | None) -> int:
    """Rows or columns of a side of a tile or panel; 0 where it scales with an unknown vector."""
    bits = _UNIT_BITS.get(match["unit"] or "")
    return int(match["count"]) * ((svl_bits or 0) // bits if bits else 1)


def packed_depth(name: str, sizes: tuple[int, ...]) -> int:
    """Returns the k that a packing microkernel makes of its sizes: each chunk is rounded up."""
    of = dict(zip(size_arguments(name), sizes, strict=False))
    kind = parse_kernel_name(name).destination or ""
    form = _FORMATS.get(_FORMAT_OF_PACKING.get(kind, kind))
    depth = max([form.depth, *map(int, _PANEL_DEPTH.findall(name))]) if form else 1
    return of.get("k_chunk_count", 1) * round_up(of.get("k", of.get("k_chunk_length", 0)), depth)


def round_up(value: int, multiple: int) -> int:
    """Returns the least multiple that is at least `value`."""
    return -(-value // multiple) * multiple


def _tile(buffers: list[str]) -> str | None:
    """The tile of packed inputs, for older names without it: `f32p2vlx1` makes `2vl` of a side."""
    sides = [re.search(r"p(\d+v[ls])x", buffer) for buffer in buffers]
    return (
        "x".join(side[1] for side in sides if side) if len(sides) == _SIDES and all(sides) else None
    )


def _parse_xnnpack_name(name: str) -> KernelName:
    """Reads a symbol such as `xnn_f32_gemm_minmax_ukernel_6x8__aarch64_neonfma_lane_ld128`."""
    kind, _, variant = name.removeprefix(XNNPACK_PREFIX).partition("__")
    before = kind.partition("_ukernel")[0]
    fields = [field for field in before.split("_") if field != "to"]
    type_count = _count_while(fields, lambda field: _XNNPACK_TYPE.fullmatch(field) is not None)
    types = fields[:type_count]
    weights = tuple(field for field in types[1:] if field.endswith("w"))
    results = [field for field in types[1:] if not field.endswith("w")]
    engine, feature = _xnnpack_engine(variant)
    if _XNNPACK_CALLS_KLEIDIAI.fullmatch(name):
        engine = feature = None
    return KernelName(
        name=name,
        operation="_".join(fields[type_count:]),
        destination=next(iter(results or types), None),
        inputs=(*types[:1], *weights),
        engine=engine,
        instruction=feature,
        tile=None,
    )


def _xnnpack_engine(variant: str) -> tuple[str | None, str | None]:
    """The instruction set and feature in `asm_aarch64_neonfma_cortex_a55`; None where not NEON."""
    neon = next((field for field in variant.split("_") if field.startswith("neon")), None)
    if neon is None:
        return None, None
    suffix = neon.removeprefix("neon")
    return "neon", next((_XNNPACK_FEATURES[f] for f in _XNNPACK_FEATURES if f in suffix), None)


def _count_while(fields: list[str], holds: Callable[[str], bool]) -> int:
    """Number of leading words for which `holds`."""
    return next((i for i, field in enumerate(fields) if not holds(field)), len(fields))


def _data_type(field: str) -> str:
    """Strips the packing from a buffer's description: `qsi4cxp4vlx4` is `qsi4cx`."""
    match = _BUFFER.fullmatch(field)
    return match["type"] if match else field
