"""What was counted while a language model's prompt is read with SME2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from etprof.analysis.split.work import add_work, tile_uses

if TYPE_CHECKING:
    from etprof.analysis.run_analysis import RunAnalysis


@dataclass(frozen=True)
class PromptWork:
    """What was counted in SME2 while the prompt is read at once."""

    at_once: int | None
    """Tokens; the others are read one by one. None where no launch said."""
    macs: int
    """Multiply-accumulates of products on SME."""


def count_prompt_work(analysis: RunAnalysis) -> PromptWork | None:
    """Adds up the products on SME in mode sme2; None where nothing was counted in it."""
    counted = {
        mode: counts
        for mode, counts in analysis.counted_in_prefill.items()
        if counts.mode_in_force == "sme2"
    }
    if not counted:
        return None
    first = dict(list(counted.items())[:1])
    work = add_work(tile_uses(first))
    return PromptWork(analysis.prefilled_tokens, work.macs if work else 0)
