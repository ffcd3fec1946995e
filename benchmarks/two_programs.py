"""Is a program like itself, and are 21 layers slower than 20? Each asked in runs of two programs.

The same program under two names has to be called like itself: at most one verdict in 30 runs. 20
against 21 equal layers, while another process takes a core for a tenth of the time, has to be
called slower with the true ratio inside the interval, nine times of ten. Exit code 1 when not.
The true ratio is that of the layers' work: it holds where the layers are nearly all of the work.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from etprof.analysis.assessment import assess_run
from etprof.analysis.run_analysis import analyze_run
from etprof.base.units import format_ratio
from etprof.config import Config
from etprof.export.exporter import export_model
from etprof.export.request import ExportRequest
from etprof.measuring.configured import Listener, measure_config
from etprof.run.load import Run
from etprof.targets.local import LocalTarget

if TYPE_CHECKING:
    from etprof.statistics.effect import Effect

LAYERS = (20, 21)
WIDTH, ROWS = 128, 512
"""Of each layer's matrix and of its input: some 8 million multiply-accumulates. A layer's weights
(64 KB) and both its activations fit a core's own cache, where 21 layers cost 21/20 of 20; matrices
of 512 (1 MB a layer) do not, and their ratio depended on who else used the shared cache."""
SECONDS = 0.1
_MODEL = """
import torch
from etprof.model_registry.eager_model import EagerModelBase

class Layers(EagerModelBase):
    def get_eager_model(self):
        torch.manual_seed(0)
        return torch.nn.Sequential(*(torch.nn.Linear({width}, {width}) for _ in range({layers})))

    def get_example_inputs(self):
        torch.manual_seed(1)
        return (torch.randn({rows}, {width}),)
"""
_DISTURBER = """
import time
while True:
    end = time.perf_counter() + .1
    while time.perf_counter() < end:
        pass
    time.sleep(.9)
"""


def export_layers(folder: Path, layers: int) -> Path:
    """Exports a row of equal layers, and nothing else."""
    code = folder / f"layers{layers}.py"
    code.write_text(_MODEL.format(width=WIDTH, rows=ROWS, layers=layers))
    request = ExportRequest(model=f"{code}:Layers", precision="fp32", outdir=folder / str(layers))
    return export_model(request).pte


@contextmanager
def disturbed() -> Iterator[None]:
    """Another process takes a core for a tenth of the time."""
    process = subprocess.Popen([sys.executable, "-c", _DISTURBER])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def compare(folder: Path, first: Path, second: Path, seed: int, blocks: int) -> Effect:
    """Measures two programs in turns."""
    config = Config.model_validate(
        {
            "model": first,
            "output_root": folder / f"run{seed}",
            "programs": {"second": {"model": second}},
            "experiments": [
                {"name": "one", "runs": 5},
                {"name": "other", "program": "second", "runs": 5},
            ],
            "measurement": {
                "blocks": blocks,
                "min_seconds": SECONDS,
                "etdump_runs": 1,
                "seed": seed,
            },
        }
    )
    listener = Listener(say=lambda _: None, progress=lambda *_: None, waiting=lambda *_: None)
    measure_config(config, LocalTarget(), listener)
    (comparison,) = assess_run(analyze_run(Run.load(config.folder))).comparisons
    assert comparison.latency is not None
    return comparison.latency


def show(effect: Effect) -> str:
    """One line of a comparison."""
    known = effect.interval
    interval = f"{format_ratio(known.low)} … {format_ratio(known.high)}" if known else "none"
    return f"  {effect.verdict:14} {format_ratio(effect.speed_up)}, 95 % interval {interval}"


def main() -> int:
    """Prints every verdict, and whether there are as few wrong ones as are promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alike", type=int, default=30, help="runs of one program under two names")
    parser.add_argument("--layers", type=int, default=10, help="runs of 20 against 21 layers")
    parser.add_argument(
        "--blocks",
        type=int,
        default=30,
        help="launches of each program in a run; of 20, one in ten disturbed runs was inconclusive",
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        programs = [export_layers(folder, layers) for layers in LAYERS]
        print("one program under two names")
        verdicts = 0
        for seed in range(arguments.alike):
            effect = compare(folder / "alike", programs[0], programs[0], seed, arguments.blocks)
            verdicts += effect.verdict in {"faster", "slower"}
            print(show(effect), flush=True)
        truth = LAYERS[0] / LAYERS[1]
        print(f"{LAYERS[0]} against {LAYERS[1]} layers, disturbed; true ratio {truth:.3f}")
        right = 0
        with disturbed():
            for seed in range(arguments.layers):
                effect = compare(
                    folder / "layers", programs[0], programs[1], seed, arguments.blocks
                )
                known = effect.interval
                covers = known is not None and known.low <= truth <= known.high
                right += effect.verdict == "slower" and covers
                print(show(effect), "" if covers else "misses the true ratio", flush=True)
    claims = (
        (f"{verdicts} of {arguments.alike} called different (at most 1 of 30)",
         verdicts <= max(1, arguments.alike // 30)),
        (f"{right} of {arguments.layers} called slower with the true ratio inside (at least 9 of 10)",
         right >= 0.9 * arguments.layers),
    )  # fmt: skip
    for text, is_kept in claims:
        print(f"{text}: {'kept' if is_kept else 'NOT KEPT'}")
    return 0 if all(is_kept for _, is_kept in claims) else 1


if __name__ == "__main__":
    sys.exit(main())
