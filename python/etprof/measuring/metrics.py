"""Gathers the results of all launches into metrics.json."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from etprof.run.directory import (
    BlockMetrics,
    ExperimentMetrics,
    GeneratedTokens,
    GenerationMetrics,
    Metrics,
)
from etprof.run.tokenizer import decode_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from etprof.measuring.launching import Launcher
    from etprof.measuring.plan import Experiment, Identity
    from etprof.run.generation import Generation
    from etprof.run.manifest import Purpose
    from etprof.run.runner_result import GenerationResult, RunnerResult

_NS_PER_S: Final = 1e9


def gather_metrics(
    results: Mapping[Identity, RunnerResult],
    experiments: Sequence[Experiment],
    launcher: Launcher,
    times_are_meaningful: bool,
) -> Metrics:
    """Returns raw latencies, load times and memory of every finished timing block."""
    found: dict[str, ExperimentMetrics] = {}
    for experiment in experiments:
        own = {
            (purpose, block): result
            for (name, purpose, block), result in results.items()
            if name == experiment.name
        }
        if own:
            files = launcher.files(experiment)
            etdump = f"{files.folder.name}/{files.etdump.name}"
            found[experiment.name] = _experiment_metrics(own, etdump, launcher.generation)
    return Metrics(times_are_meaningful=times_are_meaningful, experiments=found)


def _experiment_metrics(
    results: Mapping[tuple[Purpose, int | None], RunnerResult],
    etdump: str,
    generation: Generation | None,
) -> ExperimentMetrics:
    """Timing blocks of one experiment; mode and threads are the same in all its launches."""
    first = next(iter(results.values()))
    timing = {block: result for (purpose, block), result in results.items() if purpose == "timing"}
    return ExperimentMetrics(
        sme=first.sme.in_force if first.sme else None,
        threads=first.threads.in_force,
        etdump=etdump,
        generated=_generated_tokens(results, generation),
        blocks=[
            _block_metrics(block, result)
            for block, result in sorted(timing.items(), key=lambda item: item[0] or 0)
            if block is not None
        ],
    )


def _block_metrics(block: int, result: RunnerResult) -> BlockMetrics:
    """Keeps what a block is compared by."""
    fields = set(BlockMetrics.model_fields) - {"generation"}
    return BlockMetrics(
        block=block,
        given_ns=_median(result.input_ns),
        taken_ns=_median(result.output_ns),
        generation=_generation_metrics(result.generation) if result.generation else None,
        **result.model_dump(include=fields),
    )


def _median(samples: Sequence[int]) -> int | None:
    return round(median(samples)) if samples else None


def _generation_metrics(result: GenerationResult) -> GenerationMetrics:
    """Turns each repetition's times into rates."""
    repetitions = result.repetitions
    decoding = [sum(repetition.token_latency_ns) for repetition in repetitions]
    return GenerationMetrics(
        time_to_first_token_ns=[each.time_to_first_token_ns for each in repetitions],
        prefill_tokens_per_second=[
            len(result.prompt_tokens) * _NS_PER_S / each.prefill_ns for each in repetitions
        ],
        decode_tokens_per_second=[
            (len(result.tokens) - 1) * _NS_PER_S / total for total in decoding if total
        ],
        token_latency_ns=[latency for each in repetitions for latency in each.token_latency_ns],
    )


def _generated_tokens(
    results: Mapping[tuple[Purpose, int | None], RunnerResult], generation: Generation | None
) -> GeneratedTokens | None:
    """Returns what all launches of an experiment generated, by the first of them."""
    found = {key: each.generation for key, each in results.items() if each.generation}
    if not found or generation is None:
        return None
    first = next(iter(found.values()))
    text = None
    if generation.tokenizer is not None:
        text = decode_tokens(Path(generation.tokenizer), first.tokens)
    return GeneratedTokens(
        **first.model_dump(exclude={"cache_tokens", "repetitions"}),
        prompt=generation.prompt,
        text=text,
        differing_blocks=sorted(
            block or 0 for (_, block), each in found.items() if each.tokens != first.tokens
        ),
    )
