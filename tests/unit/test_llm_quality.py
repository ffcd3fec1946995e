"""What `benchmarks/llm_quality.py` says of a program, on scores that are known."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from types import ModuleType

    from llm_quality import Quality, Scorer

pytestmark = pytest.mark.slow
TEXT = bytes(range(32, 96)) * 4
"""Each byte has one follower."""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    return importlib.import_module("llm_quality")


def scorer(sureness: float, wrong_from: int = 1000) -> Scorer:
    """Gives the follower `sureness` more than the other 255; another byte from a place on."""

    def score(token: int, place: int) -> torch.Tensor:
        scores = torch.zeros(256)
        scores[0 if place >= wrong_from else TEXT[(TEXT.index(token) + 1) % 64]] = sureness
        return scores

    return score


def row(script: ModuleType, own: Scorer) -> Quality:
    eager = scorer(4.0)
    expected = script.score_text(eager, TEXT), script.generate(eager, TEXT)
    found: Quality = script.compare("m", "p", own, expected, TEXT)
    return found


def test_eager_beside_itself_costs_nothing(script: ModuleType) -> None:
    found = row(script, scorer(4.0))
    # The follower has e⁴ of e⁴ + 255.
    assert found.perplexity == pytest.approx((math.exp(4) + 255) / math.exp(4))
    assert (found.perplexity_ratio, found.same_top1, found.same_tokens) == (1, 1, script.NEW)
    assert found.divergence_nats == pytest.approx(0)


def test_a_program_that_knows_nothing_has_the_perplexity_of_its_vocabulary(
    script: ModuleType,
) -> None:
    found = row(script, lambda *_: torch.zeros(256))
    assert found.perplexity == pytest.approx(256)
    assert found.same_top1 == 0
    # The mean of log(p ÷ q) under eager's own probabilities p.
    share = math.exp(4) / (math.exp(4) + 255)
    told = share * math.log(share * 256) + (1 - share) * math.log((1 - share) / 255 * 256)
    assert found.divergence_nats == pytest.approx(told)


def test_a_program_that_goes_wrong_late_has_the_tokens_before(script: ModuleType) -> None:
    found = row(script, scorer(4.0, wrong_from=script.PROMPT + 9))
    assert found.same_tokens == 10
    assert found.same_top1 == pytest.approx((script.PROMPT + 9) / script.READ)
    assert found.perplexity_ratio > 1


def test_the_text_of_the_script_is_the_same_each_time_and_has_agreeing_numbers(
    script: ModuleType,
) -> None:
    text = script.make_text(sentences=50)
    assert text == script.make_text(sentences=50)
    for line in text.decode().splitlines():
        words = line.rstrip(".").split()
        assert words[4] == words[-1]
        assert words[5].endswith("s,") == (words[4] != "1")
