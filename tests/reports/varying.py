"""Models that are right on the example and, once something is planted, wrong on other inputs.

Lengths of a dynamic dimension, masks with padding, samples of another range: none of it shows in one
random input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.export import Dim

from tests.reports.stateful import Stateful

if TYPE_CHECKING:
    from collections.abc import Callable

EXAMPLE = 16
"""Length of the example inputs; what is planted holds there and nowhere else."""
CHANNELS = 32


class Varying(Stateful):
    """A module whose subclasses plant a fault that the example does not show."""


class Positions(Varying):
    """Learned positions for as many places as there are; planted: the last of the example's."""

    def __init__(self, *, is_wrong: bool = False) -> None:
        super().__init__(is_wrong=is_wrong)
        self.tokens, self.places = nn.Embedding(50, CHANNELS), nn.Embedding(64, CHANNELS)
        self.head = nn.Linear(CHANNELS, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        at = torch.arange(ids.shape[1])
        at = at.clamp(max=EXAMPLE - 1) if self.is_planted() else at
        result: torch.Tensor = self.head(self.tokens(ids) + self.places(at))
        return result


class MeanOverTime(Varying):
    """A mean over frames; planted: over as many as the example has."""

    def __init__(self, *, is_wrong: bool = False) -> None:
        super().__init__(is_wrong=is_wrong)
        self.head = nn.Linear(CHANNELS, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = EXAMPLE if self.is_planted() else x.shape[1]
        result: torch.Tensor = self.head(x.sum(1) / count)
        return result


class MaskedAttention(Varying):
    """Attention that a Boolean mask leaves padding out of; planted: it does not."""

    def __init__(self, *, is_wrong: bool = False) -> None:
        super().__init__(is_wrong=is_wrong)
        self.query, self.key = nn.Linear(CHANNELS, CHANNELS), nn.Linear(CHANNELS, CHANNELS)

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ self.key(x).transpose(1, 2) / CHANNELS**0.5
        keep = torch.ones_like(keep) if self.is_planted() else keep
        return torch.softmax(scores.masked_fill(~keep[:, None], -1e4), -1) @ x


class MaskedMean(Varying):
    """A mean of what a mask of zeros and ones counts; planted: the sum ÷ all places."""

    def __init__(self, *, is_wrong: bool = False) -> None:
        super().__init__(is_wrong=is_wrong)
        self.head = nn.Linear(CHANNELS, 8)

    def forward(self, x: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        weights = attention_mask.to(x.dtype)[..., None]
        count = EXAMPLE if self.is_planted() else weights.sum(1)
        result: torch.Tensor = self.head((x * weights).sum(1) / count)
        return result


class WideRange(Varying):
    """A layer whose samples are larger than its example; planted: what is beyond 4 is cut off."""

    def __init__(self, *, is_wrong: bool = False) -> None:
        super().__init__(is_wrong=is_wrong)
        self.head = nn.Linear(CHANNELS, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.clamp(-4, 4) if self.is_planted() else x
        result: torch.Tensor = self.head(x)
        return result


class Batches(Varying):
    """Rows of a batch on their own; planted: those beyond the example's are its last."""

    def __init__(self, *, is_wrong: bool = False) -> None:
        super().__init__(is_wrong=is_wrong)
        self.head = nn.Sequential(nn.Linear(CHANNELS, 64), nn.ReLU(), nn.Linear(64, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(x.shape[0])
        rows = rows.clamp(max=1) if self.is_planted() else rows
        result: torch.Tensor = self.head(x.index_select(0, rows))
        return result


class Images(Varying):
    """Images of any height; planted: padded rows as in the example's last place."""

    def __init__(self, *, is_wrong: bool = False) -> None:
        super().__init__(is_wrong=is_wrong)
        self.conv = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.conv(x))
        rows = torch.arange(x.shape[2])
        rows = rows.clamp(max=EXAMPLE - 1) if self.is_planted() else rows
        return x.index_select(2, rows)


class Pairs(Varying):
    """Two sequences of one length, added; planted: the second is read from its start only."""

    def __init__(self, *, is_wrong: bool = False) -> None:
        super().__init__(is_wrong=is_wrong)
        self.head = nn.Linear(CHANNELS, 8)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        at = torch.arange(x.shape[1])
        at = at % EXAMPLE if self.is_planted() else at
        result: torch.Tensor = self.head(x + y.cumsum(1).index_select(1, at))
        return result


def _length(most: int = 64) -> Any:  # noqa: ANN401 - torch.export's own
    return Dim("length", min=2, max=most)


def _frames(length: int = EXAMPLE) -> torch.Tensor:
    return torch.randn(1, length, CHANNELS)


INPUTS: dict[type[Varying], Callable[[], tuple[torch.Tensor, ...]]] = {
    Positions: lambda: (torch.randint(0, 50, (1, EXAMPLE)),),
    MeanOverTime: lambda: (_frames(),),
    MaskedAttention: lambda: (_frames(), torch.ones(1, EXAMPLE, dtype=torch.bool)),
    MaskedMean: lambda: (_frames(), torch.ones(1, EXAMPLE, dtype=torch.int64)),
    WideRange: lambda: (torch.rand(2, CHANNELS) * 3,),
    Batches: lambda: (torch.randn(2, CHANNELS),),
    Images: lambda: (torch.randn(1, 3, EXAMPLE, EXAMPLE),),
    Pairs: lambda: (_frames(), _frames()),
}
SHAPES: dict[type[nn.Module], Callable[[], Any]] = {
    Positions: lambda: ({1: _length()},),
    MeanOverTime: lambda: ({1: _length()},),
    Batches: lambda: ({0: Dim("batch", min=2, max=8)},),
    Images: lambda: ({2: _length(40)},),
    Pairs: lambda: ({1: (length := _length())}, {1: length}),
}
"""Of those with dynamic dimensions."""
SAMPLES: dict[type[nn.Module], Callable[[], list[tuple[torch.Tensor, ...]]]] = {
    WideRange: lambda: [(4 * torch.randn(2, CHANNELS),) for _ in range(3)],
}
"""For calibration, of those with some."""
