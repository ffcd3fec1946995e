"""Places the operators of models against what this device was measured to do at most.

    etprof calibrate --peaks --threads 1
    python benchmarks/roofline.py [--models LIST] [--outdir DIR]

Profiles each model with one thread and prints a row of Markdown: its operators that are placed, how
many of them each bound has, the one nearest to its roof, and those above by more than noise; at the
end the fastest product of the calibration against its own roof. Returns 1 where an operator lies
above its roof by more than 3 % and the clock's step, or the product more than 10 % below.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path

from etprof.analysis.assessment import assess_run
from etprof.analysis.run_analysis import analyze_run
from etprof.base.units import format_count, format_share
from etprof.cli import run_command_line
from etprof.model_registry.registry import find_model_folders
from etprof.run.load import Run
from etprof.targets.peaks import with_peaks

MODELS = ("toy_cnn:fp32", "mobilenet_v2:fp32", "transformer_encoder:fp32")
PRODUCT = "peak_programs.py:Product256"
_LEAST_OF_ROOF = 0.9
COLUMNS = (
    "model",
    "placed",
    "compute",
    "memory",
    "overhead",
    "nearest to its roof",
    "of the roof",
    "above",
)


def main() -> int:
    """Prints the table; returns 1 where something lies where it cannot."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outdir", type=Path)
    parser.add_argument("--models", type=lambda text: text.split(","), default=list(MODELS))
    arguments = parser.parse_args()
    source = find_model_folders()[0] / PRODUCT
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.outdir or Path(temporary)
        fits = [_show(model, folder)[0] for model in arguments.models]
        _, nearest = _show(f"{source}:fp32", folder)
    return 0 if all(fits) and nearest >= _LEAST_OF_ROOF else 1


def _show(model: str, folder: Path) -> tuple[bool, float]:
    """Prints a row; returns whether none is above, and how near the nearest comes to its roof."""
    name = model.rpartition("/")[2].replace(":", "_")
    run = folder / name
    if not run.exists():
        with redirect_stdout(io.StringIO()):  # what it measured stands in the run
            run_command_line(["profile", model, "--threads", "1", "--out", str(run), "--json"])
    insight = assess_run(analyze_run(with_peaks(Run.load(run)))).primary
    if insight.roofs is None:
        sys.exit("no peaks of this device: run `etprof calibrate --peaks --threads 1` first")
    placed = [(d.row.label, p) for d in insight.details if (p := d.placed(insight.roofs))]
    counts = Counter(each.bound for _, each in placed)
    label, nearest = max(placed, key=lambda entry: entry[1].of_roof)
    above = [label for label, each in placed if each.is_above]
    bounds = (format_count(counts[bound]) for bound in ("compute", "memory", "overhead"))
    cells = (name, format_count(len(placed)), *bounds, label, format_share(nearest.of_roof))
    print(f"| {' | '.join((*cells, ', '.join(above) or 'none'))} |", flush=True)
    return not above, nearest.of_roof


if __name__ == "__main__":
    sys.exit(main())
