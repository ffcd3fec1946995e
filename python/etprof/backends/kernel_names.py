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
from typing import Final

PREFIX: Final = "kai_run_"
LEVELS: Final = ("sme2", "sme", "i8mm", "dotprod", "neon")
"""One word each for how fast a path it is, the fastest first."""
SME_LEVELS: Final = frozenset(LEVELS[:2])
XNNPACK_PREFIX: Final = "xnn_"
_ENGINES: Final = ("neon", "sve", "sve2", "sve2p1", "sme", "sme2", "sme2p1")
_SIZE = r"(?:\d+(?:vl|vs)?|mr|nr)"
_TILE: Final = re.compile(rf"{_SIZE}x{_SIZE}(?:x\d+)?")
_TILE_SIDE: Final = re.compile(r"(?P<count>\d+)(?P<scaled>vl)?")
_SIDES: Final = 2
_ACCUMULATOR_BITS: Final = 32
_BUFFER: Final = re.compile(
    r"(?P<type>(?:q[as]?[isu]{0,2}|[fixsu]|bf)\d+(?:cx|dx|c32|d32)?)"
    r"(?P<packing>p.*|s\d+s0|k\d+.*)?"
)
_XNNPACK_TYPE: Final = re.compile(r"(?:b?f|[sux]|p[a-z]*|q[a-z]*)\d+w?")
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
    """Instruction set: `neon`, `sve…`, `sme`, `sme2…`."""
    instruction: str | None
    """The feature that sets it apart, such as `mopa`, `dot`, `dotprod` or `i8mm`."""
    tile: str | None
    """Rows and columns that a product computes at once, such as `2vlx2vl` or `8x4`."""

    @property
    def level(self) -> str | None:
        """One of `LEVELS`, or another engine; None where the name says none."""
        if self.engine == "neon" and self.instruction in {"dotprod", "i8mm"}:
            return self.instruction
        return "sme2" if self.engine == "sme2p1" else self.engine

    @property
    def is_packing(self) -> bool:
        """Whether it rearranges data for another microkernel instead of computing a result."""
        return any(word.startswith("pack") for word in self.operation.split("_"))


def parse_kernel_name(name: str) -> KernelName:
    """Reads a symbol such as `kai_run_lhs_pack_f32p2vlx1_f32_sme`; never fails."""
    if name.startswith(XNNPACK_PREFIX):
        return _parse_xnnpack_name(name)
    words = name.removeprefix(PREFIX).split("_")
    first_buffer = _count_while(words, lambda word: _BUFFER.fullmatch(word) is None)
    operation, rest = words[:first_buffer], words[first_buffer:]
    buffer_count = _count_while(rest, lambda word: _BUFFER.fullmatch(word) is not None)
    types = [_data_type(word) for word in rest[:buffer_count]]
    tail = rest[buffer_count:]
    tile = _tile(rest[1:buffer_count])
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


def size_arguments(name: str) -> tuple[str, ...]:
    """Names the sizes with which a microkernel's arguments begin; none where it has none."""
    return next((names for pattern, names in _SIZES if re.fullmatch(pattern, name)), ())


def is_product(name: str) -> bool:
    """Whether the product of its sizes is the number of multiply-adds of a call."""
    return size_arguments(name) in {("m", "n", "k"), ("m", "n", "k_chunk_count", "k_chunk_length")}


def tile_of(name: str, svl_bits: int | None) -> tuple[int, int] | None:
    """Rows and columns that a product computes at once; None where its name does not say it.

    `vl` counts 32-bit accumulators: kai_get_m_step_… and kai_get_n_step_… of KleidiAI's SME
    microkernels (kai/ukernels/matmul/matmul_clamp_*).
    """
    tile = parse_kernel_name(name).tile if is_product(name) else None
    sizes = [_TILE_SIDE.fullmatch(side) for side in tile.split("x")] if tile else []
    found = [
        int(side["count"]) * ((svl_bits or 0) // _ACCUMULATOR_BITS if side["scaled"] else 1)
        for side in sizes
        if side
    ]
    return (found[0], found[1]) if len(found) == _SIDES and all(found) else None


def _tile(buffers: list[str]) -> str | None:
    """The tile of packed inputs, for older names without it: `f32p2vlx1` makes `2vl` of a side."""
    sides = [re.search(r"p(\d+vl)x", each) for each in buffers]
    return (
        "x".join(side[1] for side in sides if side) if len(sides) == _SIDES and all(sides) else None
    )


def _parse_xnnpack_name(name: str) -> KernelName:
    """Reads a symbol such as `xnn_f32_gemm_minmax_ukernel_6x8__aarch64_neonfma_lane_ld128`."""
    what, _, how = name.removeprefix(XNNPACK_PREFIX).partition("__")
    before = what.partition("_ukernel")[0]
    words = [word for word in before.split("_") if word != "to"]
    type_count = _count_while(words, lambda word: _XNNPACK_TYPE.fullmatch(word) is not None)
    types = words[:type_count]
    weights = tuple(word for word in types[1:] if word.endswith("w"))
    results = [word for word in types[1:] if not word.endswith("w")]
    engine, feature = _xnnpack_engine(how)
    if _XNNPACK_CALLS_KLEIDIAI.fullmatch(name):
        engine = feature = None
    return KernelName(
        name=name,
        operation="_".join(words[type_count:]),
        destination=next(iter(results or types), None),
        inputs=(*types[:1], *weights),
        engine=engine,
        instruction=feature,
        tile=None,
    )


def _xnnpack_engine(how: str) -> tuple[str | None, str | None]:
    """The instruction set and feature in `asm_aarch64_neonfma_cortex_a55`; None where not NEON."""
    neon = next((word for word in how.split("_") if word.startswith("neon")), None)
    if neon is None:
        return None, None
    rest = neon.removeprefix("neon")
    return "neon", next((_XNNPACK_FEATURES[f] for f in _XNNPACK_FEATURES if f in rest), None)


def _count_while(words: list[str], holds: Callable[[str], bool]) -> int:
    """Number of leading words for which `holds`."""
    return next((i for i, word in enumerate(words) if not holds(word)), len(words))


def _data_type(word: str) -> str:
    """Strips the packing from a buffer's description: `qsi4cxp4vlx4` is `qsi4cx`."""
    match = _BUFFER.fullmatch(word)
    return match["type"] if match else word
