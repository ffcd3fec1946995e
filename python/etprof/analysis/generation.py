"""Speed of language models: first token, prompt and new tokens, and what was generated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from pydantic import ValidationError

from etprof.base.errors import InputFileError
from etprof.base.json_input import parse_json
from etprof.base.records import Count, Record
from etprof.statistics.summary import BlockedMedian, SampleSummary, summarise, summarise_blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from etprof.run.directory import BlockMetrics, ExperimentMetrics, GeneratedTokens

OBSERVER_PREFIX: Final = "PyTorchObserver "


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


class ObserverStats(Record):
    """The statistics line of ExecuTorch's LLM runner, `PyTorchObserver {json}`; times in ms.

    Fields after `extension/llm/runner/stats.h` of ExecuTorch.
    """

    prompt_tokens: Count
    generated_tokens: Count
    model_load_start_ms: Count
    model_load_end_ms: Count
    inference_start_ms: Count
    inference_end_ms: Count
    prompt_eval_end_ms: Count
    first_token_ms: Count
    aggregate_sampling_time_ms: Count
    SCALING_FACTOR_UNITS_PER_SECOND: int = 1000

    @property
    def load_s(self) -> float:
        """Model load time, (model_load_end - model_load_start) ÷ units per second."""
        return self._seconds(self.model_load_start_ms, self.model_load_end_ms)

    @property
    def total_rate(self) -> float | None:
        """Tokens/s over everything, generated ÷ (inference_end - inference_start)."""
        return self._rate(self.generated_tokens, self.inference_start_ms, self.inference_end_ms)

    @property
    def prefill_rate(self) -> float | None:
        """Prompt tokens/s, prompt ÷ (prompt_eval_end - inference_start)."""
        return self._rate(self.prompt_tokens, self.inference_start_ms, self.prompt_eval_end_ms)

    @property
    def decode_rate(self) -> float | None:
        """Tokens/s after the prompt, generated ÷ (inference_end - prompt_eval_end).

        The first new token is in the count, though the prompt's evaluation brought its scores: for
        N new tokens this is N ÷ (N - 1) of `decode_tokens_per_second`.
        """
        return self._rate(self.generated_tokens, self.prompt_eval_end_ms, self.inference_end_ms)

    @property
    def time_to_first_token_s(self) -> float:
        """Time to first token, (first_token - inference_start) ÷ units per second."""
        return self._seconds(self.inference_start_ms, self.first_token_ms)

    @property
    def sampling_s(self) -> float:
        """Time spent choosing tokens."""
        return self.aggregate_sampling_time_ms / self.SCALING_FACTOR_UNITS_PER_SECOND

    def _seconds(self, begin: int, end: int) -> float:
        return (end - begin) / self.SCALING_FACTOR_UNITS_PER_SECOND

    def _rate(self, tokens: int, begin: int, end: int) -> float | None:
        """Tokens per second; None when the clock of whole ms saw no time pass."""
        return tokens / self._seconds(begin, end) if end > begin else None


def find_observer_stats(lines: Sequence[str]) -> list[ObserverStats]:
    """Reads all statistics lines among `lines`; raises InputFileError for a damaged one."""
    return [
        _read_stats(line.strip().removeprefix(OBSERVER_PREFIX))
        for line in lines
        if line.strip().startswith(OBSERVER_PREFIX)
    ]


def _read_stats(text: str) -> ObserverStats:
    try:
        return ObserverStats.model_validate(parse_json(text))
    except (ValueError, ValidationError) as error:
        reason = str(error).splitlines()[0]
        msg = f"a PyTorchObserver line is damaged ({reason}); run the model again"
        raise InputFileError(msg) from None
