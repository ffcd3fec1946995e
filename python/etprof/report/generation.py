"""What a language model generated, and how fast, in words for every report."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from etprof.base.text import clean
from etprof.base.units import MISSING, count_of, format_duration, format_value
from etprof.report.tables import bordered_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from etprof.analysis.generation import GenerationSpeed
    from etprof.analysis.run_analysis import ExperimentAnalysis
    from etprof.run.directory import GeneratedTokens
    from etprof.statistics.summary import BlockedMedian

_SHOWN_TOKENS: Final = 24
_LONGEST_TEXT: Final = 100_000
"""Characters of what was read and generated: more than a screen is no name, and is shown."""


def generation_rows(speed: GenerationSpeed) -> list[tuple[str, str, str]]:
    """Returns label, median and 95 % interval over blocks of each speed."""
    quantities = (
        ("Time to first token", speed.time_to_first_token_ns, "ns"),
        ("Prefill, tokens", speed.prefill_tokens_per_second, "1/s"),
        ("Decode, tokens", speed.decode_tokens_per_second, "1/s"),
        ("Latency of a token", speed.token_latency_ns, "ns"),
    )
    return [(label, *_texts(summary, unit)) for label, summary, unit in quantities]


def _texts(summary: BlockedMedian, unit: str) -> tuple[str, str]:
    interval = summary.interval
    span = MISSING
    if interval is not None:
        span = f"{format_value(unit, interval.low)} … {format_value(unit, interval.high)}"
    return format_value(unit, summary.median), span


def distribution_text(speed: GenerationSpeed) -> str:
    """Says how single tokens spread: p50, p90, p99."""
    samples = speed.token_samples
    places = (("p50", samples.median), ("p90", samples.p90), ("p99", samples.p99))
    found = ", ".join(f"{name} {format_duration(value)}" for name, value in places)
    return f"{count_of(samples.count, 'token')} after the first: {found}"


def prompt_text(generated: GeneratedTokens) -> str:
    """Says what was read and generated, and by which methods."""
    prompt, at_once = len(generated.prompt_tokens), generated.prefilled_tokens
    steps = prompt - at_once
    how = [f"{at_once} at once by {generated.prefill_method}"] if at_once else []
    how += [f"{steps} one by one by {generated.decode_method}"] if steps else []
    new = count_of(len(generated.tokens), "new token")
    return f"{count_of(prompt, 'prompt token')} ({', '.join(how)}), {new}"


def generated_text(generated: GeneratedTokens) -> str:
    """Returns what the model said, on one line: text with a tokenizer, else its first ids."""
    if generated.text is not None:
        return clean(f"{generated.prompt or ''}{generated.text}", _LONGEST_TEXT)
    shown = " ".join(map(str, generated.tokens[:_SHOWN_TOKENS]))
    return shown + (" …" if len(generated.tokens) > _SHOWN_TOKENS else "")


def unsteady_text(generated: GeneratedTokens) -> str | None:
    """Says which launches generated something else; None when all agree."""
    if not generated.differing_blocks:
        return None
    blocks = ", ".join(str(block + 1) for block in generated.differing_blocks)
    return f"blocks {blocks} generated other tokens than the first: the program is not repeatable"


def render_generation(
    experiment: ExperimentAnalysis, *, times_are_meaningful: bool
) -> list[RenderableType]:
    """Returns the speed, where times mean anything, and what was generated."""
    generated = experiment.metrics.generated if experiment.metrics else None
    if generated is None:
        return []
    parts: list[RenderableType] = [Text(f"{prompt_text(generated)}.")]
    speed = experiment.generation
    if speed is not None and times_are_meaningful:
        blocks = len(speed.time_to_first_token_ns.block_medians)
        title = f"Generation, {count_of(blocks, 'process launch', 'process launches')}"
        table = bordered_table(title, "", "median", "95 % interval")
        for row in generation_rows(speed):
            table.add_row(*row)
        parts += [table, Text(f"{distribution_text(speed)}.")]
    parts.append(Text(f"Generated: {generated_text(generated)}"))
    unsteady = unsteady_text(generated)
    return [*parts, Text(f"Note: {unsteady}", style="yellow")] if unsteady else parts


def generation_views(
    experiments: Sequence[ExperimentAnalysis], *, times_are_meaningful: bool
) -> list[dict[str, Any]]:
    """Returns the same for the HTML report, one entry per experiment that generated tokens."""
    return [
        {
            "name": experiment.name,
            "what": prompt_text(generated),
            "rows": generation_rows(speed) if speed and times_are_meaningful else [],
            "spread": distribution_text(speed) if speed and times_are_meaningful else "",
            "generated": generated_text(generated),
            "unsteady": unsteady_text(generated) or "",
        }
        for experiment in experiments
        if (generated := experiment.metrics.generated if experiment.metrics else None)
        for speed in [experiment.generation]
    ]


def generation_document(
    experiment: ExperimentAnalysis, *, times_are_meaningful: bool
) -> dict[str, object] | None:
    """Returns the same as JSON data."""
    generated = experiment.metrics.generated if experiment.metrics else None
    if generated is None:
        return None
    speed = experiment.generation if times_are_meaningful else None
    return {
        **generated.model_dump(),
        "speed": dataclasses.asdict(speed) if speed else None,
    }
