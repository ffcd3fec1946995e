"""The ledger from process start to steady state: load, first inference, steady, memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

import numpy as np

from etprof.analysis.generation import block_values
from etprof.statistics.effect import Effect, effect_of_runs, estimate_effect

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from etprof.run.directory import BlockMetrics, ExperimentMetrics
    from etprof.statistics.two_samples import Spread

Unit = Literal["ns", "bytes", "1/s"]


@dataclass(frozen=True)
class LedgerEntry:
    """One quantity on both sides: medians over blocks, and their effect for times and rates."""

    label: str
    unit: Unit
    baseline: float | None
    candidate: float | None
    effect: Effect | None


@dataclass(frozen=True)
class SeparateRuns:
    """The runs of both sides where they were not measured in turns: one or more each."""

    baseline: Sequence[ExperimentMetrics]
    candidate: Sequence[ExperimentMetrics]
    device_spreads: Mapping[str, Spread]
    """Spread of one run's log value by the history's name of the metric; empty where unknown."""
    in_turns: bool = False
    """Whether runs of both sides took turns."""


_ENTRIES: tuple[tuple[str, Unit, Callable[[BlockMetrics], float | None]], ...] = (
    ("Load program", "ns", lambda block: block.load.program_ns),
    ("Load method (with weight packing)", "ns", lambda block: block.load.method_ns),
    ("First inference", "ns", lambda block: block.first_inference_ns),
    ("Giving the inputs", "ns", lambda block: block.given_ns),
    ("Taking the outputs", "ns", lambda block: block.taken_ns),
    ("Steady inference", "ns", lambda block: float(np.median(block.latency_ns))),
    (
        "First inference beyond steady", "ns",
        lambda block: (
            None
            if block.first_inference_ns is None
            else block.first_inference_ns - float(np.median(block.latency_ns))
        ),
    ),
    ("Memory that loading takes", "bytes", lambda block: block.memory.taken_by_load_bytes),
    ("Memory after load", "bytes", lambda block: block.memory.rss_after_load_bytes),
    ("Peak memory", "bytes", lambda block: block.memory.peak_rss_bytes),
    ("Proportional memory (PSS)", "bytes", lambda block: block.memory.pss_bytes),
)  # fmt: skip

_GENERATION: tuple[tuple[str, Unit, str], ...] = (
    ("Time to first token, cold", "ns", "cold_first_token_ns"),
    ("Time to first token", "ns", "time_to_first_token_ns"),
    ("Prefill, tokens", "1/s", "prefill_tokens_per_second"),
    ("Decode, tokens", "1/s", "decode_tokens_per_second"),
    ("Latency of a token, mean", "ns", "token_mean_ns"),
    ("Latency of a token, median", "ns", "token_latency_ns"),
)


HISTORY_NAMES: Final = {
    "Steady inference": "latency_ns",
    "First inference": "first_inference_ns",
    **{label: name for label, _, name in _GENERATION if name != "token_latency_ns"},
}
"""The metrics of a history that are entries here."""


def build_ledger(
    baseline: ExperimentMetrics, candidate: ExperimentMetrics, *, margin: float
) -> tuple[LedgerEntry, ...]:
    """Compares every cost block by block, and the speed of generation where both have it."""
    return _without_one_sided_rates(
        [
            _compare_blocks(label, unit, baseline, candidate, value, margin)
            for label, unit, value in _quantities()
        ]
    )


def build_ledger_of_runs(runs: SeparateRuns, *, margin: float) -> tuple[LedgerEntry, ...]:
    """Compares every cost run by run, and the speed of generation where both have it."""
    return _without_one_sided_rates(
        [_compare_runs(label, unit, runs, value, margin) for label, unit, value in _quantities()]
    )


def _quantities() -> list[tuple[str, Unit, Callable[[BlockMetrics], float | None]]]:
    return [*_ENTRIES, *((label, unit, _reader(name)) for label, unit, name in _GENERATION)]


def _without_one_sided_rates(entries: Sequence[LedgerEntry]) -> tuple[LedgerEntry, ...]:
    """Leaves out the speed of generation where a side has none."""
    of_tokens = {label for label, _, _ in _GENERATION}
    return tuple(
        quantity
        for quantity in entries
        if quantity.label not in of_tokens or None not in {quantity.baseline, quantity.candidate}
    )


def _compare_runs(
    label: str,
    unit: Unit,
    runs: SeparateRuns,
    value: Callable[[BlockMetrics], float | None],
    margin: float,
) -> LedgerEntry:
    """Compares one quantity; the values are those whose ratio the speedup is."""
    sides = [
        [[v for v in map(value, run.blocks) if v is not None] for run in side]
        for side in (runs.baseline, runs.candidate)
    ]
    every = [v for side in sides for run in side for v in run]
    if unit == "bytes" or not all(run for side in sides for run in side) or min(every) <= 0:
        flat = [[v for run in side for v in run] for side in sides]
        before, after = (float(np.median(side)) if side else None for side in flat)
        return LedgerEntry(label, unit, before, after, None)
    slow, fast = sides if unit == "ns" else reversed(sides)
    device_spread = runs.device_spreads.get(HISTORY_NAMES.get(label, ""))
    effect = effect_of_runs(slow, fast, prior=device_spread, in_turns=runs.in_turns, margin=margin)
    before, after = (
        float(np.exp(np.mean([np.log(np.median(run)) for run in side]))) for side in sides
    )
    return LedgerEntry(label, unit, before, after, effect)


def _reader(name: str) -> Callable[[BlockMetrics], float | None]:
    """Returns what reads a metric of generation from a block."""
    return lambda block: block_values(block).get(name)


def pair_blocks(
    baseline: ExperimentMetrics, candidate: ExperimentMetrics
) -> list[tuple[BlockMetrics, BlockMetrics]]:
    """Pairs the blocks of the same number: neighbours in time when measured in one run."""
    candidate_blocks = {block.block: block for block in candidate.blocks}
    return [
        (block, candidate_blocks[block.block])
        for block in baseline.blocks
        if block.block in candidate_blocks
    ]


def _compare_blocks(  # noqa: PLR0913, PLR0917 - one line of a table
    label: str,
    unit: Unit,
    baseline: ExperimentMetrics,
    candidate: ExperimentMetrics,
    value: Callable[[BlockMetrics], float | None],
    margin: float,
) -> LedgerEntry:
    sides = [
        [v for v in map(value, metrics.blocks) if v is not None]
        for metrics in (baseline, candidate)
    ]
    pairs = [
        (value(baseline_block), value(candidate_block))
        for baseline_block, candidate_block in pair_blocks(baseline, candidate)
    ]
    positive = [
        (baseline_value, candidate_value)
        for baseline_value, candidate_value in pairs
        if baseline_value and candidate_value and min(baseline_value, candidate_value) > 0
    ]
    effect = None
    if unit != "bytes" and positive and len(positive) == len(pairs):
        sides_of_pairs = (
            [baseline_value for baseline_value, _ in positive],
            [candidate_value for _, candidate_value in positive],
        )
        # Of times the smaller is faster, of rates the larger.
        slow, fast = sides_of_pairs if unit == "ns" else reversed(sides_of_pairs)
        effect = estimate_effect(slow, fast, margin=margin)
    before, after = (float(np.median(side)) if side else None for side in sides)
    return LedgerEntry(label, unit, before, after, effect)
