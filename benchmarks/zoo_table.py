"""Exports every zoo model in every precision and prints the table of docs/models.md.

    python benchmarks/zoo_table.py [--outdir DIR] [--models LIST] [--precisions LIST]

Each export runs the program on this host and compares it with the eager float32 model. The table
is Markdown; `--outdir` keeps the files and makes a second call continue where the first stopped.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from etprof.base.errors import EtprofError
from etprof.base.json_input import read_json
from etprof.base.units import format_share, format_size
from etprof.export.exporter import export_model
from etprof.export.model_loading import describe_models
from etprof.export.request import PRECISIONS, ExportRequest
from etprof.run.program import find_minimum_snr_db

ALL_PRECISIONS = (*PRECISIONS, "8da4w_b32")
COLUMNS = (
    "model",
    "method",
    "precision",
    "SNR to eager fp32",
    "tolerance",
    "same top-1",
    "delegated MACs",
    "SME2 MACs (predicted)",
    "size",
    "export",
)


@dataclass(frozen=True)
class Row:
    """One method of one export."""

    cells: tuple[str, ...]
    passed: bool

    def render(self) -> str:
        """Returns the row in Markdown."""
        return f"| {' | '.join(self.cells)} |"


def main() -> int:
    """Prints the table and the sum; returns 1 when a result is outside its tolerance."""
    arguments = _parse_arguments()
    print(f"| {' | '.join(COLUMNS)} |")
    print(f"|{'---|' * len(COLUMNS)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.outdir or Path(temporary)
        rows = [
            row
            for model in arguments.models or _find_loadable()
            for precision in arguments.precisions or ALL_PRECISIONS
            for row in _measure(model, precision, folder)
        ]
    within = sum(row.passed for row in rows)
    print(f"\n{within} of {len(rows)} within their tolerance", file=sys.stderr)
    return 0 if within == len(rows) else 1


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outdir", type=Path)
    parser.add_argument("--models", type=lambda text: text.split(","))
    parser.add_argument("--precisions", type=lambda text: text.split(","))
    return parser.parse_args()


def _find_loadable() -> list[str]:
    """Returns the names of all models whose packages are there; the others are told on stderr."""
    models = describe_models()
    for model in models:
        if model["problem"] is not None:
            print(f"left out: {model['problem']}", file=sys.stderr)
    return [model["name"] for model in models if model["problem"] is None]


def _measure(model: str, precision: str, folder: Path) -> list[Row]:
    """Exports once, prints and returns one row per method."""
    request = ExportRequest(model, precision, outdir=folder)
    files = request.files()
    try:
        if not files.manifest.exists():
            export_model(request)
    except EtprofError as error:
        print(f"{model} {precision}: {error}", file=sys.stderr, flush=True)
        return [Row((model, "", precision, "failed"), passed=False)]
    manifest, report = (
        read_json(path, way_out="export again") for path in (files.manifest, files.report)
    )
    rows = [_make_row(manifest, report, name) for name in report["methods"]]
    for row in rows:
        print(row.render(), flush=True)
    return rows


def _make_row(manifest: dict[str, Any], report: dict[str, Any], method: str) -> Row:
    summary, check = report["methods"][method]["summary"], manifest["methods"][method]["check"]
    ratios = [each["snr_db"] for each in check["outputs"] if each["snr_db"] is not None]
    agreement = [each["top1_agreement"] for each in check["outputs"]]
    seconds = sum(stage["duration_ns"] for stage in manifest["stages"]) / 1e9
    least = find_minimum_snr_db(report["precision"])
    is_within = all(ratio >= least for ratio in ratios)
    cells = (
        report["model"],
        method,
        report["precision"],
        f"{min(ratios):.1f} dB" if ratios else "equal",
        f"{'pass' if is_within else 'FAIL'} (≥ {least:g} dB)",
        format_share(agreement[0]),
        format_share(summary["delegated_macs_share"]),
        format_share(summary["predicted_sme2_macs_share"]),
        format_size(report["size"]["total_bytes"]),
        f"{seconds:.0f} s",
    )
    return Row(cells, is_within)


if __name__ == "__main__":
    sys.exit(main())
