"""What a language model's program makes of a text, beside the float32 model: `quality` of its manifest."""

from __future__ import annotations

from etprof.base.records import Count, Name, Record
from etprof.run.accuracy import Verdict


class LayerLoss(Record):
    """What the weights of one layer cost, rounded alone in a model that is float32 otherwise."""

    module: Name
    divergence_nats: float


class TextQuality(Record):
    """How a program read a text token by token, and what it added to the text's beginning.

    Both in ExecuTorch's runtime on the host that exported.
    """

    program: Name
    """The program by its content: of another one this says nothing."""
    text: Name
    """Which text, and how it became ids."""
    tokens: Count
    """Ids whose successor was scored."""
    vocabulary: Count
    perplexity: float | None
    """e to the mean negative log-probability of each next token; None where that is not finite."""
    eager_perplexity: float | None = None
    """Of the float32 model on the same ids; None, as all below, where nobody computed it."""
    same_top1: float | None = None
    """Share of the places at which the most likely token is the float32 model's."""
    divergence_nats: float | None = None
    """Mean Kullback-Leibler divergence from the float32 model's probabilities."""
    prompt_tokens: Count = 0
    """From which both generated."""
    new_tokens: Count = 0
    same_tokens: Count | None = None
    """Of these, before the first that is not the float32 model's."""
    layers: tuple[LayerLoss, ...] = ()
    """Of a program that failed: which layers' weights cost most, the worst first."""
    verdict: Verdict

    @property
    def perplexity_ratio(self) -> float | None:
        """÷ the float32 model's: 1 costs nothing."""
        if self.perplexity is None or self.eager_perplexity is None:
            return None
        return self.perplexity / self.eager_perplexity

    @property
    def agreement(self) -> float | None:
        """Share of the new tokens that come before the first other one."""
        known = self.same_tokens is not None and self.new_tokens
        return (self.same_tokens or 0) / self.new_tokens if known else None
