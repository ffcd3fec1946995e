"""Speed of language models: first token, prompt and new tokens, and what was generated."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from etprof.statistics.order_statistics import CONFIDENCE
from etprof.statistics.summary import BlockedMedian, summarise_blocks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from etprof.analysis.roofline import Roofs
    from etprof.run.delegation import StepBytes
    from etprof.run.directory import BlockMetrics, ExperimentMetrics, GeneratedTokens


LEAST_TOKENS: Final = {q: math.ceil(math.log(1 - CONFIDENCE) / math.log(q)) for q in (0.9, 0.99)}
"""Tokens of a launch from which on a quantile is told: the largest of n is beyond the quantile q
with probability 1 - q^n (Conover, Practical Nonparametric Statistics, section 3.2); 29 and 299."""
_MOST_RANGES: Final = 8
_NS_PER_S: Final = 1e9


@dataclass(frozen=True)
class PositionLatency:
    """How long a token takes that is written to this part of the cache."""

    first: int
    """Position in the cache, prompt included; from 0."""
    last: int
    latency_ns: BlockedMedian
    """Median over launches of each launch's mean."""


@dataclass(frozen=True)
class GenerationSpeed:
    """How fast tokens come; medians over launches, with intervals between launches."""

    time_to_first_token_ns: BlockedMedian
    """In a process that has generated before: of each launch's median."""
    cold_first_token_ns: BlockedMedian | None
    """In a fresh process: loading, and the first generation up to its first token. None where the
    runner did not tell that."""
    prefill_tokens_per_second: BlockedMedian
    decode_tokens_per_second: BlockedMedian
    """1 ÷ `token_mean_ns`: the same tokens of the same launches."""
    token_mean_ns: BlockedMedian
    """Of each launch's mean latency of a token after the first."""
    token_latency_ns: BlockedMedian
    """Of each launch's median: what most tokens take."""
    token_p90_ns: BlockedMedian | None
    """Of each launch's 90th percentile; None with fewer than `LEAST_TOKENS` in a launch."""
    token_p99_ns: BlockedMedian | None
    tokens: int
    """After the first, of all generations of all launches."""
    tokens_of_a_launch: int
    """The fewest of any."""
    positions: tuple[PositionLatency, ...]
    """Empty where it is not known where the tokens stood."""


def summarise_generation(metrics: ExperimentMetrics) -> GenerationSpeed | None:
    """Reduces all blocks of an experiment; None when they generated no tokens."""
    blocks = [block.generation for block in metrics.blocks if block.generation is not None]
    if not blocks or not all(block.token_latency_ns for block in blocks):
        return None
    tokens = [block.token_latency_ns for block in blocks]
    mean = summarise_blocks([[float(np.mean(token))] for token in tokens])
    cold = [
        first_token_ns
        for block in metrics.blocks
        if (first_token_ns := _cold_first_token_ns(block)) is not None
    ]
    fewest = min(map(len, tokens))
    return GenerationSpeed(
        time_to_first_token_ns=summarise_blocks([b.time_to_first_token_ns for b in blocks]),
        cold_first_token_ns=summarise_blocks([[first_token_ns] for first_token_ns in cold])
        if len(cold) == len(blocks)
        else None,
        prefill_tokens_per_second=summarise_blocks([b.prefill_tokens_per_second for b in blocks]),
        decode_tokens_per_second=_rate(mean),
        token_mean_ns=mean,
        token_latency_ns=summarise_blocks(tokens),
        token_p90_ns=_quantile(tokens, 0.9),
        token_p99_ns=_quantile(tokens, 0.99),
        tokens=sum(map(len, tokens)),
        tokens_of_a_launch=fewest,
        positions=tuple(_by_position(tokens, metrics.generated)),
    )


def _rate(mean_ns: BlockedMedian) -> BlockedMedian:
    """Tokens a second, where each takes so long: the quantity's own reciprocal, ends included."""
    interval = mean_ns.interval
    return BlockedMedian(
        _NS_PER_S / mean_ns.median,
        interval
        and replace(interval, low=_NS_PER_S / interval.high, high=_NS_PER_S / interval.low),
        tuple(_NS_PER_S / block_median for block_median in mean_ns.block_medians),
    )


