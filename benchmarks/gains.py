"""Replays the command of each finding, and compares what it gains with the gain that was predicted.

    python benchmarks/gains.py [--outdir DIR] [--models LIST] [--precisions LIST]

The models are the zoo's and transformers' architectures in small sizes with random weights, as
precision_zoo.py has them; those whose package is not here are left out and told. Each program is
profiled on this host; the command of each of its findings that exports with other rewrites is run; its
program is measured interleaved with the one before (`profile OLD --against NEW`). Both gains are shares
of the latency before, since two runs differ in latency. A pair holds if the measured gain is inside
the printed interval. `--outdir` keeps the runs, and a second call goes on where the first stopped.
Returns 1 where less than 90 % of the pairs hold, or a gain is more than 10 % above its interval.
"""

from __future__ import annotations

import argparse
import shlex
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import precision_zoo
from quiet_command import run_quietly

from etprof.analysis.assessment import Assessment, assess_run
from etprof.analysis.findings.commands import command_in, rewrites_in
from etprof.analysis.run_analysis import analyze_run
from etprof.base.units import format_ratio, format_share
from etprof.run.load import Run
from etprof.tables.findings import FindingGroup, group_findings

OTHERS = (
    "bert", "albert", "convbert", "distilbert", "electra", "mpnet", "squeezebert", "gpt2", "gemma",
    "llama", "olmo", "opt", "qwen2", "qwen3", "vit", "deit", "dinov2", "convnext", "convnextv2",
    "poolformer", "segformer", "resnet", "regnet",
)  # fmt: skip
HELD_OUT = (
    "roberta", "ernie", "xlm-roberta", "roformer", "gpt_neox", "mistral", "phi", "stablelm", "beit",
)  # fmt: skip
"""Measured after the factors had been chosen on the others."""
PRECISIONS = ("fp32", "fp16")
"""The precisions that this host's kernels measure without SME2."""

LEAST_HELD = 0.9


def succeeds(argv: list[str]) -> bool:
    """Runs an etprof command; returns whether it succeeded, and says on stderr why not."""
    problem = run_quietly(argv)
    if problem is not None:
        print(f"left out: {problem}", file=sys.stderr)
    return problem is None


def assess(folder: Path) -> Assessment:
    """Reads a run directory."""
    return assess_run(analyze_run(Run.load(folder)))


def groups_with_rewrites(assessment: Assessment) -> Iterator[tuple[FindingGroup, str]]:
    """Yields the findings of one cause, with their command."""
    for group in group_findings(assessment.primary_findings.findings):
        command = command_in(group.lead.action)
        if command and rewrites_in(command):
            yield group, command


class Pair(NamedTuple):
    """The gain of one command; all but the names are shares of the latency before."""

    name: str
    rules: str
    point: float
    low: float
    high: float
    """The prediction, and the ends of its printed interval."""
    measured: float

    @property
    def holds(self) -> bool:
        """Whether the measured gain is inside the printed interval."""
        return self.low <= self.measured <= self.high

    @property
    def exceeds(self) -> bool:
        """Whether it is more than a tenth above the interval."""
        return self.measured > 1.1 * self.high

    def __str__(self) -> str:
        low, high, measured = map(format_share, (self.low, self.high, self.measured))
        cells = (
            self.name, self.rules, f"{low} to {high}", measured,
            "" if self.holds else "outside",
        )  # fmt: skip
        return f"| {' | '.join(cells)} |"


def measure(model: str, precision: str, folder: Path) -> Iterator[tuple[FindingGroup, Path]]:
    """Measures a program, and each of its commands beside it; yields the findings and that run."""
    program, base = folder / "base.pte", folder / "base"
    if not program.exists() and not succeeds(
        ["export", model, "--dtype", precision, "--out", str(program), "--allow-inaccurate"]
    ):
        return
    if not (base / "metrics.json").exists() and not succeeds(
        ["profile", str(program), "--out", str(base)]
    ):
        return
    for number, (group, command) in enumerate(groups_with_rewrites(assess(base))):
        candidate, pair = folder / f"candidate{number}.pte", folder / f"pair{number}"
        if group.lead.gain_ns is None:
            continue
        words = [*shlex.split(command)[1:], "--out", str(candidate), "--allow-inaccurate"]
        if not candidate.exists() and not succeeds(words):
            continue
        if (pair / "metrics.json").exists() or succeeds(
            ["profile", str(program), "--against", str(candidate), "--out", str(pair)]
        ):
            yield group, pair


def compare(name: str, folder: Path, group: FindingGroup, pair: Path) -> Pair | None:
    """Sets the measured gain beside the printed one; None where one of them is missing."""
    inference_ns = assess(folder / "base").primary.experiment.inference_ns
    comparison, lead = assess(pair).primary_comparison, group.lead
    speed_up = comparison.latency.speed_up if comparison and comparison.latency else None
    if not inference_ns or not speed_up or lead.gain_ns is None or lead.interval is None:
        return None
    rules = ", ".join(finding.rule for finding in (lead, *group.others))
    return Pair(
        name,
        rules,
        point=lead.gain_ns / inference_ns,
        low=lead.interval.low / inference_ns,
        high=lead.interval.high / inference_ns,
        measured=1 - 1 / speed_up,
    )


def main() -> int:
    """Prints the table; returns 1 where the printed intervals do not hold."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outdir", type=Path)
    parser.add_argument("--models", type=lambda text: text.split(","))
    parser.add_argument("--precisions", type=lambda text: text.split(","), default=PRECISIONS)
    arguments = parser.parse_args()
    pairs: list[Pair] = []
    print("| program | findings | predicted gain | measured gain | |")
    print("|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        root = arguments.outdir or Path(temporary)
        for model in arguments.models or [
            *OTHERS,
            *HELD_OUT,
            *precision_zoo.find_loadable(),
        ]:
            for precision in arguments.precisions:
                name, folder = f"{model} {precision}", root / f"{model}_{precision}"
                folder.mkdir(parents=True, exist_ok=True)
                for group, run in measure(precision_zoo.model_of(model), precision, folder):
                    if pair := compare(name, folder, group, run):
                        print(pair, flush=True)
                        pairs.append(pair)
    holds = sum(pair.holds for pair in pairs)
    exceeding = sum(pair.exceeds for pair in pairs)
    print(
        f"\n{holds} of {len(pairs)} gains inside their interval, {exceeding} more than 10 % above"
    )
    ratios = sorted(pair.measured / pair.point for pair in pairs if pair.point)
    if ratios:
        least, middle, most = map(format_ratio, (ratios[0], statistics.median(ratios), ratios[-1]))
        print(f"measured beside the predicted point: {least} to {most}, median {middle}")
    return 0 if pairs and holds >= LEAST_HELD * len(pairs) and not exceeding else 1


if __name__ == "__main__":
    sys.exit(main())
