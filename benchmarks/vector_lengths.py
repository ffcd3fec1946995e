"""Counts SME2 microkernels at three vector lengths, against what the sizes of tiles explain.

    python benchmarks/vector_lengths.py [--outdir DIR] [--models LIST]

Exports each model, in the precision where most of its products take SME2, runs it under emulation with SME2 and one thread at 512, 256 and 128
bits, and prints a row of Markdown for each length: calls of products; calls expected, for tiles of
that length, of the rows of the calls at 512 bits, then also of how often columns are cut, which
XNNPACK decides by the caches; tiles, and tiles expected of m and n; tile use; padding of k by
elements. `--outdir` keeps programs and traces; a second call continues where the first stopped.
Returns 1 where calls or tiles are not those expected, or the work is not the same.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from math import ceil, isclose
from pathlib import Path
from typing import TYPE_CHECKING

from etprof.analysis.split.evidence import read_evidence
from etprof.analysis.split.work import TileUse, tile_share, tile_uses
from etprof.base.errors import EtprofError
from etprof.base.units import format_count, format_share
from etprof.export.exporter import export_model
from etprof.export.request import ExportRequest
from etprof.run.kernel_trace import read_kernel_trace
from etprof.run.program import describe_program
from etprof.targets.emulator.target import EmulatorTarget
from etprof.targets.request import RunnerRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from etprof.run.program import Program

MODELS = {
    "toy_cnn": "fp16",
    "mobilenet_v3_small": "fp32",
    "mobilenet_v2": "fp32",
    "transformer_encoder": "fp16",
    "vit_tiny": "fp16",
}
LENGTHS = (512, 256, 128)
COLUMNS = (
    "model", "bits", "SME2 calls", "by rows", "by rows and columns", "tiles", "expected tiles",
    "tile use", "padding of k",
)  # fmt: skip


def main() -> int:
    """Prints the table; returns 1 where the sizes of tiles do not explain the tiles."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outdir", type=Path)
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS))
    arguments = parser.parse_args()
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.outdir or Path(temporary)
        try:
            explained = [_show(model, folder) for model in arguments.models]
        except EtprofError as error:
            sys.exit(str(error))
    return 0 if all(explained) else 1


def _show(model: str, folder: Path) -> bool:
    """Prints the rows of one model; returns whether its tiles are those that sizes explain."""
    precision = MODELS.get(model, "fp16")
    request = ExportRequest(model, precision, outdir=folder)
    files = request.files()
    if not files.manifest.exists():
        export_model(request)
    program = describe_program(files.pte)
    counted = {
        str(bits): read_evidence(read_kernel_trace(_trace(program, folder, bits)))
        for bits in LENGTHS
    }
    uses = [use for use in tile_uses(counted) if use.kernel.level == "sme2"]
    found = [[use for use in uses if use.svl_bits == bits] for bits in LENGTHS]
    for bits, some in zip(LENGTHS, found, strict=True):
        print(f"| {' | '.join((f'{model} {precision}', str(bits), *_figures(some)))} |", flush=True)
    is_same_work = len({sum(use.useful for use in some) for some in found}) == 1
    return is_same_work and all(
        use.tiles == _expected_tiles(use) and isclose(use.kernel.calls, _expected_calls(use))
        for use in uses
    )


def _trace(program: Program, folder: Path, bits: int) -> Path:
    """Runs the program once at a vector length, unless that was done; returns the trace."""
    trace = folder / f"{program.label}_{bits}_kernels.json"
    if not trace.exists():
        EmulatorTarget().run(RunnerRequest(
            model=program.model, inputs=program.inputs, method=program.method, iterations=1,
            threads=1, sme="sme2", sme_vector_bits=bits, kernel_trace=trace,
            result=folder / f"{program.label}_{bits}_result.json",
        ))  # fmt: skip
    return trace


def _figures(uses: Sequence[TileUse]) -> Iterable[str]:
    yield format_count(sum(use.kernel.calls for use in uses))
    yield format_count(sum(use.expected_calls for use in uses))
    yield format_count(round(sum(map(_expected_calls, uses)), 2))
    yield format_count(sum(use.tiles for use in uses))
    yield format_count(sum(map(_expected_tiles, uses)))
    yield format_share(tile_share(uses))
    deep = [(use.useful, use.k, use.k_computed) for use in uses if use.k and use.k_computed]
    needed, computed = (sum(each[0] * (each[i] or 0) for each in deep) for i in (1, 2))
    yield format_share(1 - needed / computed)


def _expected_calls(use: TileUse) -> float:
    """Calls of rows in tiles of this length, where columns are cut as often as they are here.

    Every cut of the columns takes all rows once more.
    """
    here, longest = (
        sum(calls * m for (m, *_), calls in each.by_sizes) for each in (use.kernel, use.longest)
    )
    return use.expected_calls * here / longest


def _expected_tiles(use: TileUse) -> int:
    """Tiles of this length that cover the rows and columns of the calls at the longest."""
    rows, columns = use.tile.rows, use.tile.columns
    sizes = use.longest.by_sizes
    return sum(calls * ceil(m / rows) * ceil(n / columns) for (m, n, *_), calls in sizes)


if __name__ == "__main__":
    sys.exit(main())
