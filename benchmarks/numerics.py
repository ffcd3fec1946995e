"""Prints what `etprof numerics` costs and finds: time, memory, and weights that are off by 1 %.

usage: python benchmarks/numerics.py [--dtype PRECISION] [--seeds N] [--weights-only] [MODEL…]

Two lines a model. One: in how many seeds the operator whose weight was changed was ranked first
and was the first to part; the weight is changed in eager, which is the same difference as in the
program, and needs no other program for each seed. And with how many inputs the sound program parted
nowhere, the example's own and shuffled ones. The other: seconds of processor time of the
comparison and of the same export and run without taps, the peak of resident memory, and the largest
error of an operator beside what its precision explains. The exit code is 1 when a weight was not
named, an operator of a sound program was, or a limit not kept.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch

from etprof.export import lowering, runtime_check, upstream
from etprof.export.request import ExportRequest, Precision
from etprof.export.session import SEED
from etprof.export.stages import StageClock
from etprof.model_registry.registry import find_models
from etprof.numerics.session import (
    GapRequest,
    ModeOutputs,
    TappedPrograms,
    compare_own,
    compare_with_eager,
    launch,
    make_programs,
    start_export,
)
from etprof.targets.local import LocalTarget

LIMIT_RATIO, LIMIT_BYTES = 3.0, 10**9
INPUTS = 3


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
    taps = {
        tap.node.name: tap.tapped_node.name for group in programs.tapped.values() for tap in group
    }
    node = nodes[name]
    while node.name not in taps:
        node = next(iter(node.users))
    return taps[node.name]


def excesses(
    programs: TappedPrograms, launched: ModeOutputs, precision: Precision
) -> dict[str, float]:
    """Returns each operator's own error as a part of what is explained, in the graph's order."""
    return {
        name: explained.excess(gap)
        for name, (gap, explained) in compare_own(programs, launched, precision).items()
    }


def is_found(
    programs: TappedPrograms, launched: ModeOutputs, weight: Weight, precision: Precision
) -> bool:
    """Changes a weight, and tells whether its operator is first in both ways; changes it back."""
    expected = tapped_reader(programs, weight.reader)
    value = programs.traced.state_dict[weight.name]
    before = value.detach().clone()
    with torch.no_grad():
        value.mul_(1.01)
    own = excesses(programs, launched, precision)
    with torch.no_grad():
        value.copy_(before)
    worst = max(own, key=own.__getitem__)
    parted = next((name for name, excess in own.items() if excess > 1), None)
    if not worst == parted == expected:
        print(f"  {weight.name}: {expected} {own[expected]:.2f}, worst {worst} {own[worst]:.2f}, "
              f"first {parted}")  # fmt: skip
    return worst == parted == expected


def shuffle(value: object, seed: int) -> object:
    """Returns a tensor's values in another order; 0 keeps it."""
    if seed == 0 or not isinstance(value, torch.Tensor):
        return value
    order = torch.randperm(value.numel(), generator=torch.Generator().manual_seed(seed))
    return value.reshape(-1)[order].reshape(value.shape).contiguous()


def count_found(model: str, precision: str, seeds: int) -> bool:
    """Prints how often the changed weight was named, and nothing without one; returns if always."""
    request = GapRequest(export=ExportRequest(model, precision))
    format_of = request.export.parsed_precision()
    target = LocalTarget()
    mode = target.sme_modes()[-1]
    with tempfile.TemporaryDirectory() as name, upstream.quiet_upstream():
        folder = Path(name)
        torch.manual_seed(SEED)
        request, session = start_export(request, StageClock())
        prepared = session.prepare()
        method = "forward" if "forward" in prepared.methods else next(iter(prepared.methods))
        programs = make_programs(request, session, prepared, method, folder)
        most = []
        for seed in range(INPUTS):
            given = replace(programs, inputs=[shuffle(each, seed) for each in programs.inputs])
            own = excesses(given, launch(given, target, mode, folder / f"{seed}"), format_of)
            most.append(max(own.values()))
        launched = launch(programs, target, mode, folder / "run")
        find = cache(lambda weight: is_found(programs, launched, weight, format_of))
        weights = weights_of(programs)
        found = sum(find(random.Random(seed).choice(weights)) for seed in range(seeds))  # noqa: S311
    quiet = sum(each <= 1 for each in most)
    print(
        f"{model} {precision}: {found} of {seeds} weights named first; nothing named with {quiet} of "
        f"{INPUTS} inputs where none is changed, largest error {max(most):.2f} of what is explained",
        flush=True,
    )
    return found == seeds and quiet == INPUTS


def measure_cost(model: str, precision: str) -> bool:
    """Prints what a comparison costs; returns whether that is within the limits."""
    request = GapRequest(export=ExportRequest(model, precision))
    start = processor_s()
    gaps = compare_with_eager(request, LocalTarget())
    tapped_s = processor_s() - start
    peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with tempfile.TemporaryDirectory() as name, upstream.quiet_upstream():
        torch.manual_seed(SEED)
        start = processor_s()
        run_untapped(request, gaps.method, Path(name))
        untapped_s = processor_s() - start
    most = max(row.excess for row in gaps.rows)
    ratio = tapped_s / untapped_s
    print(
        f"{model} {precision}: {tapped_s:.1f} s of processor time, {ratio:.2f} times the "
        f"{untapped_s:.1f} s without taps (limit {LIMIT_RATIO:.0f}), peak {peak / 1e6:.0f} MB (limit "
        f"{LIMIT_BYTES / 1e6:.0f}), largest error {most:.2f} of what is explained",
        flush=True,
    )
    return ratio < LIMIT_RATIO and peak < LIMIT_BYTES


def processor_s() -> float:
    """Returns what this process and its children computed; others on the machine do not count."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def run_untapped(request: GapRequest, method: str, folder: Path) -> None:
    """Exports a method and runs it, as `compare_with_eager` does, without taps."""
    request, session = start_export(request, StageClock())
    prepared = session.prepare()
    given = prepared.methods[method]
    options = request.export.options
    traced = session.rewriting.before_lowering(lowering.trace(method, given))
    lowered = lowering.lower({method: traced}, request.export.backend, options)
    program = folder / "untapped.pte"
    program.write_bytes(
        lowering.make_program(lowered.edge, options, prepared.shared_buffers).buffer
    )
    runtime_check.check_program(
        program,
        None,
        method,
        given,
        prepared.references[method],
        precision=request.export.precision,
        floors=request.export.floors(),
    )


def main() -> int:
    """Measures the models named, or all; returns 1 when one missed something."""
    parser = argparse.ArgumentParser()
    parser.add_argument("models", nargs="*")
    parser.add_argument("--dtype", default="fp16")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--weights-only", action="store_true")
    arguments = parser.parse_args()
    models = arguments.models or find_models()
    kept = []
    if not arguments.weights_only:
        # The first export of a process pays for imports.
        compare_with_eager(GapRequest(export=ExportRequest("toy_cnn", "fp32")), LocalTarget())
        kept += [measure_cost(model, arguments.dtype) for model in models]
    kept += [count_found(model, arguments.dtype, arguments.seeds) for model in models]
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