def _quantile(tokens: Sequence[Sequence[int]], quantile: float) -> BlockedMedian | None:
    if min(map(len, tokens)) < LEAST_TOKENS[quantile]:
        return None
    return summarise_blocks([[float(np.quantile(token, quantile))] for token in tokens])


def _cold_first_token_ns(block: BlockMetrics) -> float | None:
    first = block.generation.first_of_process_ns if block.generation else None
    load = block.load.total_ns
    return None if first is None or load is None else load + first


def _by_position(
    tokens: Sequence[Sequence[int]], generated: GeneratedTokens | None
) -> Iterator[PositionLatency]:
    """Yields equal parts of the cache; the first new token is the prompt's, and is in none."""
    count = len(generated.tokens) - 1 if generated else 0
    if (
        generated is None
        or count < 1
        or any(len(launch_tokens) % count for launch_tokens in tokens)
    ):
        return
    start = len(generated.prompt_tokens)
    by_position = [np.reshape(token, (-1, count)).mean(axis=0) for token in tokens]
    for positions in np.array_split(np.arange(count), min(_MOST_RANGES, count)):
        latency = summarise_blocks([[float(means[positions].mean())] for means in by_position])
        yield PositionLatency(start + int(positions[0]), start + int(positions[-1]), latency)


def block_values(block: BlockMetrics) -> dict[str, float]:
    """Returns the medians of one block's generations by metric; empty when it has none.

    Tokens a second are those of all its tokens together: 1 ÷ their mean latency.
    """
    if block.generation is None:
        return {}
    values = block.generation.model_dump(exclude={"first_of_process_ns"})
    medians = {name: float(np.median(samples)) for name, samples in values.items() if samples}
    if block.generation.token_latency_ns:
        mean_ns = float(np.mean(block.generation.token_latency_ns))
        medians |= {"token_mean_ns": mean_ns, "decode_tokens_per_second": _NS_PER_S / mean_ns}
    cold_ns = _cold_first_token_ns(block)
    return medians if cold_ns is None else {**medians, "cold_first_token_ns": cold_ns}


@dataclass(frozen=True)
class StepTraffic:
    """What adding a token has to read, and how fast that was."""

    step: StepBytes
    gigabytes_per_s: float | None
    """These bytes ÷ the mean latency of a token, in 10⁹ a second; None without times."""
    of_stream: float | None
    """÷ the fastest stream of that size on this device; None where no peaks of it were measured."""


def trace_step(
    step: StepBytes | None, speed: GenerationSpeed | None, roofs: Roofs | None
) -> StepTraffic | None:
    """Holds a token's bytes against its time and the device; None where the bytes are not known."""
    if step is None or not step.total:
        return None
    rate = None if speed is None else step.total / speed.token_mean_ns.median
    stream = None if roofs is None else roofs.bandwidth(step.total).high
    return StepTraffic(step, rate, rate / stream if rate is not None and stream else None)


@dataclass(frozen=True)
class TokenComparison:
    """What two experiments generated after the same prompt."""

    baseline: tuple[int, ...]
    candidate: tuple[int, ...]

    @property
    def first_difference(self) -> int | None:
        """Place of the first new token that differs, from 0; None when all are equal."""
        for position, pair in enumerate(zip(self.baseline, self.candidate, strict=False)):
            if pair[0] != pair[1]:
                return position
        shorter = min(len(self.baseline), len(self.candidate))
        return None if len(self.baseline) == len(self.candidate) else shorter

    def __str__(self) -> str:
        position = self.first_difference
        if position is None:
            return f"all {len(self.baseline)} tokens are equal"
        pair = [
            str(side[position]) if position < len(side) else "nothing"
            for side in (self.baseline, self.candidate)
        ]
        return (
            f"{position} tokens are equal, then {pair[0]} against {pair[1]}: from the first different "
            "token on, the two read different texts"
        )


def compare_tokens(
    baseline: GeneratedTokens | None, candidate: GeneratedTokens | None
) -> TokenComparison | None:
    """Compares two generations; None when there are not two after the same prompt."""
    if baseline is None or candidate is None or baseline.prompt_tokens != candidate.prompt_tokens:
        return None
    return TokenComparison(tuple(baseline.tokens), tuple(candidate.tokens))
