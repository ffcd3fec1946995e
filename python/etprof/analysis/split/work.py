"""What the products of a program ask of the machine: exact, from the sizes that calls were given.

A product computes whole tiles, whose rows and columns grow with the vector length, and a whole
packed depth: the rest is computed and thrown away, and a smaller tile needs more calls.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

from etprof.analysis.split.evidence import align_modes
from etprof.backends.kernel_names import (
    packed_bytes,
    packed_depth,
    round_up,
    size_arguments,
    tile_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from etprof.analysis.split.evidence import KernelUse, ModeEvidence, OperatorEvidence
    from etprof.backends.kernel_names import ProductTile

_LEFT: Final = "kai_run_lhs_"


@dataclass(frozen=True)
class ProductWork:
    """What products on SME do in one inference."""

    macs: int
    """Multiply-accumulates that the outputs need."""
    tile_padding: int
    """Those of the elements of tiles that stand out of the output."""
    k_padding: int
    """Those of what packing adds to k, for the elements of the output."""
    steps: int
    """Tiles, each by how often it takes a step along k: one for every 32 bits of a packed row."""
    left_bytes: int
    """Of packed left sides, as packing writes them; none where the product reads it unpacked."""
    right_bytes: int
    """Of packed right sides, as the products read them: whole panels, for each row of tiles."""
    output_bytes: int
    """Of the outputs."""

    @property
    def computed(self) -> int:
        """Multiply-accumulates that were done: what is needed, and both kinds of padding."""
        return self.macs + self.tile_padding + self.k_padding

    @property
    def padding(self) -> float:
        """Share of those done that nobody needs."""
        return 1 - self.macs / self.computed if self.computed else 0.0


@dataclass(frozen=True)
class TileUse:
    """The calls of one product by one operator in one mode."""

    mode: str
    svl_bits: int | None
    number: int
    """Of the operator among those of all modes, from 1."""
    operator: OperatorEvidence
    kernel: KernelUse
    tile: ProductTile
    longest: KernelUse
    """The same product's calls at the longest vector length that was counted."""

    @property
    def useful(self) -> int:
        """Elements of its outputs: m x n of every call."""
        return sum(calls * m * n for (m, n, *_), calls in self.kernel.by_sizes)

    @property
    def computed(self) -> int:
        """Elements of all tiles that its calls compute."""
        return self.tiles * self.tile.rows * self.tile.columns

    @property
    def tiles(self) -> int:
        """Tiles that its calls compute."""
        return sum(calls * self._tiles(m, n) for (m, n, *_), calls in self.kernel.by_sizes)

    @property
    def expected_calls(self) -> int:
        """Calls that the rows of the longest vector length's calls take in tiles of this one.

        A call has the rows of one tile at most. Shorter tiles divide longer ones, so that no call
        here has rows of two calls there. What else there is to calls: XNNPACK cuts columns by the
        size of the caches, too (xnn_gemm_best_tile_size in src/microkernel-utils.c).
        """
        return sum(calls * ceil(m / self.tile.rows) for (m, *_), calls in self.longest.by_sizes)

    @property
    def k_computed(self) -> int | None:
        """Products summed for an element, with what packing adds; None where calls differ."""
        return _only({self._whole(k) for (_, _, k), _ in self.kernel.by_sizes})

    @property
    def k(self) -> int | None:
        """Those that the left-hand side has, before packing pads them; None where calls differ."""
        return _only({self._needed(k) for (_, _, k), _ in self.kernel.by_sizes})

    @property
    def work(self) -> ProductWork:
        """What its calls do."""
        tile, sized = self.tile, self.kernel.by_sizes
        needed = sum(calls * m * n * self._needed(k) for (m, n, k), calls in sized)
        of_outputs = sum(calls * m * n * self._whole(k) for (m, n, k), calls in sized)
        steps = sum(c * self._tiles(m, n) * self._whole(k) // tile.step for (m, n, k), c in sized)
        return ProductWork(
            macs=needed,
            tile_padding=steps * tile.step * tile.rows * tile.columns - of_outputs,
            k_padding=of_outputs - needed,
            steps=steps,
            left_bytes=sum(
                packing_bytes(packing, self.svl_bits) or 0 for packing in self._packings
            ),
            right_bytes=sum(
                calls * ceil(m / tile.rows) * self._read_columns(n, k) for (m, n, k), calls in sized
            ),
            output_bytes=self.useful * tile.output_bytes,
        )

    @property
    def _packings(self) -> list[KernelUse]:
        """What packs its left side."""
        if not self.tile.packs_left:
            return []
        return [kernel for kernel in self.operator.kernels if kernel.name.startswith(_LEFT)]

    def _tiles(self, m: int, n: int) -> int:
        return ceil(m / self.tile.rows) * ceil(n / self.tile.columns)

    def _whole(self, k: int) -> int:
        return round_up(k, self.tile.depth)

    def _needed(self, k: int) -> int:
        """The k before packing: an indirect product is given what its packing made of it."""
        depths = {
            _depth(packing.name, sizes)
            for packing in self._packings
            for sizes, _ in packing.by_sizes
            if packed_depth(packing.name, sizes) == self._whole(k)
        }
        return _only(depths) or k

    def _read_columns(self, n: int, k: int) -> int:
        """Bytes of the packed right side for n columns."""
        tile = self.tile
        return round_up(n, tile.panel) * (self._whole(k) * tile.right_bits // 8 + tile.column_bytes)


def tile_uses(counted: Mapping[str, ModeEvidence]) -> Iterator[TileUse]:
    """Yields every SME product whose sizes are known, operator by operator, mode by mode."""
    for number, row in enumerate(align_modes(counted), start=1):
        longest_by_name: dict[str, KernelUse] = {}
        for mode, operator in row.by_mode.items():
            svl_bits = counted[mode].svl_bits
            for kernel in operator.compute_kernels if operator else ():
                tile = tile_of(kernel.name, svl_bits)
                if operator and tile and kernel.by_sizes:
                    longest_use = longest_by_name.setdefault(kernel.name, kernel)
                    yield TileUse(mode, svl_bits, number, operator, kernel, tile, longest_use)


def add_work(uses: Iterable[TileUse]) -> ProductWork | None:
    """Adds up what all of them do; None without any."""
    every = [astuple(use.work) for use in uses]
    return ProductWork(*map(sum, zip(*every, strict=True))) if every else None


def work_by_operator(counted: ModeEvidence) -> dict[str, tuple[int, ProductWork | None]]:
    """Calls of microkernels in one inference, and the work of products on SME, by operator.

    Those that call none are left out.
    """
    uses = list(tile_uses({counted.mode_in_force: counted}))
    return {
        name: (calls, add_work(use for use in uses if use.operator is operator))
        for name, operator in zip(unique_names(counted), counted.operators, strict=True)
        if (calls := sum(kernel.calls for kernel in operator.kernels))
    }


def unique_names(counted: ModeEvidence) -> list[str]:
    """Returns the operators' names; of equal ones, later have their place behind it, from 1."""
    names = dict[str, None]()
    for position, operator in enumerate(counted.operators, start=1):
        names[f"{operator.name} ({position})" if operator.name in names else operator.name] = None
    return list(names)


def packing_bytes(use: KernelUse, svl_bits: int | None) -> int | None:
    """What calls of a packing microkernel write; None for others, and where it is not known."""
    bytes_and_calls = [
        (packed_bytes(use.name, sizes, svl_bits), calls) for sizes, calls in use.by_sizes
    ]
    known_bytes = [written * calls for written, calls in bytes_and_calls if written is not None]
    return sum(known_bytes) if known_bytes and len(known_bytes) == len(bytes_and_calls) else None


def load_bytes(mode: ModeEvidence) -> int | None:
    """What packing writes while the program is loaded; None where one of it is not known."""
    written = [packing_bytes(use, mode.svl_bits) for use in mode.load if use.is_packing]
    known_bytes = [byte_count for byte_count in written if byte_count is not None]
    return sum(known_bytes) if len(known_bytes) == len(written) else None


def tile_share(uses: Iterable[TileUse]) -> float | None:
    """Useful elements of the outputs, of those of the tiles computed; None without any."""
    every = list(uses)
    return sum(use.useful for use in every) / sum(use.computed for use in every) if every else None


def _depth(name: str, sizes: tuple[int, ...]) -> int:
    """The k that a packing is given: k, or chunks of it."""
    of = dict(zip(size_arguments(name), sizes, strict=False))
    return of.get("k_chunk_count", 1) * of.get("k", of.get("k_chunk_length", 0))


def _only(values: set[int]) -> int | None:
    return values.pop() if len(values) == 1 else None
