"""Small language models of bytes, and how they are trained: parts of `llm_quality.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.nn.functional import cross_entropy

from etprof.base.upstream_noise import quiet_upstream
from etprof.export.model_loading import load_methods
from etprof.model_registry.eager_model import EagerModelBase, ExportMethod

_BYTES, _LENGTH, _CACHE, _PROMPT = 256, 128, 256, 64
_RATE: Final = 2e-3
_ARGUMENTS: Final[Mapping[str, Any]] = {
    "dim": 128, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "vocab_size": _BYTES,
    "hidden_dim": 256, "norm_eps": 1e-5, "max_seq_len": _CACHE, "max_context_len": _CACHE,
}  # fmt: skip


def _make_llama(**arguments: bool) -> nn.Module:
    with quiet_upstream():
        from executorch.examples.models.llama.llama_transformer import construct_transformer
        from executorch.examples.models.llama.model_args import ModelArgs

    network: nn.Module = construct_transformer(ModelArgs(**_ARGUMENTS, **arguments))
    return network


class LlamaStep(nn.Module):
    """ExecuTorch's LLaMA with its key-value cache."""

    def __init__(self, network: nn.Module | None = None) -> None:
        super().__init__()
        self.network = network or _make_llama(use_kv_cache=True)

    def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Maps ids of [1, tokens] at `positions` of [tokens] to the last one's scores of [1, 256]."""
        scores: torch.Tensor = self.network(tokens, {"input_pos": positions})
        return scores


class LlamaModel(EagerModelBase):
    """The LLaMA of ExecuTorch's examples, small."""

    def get_eager_model(self) -> nn.Module:
        """Returns the network with random weights."""
        return LlamaStep()

    def get_example_inputs(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns a token and its position."""
        return (torch.tensor([[ord("T")]]), torch.tensor([0]))

    def get_methods(self) -> Mapping[str, ExportMethod]:
        """Returns `decode` alone."""
        return {"decode": ExportMethod(self.get_eager_model(), self.get_example_inputs())}


class LlamaOfTwoMethods(LlamaModel):
    """The same, which reads a prompt of 64 tokens at once."""

    def get_methods(self) -> Mapping[str, ExportMethod]:
        """Returns `prefill` and `decode`, which share weights and cache."""
        step = LlamaStep()
        prompt = (torch.randint(_BYTES, (1, _PROMPT)), torch.arange(_PROMPT))
        one = (torch.randint(_BYTES, (1, 1)), torch.tensor([_PROMPT]))
        return {
            "prefill": ExportMethod(LlamaStep(step.network), prompt),
            "decode": ExportMethod(step, one),
        }


def _decoder_scores(step: nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    """The zoo's decoder on whole texts, of which it would score the last token alone."""
    decoder: Any = step.decoder

    def score(tokens: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(tokens.shape[1])
        for name, buffer in decoder.named_buffers():
            if name.endswith("_cache"):
                buffer.detach_().zero_()
        x = decoder.tok_embeddings(tokens)
        for layer in decoder.layers:
            x = layer(x, positions, (decoder.cosine[positions], decoder.sine[positions]))
        scores: torch.Tensor = decoder.output(decoder.norm(x))
        return scores

    return score


@dataclass(frozen=True)
class Network:
    """Where a model's code is, as `etprof export` takes it."""

    model: str


NETWORKS: Final[Mapping[str, Network]] = {
    "decoder": Network("decoder"),
    "executorch_llama": Network(f"{Path(__file__).resolve()}:LlamaModel"),
}


def train(name: str, text: bytes, steps: int) -> dict[str, torch.Tensor]:
    """Returns the checkpoint of a model that has read `steps` pieces of 128 bytes."""
    if name == "decoder":
        step: Any = load_methods("decoder")["decode"].module
        network, score = step.decoder, _decoder_scores(step)
        _fit(network, score, text, steps)
        return dict(network.state_dict())
    trained = _make_llama(use_kv_cache=False, generate_full_logits=True)
    _fit(trained, trained, text, steps)
    kept = LlamaStep()
    kept.network.load_state_dict(trained.state_dict(), strict=False)
    return dict(kept.state_dict())


def _fit(
    network: nn.Module, score: Callable[[torch.Tensor], torch.Tensor], text: bytes, steps: int
) -> None:
    network.train().requires_grad_(requires_grad=True)
    optimizer = torch.optim.AdamW(network.parameters(), lr=_RATE)
    ids = torch.tensor(list(text))
    for _ in range(steps):
        start = int(torch.randint(len(ids) - _LENGTH - 1, ()))
        piece = ids[start : start + _LENGTH + 1]
        loss = cross_entropy(score(piece[None, :-1]).flatten(0, 1), piece[1:])
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call] # PyTorch's
        optimizer.step()
