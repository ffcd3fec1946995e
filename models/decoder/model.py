"""A decoder-only language model of LLaMA's form (Touvron et al., 2023) with a key-value cache.

Two methods: `prefill` reads a prompt at once, `decode` adds one token. Both write their keys and
values into the cache, a buffer of the program, so that nothing is copied in or out.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention, silu

from etprof.model_registry.eager_model import EagerModelBase, ExportMethod

_VOCABULARY, _WIDTH, _DEPTH, _HEADS, _KV_HEADS = 4096, 256, 2, 8, 4
_HEAD_WIDTH, _HIDDEN, _CACHE, _PROMPT = 32, 704, 256, 64


class RMSNorm(nn.Module):
    """Divides by the root mean square of the last dimension."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [..., width] to the same shape."""
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * self.weight


class Attention(nn.Module):
    """Grouped-query attention over everything in the cache up to the current position."""

    def __init__(self) -> None:
        super().__init__()
        self.wq = nn.Linear(_WIDTH, _HEADS * _HEAD_WIDTH, bias=False)
        self.wk = nn.Linear(_WIDTH, _KV_HEADS * _HEAD_WIDTH, bias=False)
        self.wv = nn.Linear(_WIDTH, _KV_HEADS * _HEAD_WIDTH, bias=False)
        self.wo = nn.Linear(_HEADS * _HEAD_WIDTH, _WIDTH, bias=False)
        shape = (1, _KV_HEADS, _CACHE, _HEAD_WIDTH)
        self.register_buffer("k_cache", torch.zeros(shape), persistent=False)
        self.register_buffer("v_cache", torch.zeros(shape), persistent=False)
        self.k_cache: torch.Tensor
        self.v_cache: torch.Tensor

    def forward(
        self, x: torch.Tensor, positions: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        """Maps [1, tokens, width] at int64 `positions` of [tokens] to the same shape."""
        query = _rotate(_split(self.wq(x)), rotation)
        self.k_cache[:, :, positions] = _rotate(_split(self.wk(x)), rotation)
        self.v_cache[:, :, positions] = _split(self.wv(x))
        group = _HEADS // _KV_HEADS
        key = self.k_cache.repeat_interleave(group, dim=1)
        value = self.v_cache.repeat_interleave(group, dim=1)
        later = torch.arange(_CACHE)[None, :] > positions[:, None]
        attended = scaled_dot_product_attention(query, key, value, later.to(x.dtype) * -1e4)
        result: torch.Tensor = self.wo(attended.transpose(1, 2).flatten(2))
        return result


def _split(x: torch.Tensor) -> torch.Tensor:
    """Maps [1, tokens, heads * 32] to [1, heads, tokens, 32]."""
    return x.view(1, x.shape[1], -1, _HEAD_WIDTH).transpose(1, 2)


def _rotate(x: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Turns each pair of halves by its position's angles (Su et al., RoFormer, 2021)."""
    cosine, sine = rotation
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cosine - second * sine, second * cosine + first * sine), dim=-1)


class DecoderLayer(nn.Module):
    """Attention and a gated feed-forward network."""

    def __init__(self) -> None:
        super().__init__()
        self.attention_norm = RMSNorm(_WIDTH)
        self.attention = Attention()
        self.ffn_norm = RMSNorm(_WIDTH)
        self.w1 = nn.Linear(_WIDTH, _HIDDEN, bias=False)
        self.w2 = nn.Linear(_HIDDEN, _WIDTH, bias=False)
        self.w3 = nn.Linear(_WIDTH, _HIDDEN, bias=False)

    def forward(
        self, x: torch.Tensor, positions: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        """Maps [1, tokens, width] to the same shape."""
        x = x + self.attention(self.attention_norm(x), positions, rotation)
        y = self.ffn_norm(x)
        result: torch.Tensor = x + self.w2(silu(self.w1(y)) * self.w3(y))
        return result


class Decoder(nn.Module):
    """Two layers of width 256 with eight heads and a cache of 256 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tok_embeddings = nn.Embedding(_VOCABULARY, _WIDTH)
        self.layers = nn.ModuleList(DecoderLayer() for _ in range(_DEPTH))
        self.norm = RMSNorm(_WIDTH)
        self.output = nn.Linear(_WIDTH, _VOCABULARY, bias=False)
        rates = 10000.0 ** (-torch.arange(0, _HEAD_WIDTH, 2) / _HEAD_WIDTH)
        angles = torch.arange(_CACHE)[:, None] * rates
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)
        self.cosine: torch.Tensor
        self.sine: torch.Tensor

    def forward(self, token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """Maps ids of [1, tokens] at `positions` of [tokens] to the last token's [1, 4096] scores."""
        rotation = (self.cosine[positions], self.sine[positions])
        x = self.tok_embeddings(token_ids)
        for layer in self.layers:
            x = layer(x, positions, rotation)
        scores: torch.Tensor = self.output(self.norm(x[:, -1]))
        return scores


class Step(nn.Module):
    """One of the decoder's two methods; both are the same computation at another length."""

    def __init__(self, decoder: Decoder) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, token_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """As the decoder's."""
        scores: torch.Tensor = self.decoder(token_ids, positions)
        return scores


class DecoderModel(EagerModelBase):
    """Reads a prompt of 64 tokens, or adds the token after it."""

    def get_eager_model(self) -> Decoder:
        """Returns the network with random weights."""
        return Decoder()

    def get_example_inputs(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns a prompt and its positions."""
        return (torch.randint(_VOCABULARY, (1, _PROMPT)), torch.arange(_PROMPT))

    def get_methods(self) -> Mapping[str, ExportMethod]:
        """Returns `prefill` and `decode`, which share weights."""
        decoder = self.get_eager_model()
        one = (torch.randint(_VOCABULARY, (1, 1)), torch.tensor([_PROMPT]))
        return {
            "prefill": ExportMethod(Step(decoder), self.get_example_inputs()),
            "decode": ExportMethod(Step(decoder), one),
        }

    def get_constants(self) -> Mapping[str, int]:
        """Returns what runners of language models ask for, under the names ExecuTorch uses."""
        return {
            "get_max_seq_len": _CACHE,
            "get_max_context_len": _CACHE,
            "get_vocab_size": _VOCABULARY,
            "get_n_layers": _DEPTH,
            "use_kv_cache": True,
            "enable_dynamic_shape": False,
        }
