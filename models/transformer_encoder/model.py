"""A text encoder of BERT's form (Devlin et al., 2018), in the size of BERT-Mini."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from etprof.model_registry.eager_model import EagerModelBase

_VOCABULARY, _WIDTH, _DEPTH, _HEADS, _TOKENS = 30522, 256, 4, 4, 128


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network, each normalised after its shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key = nn.Linear(width, width)
        self.value = nn.Linear(width, width)
        self.output = nn.Linear(width, width)
        self.attention_norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.output_norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Maps [N, tokens, width] to the same shape; `mask` is added to the attention's scores."""
        attended = scaled_dot_product_attention(
            self._split(self.query(x)), self._split(self.key(x)), self._split(self.value(x)), mask
        )
        x = self.attention_norm(x + self.output(attended.transpose(1, 2).flatten(2)))
        result: torch.Tensor = self.output_norm(x + self.down(gelu(self.up(x))))
        return result

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        """Maps [N, tokens, width] to [N, heads, tokens, width / heads]."""
        batch, tokens, width = x.shape
        return x.view(batch, tokens, self.heads, width // self.heads).transpose(1, 2)


class TransformerEncoder(nn.Module):
    """Four layers of width 256."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(_VOCABULARY, _WIDTH)
        self.positions = nn.Embedding(_TOKENS, _WIDTH)
        self.norm = nn.LayerNorm(_WIDTH)
        self.layers = nn.ModuleList(EncoderLayer(_WIDTH, _HEADS) for _ in range(_DEPTH))

    def forward(self, token_ids: torch.Tensor, is_token: torch.Tensor) -> torch.Tensor:
        """Maps ids of [N, 128] and 1 for token, 0 for padding, to embeddings of [N, 128, 256]."""
        x: torch.Tensor = self.norm(self.tokens(token_ids) + self.positions.weight)
        # -1e4 and not infinity: it is in fp16's range and its exponential is 0 all the same.
        mask = (1 - is_token[:, None, None, :].to(x.dtype)) * -1e4
        for layer in self.layers:
            x = layer(x, mask)
        return x


class TransformerEncoderModel(EagerModelBase):
    """Encodes one text of 100 tokens and 28 of padding."""

    def get_eager_model(self) -> nn.Module:
        """Returns the network with random weights."""
        return TransformerEncoder()

    def get_example_inputs(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns token ids and which of them are tokens, both int64."""
        is_token = torch.zeros(1, _TOKENS, dtype=torch.int64)
        is_token[:, :100] = 1
        return (torch.randint(_VOCABULARY, (1, _TOKENS)) * is_token, is_token)

    def get_calibration_data(self) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Returns eight texts."""
        return [self.get_example_inputs() for _ in range(8)]
