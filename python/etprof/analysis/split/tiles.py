"""How much of each tile the products of a program fill, at every streaming vector length.

A product computes whole tiles, whose rows and columns grow with the vector length: the rest of a
tile is computed and thrown away, and a smaller tile needs more calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import TYPE_CHECKING, Final

from etprof.analysis.split.evidence import align_modes
from etprof.backends.kernel_names import size_arguments, tile_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from etprof.analysis.split.evidence import KernelUse, ModeEvidence, OperatorEvidence

_LEFT: Final = "kai_run_lhs_"


@dataclass(frozen=True)
class TileUse:
    """The calls of one product by one operator in one mode."""

    mode: str
    svl_bits: int | None
    number: int
    """Of the operator among those of all modes, from 1."""
    operator: OperatorEvidence
    kernel: KernelUse
    tile: tuple[int, int]
    """Rows and columns of a tile."""
    longest: KernelUse
    """The same product's calls at the longest vector length that was counted."""

    @property
    def useful(self) -> int:
        """Elements of its outputs: m x n of every call."""
        return sum(calls * m * n for (m, n, *_), calls in self.kernel.by_sizes)

    @property
    def computed(self) -> int:
        """Elements of all tiles that its calls compute."""
        return self.tiles * prod(self.tile)

    @property
    def tiles(self) -> int:
        """Tiles that its calls compute."""
        rows, columns = self.tile
        return sum(c * ceil(m / rows) * ceil(n / columns) for (m, n, *_), c in self.kernel.by_sizes)

    @property
    def expected_calls(self) -> int:
        """Calls that the rows of the longest vector length's calls take in tiles of this one.

        A call has the rows of one tile at most. Shorter tiles divide longer ones, so that no call
        here has rows of two calls there. What else there is to calls: XNNPACK cuts columns by the
        size of the caches, too (xnn_gemm_best_tile_size in src/microkernel-utils.c).
        """
        return sum(calls * ceil(m / self.tile[0]) for (m, *_), calls in self.longest.by_sizes)

    @property
    def k_computed(self) -> int | None:
        """Products summed for an element, as the calls were given them; None where they differ."""
        return _only({prod(sizes[2:]) for sizes, _ in self.kernel.by_sizes})

    @property
    def k(self) -> int | None:
        """Those that the left-hand side has, before packing pads them."""
        packed = [each for each in self.operator.kernels if each.name.startswith(_LEFT)]
        if not packed:
            return self.k_computed
        return _only({k for each in packed for k in _packed_depths(each)})


def tile_uses(counted: Mapping[str, ModeEvidence]) -> Iterator[TileUse]:
    """Yields every product whose sizes and tile are known, operator by operator, mode by mode."""
    for number, row in enumerate(align_modes(counted), start=1):
        longest: dict[str, KernelUse] = {}
        for mode, operator in row.by_mode.items():
            svl_bits = counted[mode].svl_bits
            for kernel in operator.compute_kernels if operator else ():
                tile = tile_of(kernel.name, svl_bits)
                if operator and tile and kernel.by_sizes:
                    most = longest.setdefault(kernel.name, kernel)
                    yield TileUse(mode, svl_bits, number, operator, kernel, tile, most)


def tile_share(uses: Iterable[TileUse]) -> float | None:
    """Useful elements of the outputs, of those of the tiles computed; None without any."""
    every = list(uses)
    return sum(use.useful for use in every) / sum(use.computed for use in every) if every else None


def _packed_depths(packing: KernelUse) -> Iterator[int]:
    """The depth of each packed left-hand side: k, or chunks of it."""
    names = size_arguments(packing.name)
    for sizes, _ in packing.by_sizes:
        yield prod(size for name, size in zip(names, sizes, strict=False) if name[0] == "k")


def _only(values: set[int]) -> int | None:
    return values.pop() if len(values) == 1 else None
