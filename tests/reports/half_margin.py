"""Exports random networks in half precision and says how far apart two roundings are.

    python -m tests.reports.half_margin [PRECISION …]

Each is a SettledNet of another seed (tests/reports/floors.py): right, and one that amplifies rounding.
The last line of each precision is what `_HALF_MARGIN_DB` of etprof.run.accuracy is made of: how much
further the program is from eager in that precision than that is from float32, and how much it loses
beside it. Returns 1 where a program is further away, or loses more, than etprof allows.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from math import log10
from pathlib import Path

from etprof.export.exporter import export_model
from etprof.export.request import ExportRequest
from etprof.run.accuracy import _FAITHFUL
from tests.reports.files import write_model

SEEDS = range(1, 30)


def measure(seed: int, precision: str) -> tuple[float, float, float]:
    """Returns in dB: eager's ratio to float32, the program's to eager, the program's to float32."""
    with tempfile.TemporaryDirectory() as folder:
        name = write_model(Path(folder), "floors", "SettledNet", f"seed={seed}")
        request = ExportRequest(
            name, precision=precision, outdir=Path(folder), allow_inaccurate=True
        )
        export_model(request)
        manifest = json.loads(request.files().manifest.read_text())
    (output,) = manifest["methods"]["forward"]["check"]["outputs"]
    return output["snr_db_precision"], output["snr_db_converted"], output["snr_db"]


def main(precisions: list[str]) -> int:
    """Prints a table and a summary for each precision."""
    is_beyond = False
    for precision in precisions or ["fp16"]:
        limits = _FAITHFUL[precision]
        print(
            "| seed | precision | eager to fp32 | program to eager | program to fp32 |\n|---|---|---|---|---|"
        )
        further, lost = [], []
        for seed in SEEDS:
            eager, to_eager, to_float = measure(seed, precision)
            print(
                f"| {seed} | {precision} | {eager:.1f} dB | {to_eager:.1f} dB | {to_float:.1f} dB |",
                flush=True,
            )
            further.append(eager - to_eager)
            lost.append(eager - to_float)
        allowed = 10 * log10(limits.error_growth)
        is_beyond |= max(further) > limits.margin_db or max(lost) > allowed
        print(
            f"\n{precision}, {len(SEEDS)} networks: {statistics.mean(further):.1f} dB further from eager than "
            f"that from float32 (standard deviation {statistics.stdev(further):.1f}, at most "
            f"{max(further):.1f}; {limits.margin_db:g} allowed); at most {max(lost):.1f} dB lost beside "
            f"eager ({allowed:.1f} allowed)\n"
        )  # fmt: skip
    return 1 if is_beyond else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
