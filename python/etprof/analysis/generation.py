"""Speed of language models: first token, prompt and new tokens, and what was generated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from etprof.statistics.summary import BlockedMedian, SampleSummary, summarise, summarise_blocks

if TYPE_CHECKING:
    from etprof.run.directory import BlockMetrics, ExperimentMetrics, GeneratedTokens


@dataclass(frozen=True)
class GenerationSpeed:
    """How fast tokens come; medians over blocks of each block's median."""

    time_to_first_token_ns: BlockedMedian
    prefill_tokens_per_second: BlockedMedian
    decode_tokens_per_second: BlockedMedian
    token_latency_ns: BlockedMedian
    token_samples: SampleSummary
    """Latencies of all tokens after the first, of all generations."""


def summarise_generation(metrics: ExperimentMetrics) -> GenerationSpeed | None:
    """Reduces all blocks of an experiment; None when they generated no tokens."""
    blocks = [block.generation for block in metrics.blocks if block.generation is not None]
    if not blocks or not all(block.token_latency_ns for block in blocks):
        return None
    return GenerationSpeed(
        time_to_first_token_ns=summarise_blocks([b.time_to_first_token_ns for b in blocks]),
        prefill_tokens_per_second=summarise_blocks([b.prefill_tokens_per_second for b in blocks]),
        decode_tokens_per_second=summarise_blocks([b.decode_tokens_per_second for b in blocks]),
        token_latency_ns=summarise_blocks([b.token_latency_ns for b in blocks]),
        token_samples=summarise([value for b in blocks for value in b.token_latency_ns]),
    )


def block_values(block: BlockMetrics) -> dict[str, float]:
    """Returns the medians of one block's generations by metric; empty when it has none."""
    if block.generation is None:
        return {}
    values = block.generation.model_dump()
    return {name: float(np.median(samples)) for name, samples in values.items() if samples}


@dataclass(frozen=True)
class TokenComparison:
    """What two experiments generated after the same prompt."""

    baseline: tuple[int, ...]
    candidate: tuple[int, ...]

    @property
    def first_difference(self) -> int | None:
        """Place of the first new token that differs, from 0; None when all are equal."""
        for place, pair in enumerate(zip(self.baseline, self.candidate, strict=False)):
            if pair[0] != pair[1]:
                return place
        shorter = min(len(self.baseline), len(self.candidate))
        return None if len(self.baseline) == len(self.candidate) else shorter

    def __str__(self) -> str:
        place = self.first_difference
        if place is None:
            return f"all {len(self.baseline)} tokens are equal"
        pair = [
            str(side[place]) if place < len(side) else "nothing"
            for side in (self.baseline, self.candidate)
        ]
        return (
            f"{place} tokens are equal, then {pair[0]} against {pair[1]}: from the first different "
            "token on, the two read different texts"
        )


def compare_tokens(
    baseline: GeneratedTokens | None, candidate: GeneratedTokens | None
) -> TokenComparison | None:
    """Compares two generations; None when there are not two after the same prompt."""
    if baseline is None or candidate is None or baseline.prompt_tokens != candidate.prompt_tokens:
        return None
    return TokenComparison(tuple(baseline.tokens), tuple(candidate.tokens))
