"""Are verdicts right on this machine? The same thing twice, and two effects that are real.

Each comparison is repeated; the same thing twice must be called no difference every time, and a
real effect must get the same verdict every time. Exit code 1 when that is not so.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from etprof.base.units import format_ratio
from etprof.export.exporter import export_model
from etprof.export.request import ExportRequest
from etprof.measuring.pipeline import measure
from etprof.measuring.plan import Experiment, Settings, plan
from etprof.run.directory import load_metrics
from etprof.run.program import describe_program
from etprof.statistics.effect import Effect, estimate_effect
from etprof.targets.local import LocalTarget

MODEL = "mobilenet_v2"
BLOCKS = 40
"""Many short blocks: neighbours in time share the machine's mood, and 2 % has to be told apart."""
BLOCK_SECONDS = 0.15
PROGRAM_BLOCKS = 10
"""Precisions differ so much that few blocks tell."""


def block_medians(run: Path, name: str) -> list[float]:
    """Medians of one experiment's blocks."""
    metrics = load_metrics(run)
    assert metrics is not None
    return [statistics.median(block.latency_ns) for block in metrics.experiments[name].blocks]


def run_experiments(program: Path, run: Path, experiments: list[Experiment], seed: int) -> None:
    """Measures the experiments in balanced order."""
    measure(
        program=describe_program(program),
        target=LocalTarget(),
        run=run,
        planned=plan(
            experiments,
            Settings(blocks=BLOCKS, min_seconds=BLOCK_SECONDS, operator_iterations=1, seed=seed),
            LocalTarget(),
        ),
        progress=lambda *_: None,
    )


def compare_experiments(program: Path, run: Path, threads: tuple[int, int], seed: int) -> Effect:
    """Compares one program with itself at two thread counts, equal or not."""
    sides = [Experiment(name=f"side{i}", threads=t) for i, t in enumerate(threads)]
    run_experiments(program, run, sides, seed)
    return estimate_effect(block_medians(run, "side0"), block_medians(run, "side1"))


def compare_programs(programs: list[Path], run: Path, seed: int) -> Effect:
    """Compares two programs, block by block in turns."""
    medians: list[list[float]] = [[], []]
    for block in range(PROGRAM_BLOCKS):
        order = (0, 1) if (block + seed) % 2 == 0 else (1, 0)
        for side in order:
            folder = run / f"{block}_{side}"
            experiment = Experiment(name="one", threads=1)
            measure(
                program=describe_program(programs[side]),
                target=LocalTarget(),
                run=folder,
                planned=plan(
                    [experiment],
                    Settings(blocks=1, min_seconds=0.3, operator_iterations=1),
                    LocalTarget(),
                ),
                progress=lambda *_: None,
            )
            medians[side] += block_medians(folder, "one")
    return estimate_effect(*medians)


def main() -> int:
    """Prints one line per comparison and says whether all verdicts are right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5)
    repetitions = parser.parse_args().repetitions
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fp32, fp16 = (
            export_model(ExportRequest(MODEL, precision, outdir=folder)).pte
            for precision in ("fp32", "fp16")
        )
        results: dict[str, list[Effect]] = {
            "same thing twice": [],
            "1 against 2 threads": [],
            "fp32 against fp16": [],
        }
        for i in range(repetitions):
            runs = folder / f"run{i}"
            results["same thing twice"].append(compare_experiments(fp32, runs / "aa", (1, 1), i))
            results["1 against 2 threads"].append(
                compare_experiments(fp32, runs / "threads", (1, 2), i)
            )
            results["fp32 against fp16"].append(compare_programs([fp32, fp16], runs / "types", i))
            for label, effects in results.items():
                effect = effects[-1]
                print(f"{i + 1}  {label:22} {format_ratio(effect.speed_up):>8}  {effect.verdict}")
    return 0 if all_right(results) else 1


def all_right(results: dict[str, list[Effect]]) -> bool:
    """Whether nothing was found where nothing is, and what is there was found every time."""
    same = {effect.verdict for effect in results.pop("same thing twice")}
    real = [{effect.verdict for effect in effects} for effects in results.values()]
    return same == {"no difference"} and all(
        len(verdicts) == 1 and verdicts <= {"faster", "slower"} for verdicts in real
    )


if __name__ == "__main__":
    sys.exit(main())
