"""Prints what `etprof numerics` costs and finds: time, memory, and weights that are off by 1 %.

usage: python benchmarks/numerics.py [--dtype PRECISION] [--seeds N] [MODEL…]

A line a model: seconds of the comparison and of the same export and run without taps, the peak of
resident memory, the largest error of an operator beside what its precision explains, and in how many seeds the operator whose weight
was changed was ranked first and was the first to part. The weight is changed in eager, which is the
same difference as in the program, and needs no other program for each seed.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from etprof.analysis.numeric_gap import own_floor_db
from etprof.export import lowering, runtime_check, upstream
from etprof.export.request import ExportRequest
from etprof.export.session import SEED
from etprof.export.stages import StageClock
from etprof.numerics.session import (
    GapRequest,
    Launched,
    TappedPrograms,
    compare_own,
    compare_with_eager,
    launch,
    make_programs,
    start_export,
)
from etprof.registry import find_models
from etprof.targets.local import LocalTarget

LIMIT_RATIO, LIMIT_BYTES = 3.0, 10**9


@dataclass(frozen=True)
class Weight:
    """A floating-point weight that one operator alone reads."""

    name: str
    reader: str


def weights_of(programs: TappedPrograms) -> list[Weight]:
    """Returns the weights with more than one dimension, and the nodes that read them."""
    signature = programs.traced.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    state = programs.traced.state_dict
    return [
        Weight(names[node.name], next(iter(node.users)).name)
        for node in programs.traced.graph.nodes
        if node.op == "placeholder" and names.get(node.name) in state and len(node.users) == 1
        if state[names[node.name]].dim() > 1 and state[names[node.name]].is_floating_point()
    ]


def tapped_reader(programs: TappedPrograms, name: str) -> str:
    """Returns the node with a tap that a node's value reaches first, going through fused ones."""
    nodes = {node.name: node for node in programs.traced.graph.nodes}
    taps = {tap.node.name: tap.place.name for group in programs.tapped.values() for tap in group}
    node = nodes[name]
    while node.name not in taps:
        node = next(iter(node.users))
    return taps[node.name]


def is_found(programs: TappedPrograms, launched: Launched, seed: int, precision: str) -> bool:
    """Changes a weight, and tells whether its operator is first in both ways; changes it back."""
    weight = random.Random(seed).choice(weights_of(programs))  # noqa: S311
    expected = tapped_reader(programs, weight.reader)
    value = programs.traced.state_dict[weight.name]
    before = value.detach().clone()
    with torch.no_grad():
        value.mul_(1.01)
    own = compare_own(programs, launched)
    with torch.no_grad():
        value.copy_(before)
    floors = {
        tap.place.name: own_floor_db(precision, tap.summed)
        for group in programs.tapped.values()
        for tap in group
    }
    worst = max(own, key=lambda name: own[name].relative * 10 ** (floors[name] / 20))
    parted = next((name for name, gap in own.items() if gap.is_below(floors[name])), None)
    return worst == parted == expected


def measure(model: str, precision: str, seeds: int) -> str:
    """Returns the line of one model."""
    request = GapRequest(export=ExportRequest(model, precision))
    target = LocalTarget()
    start = time.monotonic()
    gaps = compare_with_eager(request, target)
    tapped_s = time.monotonic() - start
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as name, upstream.quiet_upstream():
        folder = Path(name)
        torch.manual_seed(SEED)
        start = time.monotonic()
        request, session = start_export(request, StageClock())
        prepared = session.prepare()
        traced = lowering.trace(gaps.method, prepared.methods[gaps.method])
        options = request.export.options
        lowered = lowering.lower({gaps.method: traced}, request.export.backend, options)
        untapped = folder / "untapped.pte"
        untapped.write_bytes(
            lowering.make_program(lowered.edge, options, prepared.shared_buffers).buffer
        )
        given = prepared.methods[gaps.method]
        runtime_check.check_program(
            untapped,
            None,
            gaps.method,
            given,
            prepared.references[gaps.method],
            precision=request.export.precision,
            floors=request.export.floors(),
        )
        untapped_s = time.monotonic() - start
        programs = make_programs(request, session, prepared, gaps.method, folder)
        launched = launch(programs, target, gaps.modes[-1], folder / "run")
        found = sum(is_found(programs, launched, seed, precision) for seed in range(seeds))
    most = max(row.excess for row in gaps.rows)
    ratio = tapped_s / untapped_s
    return (
        f"{model} {precision}: {tapped_s:.1f} s, {ratio:.2f} times the {untapped_s:.1f} s without taps "
        f"(limit {LIMIT_RATIO:.0f}), peak {peak / 1e6:.0f} MB (limit {LIMIT_BYTES / 1e6:.0f}), largest "
        f"error {most:.2f} of what is explained, {found} of {seeds} weights named first"
    )


def main() -> None:
    """Measures the models named, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*")
    parser.add_argument("--dtype", default="fp16")
    parser.add_argument("--seeds", type=int, default=20)
    arguments = parser.parse_args()
    # The first export of a process pays for imports.
    compare_with_eager(GapRequest(export=ExportRequest("toy_cnn", "fp32")), LocalTarget())
    for model in arguments.models or find_models():
        print(measure(model, arguments.dtype, arguments.seeds), flush=True)


if __name__ == "__main__":
    main()
